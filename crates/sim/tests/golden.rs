//! The golden journal: every kind of event as it was once written, replayed by the program of today.
//!
//! A journal outlives the program that wrote it. The files in `golden/` are never written again; when the encoding
//! changes, a new pair is added beside them (`WHARF_GOLDEN=1` writes the pair of the present version if it is absent).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "golden/actors.rs"]
mod actors;
#[path = "golden/bookings.rs"]
mod bookings;
#[path = "golden/groups.rs"]
mod groups;
#[path = "golden/play.rs"]
mod play;
#[path = "golden/stories.rs"]
mod stories;

use std::collections::BTreeSet;
use std::path::PathBuf;

use wharf_controller::codec::{self, EVENT_VERSION, RECORD_VERSION, Recorded};
use wharf_controller::disk::Record;
use wharf_controller::selectors::{DeviceSelector, NodeSelector};
use wharf_controller::world::NodeReport;
use wharf_engine::decide::input::{Extension, Input};
use wharf_engine::device::catalogue::mig::ProfileName;
use wharf_engine::model::job::{
    Alternative, Checkpoint, Class, GpuAsk, Least, Service, Shape, Spec, Topology,
};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::model::policy::{Amount, GpuQuota, Mode, Order, OrderRules, Policy, Quota, Tenant};
use wharf_engine::model::submission::Submission;
use wharf_engine::price::prices::{Block, Piece, Prices};
use wharf_engine::state::State;
use wharf_engine::state::attained::AttainedEvent;
use wharf_engine::state::bookings::BookingsEvent;
use wharf_engine::state::demand::DemandEvent;
use wharf_engine::state::earmarks::EarmarksEvent;
use wharf_engine::state::event::Event;
use wharf_engine::state::fleet::FleetEvent;
use wharf_engine::state::jobs::event::JobsEvent;
use wharf_engine::state::ledger::event::LedgerEvent;
use wharf_engine::state::maintenance::MaintenanceEvent;
use wharf_engine::state::owned::OwnedEvent;
use wharf_engine::state::past_use::PastUseEvent;
use wharf_engine::state::reservations::ReservationsEvent;
use wharf_engine::state::tenants::TenantsEvent;
use wharf_engine::units::{DeviceSetId, GpuUnits, Millis, NodeId, PoolId, Resources, Uid};

use play::Play;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[test]
fn a_journal_of_every_version_still_means_the_same() {
    write_if_asked();
    for (version, name) in JOURNALS {
        let text = std::fs::read_to_string(golden(&format!("{name}.jsonl"))).unwrap();
        let hash = std::fs::read_to_string(golden(&format!("{name}.hash"))).unwrap();
        let mut state = State::default();
        for (index, line) in text.lines().enumerate() {
            let Recorded { actor, event } = recorded(*version, line);
            assert_eq!(actor.is_some(), *version >= RECORD_VERSION, "{name} index {index}");
            state.apply(&event);
        }
        assert_eq!(codec::hex(&codec::state_hash(&state)), hash.trim(), "{name}");
        assert_eq!(state.check_deep(), [], "{name}");
    }
}

/// Every golden journal with its encoding. Kinds of events that came later have a journal of their own.
const JOURNALS: &[(u16, &str)] = &[
    (1, "journal-v1"),
    (1, "journal-v1-rules"),
    (1, "journal-v1-devices"),
    (1, "journal-v1-reservations"),
    (1, "journal-v1-order"),
    (1, "journal-v1-time"),
    (1, "journal-v1-services"),
    (1, "journal-v1-bookings"),
    (1, "journal-v1-groups"),
    (1, "journal-v1-past"),
    (1, "journal-v1-replace"),
    (1, "journal-v1-restore"),
    (1, "journal-v1-maintenance"),
    (1, "journal-v1-chains"),
    (2, "journal-v2-actors"),
    (1, "journal-v1-refused"),
    (1, "journal-v1-owned"),
];

#[test]
fn the_golden_journal_has_every_kind_of_event() {
    let of_version = JOURNALS.iter().filter(|(version, _)| *version == EVENT_VERSION);
    let text: String = of_version
        .map(|(_, name)| std::fs::read_to_string(golden(&format!("{name}.jsonl"))).unwrap())
        .collect();
    let kinds = |event: &Event| kind(event).to_owned();
    let seen: BTreeSet<String> =
        text.lines().map(|line| kinds(&serde_json::from_str::<Event>(line).unwrap())).collect();
    for kind in KINDS {
        assert!(seen.contains(*kind), "no {kind} in the golden journal; seen: {seen:?}");
    }
    assert_eq!(seen.len(), KINDS.len());
}

