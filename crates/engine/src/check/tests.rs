//! The check bites: each index of a state in which everything happens is corrupted, and found by its name.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::*;
use crate::decide::input::{BookingRequest, Input};
use crate::model::dependency::ArrayRequest;
use crate::model::group::Group;
use crate::model::job::{Checkpoint, Class, GpuAsk, Service, Shape, Spec};
use crate::model::observed::{ObservedGpu, ObservedNode, ObservedTask, Report, TaskRef, TaskStatus};
use crate::model::policy::{Quota, Tenant};
use crate::model::rejection::Rejection;
use crate::model::submission::Submission;
use crate::plan::{Memory, plan};
use crate::price::prices::{Piece, Prices};
use crate::state::bookings::Booker;
use crate::state::holding::Presence;
use crate::state::jobs::event::Next;
use crate::state::ledger::Step;
use crate::state::{Corruption, jobs, ledger, rooms};
use crate::units::{GpuUnits, Millis, Resources, Timestamp, TrustId, Uid};

const NOW: Timestamp = Timestamp(10_000_000);

struct Fixture {
    state: State,
    now: Timestamp,
    nodes: Vec<ObservedNode>,
    generation: u64,
}

impl Fixture {
    fn give(&mut self, input: &Input) {
        let decision = self.state.decide(input, self.now).expect("the fixture asks for what is possible");
        self.state.apply_all(&decision.events);
    }

    fn submit(&mut self, uid: u128, tenant: &str, spec: Spec) {
        self.give(&Input::Submit(Box::new(Submission::of(Uid(uid), tenant, spec))));
    }

    fn report(&mut self, tasks: Vec<ObservedTask>) {
        let since = (self.generation > 0).then_some(self.generation);
        self.generation += 1;
        let (generation, nodes) = (self.generation, self.nodes.clone());
        self.give(&Input::Observe(Report { world: 1, since, generation, nodes, tasks, ..Report::default() }));
    }

    /// One turn; what was given a place before it runs.
    fn turn(&mut self) {
        let mut running = Vec::new();
        for (id, holding) in self.state.ledger.holdings() {
            let uid = self.state.jobs.get(id).unwrap().uid;
            for held in holding.tasks.iter().filter(|held| held.phase == TaskPhase::Bound) {
                let Placement { task, node, gpus, units_each, slice, time_sliced, .. } = held.place;
                let task = TaskRef { uid, task, attempt: holding.attempt };
                let node = self.state.fleet.node(node).unwrap().facts.name.clone();
                let (since, status, job) = (Some(self.now), TaskStatus::Running, None);
                running.push(ObservedTask {
                    task,
                    node,
                    gpus,
                    units_each,
                    slice,
                    time_sliced,
                    since,
                    status,
                    job,
                });
            }
        }
        self.report(running);
        self.give(&Input::Tick);
        let made = plan(&self.state, self.state.tenants.policy(), &Memory::default(), self.now);
        let events = made.events(&self.state, self.now);
        self.state.apply_all(&events);
        assert_eq!(self.state.check_deep(), [], "the fixture is in order");
    }
}

fn batch(name: &str, gpus: GpuAsk) -> Spec {
    let resources = Resources { cpu_milli: 1000, memory: 1 << 30, pods: 1, ..Resources::default() };
    Spec::of(name, Shape::of(gpus, resources))
}

