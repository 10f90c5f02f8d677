//! Rules 6 and 7: which sets may be taken for the job that waits.

use std::collections::BTreeSet;

use wharf_engine::model::job::Class;

use super::Running;
use super::facts::{Facts, Reclaim, Set, gpus_of};

/// What the rules say to a set that they do not forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ruled {
    pub(super) ruling: Ruling,
    pub(super) refused: Refused,
}

/// What rule 6 says to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ruling {
    /// Nobody ends below their line.
    Allowed,
    /// One job per branch carries somebody below.
    Straddles,
}

/// Whether a set is refused by what the rules say beside lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refused {
    /// No.
    No,
    /// The rules can be read both ways, or it depends on where everybody finds room.
    Perhaps,
    /// Yes.
    Yes,
}

/// The line above which work may be taken.
pub(super) fn line(facts: &Facts<'_>, reclaim: Reclaim, tenant: usize) -> u64 {
    match reclaim {
        Reclaim::Guarantee => facts.instance.tenants[tenant].guaranteed_gpus,
        Reclaim::FairShare => facts.shares[tenant],
    }
}

/// What the rules say to taking a set; `None` where they forbid it.
pub(super) fn ruled(facts: &Facts<'_>, set: Set) -> Option<Ruled> {
    let rights = facts.rights();
    let &first = rights.first()?;
    let comes_back = first == Reclaim::FairShare && somebody_comes_back(facts, set);
    if comes_back {
        return None;
    }
    let mut by = vec![first];
    let mut ruling = Ruling::Allowed;
    for branch in branches(facts, set) {
        if !stays_above(facts, first, of_branch(facts, set, branch), set) {
            by.push(*rights.iter().find(|&&right| may_straddle(facts, right, set, branch))?);
            ruling = Ruling::Straddles;
        }
    }
    let idle = match (first, by.contains(&Reclaim::FairShare)) {
        (Reclaim::FairShare, _) => leaves_idle(facts, set),
        (Reclaim::Guarantee, false) => Refused::No,
        // What is taken for the guarantee in the same plan may stand idle.
        (Reclaim::Guarantee, true) => leaves_idle(facts, set).min(Refused::Perhaps),
    };
    Some(Ruled { ruling, refused: idle.max(inference_stays(facts, set)) })
}

/// The uppermost tenants that victims do not share with the job's tenant.
fn branches(facts: &Facts<'_>, set: Set) -> Vec<usize> {
    let mut branches: Vec<usize> = set.units().map(|unit| branch(facts, unit)).collect();
    branches.sort_unstable();
    branches.dedup();
    branches
}

fn branch(facts: &Facts<'_>, unit: usize) -> usize {
    *facts.path(facts.units[unit].tenant).last().expect("a victim is of another tenant")
}

fn of_branch(facts: &Facts<'_>, set: Set, of: usize) -> Set {
    set.units().filter(|&unit| branch(facts, unit) == of).fold(Set::default(), Set::with)
}

/// True when, without all of `set`, every tenant on the paths of `units` is at or above its line. Each of them was taken
/// while it was above then, because every unit holds something.
fn stays_above(facts: &Facts<'_>, reclaim: Reclaim, units: Set, set: Set) -> bool {
    let used = facts.used_without(set);
    let at_line = |tenant: usize| used[tenant] >= line(facts, reclaim, tenant);
    units.units().all(|unit| facts.path(facts.units[unit].tenant).into_iter().all(at_line))
}

/// True when one job, the last to be taken of the branch, alone carries it below, and the job that waits may ask for that.
fn may_straddle(facts: &Facts<'_>, right: Reclaim, set: Set, branch: usize) -> bool {
    let first = facts.rights()[0];
    let victims = of_branch(facts, set, branch);
    let last = pieces(facts, victims).into_iter().any(|piece| {
        let before = Set(set.0 & !piece.0);
        let used = facts.used_without(before);
        let above = |tenant: usize| used[tenant] > line(facts, right, tenant);
        facts.path(facts.units[unit_of(piece)].tenant).into_iter().all(above)
            && stays_above(facts, first, Set(victims.0 & !piece.0), before)
    });
    last && own_branch_stays_within(facts, right, set, branch)
}

/// What leaves of each job.
fn pieces(facts: &Facts<'_>, set: Set) -> Vec<Set> {
    let of_job = |job| set.units().filter(move |&unit| facts.units[unit].job == job);
    let jobs: BTreeSet<usize> = set.units().map(|unit| facts.units[unit].job).collect();
    jobs.into_iter().map(|job| of_job(job).fold(Set::default(), Set::with)).collect()
}

/// The beneficiary's side of the fork at which the branch begins.
fn own_branch_stays_within(facts: &Facts<'_>, reclaim: Reclaim, set: Set, branch: usize) -> bool {
    let fork = facts.parents[branch];
    let own = facts.lineage(facts.own).find(|&tenant| facts.parents[tenant] == fork);
    let own = own.expect("the job's tenant is below the fork");
    let after = facts.used_without(set)[own] + facts.instance.pending.total();
    after <= line(facts, reclaim, own)
}

