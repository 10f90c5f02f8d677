//! The decisions that have a promise: each a shape, and the bars beside it.

use serde::Serialize;
use wharf_engine::model::job::Class;
use wharf_sim::bench::shape::{JobGroup, Line, NodeGroup, Shape, TenantLines};

use crate::args::EngineCase;

/// What is promised; nothing where a field is `None`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Bars {
    /// CPU time of one plan and of the reason of the oldest job that still waits.
    pub(super) bar_ms: Option<f64>,
    /// All that one plan allocates.
    pub(super) allocated_bar_bytes: Option<u64>,
    /// A plan while nothing changes.
    pub(super) again_bar_us: Option<f64>,
    /// Jobs that the plan has to start.
    pub(super) started_wanted: Option<usize>,
    /// CPU time of the plan for what comes, or ends, late.
    pub(super) late_bar_ms: Option<f64>,
    /// Jobs that have to leave by it.
    pub(super) late_evicted_wanted: Option<usize>,
    /// Starts that have to be promised when that plan is made.
    pub(super) reserved_wanted: Option<usize>,
    /// Replicas that have to be placed when everybody has left.
    pub(super) burst_placed_wanted: Option<usize>,
}

/// The bars of a case.
pub(super) fn bars(case: EngineCase) -> Bars {
    let bars = |ms, started| Bars { bar_ms: Some(ms), started_wanted: Some(started), ..Bars::default() };
    match case {
        EngineCase::Fill => bars(50.0, 4000),
        EngineCase::ReclaimSmall => bars(500.0, 4000),
        EngineCase::ReclaimGang => Bars { allocated_bar_bytes: Some(100_000_000), ..bars(100.0, 1) },
        EngineCase::Impossible => Bars { again_bar_us: Some(50.0), ..bars(10.0, 0) },
        EngineCase::Reservations => {
            let (late_bar_ms, reserved_wanted) = (Some(20.0), Some(64));
            Bars { started_wanted: Some(0), late_bar_ms, reserved_wanted, ..Bars::default() }
        }
        EngineCase::Burst => {
            let (late_evicted_wanted, burst_placed_wanted) = (Some(400), Some(60));
            Bars { late_bar_ms: Some(20.0), late_evicted_wanted, burst_placed_wanted, ..Bars::default() }
        }
    }
}

/// The shape of a case.
pub(super) fn shape(case: EngineCase) -> Shape {
    match case {
        EngineCase::Fill => fill(),
        EngineCase::ReclaimSmall => reclaim_small(),
        EngineCase::ReclaimGang => reclaim_gang(),
        EngineCase::Impossible => impossible(),
        EngineCase::Reservations => reservations(),
        EngineCase::Burst => burst(),
    }
}

/// 4,000 one-GPU jobs on 500 empty nodes. The first half of each tenant's is within its guarantee, the second within
/// its fair share.
fn fill() -> Shape {
    Shape {
        nodes: nodes(500),
        tenants: vec![tenant("lab/one", 1000.0), tenant("lab/two", 1000.0)],
        pending: vec![ones(2000, "lab/one"), ones(2000, "lab/two")],
        ..Shape::default()
    }
}

/// 4,000 one-GPU jobs of the owner of all 500 nodes, which 4,000 borrowers fill.
fn reclaim_small() -> Shape {
    Shape {
        nodes: nodes(500),
        tenants: vec![tenant("lab/owner", 4000.0), tenant("lab/borrower", 0.0)],
        running: vec![ones(4000, "lab/borrower")],
        pending: vec![ones(4000, "lab/owner")],
        ..Shape::default()
    }
}

/// A gang of 500 tasks with eight GPUs each, of the owner of half the nodes, all of which 8,000 borrowers fill.
fn reclaim_gang() -> Shape {
    Shape {
        nodes: nodes(1000),
        tenants: vec![tenant("lab/owner", 4000.0), tenant("lab/borrower", 0.0)],
        running: vec![ones(8000, "lab/borrower")],
        pending: vec![gang(500, "lab/owner")],
        ..Shape::default()
    }
}

/// A gang of ten tasks with eight GPUs each, of a tenant without a guarantee. Who runs is within one, so that nothing may
/// be evicted, although everything that runs would let itself be.
fn impossible() -> Shape {
    Shape {
        nodes: nodes(100),
        tenants: vec![tenant("lab/owner", 800.0), tenant("lab/guest", 0.0)],
        running: vec![ones(800, "lab/owner")],
        pending: vec![gang(10, "lab/guest")],
        ..Shape::default()
    }
}