const KINDS: &[&str] = &[
    "PoolNamed",
    "LevelNamed",
    "NodeSeen",
    "NodeRemoved",
    "Cordoned",
    "NodeSetDefined",
    "DeviceSetDefined",
    "WorldSeen",
    "TenantNamed",
    "TrustNamed",
    "PolicyApplied",
    "Queued",
    "Leaving",
    "Requeued",
    "Ended",
    "JobsCarried",
    "CarriedJob",
    "CarriedEnded",
    "Started",
    "Running",
    "Asked",
    "Acked",
    "AskFailed",
    "Stopping",
    "Gone",
    "OrphanSeen",
    "OrphanGone",
    "LedgerCarried",
    "Stays",
    "Grown",
    "Broken",
    "Evicted",
    "Withdrawn",
    "Shed",
    "Promised",
    "Released",
    "Priced",
    "DemandCarried",
    "Reserved",
    "ReservationDropped",
    "ReservationsCarried",
    "AttainedCarriedJob",
    "AttainedCarriedFinished",
    "Extended",
    "Scaled",
    "ReplicaFailed",
    "Booked",
    "BookingPlaced",
    "BookingPlacesLost",
    "BookingBegan",
    "BookingEnded",
    "BookingsCarried",
    "CarriedBooking",
    "Stepped",
    "PastCarried",
    "Rolled",
    "Held",
    "JobReleased",
    "Draining",
    "DowntimePlanned",
    "DowntimeBegan",
    "DowntimeEnded",
    "StartRefused",
    "RefusalsForgotten",
    "LeaveRefused",
    "Changed",
    "OwnedClaimed",
    "OwnedNoted",
    "OwnedSettled",
    "OwnedGone",
];

