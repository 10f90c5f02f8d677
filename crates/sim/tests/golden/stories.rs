//! Stories of what came after the first rules: each plays on a small fleet, with a snapshot in the middle.

use wharf_engine::decide::input::{DowntimeRequest, DrainRequest, Input, Replacement};
use wharf_engine::model::dependency::{After, ArrayRequest, Condition};
use wharf_engine::model::job::{Class, Service};
use wharf_engine::model::outcome::{Denial, Message};
use wharf_engine::state::event::Event;
use wharf_engine::state::fleet::Whom;
use wharf_engine::units::{Millis, Timestamp, Uid};

use super::parts::{FOREVER, cordon, rules_job, rules_policy, rules_submission, submit};
use super::play::Play;

/// One borrows what another leaves idle, and gets less of it when the other comes.
pub(super) fn of_the_past() -> Vec<Event> {
    let mut play = Play::on(82, &["n1", "n2"], 1);
    let mut policy = rules_policy();
    policy.digest = "golden past".into();
    policy.half_life = Some(Millis::from_secs(160));
    for tenant in &mut policy.tenants {
        tenant.gpus = wharf_engine::model::policy::GpuQuota::Any(wharf_engine::model::policy::Quota::NONE);
    }
    play.go(&[Input::ApplyPolicy(policy)], 1);
    play.go(&[rules_job(1, "hog", "org/b", (8, 1), FOREVER)], 180);
    play.snapshot();
    play.go(&[rules_job(2, "guest", "org/a", (8, 1), FOREVER)], 200);
    play.written()
}

/// Replicas make way for fresh ones, with one more for the time; a snapshot in the middle.
pub(super) fn of_a_replacement() -> Vec<Event> {
    let mut play = Play::on(83, &["n1", "n2"], 1);
    let mut service = rules_submission(1, "serves", "org/a", (3, 2), FOREVER);
    service.spec.class = Class::Inference;
    service.spec.service = Some(Service { max: 4, replicas: 3 });
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    let jobs = play.go(&[submit(service)], 10);
    let how = Some(Replacement { surge: 1, unavailable: 0 });
    play.go(&[Input::Replace { job: jobs["serves"], how }], 3);
    play.snapshot();
    play.go(&[Input::Scale { job: jobs["serves"], tasks: 2 }], 60);
    play.written()
}