/// 512 full nodes of 16 tenants, each at its guarantee, under time limits that end at 128 different moments. 10,000 jobs of
/// 704 kinds wait; the first of them are 64 gangs of four nodes, four of each tenant, which are promised a start. Then
/// one job ends.
fn reservations() -> Shape {
    let path = |number: u32| format!("lab/t{number:02}");
    let hours = |hours: u64, minutes: u64| Some((hours * 60 + minutes) * 60);
    let (mut running, mut pending) = (Vec::new(), Vec::new());
    for number in 0..16u32 {
        let later = u64::from(number);
        for (at, (count, gpus)) in
            [(32, 1.0), (16, 2.0), (32, 1.0), (8, 4.0), (32, 1.0), (16, 2.0), (32, 1.0), (8, 4.0)]
                .into_iter()
                .enumerate()
        {
            let limit_s = hours(24, 20 * (1 + u64::try_from(at).unwrap_or_default()) + later);
            running.push(JobGroup { gpus, limit_s, ..ones(count, &path(number)) });
        }
        for at in 0..4u64 {
            pending.push(JobGroup { limit_s: hours(12 << at, 0), ..gang(4, &path(number)) });
        }
        for kind in 0..40u32 {
            let gpus = [1.0, 1.0, 2.0, 4.0, 8.0][usize::try_from(kind % 5).unwrap_or_default()];
            let limit_s = hours(1 << (kind / 5 % 4), 0).filter(|_| kind % 3 != 0);
            let (cpu_milli, count) = (u64::from(kind) * 100, if kind < 21 { 16 } else { 15 });
            let preemptible = kind % 4 != 1;
            pending.push(JobGroup { gpus, limit_s, cpu_milli, preemptible, ..ones(count, &path(number)) });
        }
    }
    let tenants = (0..16).map(|number| tenant(&path(number), 256.0)).collect();
    Shape { nodes: nodes(512), tenants, running, pending, ends: 1, reservations: 64, ..Shape::default() }
}

/// A service of ten replicas with eight GPUs each, of the owner of 480, on 1,000 nodes that 7,920 borrowers fill; then it wants
/// fifty more.
fn burst() -> Shape {
    let service = JobGroup {
        class: Class::Inference,
        tasks: 10,
        min: Some(1),
        replicas_max: Some(100),
        ..gang(10, "lab/owner")
    };
    Shape {
        nodes: nodes(1000),
        tenants: vec![tenant("lab/owner", 480.0), tenant("lab/borrower", 0.0)],
        running: vec![service, ones(7920, "lab/borrower")],
        scale: Some(60),
        ..Shape::default()
    }
}

/// Nodes with eight GPUs.
fn nodes(count: u32) -> Vec<NodeGroup> {
    vec![NodeGroup { count, ..NodeGroup::default() }]
}

fn tenant(path: &str, guaranteed_gpus: f64) -> TenantLines {
    let guaranteed_gpus = Some(Line::Number(guaranteed_gpus));
    TenantLines { path: path.to_owned(), guaranteed_gpus, ..TenantLines::default() }
}

/// Jobs with one GPU.
fn ones(count: u32, tenant: &str) -> JobGroup {
    JobGroup { count, tenant: tenant.to_owned(), ..JobGroup::default() }
}

/// A gang with eight GPUs a task.
fn gang(tasks: u32, tenant: &str) -> JobGroup {
    JobGroup { tasks, gpus: 8.0, tenant: tenant.to_owned(), ..JobGroup::default() }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn a_case_is_asked_for_by_its_word() {
        for case in EngineCase::value_variants() {
            assert_eq!(case.to_possible_value().unwrap().get_name(), case.into_str());
        }
    }

    #[test]
    fn every_case_is_a_state_in_which_nothing_is_broken() {
        for &case in EngineCase::value_variants() {
            let shape = shape(case);
            let built = shape.build().unwrap();
            let running: u32 = shape.running.iter().map(|group| group.count).sum();
            let pending: u32 = shape.pending.iter().map(|group| group.count).sum();
            let held = built.state.ledger.holdings().count();
            assert_eq!((held, built.state.jobs.waiting_len()), (usize::try_from(running).unwrap(), pending));
            assert_eq!(built.state.check(), [], "{}", case.into_str());
        }
    }
}
