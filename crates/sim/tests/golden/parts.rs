//! What stories are made of: a node, policies, jobs.

use wharf_controller::selectors::{DeviceSelector, NodeSelector};
use wharf_controller::world::NodeReport;
use wharf_engine::decide::input::Input;
use wharf_engine::model::job::{Checkpoint, GpuAsk, Shape, Spec, Topology};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::model::policy::{Amount, GpuQuota, Policy, Quota, Tenant};
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{Millis, Resources, Uid};

/// Runs for ever, and saves its work in five seconds.
pub(super) const FOREVER: &str = r#"{"duration_ms":360000000,"checkpoint_ms":5000}"#;

pub(super) fn cordon(node: &str, on: bool) -> Input {
    Input::Cordon { node: node.into(), on, reason: String::new() }
}

pub(super) fn submit(job: Submission) -> Input {
    Input::Submit(Box::new(job))
}

/// Without a wish for an island or a level.
pub(super) fn anywhere(job: &mut Submission) {
    job.spec.topology = Topology::default();
    job.gang_within = None;
}

pub(super) fn rules_policy() -> Policy {
    let tenant = |path: &str, gpus: u64| Tenant {
        gpus: GpuQuota::Any(Quota { guaranteed: Amount::Of(gpus * 3000), limit: Amount::Unlimited }),
        ..Tenant::without_lines(path)
    };
    let tenants = vec![tenant("org", 8), tenant("org/a", 4), tenant("org/b", 4)];
    let policy = Policy { digest: "golden rules".into(), tenants, ..Policy::default() };
    wharf_sim::world::with_domain_of_all(policy, "golden")
}

pub(super) fn rules_job(
    number: u128,
    name: &str,
    tenant: &str,
    (tasks, min): (u32, u32),
    payload: &str,
) -> Input {
    submit(rules_submission(number, name, tenant, (tasks, min), payload))
}

pub(super) fn rules_submission(
    number: u128,
    name: &str,
    tenant: &str,
    (tasks, min): (u32, u32),
    payload: &str,
) -> Submission {
    let mut job = submission(number, name, payload);
    job.tenant = tenant.into();
    (job.spec.tasks, job.spec.min) = (tasks, min);
    job
}

pub(super) fn node(name: &str) -> NodeReport {
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

pub(super) fn policy() -> Policy {
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
    wharf_sim::world::with_domain_of_all(policy, "golden")
}

pub(super) fn job(number: u128, name: &str, payload: &str) -> Input {
    submit(submission(number, name, payload))
}

pub(super) fn submission(number: u128, name: &str, payload: &str) -> Submission {
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
    Submission {
        trust: Some("golden".into()),
        nodes: nodes.source(),
        devices: devices.source(),
        gang_within: Some("leaf".into()),
        ..Submission::of(Uid(number), "org/team", spec)
    }
}
