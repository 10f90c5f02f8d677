//! Small fleets, trees and jobs: so small that everybody is in everybody's way.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use wharf_controller::world::NodeReport;
use wharf_engine::decide::input::{BookingRequest, Input};
use wharf_engine::model::group::Group;
use wharf_engine::model::job::{Checkpoint, Class, GpuAsk, Least, Shape, Spec};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::model::policy::{Amount, GpuQuota, Policy, Preemption, Quota, Tenant, Within};
use wharf_engine::model::submission::Submission;
use wharf_engine::state::bookings::Booker;
use wharf_engine::units::{GpuUnits, Millis, Resources, Timestamp, Uid};

/// One to four nodes of one model.
pub(crate) fn nodes(rng: &mut ChaCha8Rng) -> Vec<NodeReport> {
    (0..rng.random_range(1..=4u32))
        .map(|at| {
            let gpu = ObservedGpu { island: at, healthy: true, ..ObservedGpu::default() };
            let count = [1, 2, 4, 4][rng.random_range(0..4)];
            let capacity = Resources { cpu_milli: 64_000, memory: 1 << 40, ..Resources::default() };
            let node = ObservedNode {
                name: format!("n{at}"),
                up: true,
                model: "h100".into(),
                gpus: vec![gpu; count],
                capacity,
                ..ObservedNode::default()
            };
            NodeReport { node, labels: BTreeMap::new(), taints: Vec::new() }
        })
        .collect()
}

fn tenant(path: &str, guaranteed: u64, limit: Option<u64>, weight: u32, priority: i32) -> Tenant {
    let limit = limit.map_or(Amount::Unlimited, |gpus| Amount::Of(gpus * 3000));
    let quota = Quota { guaranteed: Amount::Of(guaranteed * 3000), limit };
    Tenant { gpus: GpuQuota::Any(quota), weight, priority, ..Tenant::without_lines(path) }
}

const LEAVES: [&str; 4] = ["a/x", "a/y", "b/x", "b/y"];

/// Two tenants of two each, with promises that fit each other.
pub(crate) fn policy(rng: &mut ChaCha8Rng) -> Policy {
    let mut tenants = Vec::new();
    for top in ["a", "b"] {
        let (x, y) = (rng.random_range(0..4), rng.random_range(0..4));
        let mut line = |path: &str, guaranteed: u64| {
            let limit = rng.random_ratio(1, 5).then(|| guaranteed + rng.random_range(0..4));
            tenant(path, guaranteed, limit, rng.random_range(0..3), rng.random_range(0..2))
        };
        tenants.push(Tenant { weight: 1, ..line(top, x + y) });
        tenants.push(line(&format!("{top}/x"), x));
        tenants.push(line(&format!("{top}/y"), y));
    }
    let preemption = Preemption {
        within: [Within::Project, Within::Team, Within::Org][rng.random_range(0..3)],
        min_runtime_reclaim: Millis::from_secs(rng.random_range(0..3) * 60),
        min_runtime_preempt: Millis::from_secs(rng.random_range(0..3) * 60),
        evictions_max: rng.random_range(1..4),
        moves_max: rng.random_range(0..6),
        ..Preemption::default()
    };
    Policy { digest: "a life".into(), tenants, preemption, ..Policy::default() }
}