/// An older journal is put back: one job has ended meanwhile, one is new, and of two that waited nobody knows.
pub(super) fn of_a_restore() -> Vec<Event> {
    let mut play = Play::on(84, &["n1", "n2"], 1);
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    play.go(&[rules_job(1, "runs", "org/a", (2, 2), FOREVER)], 5);
    play.go(&[rules_job(2, "ends", "org/a", (2, 2), r#"{"duration_ms":60000}"#)], 5);
    play.go(&[rules_job(3, "unknown", "org/b", (8, 8), FOREVER)], 5);
    play.go(&[rules_job(4, "unsure", "org/b", (7, 7), FOREVER)], 5);
    let copy = play.backup();
    play.go(&[], 100);
    play.go(&[rules_job(5, "new", "org/a", (1, 1), FOREVER)], 10);
    play.restore(&copy);
    let jobs = play.go(&[], 5);
    play.go(&[Input::Release { job: jobs["unknown"] }], 5);
    play.go(&[Input::Cancel { job: jobs["unsure"] }], 5);
    play.go(&[rules_job(6, "last", "org/b", (1, 1), FOREVER)], 5);
    play.written()
}

/// A node is drained and taken back, a second one is cordoned for a reason, and both are out of service for a while; a snapshot
/// while one drains and the downtime is to come.
pub(super) fn of_maintenance() -> Vec<Event> {
    let mut play = Play::on(85, &["n1", "n2"], 1);
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    play.go(
        &[rules_job(1, "stays", "org/a", (1, 1), FOREVER), rules_job(2, "moves", "org/b", (1, 1), FOREVER)],
        60,
    );
    let how = DrainRequest { within: Millis::from_secs(120), reason: "fan".into(), whom: Whom::Everything };
    let drain = |how: Option<DrainRequest>| Input::Drain { nodes: vec!["n1".into()], how };
    let closed = Input::Cordon { node: "n2".into(), on: true, reason: "firmware".into() };
    play.go(&[drain(Some(how.clone())), closed], 5);
    let downtime = DowntimeRequest {
        name: "firmware".into(),
        nodes: vec!["n1".into(), "n2".into()],
        from: Timestamp(play.now().0 + 300_000),
        span: Millis::from_secs(600),
        reason: "new firmware".into(),
        whom: Whom::Preemptible,
    };
    play.go(&[Input::PlanDowntime(Box::new(downtime))], 5);
    play.snapshot();
    play.go(&[cordon("n2", false)], 150);
    play.go(&[drain(None)], 10);
    play.go(&[drain(Some(DrainRequest { within: Millis::from_secs(60), ..how }))], 800);
    play.go(&[drain(None)], 60);
    play.written()
}

/// An array takes turns, one job waits for a success, one for any end, and one for a success that does not come; a snapshot
/// while all of them wait.
pub(super) fn of_chains() -> Vec<Event> {
    let short = r#"{"duration_ms":60000}"#;
    let mut play = Play::on(86, &["n1"], 1);
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    play.go(&[rules_job(1, "first", "org/a", (1, 1), short)], 2);
    play.go(&[rules_job(2, "fails", "org/a", (1, 1), r#"{"duration_ms":60000,"fail_after_ms":30000}"#)], 2);
    let after = |number: u128, name: &str, on: u128, when: Condition| {
        let mut job = rules_submission(number, name, "org/a", (1, 1), short);
        job.spec.submitted_by = "golden".into();
        job.after = vec![After { uid: Uid(on), when }];
        job
    };
    let mut sweep = after(5, "sweep", 1, Condition::Ok);
    sweep.array = Some(ArrayRequest { indexes: vec![0, 1, 4], at_most: 1 });
    let waiting = [after(3, "then", 2, Condition::Any), after(4, "never", 2, Condition::Ok), sweep];
    play.go(&waiting.map(submit), 2);
    play.snapshot();
    play.go(&[], 400);
    play.written()
}

/// A node refuses to start a job, which goes elsewhere; every node refuses it, and it is held; a stop is refused for a while.
pub(super) fn of_refusals() -> Vec<Event> {
    let mut play = Play::on(86, &["n1", "n2"], 1);
    let denied = || Denial::AdmissionDenied { message: Message::cut("not on a Friday") };
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    play.world.with(|fleet| fleet.refuse_starts("n1", denied(), None));
    let jobs = play.go(&[rules_job(1, "elsewhere", "org/a", (1, 1), FOREVER)], 120);
    play.world.with(|fleet| fleet.refuse_starts("n2", Denial::NodeNotReady, None));
    play.go(&[rules_job(2, "nowhere", "org/b", (2, 2), FOREVER)], 300);
    play.snapshot();
    let until = play.world.with(|fleet| fleet.now()) + Millis::from_secs(90);
    for node in ["n1", "n2"] {
        play.world.with(|fleet| fleet.refuse_stops(node, Denial::DisruptionBudget, Some(until)));
    }
    play.go(&[Input::Cancel { job: jobs["elsewhere"] }], 400);
    play.go(&[], 2000);
    play.written()
}

/// Jobs that the world owns are taken, not taken, changed, not changed, run and deleted, and found again by a new controller.
pub(super) fn of_owned_jobs() -> Vec<Event> {
    let mut play = Play::on(87, &["n1", "n2"], 1);
    let job =
        |number, name: &str, tenant: &str, tasks| rules_submission(number, name, tenant, tasks, FOREVER);
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    let own = |play: &Play, job| play.world.with(|fleet| fleet.own(job));
    own(&play, job(1, "runs", "org/a", (4, 4)));
    own(&play, job(2, "nobody", "org/nobody", (1, 1)));
    play.go(&[], 5);
    own(&play, job(1, "runs", "org/a", (2, 2)));
    own(&play, job(3, "waits", "org/a", (8, 8)));
    play.go(&[], 5);
    own(&play, job(1, "runs", "org/a", (4, 4)));
    own(&play, job(3, "waits", "org/a", (4, 4)));
    play.snapshot();
    // The same job, submitted before the world named it.
    play.go(&[rules_job(4, "claimed", "org/b", (1, 1), FOREVER)], 5);
    own(&play, job(4, "claimed", "org/b", (1, 1)));
    play.go(&[], 5);
    play.world.with(|fleet| fleet.disown(Uid(1)));
    play.go(&[], 60);
    play.written()
}
