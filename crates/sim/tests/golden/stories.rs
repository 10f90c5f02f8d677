//! Stories of what came after the first rules: each plays on a small fleet, with a snapshot in the middle.

use wharf_engine::event::Event;
use wharf_engine::input::{Input, Replacement};
use wharf_engine::job::{Class, Service};
use wharf_engine::units::Millis;

use super::play::Play;
use super::{rules_job, rules_policy};

/// One borrows what another leaves idle, and gets less of it when the other comes.
pub(super) fn of_the_past() -> Vec<Event> {
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":5000}"#;
    let mut play = Play::on(82, &["n1", "n2"], 1);
    let mut policy = rules_policy();
    policy.digest = "golden past".into();
    policy.half_life = Some(Millis::from_secs(160));
    for tenant in &mut policy.tenants {
        tenant.gpus = wharf_engine::policy::GpuQuota::Any(wharf_engine::policy::Quota::NONE);
    }
    play.go(&[Input::ApplyPolicy(policy)], 1);
    play.go(&[rules_job(1, "hog", "org/b", (8, 1), forever)], 180);
    play.snapshot();
    play.go(&[rules_job(2, "guest", "org/a", (8, 1), forever)], 200);
    play.written()
}

/// Replicas make way for fresh ones, with one more for the time; a snapshot in the middle.
pub(super) fn of_a_replacement() -> Vec<Event> {
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":5000}"#;
    let mut play = Play::on(83, &["n1", "n2"], 1);
    let Input::Submit(mut service) = rules_job(1, "serves", "org/a", (3, 2), forever) else {
        unreachable!("a job is submitted")
    };
    service.spec.class = Class::Inference;
    service.spec.service = Some(Service { max: 4, replicas: 3 });
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    let jobs = play.go(&[Input::Submit(service)], 10);
    let how = Some(Replacement { surge: 1, unavailable: 0 });
    play.go(&[Input::Replace { job: jobs["serves"], how }], 3);
    play.snapshot();
    play.go(&[Input::Scale { job: jobs["serves"], tasks: 2 }], 60);
    play.written()
}

/// An older journal is put back: one job has ended meanwhile, one is new, and of two that waited nobody knows.
pub(super) fn of_a_restore() -> Vec<Event> {
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":5000}"#;
    let mut play = Play::on(84, &["n1", "n2"], 1);
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    play.go(&[rules_job(1, "runs", "org/a", (2, 2), forever)], 5);
    play.go(&[rules_job(2, "ends", "org/a", (2, 2), r#"{"duration_ms":60000}"#)], 5);
    play.go(&[rules_job(3, "unknown", "org/b", (8, 8), forever)], 5);
    play.go(&[rules_job(4, "unsure", "org/b", (7, 7), forever)], 5);
    let copy = play.backup();
    play.go(&[], 100);
    play.go(&[rules_job(5, "new", "org/a", (1, 1), forever)], 10);
    play.restore(&copy);
    let jobs = play.go(&[], 5);
    play.go(&[Input::Release { job: jobs["unknown"] }], 5);
    play.go(&[Input::Cancel { job: jobs["unsure"], by: None }], 5);
    play.go(&[rules_job(6, "last", "org/b", (1, 1), forever)], 5);
    play.written()
}
