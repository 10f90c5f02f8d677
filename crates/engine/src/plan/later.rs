//! What is promised for later: reserved starts, booked windows, planned downtimes.

pub(crate) mod booked;
pub(crate) mod kept;
pub(crate) mod reserve;

use crate::plan::draft::Draft;
use crate::quota::meters::Meters;
use crate::state::State;
use crate::state::ledger::Step;
use crate::units::{JobId, Timestamp};

/// True when a job that holds places has given them back by then, as far as is known.
pub(in crate::plan) fn is_over_by(draft: &Draft<'_>, job: JobId, at: Timestamp) -> bool {
    draft.state.end_of(job, draft.policy, draft.now).known().is_some_and(|end| end <= at)
}

/// The places of a job's tasks that stay, as those hold them.
pub(in crate::plan) fn held_steps(state: &State, job: JobId) -> impl Iterator<Item = Step> {
    let held = state.ledger.holding(job).zip(state.ledger.charge(job)).into_iter();
    held.flat_map(|(holding, charge)| holding.staying().map(|task| charge.step(task.place)))
}

/// What the tasks of a job that stay hold, by meter.
pub(crate) fn held_amount(draft: &Draft<'_>, job: JobId) -> Meters {
    let ledger = &draft.state.ledger;
    let (Some(holding), Some(charge)) = (ledger.holding(job), ledger.charge(job)) else {
        return draft.tree.zero();
    };
    let places = holding.staying().map(|task| &task.place);
    draft.tree.charge_of(|task| charge.resources_of(task), places)
}