fn begin() -> Fixture {
    let node = |at: u32, gpus: usize| ObservedNode {
        name: alloc::format!("n{at}"),
        up: true,
        model: "h100".into(),
        gpus: vec![ObservedGpu { island: at, healthy: true, ..ObservedGpu::default() }; gpus],
        capacity: Resources { cpu_milli: 64_000, memory: 1 << 38, pods: 100, ..Resources::default() },
        ..ObservedNode::default()
    };
    let nodes = vec![node(0, 4), node(1, 4), node(2, 2), node(3, 4)];
    let mut fixture = Fixture { state: State::default(), now: NOW, nodes, generation: 0 };
    let tenant = |path: &str, gpus: u64| {
        let quota = Quota { guaranteed: Amount::Of(gpus * 3000), limit: Amount::Unlimited };
        Tenant { gpus: GpuQuota::Any(quota), ..Tenant::without_lines(path) }
    };
    fixture.give(&Input::ApplyPolicy(Policy {
        digest: "check".into(),
        tenants: vec![tenant("lab", 10), tenant("guest", 0)],
        reservations_max: 4,
        half_life: Some(Millis::from_secs(3600)),
        ..Policy::default()
    }));
    fixture.report(Vec::new());
    let pools: Vec<PoolId> = fixture.state.fleet.pool_ids().collect();
    let piece = |parts, worth| {
        let (size, pools) = (GpuUnits::from_parts(parts), pools.clone());
        Piece { size, pools, worth, cpu_milli: 500 }
    };
    let pieces = vec![piece(1500, 400_000), piece(3000, 900_000)];
    let (blocks, core_prices) = (Vec::new(), vec![0, 5, 50]);
    fixture.give(&Input::Prices(Prices { pieces, blocks, core_prices, memory_mib_per_core: 0 }));
    fixture
}

fn one(uid: u128, name: &str) -> Submission {
    Submission::of(Uid(uid), "lab", batch(name, GpuAsk::Whole(1)))
}

fn array(uid: u128, name: &str, indexes: Range<u32>) -> Input {
    let array =
        Some(ArrayRequest { at_most: indexes.len().min(2).try_into().unwrap(), indexes: indexes.collect() });
    Input::Submit(Box::new(Submission { array, ..one(uid, name) }))
}

#[test]
fn the_name_of_a_live_array_is_nobody_elses() {
    let mut fixture = begin();
    fixture.give(&array(1000, "sweep", 0..3));
    fixture.submit(2000, "lab", batch("alone", GpuAsk::Whole(1)));
    let refused = |input: &Input| fixture.state.decide(input, fixture.now).unwrap_err();
    let taken = Rejection::ArrayNameInUse { name: "sweep".into() };
    assert_eq!(refused(&array(3000, "sweep", 0..9)), taken);
    let job = Input::Submit(Box::new(one(4000, "sweep")));
    assert_eq!(refused(&job), taken);
    assert_eq!(refused(&array(3000, "alone", 0..9)), Rejection::NameInUse { job: JobId(3) });
    assert_eq!(refused(&array(3000, "sweep", 7..8)), taken, "though its members have other names");
    fixture.give(&Input::CancelArray { array: Uid(1000) });
    fixture.give(&job);
    assert_eq!(fixture.state.check(), [], "nothing is left of its name");
}

#[test]
fn an_array_is_cancelled_in_one_decision() {
    let mut fixture = begin();
    fixture.give(&array(1000, "sweep", 0..5));
    fixture.turn();
    fixture.turn();
    assert_eq!(fixture.state.ledger.holdings().count(), 2, "two of them run");
    fixture.give(&Input::CancelArray { array: Uid(1000) });
    let left = fixture.state.jobs.array(Uid(1000)).expect("two are still to stop");
    assert_eq!(left.members.iter().copied().collect::<Vec<_>>(), [JobId(0), JobId(1)]);
    let leaves =
        |job: &JobId| matches!(fixture.state.jobs.get(*job).unwrap().phase, Phase::Leaving(Next::End(_)));
    assert!(left.members.iter().all(leaves));
    let again = fixture.state.decide(&Input::CancelArray { array: Uid(1000) }, fixture.now);
    assert_eq!(again.unwrap_err(), Rejection::NothingToDo);
    assert_eq!(fixture.state.check(), []);
}

