//! Earmarks: a job starts or grows on the places that are set aside for it, or they are released.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::live::LiveJob;
use crate::model::placement::Placement;
use crate::quota::meters::Amounts;
use crate::quota::tree::Tree;
use crate::state::State;
use crate::state::earmarks::Earmark;
use crate::state::event::Event;
use crate::state::jobs::Phase;
use crate::state::ledger::event::{Asker, EvictionRule, LedgerEvent};
use crate::units::{JobId, Timestamp};

/// A job whose earmarked places are clear gets them; one that cannot have them any more waits as before. Jobs in `leaving` are
/// told to go at this moment.
pub(super) fn due(state: &State, leaving: &BTreeSet<JobId>, now: Timestamp) -> Vec<Event> {
    if state.earmarks.iter().next().is_none() {
        return Vec::new();
    }
    let tree = state.tree(state.tenants.policy());
    let mut used = tree.subtree_use(&state.own_use(&tree));
    let planned = tree.subtree_use(&state.own_use_after_leaving(&tree));
    let live = |(job, earmark)| (LiveJob::of(state, job, now), earmark);
    let earmarks = || state.earmarks.iter().map(live);
    let lost = earmarks().filter(|&(live, earmark)| is_lost(live, earmark, &tree, &planned));
    let lost: BTreeSet<JobId> = lost.flat_map(|(live, _)| [Some(live.id), mover(live)]).flatten().collect();
    let due = |(live, earmark): (LiveJob<'_>, &Earmark)| {
        if lost.contains(&live.id) {
            return Some(live.without_earmark());
        }
        honoured(live, earmark, &tree, &mut used)
    };
    earmarks().filter(|(live, _)| !leaving.contains(&live.id)).filter_map(due).collect()
}

/// The job that another is moved for, while that has not saved its work: a job that loses the place it was to move to keeps the
/// old one, so that the mover cannot have that.
fn mover(live: LiveJob<'_>) -> Option<JobId> {
    let holding = live.holding()?;
    let Some(Asker::Rules { why: EvictionRule::Move, beneficiary }) = holding.asked_by else { return None };
    holding.asked_until().map(|_| beneficiary)
}

/// True when a place is gone, a limit was lowered below what is planned, or the places no longer repair the gang.
fn is_lost(live: LiveJob<'_>, earmark: &Earmark, tree: &Tree, planned: &Amounts) -> bool {
    let spec = &live.job.spec;
    let amount = tree.charge_of(|task| spec.resources_of(task), earmark.tasks.iter());
    let beyond = tree.lineage(spec.tenant).any(|tenant| {
        let quotas = tree.lines[tenant.index()].quotas.iter().enumerate();
        let mut asked = quotas.filter(|&(meter, _)| amount[meter] > 0);
        asked.any(|(meter, quota)| {
            let planned = planned[tenant.index()][meter];
            quota.limit.cap(planned) < planned
        })
    });
    beyond
        || repairs_too_little(live, earmark)
        || !earmark.tasks.iter().all(|place| live.state.ledger.rooms().is_open_at(place))
}

/// True when a gang lost more since its places were earmarked: with them it would still be below its minimum.
fn repairs_too_little(live: LiveJob<'_>, earmark: &Earmark) -> bool {
    let spec = &live.job.spec;
    let Some(holding) = live.holding().filter(|_| live.is_active()) else { return false };
    let earmarked: Vec<u32> = earmark.tasks.iter().map(|place| place.task).collect();
    let with: Vec<u32> = holding.alive().chain(earmarked.iter().copied()).collect();
    // Of a job with groups, the copy that was to grow may have lost what it had.
    let too_late =
        spec.has_groups() && spec.of_broken_copies(&with).iter().any(|task| earmarked.contains(task));
    too_late || !spec.is_met_by(with.into_iter())
}

/// The start on earmarked places, or the growth, once they are clear and within the limits.
fn honoured(live: LiveJob<'_>, earmark: &Earmark, tree: &Tree, used: &mut Amounts) -> Option<Event> {
    let LiveJob { state, id, job, now } = live;
    let clear =
        |place: &Placement| state.ledger.rooms().get(place.node).is_some_and(|room| room.is_clear(place));
    // Tasks that leave still count towards a limit until they are gone.
    let amount = tree.charge_of(|task| job.spec.resources_of(task), earmark.tasks.iter());
    // A job that is moved has to let go of its old places first.
    let moving = matches!(job.phase, Phase::Leaving(_));
    if moving || !earmark.tasks.iter().all(clear) || !tree.count_within_limits(used, job.spec.tenant, &amount)
    {
        return None;
    }
    let (tasks, policy) = (earmark.tasks.clone(), earmark.policy);
    Some(Event::Ledger(if live.is_active() {
        LedgerEvent::Grown { job: id, tasks, policy, at: now }
    } else {
        let (attempt, chosen) = (job.past.attempts + 1, earmark.chosen);
        LedgerEvent::Started { job: id, attempt, tasks, policy, at: now, chosen }
    }))
}
