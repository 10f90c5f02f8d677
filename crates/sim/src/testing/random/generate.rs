//! Random fleets, tenant trees and jobs: small enough that rare meetings are common.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use strum::VariantArray;
use wharf_controller::selectors::{DeviceSelector, NodeSelector};
use wharf_controller::world::{NodeReport, Taint};
use wharf_engine::decide::input::BookingRequest;
use wharf_engine::device::catalogue::mig::ProfileName;
use wharf_engine::model::group::Group;
use wharf_engine::model::job::{
    Alternative, Checkpoint, Class, GpuAsk, Least, Service, Shape, Spec, Topology,
};
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::model::policy::{
    Amount, GpuQuota, Mode, Order, OrderRules, Orders, Policy, Quota, Sharing, Tenant, Windows,
};
use wharf_engine::model::submission::{GroupSelectors, Submission};
use wharf_engine::state::bookings::Booker;
use wharf_engine::units::{DeviceSetId, GpuMask, GpuUnits, Millis, Resources, Timestamp, Uid};

const MODELS: [&str; 2] = ["h100", "l4"];
/// A trust domain that many may claim.
const SHARED: &str = "shared";

/// A fleet of a few unlike nodes.
pub(super) fn fleet(rng: &mut ChaCha8Rng) -> Vec<NodeReport> {
    let count = rng.random_range(1..=8);
    (0..count).map(|at| node(rng, at)).collect()
}

pub(super) fn node(rng: &mut ChaCha8Rng, at: u32) -> NodeReport {
    let gpus = [0u32, 1, 2, 4, 8, 8][rng.random_range(0..6)];
    let islands = rng.random_range(1..=2u32);
    let gpu = |index: u32| ObservedGpu {
        island: at * 2 + index % islands,
        healthy: true,
        ..ObservedGpu::default()
    };
    let model = if gpus == 0 { "" } else { MODELS[rng.random_range(0..MODELS.len())] };
    let mut others_gpus = GpuMask::default();
    if gpus > 1 && rng.random_ratio(1, 8) {
        others_gpus.insert(0);
    }
    let cpu_milli = rng.random_range(4..=64) * 1000;
    let capacity = Resources { cpu_milli, memory: 1 << 40, pods: 110, ..Resources::default() };
    let others = Resources { cpu_milli: rng.random_range(0..2000), ..Resources::default() };
    let node = ObservedNode {
        name: format!("n{at}"),
        up: true,
        model: model.to_owned(),
        gpus: (0..gpus).map(gpu).collect(),
        capacity,
        others,
        others_gpus,
        domains: vec![("leaf".to_owned(), at / 2)],
    };
    let zone = if rng.random() { "east" } else { "west" };
    let tainted = rng.random_ratio(1, 8);
    NodeReport {
        node,
        labels: [("zone".to_owned(), zone.to_owned())].into(),
        taints: if tainted {
            vec![Taint { key: "maintenance".into(), value: String::new() }]
        } else {
            vec![]
        },
    }
}

/// A tree of one to three levels with promises and limits.
pub(super) fn policy(rng: &mut ChaCha8Rng, edition: u32) -> Policy {
    let mut tenants = Vec::new();
    let per_pool = rng.random_ratio(1, 3);
    for org in 0..rng.random_range(1..=2) {
        let path = format!("org{org}");
        tenants.push(tenant(rng, path.clone(), per_pool));
        for team in 0..rng.random_range(1..=3) {
            let path = format!("{path}/team{team}");
            tenants.push(tenant(rng, path.clone(), per_pool));
        }
    }
    let policy = Policy {
        digest: format!("edition {edition}"),
        tenants,
        queue_len_max: 40,
        retry_backoff: Millis::from_secs(5),
        sharing: sharing(rng),
        orders: orders(edition),
        windows: windows(edition),
        reservations_max: edition % 3,
        no_backfill: edition.is_multiple_of(5),
        // Steps of twenty seconds: some see a past, and some see it forgotten.
        half_life: (edition % 3 == 1).then_some(Millis::from_secs(320)),
        ..Policy::default()
    };
    // What was let in under one edition runs on under one that would refuse it.
    if edition.is_multiple_of(4) { policy } else { crate::world::with_domain_of_all(policy, SHARED) }
}

/// Windows of minutes.
fn windows(edition: u32) -> Windows {
    Windows {
        lead: Millis::from_secs(90),
        span_max: Millis::from_secs(1800),
        ahead_max: Millis::from_secs(1800),
        bookings_max: 3,
        tenants_may_book: true,
        fill: !edition.is_multiple_of(4),
        no_show: Millis::from_secs(120),
    }
}