/// A state in which something runs, is asked to leave, leaves, waits, backs off, grows, has an earmark and is booked.
fn busy() -> State {
    let mut fixture = begin();
    let (every, grace) = (Millis::from_secs(600), Millis::from_secs(60));
    let checkpoint = Some(Checkpoint { every, grace, on_request: false });
    fixture.submit(1, "guest", Spec { checkpoint, ..batch("loan", GpuAsk::Whole(4)) });
    let time_limit = Some(Millis::from_secs(7200));
    fixture.submit(2, "guest", Spec { time_limit, ..batch("long", GpuAsk::Whole(4)) });
    fixture.submit(3, "lab", batch("part", GpuAsk::Share(GpuUnits::from_parts(1500))));
    fixture.submit(4, "lab", batch("over", GpuAsk::Whole(1)));
    fixture.turn();
    fixture.give(&Input::Cancel { job: JobId(3) });
    fixture.submit(5, "lab", Spec { tasks: 3, min: 1, ..batch("elastic", GpuAsk::Whole(1)) });
    let service = Some(Service { max: 2, replicas: 1 });
    fixture.submit(6, "lab", Spec { class: Class::Inference, service, ..batch("chat", GpuAsk::Whole(1)) });
    let shape = batch("", GpuAsk::Whole(1)).shape;
    let groups = vec![Group { name: "g".into(), tasks: 2, min: 1, copies: 1, min_copies: 1, shape }];
    fixture.submit(7, "lab", Spec { tasks: 0, min: 0, groups, ..batch("grouped", GpuAsk::Whole(0)) });
    fixture.now = fixture.now + Millis::from_secs(30);
    fixture.turn();
    // A borrower has to leave for this one.
    fixture.submit(8, "lab", batch("owner", GpuAsk::Whole(4)));
    fixture.submit(9, "guest", batch("wide", GpuAsk::Whole(4)));
    let (by, from) = (Booker::Operator, fixture.now + Millis::from_secs(36_000));
    let span = Millis::from_secs(3600);
    fixture.give(&Input::Book(Box::new(BookingRequest { job: one(20, "demo"), by, from, span })));
    let of_window = Submission { booking: Some("demo".into()), ..one(20, "later") };
    fixture.give(&Input::Submit(Box::new(of_window)));
    fixture.turn();
    fixture.submit(10, "lab", batch("given-up", GpuAsk::Whole(4)));
    let given_up = fixture.state.jobs.with_uid(Uid(10)).unwrap();
    fixture.give(&Input::Cancel { job: given_up });
    fixture.state
}

/// The corrupted indexes of a section that the check does not find.
fn missed<T>(
    state: &State,
    corruptions: Vec<Corruption<T>>,
    section: fn(&mut State) -> &mut T,
) -> impl Iterator<Item = &'static str> {
    corruptions.into_iter().filter_map(move |(index, corrupt)| {
        let mut broken = state.clone();
        corrupt(section(&mut broken));
        let is_found = broken.check().contains(&Finding::IndexWrong { index: index.into() });
        (!is_found).then_some(index)
    })
}

#[test]
fn a_corrupted_index_is_found_by_its_name() {
    let state = busy();
    let jobs = missed(&state, jobs::check::corruptions(), |state| &mut state.jobs);
    let ledger = missed(&state, ledger::check::corruptions(), |state| &mut state.ledger);
    let rooms = missed(&state, rooms::check::corruptions(), |state| state.ledger.rooms_mut());
    let missed: Vec<&str> = jobs.chain(ledger).chain(rooms).collect();
    assert_eq!(missed, Vec::<&str>::new(), "corrupted and not found");
}

#[test]
fn a_place_that_is_taken_twice_is_found() {
    let mut state = busy();
    let place = state.ledger.holdings().next().unwrap().1.tasks[0].place;
    let step = Step { place, resources: Resources::default(), trust: Some(TrustId(0)) };
    state.ledger.rooms_mut().shift(&step, Presence::Gone, Presence::Stays);
    let found = state.check();
    assert!(found.contains(&Finding::IndexWrong { index: "rooms".into() }), "{found:?}");
}