/// A new variant does not compile until it has a name here, and then the test above asks for it.
fn kind(event: &Event) -> &'static str {
    match event {
        Event::Ledger(event) => kind_of_ledger(event),
        Event::Fleet(FleetEvent::PoolNamed { .. }) => "PoolNamed",
        Event::Fleet(FleetEvent::LevelNamed { .. }) => "LevelNamed",
        Event::Fleet(FleetEvent::NodeSeen { .. }) => "NodeSeen",
        Event::Fleet(FleetEvent::NodeRemoved { .. }) => "NodeRemoved",
        Event::Fleet(FleetEvent::Cordoned { .. }) => "Cordoned",
        Event::Fleet(FleetEvent::NodeSetDefined { .. }) => "NodeSetDefined",
        Event::Fleet(FleetEvent::DeviceSetDefined { .. }) => "DeviceSetDefined",
        Event::Fleet(FleetEvent::WorldSeen { .. }) => "WorldSeen",
        Event::Tenants(TenantsEvent::TenantNamed { .. }) => "TenantNamed",
        Event::Tenants(TenantsEvent::TrustNamed { .. }) => "TrustNamed",
        Event::Tenants(TenantsEvent::PolicyApplied { .. }) => "PolicyApplied",
        Event::Jobs(JobsEvent::Queued { .. }) => "Queued",
        Event::Jobs(JobsEvent::Leaving { .. }) => "Leaving",
        Event::Jobs(JobsEvent::Requeued { .. }) => "Requeued",
        Event::Jobs(JobsEvent::Ended { .. }) => "Ended",
        Event::Jobs(JobsEvent::Carried { .. }) => "JobsCarried",
        Event::Jobs(JobsEvent::CarriedJob { .. }) => "CarriedJob",
        Event::Jobs(JobsEvent::CarriedEnded { .. }) => "CarriedEnded",
        Event::Owned(OwnedEvent::Claimed { .. }) => "OwnedClaimed",
        Event::Owned(OwnedEvent::Noted { .. }) => "OwnedNoted",
        Event::Owned(OwnedEvent::Withdrawn { .. }) => "OwnedSettled",
        Event::Owned(OwnedEvent::Gone { .. }) => "OwnedGone",
        Event::Jobs(JobsEvent::Changed { .. }) => "Changed",
        Event::Jobs(JobsEvent::StartRefused { .. }) => "StartRefused",
        Event::Jobs(JobsEvent::RefusalsForgotten { .. }) => "RefusalsForgotten",
        Event::Jobs(JobsEvent::Stays { .. }) => "Stays",
        Event::Earmarks(EarmarksEvent::Earmarked { .. }) => "Promised",
        Event::Earmarks(EarmarksEvent::Released { .. }) => "Released",
        Event::Demand(DemandEvent::Priced { .. }) => "Priced",
        Event::Demand(DemandEvent::Carried { .. }) => "DemandCarried",
        Event::Bookings(BookingsEvent::Booked { .. }) => "Booked",
        Event::Bookings(BookingsEvent::Placed { .. }) => "BookingPlaced",
        Event::Bookings(BookingsEvent::PlacesLost { .. }) => "BookingPlacesLost",
        Event::Bookings(BookingsEvent::Began { .. }) => "BookingBegan",
        Event::Bookings(BookingsEvent::Ended { .. }) => "BookingEnded",
        Event::Bookings(BookingsEvent::Carried { .. }) => "BookingsCarried",
        Event::Bookings(BookingsEvent::CarriedBooking { .. }) => "CarriedBooking",
        Event::Reservations(ReservationsEvent::Reserved { .. }) => "Reserved",
        Event::Reservations(ReservationsEvent::Dropped { .. }) => "ReservationDropped",
        Event::Reservations(ReservationsEvent::Carried { .. }) => "ReservationsCarried",
        Event::Attained(AttainedEvent::CarriedJob { .. }) => "AttainedCarriedJob",
        Event::Attained(AttainedEvent::CarriedFinished { .. }) => "AttainedCarriedFinished",
        Event::Jobs(JobsEvent::Extended { .. }) => "Extended",
        Event::Jobs(JobsEvent::Scaled { .. }) => "Scaled",
        Event::Jobs(JobsEvent::ReplicaFailed { .. }) => "ReplicaFailed",
        Event::Past(PastUseEvent::Stepped { .. }) => "Stepped",
        Event::Past(PastUseEvent::Carried { .. }) => "PastCarried",
        Event::Jobs(JobsEvent::Rolled { .. }) => "Rolled",
        Event::Jobs(JobsEvent::Held { .. }) => "Held",
        Event::Jobs(JobsEvent::Released { .. }) => "JobReleased",
        Event::Fleet(FleetEvent::Draining { .. }) => "Draining",
        Event::Maintenance(MaintenanceEvent::Planned { .. }) => "DowntimePlanned",
        Event::Maintenance(MaintenanceEvent::Began { .. }) => "DowntimeBegan",
        Event::Maintenance(MaintenanceEvent::Ended { .. }) => "DowntimeEnded",
    }
}

fn kind_of_ledger(event: &LedgerEvent) -> &'static str {
    match event {
        LedgerEvent::LeaveRefused { .. } => "LeaveRefused",
        LedgerEvent::Started { .. } => "Started",
        LedgerEvent::Running { .. } => "Running",
        LedgerEvent::Asked { .. } => "Asked",
        LedgerEvent::Acked { .. } => "Acked",
        LedgerEvent::AskFailed { .. } => "AskFailed",
        LedgerEvent::Stopping { .. } => "Stopping",
        LedgerEvent::Gone { .. } => "Gone",
        LedgerEvent::OrphanSeen { .. } => "OrphanSeen",
        LedgerEvent::OrphanGone { .. } => "OrphanGone",
        LedgerEvent::Carried { .. } => "LedgerCarried",
        LedgerEvent::Grown { .. } => "Grown",
        LedgerEvent::Broken { .. } => "Broken",
        LedgerEvent::Evicted { .. } => "Evicted",
        LedgerEvent::Withdrawn { .. } => "Withdrawn",
        LedgerEvent::Shed { .. } => "Shed",
    }
}