/// A job of any shape that ends by itself within an hour.
pub(crate) fn job(rng: &mut ChaCha8Rng, number: u64) -> Input {
    let gpus = match rng.random_range(0..10) {
        8 => GpuAsk::AtLeast(Least { memory_mib: rng.random_range(1..80) * 1024, compute: 0, compute_of: 0 }),
        9 => GpuAsk::AtLeast(Least { memory_mib: 1024, compute: rng.random_range(1..5), compute_of: 7 }),
        0 => GpuAsk::Share(GpuUnits::from_parts(rng.random_range(1..10) * 300)),
        _ => GpuAsk::Whole([1, 1, 1, 2, 4][rng.random_range(0..5)]),
    };
    let tasks = [1, 1, 1, 2, 3][rng.random_range(0..5)];
    let checkpoint = rng.random_ratio(2, 3).then(|| Checkpoint {
        every: Millis::from_secs(rng.random_range(1..20) * 60),
        grace: Millis::from_secs([5, 60, 200, 3600][rng.random_range(0..4)]),
        on_request: false,
    });
    let seconds: u64 = rng.random_range(60..3600);
    let mut spec = Spec {
        class: Class::ALL[rng.random_range(0..3)],
        priority: rng.random_range(0..3),
        tasks,
        min: rng.random_range(1..=tasks),
        preemptible: rng.random_ratio(5, 6),
        checkpoint,
        payload: format!(r#"{{"duration_ms":{},"checkpoint_ms":3000}}"#, seconds * 1000),
        ..one_gpu(&format!("j{number}"), gpus)
    };
    if rng.random_ratio(1, 6) {
        spec.groups = vec![head(), workers(rng)];
        spec.derive_from_groups();
    }
    submit(number, LEAVES[rng.random_range(0..LEAVES.len())], spec)
}

/// A coordinator without GPU.
fn head() -> Group {
    let resources = Resources { cpu_milli: 1000, ..Resources::default() };
    let shape = Shape::of(GpuAsk::Whole(0), resources);
    Group { name: "head".into(), tasks: 1, min: 1, copies: 1, min_copies: 1, shape }
}

/// Copies of a few workers, of which some are enough.
fn workers(rng: &mut ChaCha8Rng) -> Group {
    let (tasks, copies) = (rng.random_range(1..=2), rng.random_range(1..=3));
    let (min, min_copies) = (rng.random_range(1..=tasks), rng.random_range(1..=copies));
    let shape = Shape::of(GpuAsk::Whole([1, 1, 2][rng.random_range(0..3)]), Resources::default());
    Group { name: "worker".into(), tasks, min, copies, min_copies, shape }
}

/// An owner that is promised so many, and two borrowers that are promised the rest.
pub(crate) fn owner_and_borrowers(owed: u64, rest: u64) -> Policy {
    let tenants = vec![
        tenant("owner", owed, None, 1, 0),
        tenant("guest", rest, None, 1, 0),
        tenant("stranger", 0, None, 3, 1),
    ];
    Policy { digest: "lent".into(), tenants, ..Policy::default() }
}

/// Something that borrows: any shape, with a grace that may be too long to borrow, or without a checkpoint.
pub(crate) fn borrower(rng: &mut ChaCha8Rng, number: u64) -> Input {
    let Input::Submit(mut submission) = job(rng, number) else { unreachable!("a job is submitted") };
    submission.tenant = ["guest", "stranger"][rng.random_range(0..2)].into();
    // These are about shapes, and the bound about GPUs: groups have lives of their own.
    submission.spec.groups.clear();
    submission.spec.tasks = submission.spec.tasks.min(3);
    submission.spec.min = submission.spec.min.min(submission.spec.tasks);
    // A part of a GPU that may not leave keeps a whole one from the owner: a guarantee is a count, not a shape.
    submission.spec.shape.gpus = GpuAsk::Whole([1, 1, 2, 4][rng.random_range(0..4)]);
    submission.spec.payload = r#"{"duration_ms":360000000,"checkpoint":"fail"}"#.into();
    Input::Submit(submission)
}

/// One GPU for the owner.
pub(crate) fn owners_job(number: u64) -> Input {
    let spec = one_gpu(&format!("owner{number}"), GpuAsk::Whole(1));
    submit(number, "owner", Spec { payload: r#"{"duration_ms":360000000}"#.into(), ..spec })
}

/// The guest books so many GPUs for two hours.
pub(crate) fn guests_window(number: u64, tasks: u32, from: Timestamp) -> Input {
    let spec = Spec { tasks, min: tasks, ..one_gpu("window", GpuAsk::Whole(1)) };
    let Input::Submit(job) = submit(number, "guest", spec) else { unreachable!("a job is made") };
    let span = Millis::from_secs(7200);
    Input::Book(Box::new(BookingRequest { job: *job, by: Booker::Tenant, from, span }))
}

/// One GPU in that window.
pub(crate) fn of_the_window(number: u64) -> Input {
    let payload = r#"{"duration_ms":360000000}"#.into();
    let spec = Spec { payload, ..one_gpu(&format!("in{number}"), GpuAsk::Whole(1)) };
    let Input::Submit(mut job) = submit(number, "guest", spec) else { unreachable!("a job is made") };
    job.booking = Some("window".into());
    Input::Submit(job)
}

fn one_gpu(name: &str, gpus: GpuAsk) -> Spec {
    let resources = Resources { cpu_milli: 500, memory: 1 << 20, ..Resources::default() };
    Spec::of(name, Shape::of(gpus, resources))
}

fn submit(number: u64, tenant: &str, spec: Spec) -> Input {
    Input::Submit(Box::new(Submission::of(Uid(u128::from(number) + 1), tenant, spec)))
}