/// A window of any shape that begins within a few minutes.
pub(super) fn booking(rng: &mut ChaCha8Rng, tenant: String, number: u64, now: Timestamp) -> BookingRequest {
    let by = if rng.random() { Booker::Tenant } else { Booker::Operator };
    let (after, span) = (rng.random_range(60..600), rng.random_range(60..900));
    let mut job = job(rng, tenant, number);
    job.spec.shape.gpus = GpuAsk::Whole(rng.random_range(1..=4));
    job.spec.shape.any_of.clear();
    job.any_of_devices.clear();
    job.spec.service = None;
    let from = now + Millis::from_secs(after);
    BookingRequest { job, by, from, span: Millis::from_secs(span) }
}

/// Every order has its turn, with steps so short that a run of minutes sees all of them.
fn orders(edition: u32) -> Orders {
    let order = Order::VARIANTS[usize::try_from((edition + 2) % 3).unwrap_or_default()];
    let rules = OrderRules {
        order,
        levels: [30, 120, 600].map(Millis::from_secs).into(),
        patience: Millis::from_secs(5),
        min_run: Millis::from_secs(u64::from(edition % 5) * 10),
        gang_over: 4,
        landing_room: 2,
        promote_after: edition.is_multiple_of(2).then_some(Millis::from_secs(300)),
        label: None,
    };
    let mut orders = Orders::default();
    for (at, class) in Class::ALL.into_iter().enumerate().filter(|(_, class)| *class != Class::Inference) {
        orders.0[at] = OrderRules { gang_over: if class == Class::Batch { 4 } else { 1 }, ..rules.clone() };
    }
    orders
}

fn tenant(rng: &mut ChaCha8Rng, path: String, per_pool: bool) -> Tenant {
    let mut quota = || {
        let guaranteed = u64::from(rng.random_range(0..8u32));
        let limit = if rng.random_ratio(1, 3) {
            Amount::Of((guaranteed + u64::from(rng.random_range(0..8u32))) * 3000)
        } else {
            Amount::Unlimited
        };
        Quota { guaranteed: Amount::Of(guaranteed * 3000), limit }
    };
    let gpus = if per_pool {
        GpuQuota::PerPool(MODELS.iter().map(|&model| (model.to_owned(), quota())).collect())
    } else {
        GpuQuota::Any(quota())
    };
    let (weight, priority) = (rng.random_range(0..4), rng.random_range(0..2));
    Tenant { path, gpus, cpu: Quota::UNMETERED, memory: Quota::UNMETERED, weight, priority }
}

/// Paths of the tenants that take jobs.
pub(super) fn leaves(policy: &Policy) -> Vec<String> {
    let all = policy.tenants.iter().map(|tenant| tenant.path.as_str());
    let above = |path: &str| policy.tenants.iter().any(|other| other.path.starts_with(&format!("{path}/")));
    all.filter(|path| !above(path)).map(str::to_owned).collect()
}

/// A job of any shape.
pub(super) fn job(rng: &mut ChaCha8Rng, tenant: String, number: u64) -> Submission {
    let gpus = ask(rng);
    let tasks = [1, 1, 1, 2, 4][rng.random_range(0..5)];
    let min = rng.random_range(1..=tasks);
    let mut nodes = NodeSelector::default();
    if rng.random_ratio(1, 6) {
        nodes.labels.insert("zone".into(), vec!["east".into()]);
    }
    let models = if rng.random_ratio(1, 6) { vec!["h100".to_owned()] } else { vec![] };
    let devices = DeviceSelector { models, memory_gb_min: None }.source();
    let class = Class::ALL[rng.random_range(0..3)];
    let is_service = class == Class::Inference && rng.random();
    let grace = Millis::from_secs(rng.random_range(1..60));
    let checkpoint = rng.random::<bool>().then_some(Checkpoint {
        every: Millis::from_secs(300),
        grace,
        on_request: false,
    });
    let others = if rng.random_ratio(1, 6) { rng.random_range(1..=2) } else { 0 };
    let any_of: Vec<Alternative> =
        (0..others).map(|_| Alternative { gpus: ask(rng), devices: DeviceSetId(0) }).collect();
    let mut asks = any_of.iter().map(|other| other.gpus).chain([gpus]);
    let whole = asks.all(|gpus| matches!(gpus, GpuAsk::Whole(1..)));
    let spec = Spec {
        class,
        priority: rng.random_range(0..3),
        tasks,
        min,
        topology: Topology { task_on_island: whole && rng.random_ratio(1, 5), gang_within: None },
        preemptible: rng.random_ratio(4, 5),
        time_limit: rng.random_ratio(1, 4).then(|| Millis::from_secs(rng.random_range(5..900))),
        service: is_service.then_some(Service { max: tasks + 2, replicas: tasks }),
        checkpoint,
        retries: rng.random_range(0..3),
        payload: payload(rng),
        ..Spec::of(
            format!("j{number}"),
            Shape {
                time_slicing: rng.random_ratio(1, 3),
                any_of,
                ..Shape::of(
                    gpus,
                    Resources { cpu_milli: 500, memory: 1 << 20, pods: 1, ..Resources::default() },
                )
            },
        )
    };
    let gang_within = rng.random_ratio(1, 8).then(|| "leaf".to_owned());
    let mut spec = spec;
    let with_groups = !is_service && rng.random_ratio(1, 5);
    let groups = if with_groups { make_groups(rng, &mut spec) } else { Vec::new() };
    let trust = rng.random_ratio(1, 6).then(|| SHARED.to_owned());
    let (uid, nodes) = (Uid(rng.random()), nodes.source());
    Submission { trust, nodes, devices, groups, gang_within, ..Submission::of(uid, tenant, spec) }
}

