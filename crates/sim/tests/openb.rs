//! The placement benchmark on a small cluster of its own: what is refused could not be placed, nothing is given out
//! twice, a run repeats itself, and prices are what arithmetic says they should be.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use wharf_controller::market::{Pricer, Summary};
use wharf_engine::decide::input::Input;
use wharf_engine::model::job::{GpuAsk, Shape, Spec};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode, Report};
use wharf_engine::model::policy::{GpuQuota, Policy as Rules, Quota, Tenant};
use wharf_engine::model::submission::Submission;
use wharf_engine::price::prices::{Prices, WORTH_MAX};
use wharf_engine::state::State;
use wharf_engine::units::{GpuUnits, Resources, Timestamp, Uid};
use wharf_sim::trace::openb::{Node, Pod, Policy, Trace, run};

/// Sixty nodes and pods of the shapes that make sharing hard.
fn trace() -> Trace {
    let node = |at: usize| {
        let (gpus, cpu_milli, model) =
            [(8, 96_000, "G2"), (2, 104_000, "T4"), (8, 96_000, "G2"), (4, 32_000, "V100")][at % 4];
        Node { name: format!("n{at}"), cpu_milli, memory_mib: 400_000, gpus, model: model.to_owned() }
    };
    let shapes = [
        (1, 470, 6000),
        (1, 810, 8000),
        (1, 1000, 12_000),
        (1, 320, 4000),
        (1, 1000, 8000),
        (8, 1000, 88_000),
        (0, 0, 3000),
        (1, 650, 10_000),
        (2, 1000, 16_000),
    ];
    let pod = |at: usize| {
        // A fixed scramble: the same pods on every machine.
        let drawn = (at * 7919 + at * at * 104_729) % 97;
        let (gpus, gpu_milli, cpu_milli) =
            shapes[if drawn == 5 { 5 } else { drawn % 5 + 4 * usize::from(drawn > 88) }];
        let models = if drawn.is_multiple_of(6) && gpus == 1 { vec!["T4".to_owned()] } else { Vec::new() };
        Pod { cpu_milli, memory_mib: 4000, gpus, gpu_milli, models }
    };
    Trace { nodes: (0..60).map(node).collect(), pods: (0..700).map(pod).collect() }
}

#[test]
fn what_fits_is_placed_and_a_run_repeats_itself() {
    let trace = trace();
    let order: Vec<usize> = (0..trace.pods.len()).collect();
    let again = |policy| run(&trace, &order, policy, |_| {});
    let wharf = again(Policy::Wharf);
    assert_eq!(wharf.tally.refused_feasible, 0, "what fits somewhere is placed");
    assert!(wharf.tally.first_refusal_pct.is_some(), "the cluster is filled to the end");
    assert_eq!(wharf.hash, again(Policy::Wharf).hash, "the same arrivals lead to the same places");
    let at_100 = |outcome: &wharf_sim::trace::openb::Outcome| outcome.tally.alloc_at(100).unwrap();
    for policy in [Policy::FirstFit, Policy::BestFit, Policy::Packing, Policy::Fgd] {
        let other = again(policy);
        assert_eq!(other.tally.refused_feasible, 0, "{policy:?} refuses only what does not fit");
        assert!(
            at_100(&wharf) + 0.5 >= at_100(&other),
            "{policy:?} gives out {:.2} %, wharf {:.2} %",
            at_100(&other),
            at_100(&wharf)
        );
    }
}

/// A fleet of 40 nodes on which such shapes came, in equal numbers.
fn state(shapes: &[(GpuAsk, u64)], rounds: u32) -> State {
    let mut state = State::default();
    let now = Timestamp(1000);
    let mut give = |input: &Input| {
        let decision = state.decide(input, now).unwrap();
        state.apply_all(&decision.events);
    };
    let tenant = Tenant { gpus: GpuQuota::Any(Quota::UNMETERED), ..Tenant::without_lines("all") };
    give(&Input::ApplyPolicy(Rules { digest: "all".into(), tenants: vec![tenant], ..Rules::default() }));
    let node = |at: u32| ObservedNode {
        name: format!("n{at}"),
        up: true,
        model: "h100".into(),
        gpus: vec![ObservedGpu { island: at, healthy: true, ..ObservedGpu::default() }; 8],
        capacity: Resources { cpu_milli: 128_000, memory: 1 << 40, ..Resources::default() },
        ..ObservedNode::default()
    };
    give(&Input::Observe(Report {
        world: 1,
        generation: 1,
        nodes: (0..40).map(node).collect(),
        ..Report::default()
    }));
    give(&Input::Prices(Prices::default()));
    let all = (0..rounds).flat_map(|_| shapes);
    for (number, &(gpus, cpu_milli)) in (1u128..).zip(all) {
        let resources = Resources { cpu_milli, memory: 1, ..Resources::default() };
        let spec = Spec::of(format!("j{number}"), Shape::of(gpus, resources));
        let (uid, tenant) = (Uid(number), "all".to_owned());
        let (trust, nodes, devices) = (None, String::new(), String::new());
        give(&Input::Submit(Box::new(Submission {
            trust,
            nodes,
            devices,
            ..Submission::of(uid, tenant, spec)
        })));
    }
    state
}

#[test]
fn prices_are_what_arithmetic_says() {
    let share = |milli: u64| GpuAsk::Share(GpuUnits::from_parts(milli * 3));
    let state = state(&[(share(470), 4000), (GpuAsk::Whole(1), 8000), (share(810), 8000)], 100);
    let mut market = Pricer::default();
    let mut prices = Prices::default();
    for _ in 0..6 {
        prices = market.solve(&Summary::of(&state));
    }
    assert!(
        state.decide(&Input::Prices(prices.clone()), Timestamp(1000)).is_ok(),
        "they are within their bounds"
    );
    let worth = |milli: u64| {
        let size = GpuUnits::from_parts(milli * 3);
        let piece = prices.pieces.iter().find(|piece| piece.size == size).unwrap();
        assert!(piece.worth <= WORTH_MAX);
        f64::from(piece.worth) / 1e6
    };
    // Two of 470 fill a GPU, and so does one of 810, beside which nothing fits. Only ratios mean anything.
    let (half, most) = (worth(470) / worth(1000), worth(810) / worth(1000));
    assert!((half - 0.5).abs() < 0.04, "470 is worth {half:.3} of a GPU");
    assert!((most - 1.0).abs() < 0.08, "810 is worth {most:.3} of a GPU");
}

#[test]
fn prices_of_pools_that_are_not_there_are_refused() {
    let state = state(&[(GpuAsk::Whole(1), 1000)], 1);
    let mut prices = Pricer::default().solve(&Summary::of(&state));
    prices.pieces[0].pools = vec![wharf_engine::units::PoolId(9)];
    assert!(state.decide(&Input::Prices(prices), Timestamp(1000)).is_err());
}
