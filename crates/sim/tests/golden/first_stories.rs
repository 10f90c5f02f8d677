//! Stories of the first rules: each plays on a small fleet, most with a snapshot in the middle.

use wharf_engine::decide::input::{Extension, Input};
use wharf_engine::device::catalogue::mig::ProfileName;
use wharf_engine::model::job::{Alternative, Class, GpuAsk, Least, Service};
use wharf_engine::model::policy::{Mode, Order, OrderRules, Policy};
use wharf_engine::model::submission::Submission;
use wharf_engine::price::prices::{Block, Piece, Prices};
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::state::fleet::FleetEvent;
use wharf_engine::units::{DeviceSetId, GpuUnits, Millis, NodeId, PoolId};

use super::parts::{
    FOREVER, anywhere, cordon, job, policy, rules_job, rules_policy, rules_submission, submission, submit,
};
use super::play::Play;

/// A snapshot of a first life, then a second life in which everything happens.
pub(super) fn of_two_lives() -> Vec<Event> {
    let mut play = Play::on(77, &["n1", "n2"], 0);
    play.go(&[Input::ApplyPolicy(policy())], 1);
    play.go(&[job(1, "fails", r#"{"duration_ms":60000,"fail_after_ms":2000}"#)], 3);
    play.go(&[job(6, "early", r#"{"duration_ms":1000}"#)], 5);
    play.go(&[job(2, "stays", r#"{"duration_ms":3600000}"#)], 30);
    play.go(&[cordon("n2", true)], 1);
    play.snapshot();
    let jobs = play.go(&[cordon("n2", false)], 1);
    let evict = |job| Input::Evict { job };
    play.go(&[evict(jobs["stays"])], 10);
    let jobs = play.go(&[job(3, "cannot-save", r#"{"duration_ms":3600000,"checkpoint":"fail"}"#)], 2);
    play.go(&[evict(jobs["cannot-save"])], 60);
    play.go(&[job(4, "cancelled", r#"{"duration_ms":3600000}"#)], 1);
    let jobs = play.go(&[job(5, "short", r#"{"duration_ms":1000}"#)], 5);
    play.go(&[Input::Cancel { job: jobs["cancelled"] }], 1);
    for node in ["n1", "n2"] {
        play.world.with(|fleet| fleet.fail_node(node, false));
    }
    play.go(&[], 5);
    for node in ["n1", "n2"] {
        play.world.with(|fleet| fleet.heal_node(node));
    }
    play.go(&[], 5);
    play.go(&[], 5);
    let mut events = play.written();
    let state = State::resume(&events, 0);
    let node = state.fleet.next_node();
    let mut facts = state.fleet.node(NodeId(0)).unwrap().facts.clone();
    facts.name = "spare".into();
    events.push(Event::Fleet(FleetEvent::NodeSeen { node, facts }));
    events.push(Event::Fleet(FleetEvent::NodeRemoved { node }));
    events
}

/// Somebody has to leave for a guarantee, may stay after all, shrinks, grows, is moved and is repaired.
pub(super) fn of_the_rules() -> Vec<Event> {
    let mut play = Play::on(78, &["n1", "n2"], 1);
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    // b borrows everything: an elastic job of four, and two of two that go whole.
    play.go(&[rules_job(1, "elastic", "org/b", (4, 2), FOREVER)], 5);
    play.go(&[rules_job(6, "other", "org/b", (2, 2), FOREVER)], 5);
    play.go(&[rules_job(2, "whole", "org/b", (2, 2), FOREVER)], 300);
    // It has to leave, and may stay: who wanted its place is gone.
    let jobs = play.go(&[rules_job(3, "regrets", "org/a", (4, 4), FOREVER)], 1);
    play.go(&[Input::Cancel { job: jobs["regrets"] }], 10);
    // Its place is cordoned before it can start; then it starts elsewhere or waits.
    let jobs = play.go(&[rules_job(4, "owner", "org/a", (1, 1), FOREVER)], 1);
    play.go(&[cordon("n1", true), cordon("n2", true)], 1);
    play.go(&[cordon("n1", false), cordon("n2", false)], 60);
    play.go(&[Input::Cancel { job: jobs["owner"] }], 60);
    play.go(&[rules_job(5, "gang", "org/a", (4, 4), FOREVER)], 60);
    play.world.with(|fleet| fleet.fail_node("n1", false));
    play.go(&[], 5);
    play.world.with(|fleet| fleet.heal_node("n1"));
    play.go(&[], 30);
    play.written()
}

/// Who was served for long leaves for who was not; a snapshot in the middle knows how long each was served, and how long
/// those took that are over.
pub(super) fn of_an_order() -> Vec<Event> {
    let mut play = Play::on(80, &["n1", "n2"], 1);
    let short = r#"{"duration_ms":60000,"checkpoint_ms":5000}"#;
    play.go(&[Input::ApplyPolicy(order_policy())], 1);
    play.go(&[rules_job(1, "old", "org/a", (8, 8), FOREVER)], 400);
    play.go(&[rules_job(2, "new", "org/a", (2, 2), short)], 30);
    play.go(&[rules_job(3, "wide", "org/a", (8, 8), short)], 120);
    play.go(&[rules_job(4, "late", "org/a", (1, 1), short)], 400);
    play.snapshot();
    play.go(&[rules_job(5, "last", "org/a", (8, 8), short)], 400);
    play.written()
}

fn order_policy() -> Policy {
    let mut policy = rules_policy();
    policy.digest = "golden order".into();
    let rules = OrderRules {
        order: Order::Learned,
        levels: vec![Millis(60_000)],
        min_run: Millis(120_000),
        gang_over: 8,
        promote_after: Some(Millis(60_000)),
        label: Some("app".into()),
        ..OrderRules::default()
    };
    policy.orders.0[2] = rules;
    policy
}

/// Slices, shares that are met in every way, alternatives and prices; a snapshot in the middle.
pub(super) fn of_devices() -> Vec<Event> {
    let mut play = Play::on(79, &["n1", "n2"], 0);
    let share = |parts| GpuAsk::Share(GpuUnits::from_parts(parts));
    let least = |memory_mib, compute| GpuAsk::AtLeast(Least { memory_mib, compute, compute_of: 7 });
    let slice = |name| GpuAsk::Slice(ProfileName::parse(name).unwrap());
    play.go(&[Input::ApplyPolicy(sharing_policy())], 1);
    play.go(&[device_job(1, "before-prices", slice("3g.40gb"), None)], 5);
    play.go(&[Input::Prices(prices())], 1);
    play.go(
        &[device_job(2, "one", slice("1g.10gb+me"), None), device_job(3, "some", least(20_000, 2), None)],
        5,
    );
    play.go(
        &[device_job(4, "side", share(750), None), device_job(5, "apart", share(900), Some("vendor"))],
        5,
    );
    play.go(&[], 1);
    play.snapshot();
    let mut choosy = device_submission(6, "choosy", slice("7g.80gb"), None);
    choosy.spec.class = Class::Interactive;
    choosy.spec.shape.time_slicing = true;
    choosy.spec.shape.any_of = vec![Alternative { gpus: share(1500), devices: DeviceSetId(0) }];
    choosy.any_of_devices = vec![String::new()];
    play.go(&[submit(choosy), device_job(7, "four", GpuAsk::Whole(4), None)], 10);
    let changed = Prices { blocks: Vec::new(), ..prices() };
    play.go(&[Input::Prices(changed), device_job(8, "last", GpuAsk::Whole(1), None)], 3700);
    play.written()
}

/// A gang is promised a start, loses a node of it and is promised another; a snapshot in the middle.
pub(super) fn of_reservations() -> Vec<Event> {
    let mut play = Play::on(80, &["n1", "n2", "n3"], 0);
    let four = |number: u128, name: &str, tasks: u32, minutes: u64| {
        let payload = format!(r#"{{"duration_ms":{}}}"#, minutes * 60_000);
        let mut job = rules_submission(number, name, "org/a", (tasks, tasks), &payload);
        anywhere(&mut job);
        job.spec.shape.gpus = GpuAsk::Whole(4);
        job.spec.time_limit = Some(Millis::from_secs(minutes * 60));
        submit(job)
    };
    let mut policy = rules_policy();
    (policy.digest, policy.reservations_max) = ("golden reservations".into(), 4);
    play.go(&[Input::ApplyPolicy(policy)], 1);
    play.go(&[four(1, "a", 1, 30), four(2, "b", 1, 60), four(3, "c", 1, 90)], 10);
    play.go(&[four(4, "gang", 2, 30)], 60);
    play.go(&[cordon("n2", true)], 1);
    play.go(&[], 1);
    play.snapshot();
    play.go(&[cordon("n1", true)], 1);
    play.go(&["n1", "n2"].map(|node| cordon(node, false)), 8000);
    play.written()
}

/// Jobs that run into their limits, one by a default of the policy; one is extended in time, one after it was asked.
pub(super) fn of_time() -> Vec<Event> {
    let mut play = Play::on(80, &["n1", "n2"], 1);
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":20000}"#;
    let limited = |uid, name: &str, limit_s: Option<u64>| {
        let mut job = rules_submission(uid, name, "org/b", (1, 1), forever);
        job.spec.time_limit = limit_s.map(Millis::from_secs);
        submit(job)
    };
    let mut policy = rules_policy();
    policy.limits.max = [None, None, Some(Millis::from_secs(3600))];
    policy.limits.default = [None, None, Some(Millis::from_secs(100))];
    play.go(&[Input::ApplyPolicy(policy)], 1);
    let jobs = play.go(
        &[limited(1, "plain", None), limited(2, "longer", Some(200)), limited(3, "asked", Some(200))],
        150,
    );
    play.go(&[Input::Extend { job: jobs["longer"], to: Extension::By(Millis::from_secs(100)) }], 32);
    play.go(&[Input::Extend { job: jobs["asked"], to: Extension::To(Millis::from_secs(1000)) }], 10);
    play.go(&[Input::Evict { job: jobs["asked"] }], 150);
    play.written()
}

/// A service grows, takes from a borrower, shrinks, and loses a replica; replicas of another fail.
pub(super) fn of_services() -> Vec<Event> {
    let mut play = Play::on(81, &["n1", "n2"], 1);
    let service = |uid, name: &str, payload: &str| {
        let mut job = rules_submission(uid, name, "org/a", (1, 1), payload);
        job.spec.class = Class::Inference;
        job.spec.service = Some(Service { max: 4, replicas: 1 });
        submit(job)
    };
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    let jobs = play.go(&[service(1, "serves", FOREVER)], 5);
    play.go(&[rules_job(2, "borrows", "org/b", (7, 1), FOREVER)], 60);
    play.go(&[Input::Scale { job: jobs["serves"], tasks: 3 }], 60);
    play.go(&[Input::Scale { job: jobs["serves"], tasks: 2 }], 60);
    play.world.with(|fleet| fleet.fail_node("n1", false));
    play.go(&[], 5);
    play.world.with(|fleet| fleet.heal_node("n1"));
    play.go(&[], 30);
    let jobs = play.go(&[service(3, "fails", r#"{"duration_ms":360000000,"fail_after_ms":20000}"#)], 2);
    play.go(&[Input::Scale { job: jobs["fails"], tasks: 2 }], 120);
    play.written()
}

fn prices() -> Prices {
    let pools = || vec![PoolId(0)];
    let piece =
        |size, worth| Piece { size: GpuUnits::from_parts(size), pools: pools(), worth, cpu_milli: 1000 };
    Prices {
        pieces: vec![piece(3000, 1_000_000), piece(750, 240_000)],
        blocks: vec![Block { gpus: 4, cpu_milli: 1000, pools: pools(), worth: 20_000 }],
        core_prices: vec![0, 10, 100],
        memory_mib_per_core: 0,
    }
}

fn sharing_policy() -> Policy {
    let mut policy = rules_policy();
    policy.digest = "golden devices".into();
    policy.sharing.domains.push(("vendor".into(), vec![Mode::Mig, Mode::Whole]));
    policy.sharing.classes[0].tax_max = 150;
    wharf_sim::world::with_domain_of_all(policy, "vendor")
}

fn device_job(number: u128, name: &str, gpus: GpuAsk, trust: Option<&str>) -> Input {
    submit(device_submission(number, name, gpus, trust))
}

fn device_submission(number: u128, name: &str, gpus: GpuAsk, trust: Option<&str>) -> Submission {
    let mut job = submission(number, name, r#"{"duration_ms":3600000}"#);
    anywhere(&mut job);
    job.tenant = "org/a".into();
    job.trust = trust.map(str::to_owned);
    job.spec.shape.gpus = gpus;
    job
}