fn write_if_asked() {
    write_story(&format!("journal-v{EVENT_VERSION}"), story);
    write_story(&format!("journal-v{EVENT_VERSION}-rules"), story_of_the_rules);
    write_story(&format!("journal-v{EVENT_VERSION}-devices"), story_of_devices);
    write_story(&format!("journal-v{EVENT_VERSION}-reservations"), story_of_reservations);
    write_story(&format!("journal-v{EVENT_VERSION}-order"), story_of_an_order);
    write_story(&format!("journal-v{EVENT_VERSION}-time"), story_of_time);
    write_story(&format!("journal-v{EVENT_VERSION}-services"), story_of_services);
    write_story(&format!("journal-v{EVENT_VERSION}-bookings"), bookings::story);
    write_story(&format!("journal-v{EVENT_VERSION}-groups"), groups::story);
    write_story(&format!("journal-v{EVENT_VERSION}-past"), stories::of_the_past);
    write_story(&format!("journal-v{EVENT_VERSION}-replace"), stories::of_a_replacement);
    write_story(&format!("journal-v{EVENT_VERSION}-restore"), stories::of_a_restore);
    write_story(&format!("journal-v{EVENT_VERSION}-maintenance"), stories::of_maintenance);
    write_story(&format!("journal-v{EVENT_VERSION}-chains"), stories::of_chains);
    write_story(&format!("journal-v{EVENT_VERSION}-refused"), stories::of_refusals);
    write_story(&format!("journal-v{EVENT_VERSION}-owned"), stories::of_owned_jobs);
    write_records(&format!("journal-v{RECORD_VERSION}-actors"), actors::story);
}

fn is_to_be_written(name: &str) -> bool {
    std::env::var_os("WHARF_GOLDEN").is_some() && !golden(&format!("{name}.jsonl")).exists()
}

fn write_story(name: &str, story: fn() -> Vec<Event>) {
    if is_to_be_written(name) {
        let events = story();
        let lines: Vec<String> = events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
        write_pair(name, &lines, &events);
    }
}

/// A journal of whole records, with who did what.
fn write_records(name: &str, story: fn() -> Vec<String>) {
    if is_to_be_written(name) {
        let lines = story();
        let events: Vec<Event> = lines.iter().map(|line| recorded(RECORD_VERSION, line).event).collect();
        write_pair(name, &lines, &events);
    }
}

fn write_pair(name: &str, lines: &[String], events: &[Event]) {
    std::fs::write(golden(&format!("{name}.jsonl")), lines.join("\n") + "\n").unwrap();
    let hash = codec::hex(&codec::state_hash(&State::resume(events, 0)));
    std::fs::write(golden(&format!("{name}.hash")), hash + "\n").unwrap();
}

fn recorded(version: u16, line: &str) -> Recorded {
    codec::decode_record(&Record { version, at: 0, body: line.as_bytes().to_vec() }, "golden").unwrap()
}

/// Somebody has to leave for a guarantee, may stay after all, shrinks, grows, is moved and is repaired.
fn story_of_the_rules() -> Vec<Event> {
    let mut play = Play::on(78, &["n1", "n2"], 1);
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":5000}"#;
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    // b borrows everything: an elastic job of four, and two of two that go whole.
    play.go(&[rules_job(1, "elastic", "org/b", (4, 2), forever)], 5);
    play.go(&[rules_job(6, "other", "org/b", (2, 2), forever)], 5);
    play.go(&[rules_job(2, "whole", "org/b", (2, 2), forever)], 300);
    // It has to leave, and may stay: who wanted its place is gone.
    let jobs = play.go(&[rules_job(3, "regrets", "org/a", (4, 4), forever)], 1);
    play.go(&[Input::Cancel { job: jobs["regrets"] }], 10);
    // Its place is cordoned before it can start; then it starts elsewhere or waits.
    let jobs = play.go(&[rules_job(4, "owner", "org/a", (1, 1), forever)], 1);
    play.go(
        &[
            Input::Cordon { node: "n1".into(), on: true, reason: String::new() },
            Input::Cordon { node: "n2".into(), on: true, reason: String::new() },
        ],
        1,
    );
    play.go(
        &[
            Input::Cordon { node: "n1".into(), on: false, reason: String::new() },
            Input::Cordon { node: "n2".into(), on: false, reason: String::new() },
        ],
        60,
    );
    play.go(&[Input::Cancel { job: jobs["owner"] }], 60);
    play.go(&[rules_job(5, "gang", "org/a", (4, 4), forever)], 60);
    play.world.with(|fleet| fleet.fail_node("n1", false));
    play.go(&[], 5);
    play.world.with(|fleet| fleet.heal_node("n1"));
    play.go(&[], 30);
    play.written()
}

