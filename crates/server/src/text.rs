//! Reasons as sentences. The engine gives enums with numbers; words are made here, once, for every reader.

use wharf_engine::state::State;
use wharf_engine::units::Timestamp;
use wharf_engine::verdict::{Quantity, Reason, Shortfall, Stage};

/// One sentence that says why.
pub(crate) fn sentence(state: &State, reason: Reason, now: Timestamp) -> String {
    match reason {
        Reason::Running => "it runs".to_owned(),
        Reason::Starting => "it has its places and is being started".to_owned(),
        Reason::Repairing => "it lost a task, is below its minimum and waits to be repaired".to_owned(),
        Reason::Promised => {
            "its places are set aside; it starts when those who leave them are gone".to_owned()
        }
        Reason::Fixed { tenant } => format!(
            "it may not be evicted in time, so it may not borrow; the guarantee of {} leaves no room for it",
            state.tenants.path(tenant)
        ),
        Reason::Leaving => "it is letting go of its places".to_owned(),
        Reason::Startable => "it can start with the next decision".to_owned(),
        Reason::BackingOff { until } => {
            format!("a task of it failed; it is tried again in {} s", (until - now).0.div_ceil(1000))
        }
        Reason::Short(shortfall) => short(state, shortfall),
    }
}

/// What is missing, and where.
pub(crate) fn short(state: &State, shortfall: Shortfall) -> String {
    let Shortfall { stage, need, have, tenant } = shortfall;
    let (need, have) = (amount(need), amount(have));
    match stage {
        Stage::Fleet => format!("it needs {need}; the fleet has {have}"),
        Stage::Healthy => format!("it needs {need}; {have} are healthy"),
        Stage::Model => format!("it needs {need}; the fleet has {have} of a model it accepts"),
        Stage::Allowed => {
            format!("it needs {need}; {have} are on nodes it may use (selector, taints, cordons)")
        }
        Stage::Free => format!("it needs {need}; {have} are free"),
        Stage::Together => {
            format!(
                "it needs {need}; only {have} can be had together, in its shape and with the CPU and memory it asks for"
            )
        }
        Stage::Quota => {
            let whose = tenant.map_or("its tenant", |tenant| state.tenants.path(tenant));
            format!("it needs {need}; the limit of {whose} leaves {have}")
        }
    }
}

fn amount(quantity: Quantity) -> String {
    match quantity {
        Quantity::Gpus(units) if units.parts() == 3000 => "1 GPU".to_owned(),
        Quantity::Gpus(units) => format!("{units} GPUs"),
        Quantity::Tasks(1) => "room for 1 task".to_owned(),
        Quantity::Tasks(tasks) => format!("room for {tasks} tasks"),
    }
}
