//! The decisions that have a promise: each a shape, and the bars beside it.

use serde::Serialize;
use wharf_sim::shape::{JobGroup, Line, NodeGroup, Shape, TenantLines};

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
}

/// The bars of a case.
pub(super) fn bars(case: EngineCase) -> Bars {
    let bars = |ms, started| Bars { bar_ms: Some(ms), started_wanted: Some(started), ..Bars::default() };
    match case {
        EngineCase::Fill => bars(50.0, 4000),
        EngineCase::ReclaimSmall => bars(500.0, 4000),
        EngineCase::ReclaimGang => Bars { allocated_bar_bytes: Some(100_000_000), ..bars(100.0, 1) },
        EngineCase::Impossible => Bars { again_bar_us: Some(50.0), ..bars(10.0, 0) },
    }
}

/// The shape of a case.
pub(super) fn shape(case: EngineCase) -> Shape {
    match case {
        EngineCase::Fill => fill(),
        EngineCase::ReclaimSmall => reclaim_small(),
        EngineCase::ReclaimGang => reclaim_gang(),
        EngineCase::Impossible => impossible(),
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
            assert_eq!(case.to_possible_value().unwrap().get_name(), case.word());
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
            assert_eq!(built.state.check(), [], "{}", case.word());
        }
    }
}
