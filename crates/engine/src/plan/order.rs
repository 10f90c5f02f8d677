//! Who is next (rule 3): tenants level by level, then class, priority and age inside a tenant.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

use crate::job::Class;
use crate::jobs::{Kind, KindKey};
use crate::plan::Pass;
use crate::plan::draft::Draft;
use crate::plan::place;
use crate::policy::Amount;
use crate::state::State;
use crate::units::{JobId, KindId, PoolId, TenantId, Timestamp};

/// Kinds that may still start in this plan.
pub struct Candidates<'a> {
    open: BTreeMap<KindId, Candidate<'a>>,
    /// Oldest waiting job of a tenant with everyone below it.
    oldest: BTreeMap<TenantId, (Timestamp, JobId)>,
}

struct Candidate<'a> {
    key: &'a KindKey,
    /// Its oldest job that may start now.
    first: (Timestamp, JobId),
    /// Those after it, looked at only as far as they start.
    rest: Box<dyn Iterator<Item = (Timestamp, JobId)> + 'a>,
    /// The pool it is counted in before it lands.
    pool: PoolId,
}

/// The rank of a candidate; smaller is served first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    class_first: Option<Class>,
    levels: Vec<LevelRank>,
    class: Class,
    priority: Reverse<i32>,
    age: (Timestamp, JobId),
}

/// The rank of one tenant among its siblings.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LevelRank {
    priority: Reverse<i32>,
    neediness: Ratio,
    larger_line: Reverse<u64>,
    oldest: (Timestamp, JobId),
    path: u32,
}

/// How much of its line a tenant has; compared without rounding.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    used: u64,
    line: u64,
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        // A line of nothing is the least needy; among those, who has less is needier.
        match (self.line, other.line) {
            (0, 0) => self.used.cmp(&other.used),
            (0, _) => Ordering::Greater,
            (_, 0) => Ordering::Less,
            _ => {
                let ours = u128::from(self.used) * u128::from(other.line);
                ours.cmp(&(u128::from(other.used) * u128::from(self.line)))
            }
        }
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}

impl<'a> Candidates<'a> {
    /// The kinds worth trying, with the jobs of each that may start now.
    pub fn new(state: &'a State, kinds: Vec<(KindId, &'a Kind)>, now: Timestamp) -> Self {
        let mut candidates = Self { open: BTreeMap::new(), oldest: BTreeMap::new() };
        // Of all that waits, also what is not tried again: a memory must not change who is served first.
        for kind in state.jobs.waiting().values() {
            let Some(&first) = kind.jobs.first() else { continue };
            for tenant in state.tenants.lineage(kind.key.tenant) {
                let oldest = candidates.oldest.entry(tenant).or_insert(first);
                *oldest = first.min(*oldest);
            }
        }
        for (id, kind) in kinds {
            let may_start = move |&(_, job): &(Timestamp, JobId)| {
                state.jobs.get(job).is_some_and(|job| job.not_before <= now)
            };
            let mut rest = kind.jobs.iter().copied().filter(may_start);
            let pool = state.fleet.pool_ids().find(|&pool| place::may_use(state, &kind.key, pool));
            let (Some(first), Some(pool)) = (rest.next(), pool) else { continue };
            candidates.open.insert(id, Candidate { key: &kind.key, first, rest: Box::new(rest), pool });
        }
        candidates
    }

    /// The kind that is served next in this pass, with its oldest job.
    pub fn next(&self, draft: &Draft<'_>, pass: Pass) -> Option<(KindId, JobId)> {
        let eligible = self.open.iter().filter(|(_, candidate)| in_pass(draft, candidate, pass));
        let (kind, candidate) = eligible.min_by_key(|(_, candidate)| self.rank(draft, candidate, pass))?;
        Some((*kind, candidate.first.1))
    }

    /// Its oldest job has its places.
    pub fn started(&mut self, kind: KindId) {
        let candidate = self.open.get_mut(&kind).expect("only a candidate starts");
        match candidate.rest.next() {
            Some(next) => candidate.first = next,
            None => self.refused(kind),
        }
    }

    /// None of its jobs fits any more in this plan.
    pub fn refused(&mut self, kind: KindId) {
        self.open.remove(&kind);
    }

    fn rank(&self, draft: &Draft<'_>, candidate: &Candidate<'_>, pass: Pass) -> Rank {
        let key = candidate.key;
        let charge = draft.tree.charge(&key.shape, candidate.pool);
        let mut levels: Vec<LevelRank> = draft
            .tree
            .lineage(key.tenant)
            .map(|tenant| self.level_rank(draft, tenant, &charge, pass))
            .collect();
        levels.reverse();
        Rank {
            class_first: (pass == Pass::WithinGuarantee).then_some(key.class),
            levels,
            class: key.class,
            priority: Reverse(key.priority),
            age: candidate.first,
        }
    }

    fn level_rank(&self, draft: &Draft<'_>, tenant: TenantId, charge: &[u64], pass: Pass) -> LevelRank {
        let line = &draft.tree.lines[tenant.index()];
        let (used, share) = (draft.used(tenant), draft.share(tenant));
        let asked = (0..charge.len()).filter(|&meter| charge[meter] > 0);
        let ratios = asked.map(|meter| {
            let promised = match (pass, line.quotas[meter].guaranteed) {
                (_, Amount::Unlimited) => return Ratio { used: 0, line: u64::MAX },
                (Pass::WithinGuarantee, Amount::Of(guaranteed)) => guaranteed,
                (Pass::WithinFairShare | Pass::Surplus, Amount::Of(_)) => share[meter],
            };
            Ratio { used: used[meter], line: promised }
        });
        let neediness = ratios.max().unwrap_or(Ratio { used: 0, line: 0 });
        LevelRank {
            priority: Reverse(line.priority),
            neediness,
            larger_line: Reverse(neediness.line),
            oldest: self.oldest[&tenant],
            path: line.path_rank,
        }
    }
}

/// True when the tenant, with the job, stays within the pass's line in everything the job asks for.
fn in_pass(draft: &Draft<'_>, candidate: &Candidate<'_>, pass: Pass) -> bool {
    let key = candidate.key;
    let line = &draft.tree.lines[key.tenant.index()];
    let (used, share) = (draft.used(key.tenant), draft.share(key.tenant));
    let charge = draft.tree.charge(&key.shape, candidate.pool);
    (0..charge.len()).filter(|&meter| charge[meter] > 0).all(|meter| {
        let after = used[meter].saturating_add(charge[meter].saturating_mul(u64::from(key.min)));
        match (pass, line.quotas[meter].guaranteed) {
            (Pass::Surplus, _) | (_, Amount::Unlimited) => true,
            (Pass::WithinGuarantee, Amount::Of(guaranteed)) => after <= guaranteed,
            (Pass::WithinFairShare, Amount::Of(_)) => after <= share[meter],
        }
    })
}
