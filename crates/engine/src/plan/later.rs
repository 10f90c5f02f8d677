//! What is promised for later: reserved starts, booked windows, planned downtimes.

pub(crate) mod booked;
pub(crate) mod kept;
pub(crate) mod reserve;

use crate::plan::draft::Draft;
use crate::quota::meters::Meters;
use crate::units::{JobId, Timestamp};

/// True when a job that holds places has given them back by then, as far as is known.
pub(in crate::plan) fn is_over_by(draft: &Draft<'_>, job: JobId, at: Timestamp) -> bool {
    draft.state.end_of(job, draft.policy, draft.now).known().is_some_and(|end| end <= at)
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