/// Who was served for long leaves for who was not; a snapshot in the middle knows how long each was served, and how long
/// those took that are over.
fn story_of_an_order() -> Vec<Event> {
    let mut play = Play::on(80, &["n1", "n2"], 1);
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":5000}"#;
    let short = r#"{"duration_ms":60000,"checkpoint_ms":5000}"#;
    play.go(&[Input::ApplyPolicy(order_policy())], 1);
    play.go(&[rules_job(1, "old", "org/a", (8, 8), forever)], 400);
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
fn story_of_devices() -> Vec<Event> {
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
    let Input::Submit(mut choosy) = device_job(6, "choosy", slice("7g.80gb"), None) else {
        unreachable!("a job is submitted")
    };
    choosy.spec.class = Class::Interactive;
    choosy.spec.shape.time_slicing = true;
    choosy.spec.shape.any_of = vec![Alternative { gpus: share(1500), devices: DeviceSetId(0) }];
    choosy.any_of_devices = vec![String::new()];
    play.go(&[Input::Submit(choosy), device_job(7, "four", GpuAsk::Whole(4), None)], 10);
    let changed = Prices { blocks: Vec::new(), ..prices() };
    play.go(&[Input::Prices(changed), device_job(8, "last", GpuAsk::Whole(1), None)], 3700);
    play.written()
}

/// A gang is promised a start, loses a node of it and is promised another; a snapshot in the middle.
fn story_of_reservations() -> Vec<Event> {
    let mut play = Play::on(80, &["n1", "n2", "n3"], 0);
    let four = |number: u128, name: &str, tasks: u32, minutes: u64| {
        let payload = format!(r#"{{"duration_ms":{}}}"#, minutes * 60_000);
        let Input::Submit(mut submission) = rules_job(number, name, "org/a", (tasks, tasks), &payload) else {
            unreachable!("a job is submitted")
        };
        submission.spec.shape.gpus = GpuAsk::Whole(4);
        submission.spec.topology = Topology::default();
        submission.gang_within = None;
        submission.spec.time_limit = Some(Millis::from_secs(minutes * 60));
        Input::Submit(submission)
    };
    let mut policy = rules_policy();
    (policy.digest, policy.reservations_max) = ("golden reservations".into(), 4);
    play.go(&[Input::ApplyPolicy(policy)], 1);
    play.go(&[four(1, "a", 1, 30), four(2, "b", 1, 60), four(3, "c", 1, 90)], 10);
    play.go(&[four(4, "gang", 2, 30)], 60);
    play.go(&[Input::Cordon { node: "n2".into(), on: true, reason: String::new() }], 1);
    play.go(&[], 1);
    play.snapshot();
    play.go(&[Input::Cordon { node: "n1".into(), on: true, reason: String::new() }], 1);
    play.go(
        &["n1", "n2"].map(|node| Input::Cordon { node: node.into(), on: false, reason: String::new() }),
        8000,
    );
    play.written()
}

/// Jobs that run into their limits, one by a default of the policy; one is extended in time, one after it was asked.
fn story_of_time() -> Vec<Event> {
    let mut play = Play::on(80, &["n1", "n2"], 1);
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":20000}"#;
    let limited = |uid, name: &str, limit_s: Option<u64>| {
        let Input::Submit(mut job) = rules_job(uid, name, "org/b", (1, 1), forever) else {
            unreachable!("a job is submitted")
        };
        job.spec.time_limit = limit_s.map(Millis::from_secs);
        Input::Submit(job)
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
fn story_of_services() -> Vec<Event> {
    let mut play = Play::on(81, &["n1", "n2"], 1);
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":5000}"#;
    let service = |uid, name: &str, payload: &str| {
        let Input::Submit(mut job) = rules_job(uid, name, "org/a", (1, 1), payload) else {
            unreachable!("a job is submitted")
        };
        job.spec.class = Class::Inference;
        job.spec.service = Some(Service { max: 4, replicas: 1 });
        Input::Submit(job)
    };
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    let jobs = play.go(&[service(1, "serves", forever)], 5);
    play.go(&[rules_job(2, "borrows", "org/b", (7, 1), forever)], 60);
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
    policy.with_domain_of_all("vendor")
}

fn device_job(number: u128, name: &str, gpus: GpuAsk, trust: Option<&str>) -> Input {
    let Input::Submit(mut submission) = job(number, name, r#"{"duration_ms":3600000}"#) else {
        unreachable!("a job is submitted")
    };
    submission.tenant = "org/a".into();
    submission.trust = trust.map(str::to_owned);
    submission.spec.shape.gpus = gpus;
    submission.spec.topology = Topology::default();
    submission.gang_within = None;
    Input::Submit(submission)
}

fn rules_policy() -> Policy {
    let tenant = |path: &str, gpus: u64| Tenant {
        gpus: GpuQuota::Any(Quota { guaranteed: Amount::Of(gpus * 3000), limit: Amount::Unlimited }),
        ..Tenant::without_lines(path)
    };
    let tenants = vec![tenant("org", 8), tenant("org/a", 4), tenant("org/b", 4)];
    let policy = Policy { digest: "golden rules".into(), tenants, ..Policy::default() };
    policy.with_domain_of_all("golden")
}

fn rules_job(number: u128, name: &str, tenant: &str, (tasks, min): (u32, u32), payload: &str) -> Input {
    let Input::Submit(mut submission) = job(number, name, payload) else {
        unreachable!("a job is submitted")
    };
    submission.tenant = tenant.into();
    submission.spec.tasks = tasks;
    submission.spec.min = min;
    Input::Submit(submission)
}

/// A snapshot of a first life, then a second life in which everything happens.
fn story() -> Vec<Event> {
    let mut play = Play::on(77, &["n1", "n2"], 0);
    play.go(&[Input::ApplyPolicy(policy())], 1);
    play.go(&[job(1, "fails", r#"{"duration_ms":60000,"fail_after_ms":2000}"#)], 3);
    play.go(&[job(6, "early", r#"{"duration_ms":1000}"#)], 5);
    play.go(&[job(2, "stays", r#"{"duration_ms":3600000}"#)], 30);
    play.go(&[Input::Cordon { node: "n2".into(), on: true, reason: String::new() }], 1);
    play.snapshot();
    let jobs = play.go(&[Input::Cordon { node: "n2".into(), on: false, reason: String::new() }], 1);
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

fn node(name: &str) -> NodeReport {
    let gpu =
        ObservedGpu { island: 1, numa: 1, pcie_root: 2, rail: 3, healthy: true, ..ObservedGpu::default() };
    let node = ObservedNode {
        name: name.into(),
        up: true,
        model: "h100".into(),
        gpus: vec![gpu; 4],
        capacity: Resources { cpu_milli: 64_000, memory: 1 << 40, storage: 1 << 40, pods: 100, nics: 8 },
        others: Resources { cpu_milli: 1000, ..Resources::default() },
        domains: vec![("leaf".into(), 3)],
        ..ObservedNode::default()
    };
    NodeReport { node, labels: [("zone".to_owned(), "a".to_owned())].into(), taints: Vec::new() }
}

fn policy() -> Policy {
    let quota = Quota { guaranteed: Amount::Of(6000), limit: Amount::Of(24_000) };
    let tenant = |path: &str| Tenant {
        path: path.into(),
        gpus: GpuQuota::PerPool(vec![("h100".into(), quota)]),
        cpu: Quota::UNMETERED,
        memory: Quota { guaranteed: Amount::Of(0), limit: Amount::Of(1 << 40) },
        weight: 2,
        priority: 1,
    };
    let tenants = ["org", "org/team"].map(tenant).into();
    let policy = Policy {
        digest: "golden".into(),
        tenants,
        normal_milli: vec![("h100".into(), 2000)],
        ..Policy::default()
    };
    policy.with_domain_of_all("golden")
}

fn job(number: u128, name: &str, payload: &str) -> Input {
    let resources = Resources { cpu_milli: 1000, memory: 1 << 30, storage: 0, pods: 1, nics: 1 };
    let spec = Spec {
        priority: 3,
        tasks: 2,
        topology: Topology { task_on_island: true, gang_within: None },
        time_limit: Some(Millis::from_secs(86_400)),
        estimate: Some(Millis::from_secs(60)),
        checkpoint: Some(Checkpoint {
            every: Millis::from_secs(600),
            grace: Millis::from_secs(30),
            on_request: false,
        }),
        retries: 1,
        labels: vec![("experiment".into(), "e42".into())],
        payload: payload.into(),
        ..Spec::of(name, Shape::of(GpuAsk::Whole(1), resources))
    };
    let nodes = NodeSelector {
        labels: [("zone".to_owned(), vec!["a".to_owned()])].into(),
        ..NodeSelector::default()
    };
    let devices = DeviceSelector { models: vec!["h100".into()], memory_gb_min: Some(40) };
    Input::Submit(Box::new(Submission {
        trust: Some("golden".into()),
        nodes: nodes.source(),
        devices: devices.source(),
        gang_within: Some("leaf".into()),
        ..Submission::of(Uid(number), "org/team", spec)
    }))
}