/// Inference goes only while the tenant's inference and fixed work are above its guarantee. Whether several tasks beyond the minimum
/// of one job may go together, as all of it may, is not said.
fn inference_stays(facts: &Facts<'_>, set: Set) -> Refused {
    let is_inference = |&unit: &usize| facts.job(unit).class == Class::Inference;
    let inference = set.units().filter(is_inference).fold(Set::default(), Set::with);
    let judged = inference.units().map(|unit| {
        let tenant = facts.units[unit].tenant;
        let of_tenant = inference.units().filter(|&other| facts.units[other].tenant == tenant);
        let jobs = pieces(facts, of_tenant.fold(Set::default(), Set::with));
        let left = protected_left(facts, set, tenant);
        let guaranteed = facts.instance.tenants[tenant].guaranteed_gpus;
        // The largest may be the last.
        let may_go = |last: Option<u64>| left + last.unwrap_or(0) > guaranteed;
        let whole = |job: &&Set| job.units().any(|unit| facts.units[unit].task.is_none());
        let by_one =
            |job: &Set| if whole(&job) { gpus_in(facts, *job) } else { facts.units[unit_of(*job)].gpus };
        if may_go(jobs.iter().map(by_one).max()) {
            Refused::No
        } else if may_go(jobs.iter().map(|&job| gpus_in(facts, job)).max()) {
            Refused::Perhaps
        } else {
            Refused::Yes
        }
    });
    judged.max().unwrap_or(Refused::No)
}

fn unit_of(piece: Set) -> usize {
    piece.units().next().expect("a piece has units")
}

/// What a tenant holds without a set of inference and of work that is never taken: these are protected within its
/// guarantee, together.
pub(super) fn protected_left(facts: &Facts<'_>, set: Set, tenant: usize) -> u64 {
    let fixed = |job: &Running| job.is_fixed(facts.instance.borrow_grace_max_s);
    let protected = |(job, _): &(&Running, u64)| job.class == Class::Inference || fixed(job);
    facts.staying(set, tenant).iter().filter(|held| protected(held)).map(|(_, gpus)| gpus).sum()
}

fn gpus_in(facts: &Facts<'_>, set: Set) -> u64 {
    set.units().map(|unit| facts.units[unit].gpus).sum()
}

/// True when somebody who leaves could at once be reclaimed back. Tasks beyond the minimum of a job that leaves whole do
/// not come back without it.
fn somebody_comes_back(facts: &Facts<'_>, set: Set) -> bool {
    let with_its_job = |unit: usize| {
        let rest = |&other: &usize| {
            facts.units[other].task.is_none() && facts.units[other].job == facts.units[unit].job
        };
        facts.units[unit].task.is_some() && set.units().any(|other| rest(&other))
    };
    set.units().any(|unit| !with_its_job(unit) && could_come_back(facts, set, unit))
}

/// True when a victim, waiting again, would be within its tenant's guarantee, counted without the work of its tenant
/// that would give way to it: it would be served before the job, which is above a guarantee, and take it all back.
pub(super) fn could_come_back(facts: &Facts<'_>, set: Set, unit: usize) -> bool {
    let (job, tenant) = (facts.job(unit), facts.units[unit].tenant);
    let gives_way = |other: &Running| {
        let lower = other.class > job.class || (other.class == job.class && other.priority < job.priority);
        lower && !other.is_fixed(facts.instance.borrow_grace_max_s)
    };
    let staying = facts.staying(set, tenant).into_iter();
    let stays: u64 = staying.filter(|(other, _)| !gives_way(other)).map(|(_, gpus)| gpus).sum();
    stays + facts.units[unit].gpus <= facts.instance.tenants[tenant].guaranteed_gpus
}

/// What rule 7 says to taking a set for a fair share: do more of the freed GPUs stand idle at last than were started?
fn leaves_idle(facts: &Facts<'_>, set: Set) -> Refused {
    let started = facts.instance.pending.total();
    let freed = gpus_in(facts, set);
    let free: u64 = facts.free.iter().sum();
    // The job takes what was free already as far as there is any, and nobody who left finds room again.
    let idle_most = freed - started.saturating_sub(free).min(freed);
    // The job takes only what was freed, and everybody who fits into the rest of it comes back.
    let rest = (free + freed).saturating_sub(started);
    let minimum = |unit: usize| facts.job(unit).gpus * gpus_of(facts.job(unit).min);
    let whole = set.units().filter(|&unit| facts.units[unit].task.is_none());
    let back: u64 = whole.map(minimum).filter(|&gpus| gpus <= rest).sum();
    let idle_least = freed.saturating_sub(started + back);
    if idle_most <= started {
        Refused::No
    } else if idle_least > started {
        Refused::Yes
    } else {
        Refused::Perhaps
    }
}