/// Makes it a job of up to three groups; returns their selectors.
fn make_groups(rng: &mut ChaCha8Rng, spec: &mut Spec) -> Vec<GroupSelectors> {
    let mut selectors = Vec::new();
    for number in 0..rng.random_range(1..=3) {
        let (group, selector) = group(rng, number);
        spec.groups.push(group);
        selectors.push(selector);
    }
    let whole = spec.groups.iter().all(|group| matches!(group.shape.gpus, GpuAsk::Whole(_)));
    spec.topology.task_on_island = rng.random_ratio(1, 5)
        && whole
        && spec.groups.iter().any(|group| matches!(group.shape.gpus, GpuAsk::Whole(1..)));
    spec.derive_from_groups();
    selectors
}

/// A part of a job: a coordinator, or copies of a few tasks of which some are enough.
fn group(rng: &mut ChaCha8Rng, number: u32) -> (Group, GroupSelectors) {
    let tasks = rng.random_range(1..=3);
    let copies = [1, 1, 2, 3][rng.random_range(0..4)];
    let gpus = if rng.random_ratio(1, 3) { GpuAsk::Whole(0) } else { ask(rng) };
    let resources = Resources { cpu_milli: 500, memory: 1 << 20, pods: 1, ..Resources::default() };
    let group = Group {
        name: format!("g{number}"),
        tasks,
        min: rng.random_range(1..=tasks),
        copies,
        min_copies: rng.random_range(1..=copies),
        shape: Shape::of(gpus, resources),
    };
    let mut nodes = NodeSelector::default();
    if rng.random_ratio(1, 8) {
        nodes.labels.insert("zone".into(), vec!["east".into()]);
    }
    let models = if rng.random_ratio(1, 8) { vec!["h100".to_owned()] } else { vec![] };
    let devices = DeviceSelector { models, memory_gb_min: None }.source();
    (group, GroupSelectors { nodes: nodes.source(), devices, any_of_devices: Vec::new() })
}

fn ask(rng: &mut ChaCha8Rng) -> GpuAsk {
    const PROFILES: [&str; 7] =
        ["1g.10gb+me", "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
    match rng.random_range(0..14) {
        0 => GpuAsk::Whole(0),
        1..=2 => GpuAsk::Share(GpuUnits::from_parts(rng.random_range(1..10) * 300)),
        3..=4 => {
            let name = PROFILES[rng.random_range(0..PROFILES.len())];
            GpuAsk::Slice(ProfileName::parse(name).expect("a profile of the catalogue"))
        }
        5 => {
            let memory_mib = rng.random_range(1..80) * 1024;
            GpuAsk::AtLeast(Least { memory_mib, compute: rng.random_range(0..4), compute_of: 7 })
        }
        _ => GpuAsk::Whole([1, 1, 2, 4, 8][rng.random_range(0..5)]),
    }
}

/// Ways to meet shares, most often the usual ones.
fn sharing(rng: &mut ChaCha8Rng) -> Sharing {
    let mut sharing = Sharing::default();
    if rng.random_ratio(1, 2) {
        return sharing;
    }
    for rules in &mut sharing.classes {
        rules.modes = match rng.random_range(0..4) {
            0 => vec![Mode::Mig, Mode::Whole],
            1 => vec![Mode::TimeSlicing, Mode::Mps],
            2 => vec![Mode::Mps, Mode::Mig],
            _ => continue,
        };
        rules.tax_max = [1000, 300, 250, 100][rng.random_range(0..4)];
    }
    if rng.random() {
        sharing.domains.push((SHARED.to_owned(), vec![Mode::Mig]));
    }
    sharing
}

fn payload(rng: &mut ChaCha8Rng) -> String {
    let duration_ms: u64 = rng.random_range(1..900) * 1000;
    let fails = if rng.random_ratio(1, 8) { r#","fail_after_ms":30000"# } else { "" };
    let saves = if rng.random_ratio(1, 4) { r#","checkpoint":"fail""# } else { "" };
    format!(r#"{{"duration_ms":{duration_ms}{fails}{saves}}}"#)
}
