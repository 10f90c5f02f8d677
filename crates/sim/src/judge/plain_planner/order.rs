//! Who wants something, and who is served next (rule 3).

use std::cmp::Reverse;

use wharf_engine::model::exit::Exit;
use wharf_engine::model::job::{Class, Spec};
use wharf_engine::state::jobs::{Job, Phase};
use wharf_engine::units::{JobId, PoolId, TenantId, Timestamp};

use super::Round;
use super::lines::{Ask, Line, Pass, Ratio};
use super::world::Facts;

/// Which pass has its turn, and in it which class; any where it is not said.
pub(super) type Turn = (Pass, Option<Class>);

/// The turns of a plan, in order. Within a guarantee, class comes before everything else.
pub(super) const TURNS: [Turn; 5] = [
    (Pass::WithinGuarantee, Some(Class::Inference)),
    (Pass::WithinGuarantee, Some(Class::Interactive)),
    (Pass::WithinGuarantee, Some(Class::Batch)),
    (Pass::WithinFairShare, None),
    (Pass::Surplus, None),
];

/// What a job wants: its minimum, the rest of its minimum after a loss, or one more task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Want<'a> {
    pub(super) job: JobId,
    pub(super) spec: &'a Spec,
    pub(super) age: (Timestamp, JobId),
    pub(super) tasks: u32,
    /// More than a minimum.
    pub(super) surplus: bool,
    /// It runs already.
    pub(super) grows: bool,
    /// It began in this plan: it is like nobody else.
    pub(super) began: bool,
    /// Where it may go, in order.
    pub(super) pools: Vec<PoolId>,
    /// The domain that the rest of the gang is in.
    pub(super) domain: Option<u32>,
}

impl Want<'_> {
    /// True when two wants are refused together.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        if self.began || other.began {
            return self.job == other.job && self.began == other.began;
        }
        let (a, b) = (self.spec, other.spec);
        let same_job = a.tenant == b.tenant
            && a.class == b.class
            && a.priority == b.priority
            && a.tasks == b.tasks
            && a.min == b.min
            && a.shape == b.shape
            && a.topology == b.topology
            && a.preemptible == b.preemptible
            && a.trust == b.trust
            && a.grace() == b.grace();
        let same_want = self.tasks == other.tasks
            && self.surplus == other.surplus
            && self.grows == other.grows
            && (!self.grows || self.pools == other.pools)
            && self.domain == other.domain;
        same_job && same_want
    }
}

impl<'a> Facts<'a> {
    /// What a job wants as the state is, whether or not it may start yet.
    pub(super) fn want(&self, id: JobId, job: &'a Job) -> Option<Want<'a>> {
        let spec = &job.spec;
        let age = (job.submitted_at, id);
        let promised = self.state.earmarks.of(id).is_some();
        let waits = Want {
            job: id,
            spec,
            age,
            tasks: spec.min,
            surplus: false,
            grows: false,
            began: false,
            pools: Vec::new(),
            domain: None,
        };
        match job.phase {
            // Who was promised places waits for those alone; what is promised to a job that runs is on its way.
            _ if promised => None,
            Phase::Leaving(_) => None,
            // Who waits for another job, or for its turn in an array, is no candidate.
            Phase::Waiting if job.is_held_back() => None,
            Phase::Waiting => Some(Want { pools: self.pools(&spec.shape), ..waits }),
            Phase::Active => {
                let holding = self.state.ledger.holding(id)?;
                let staying: Vec<_> = holding.tasks.iter().filter(|task| task.stays()).collect();
                let (done, failed) = (holding.exits(Exit::Succeeded), holding.exits(Exit::Failed));
                let alive = u32::try_from(staying.len() + done).expect("a count of tasks fits");
                let repair = alive < spec.min;
                // When its first tasks have finished it is no longer grown.
                let complete = alive >= spec.tasks || (done > 0 && !repair);
                if failed > 0 || complete {
                    return None;
                }
                let first = staying.first().copied().or(holding.tasks.first())?.place;
                let tasks = if repair { spec.min - alive } else { 1 };
                let (pools, domain) = (vec![first.pool], self.domain_of(spec, first.node));
                Some(Want {
                    tasks,
                    surplus: !repair && spec.service.is_none(),
                    grows: true,
                    pools,
                    domain,
                    ..waits
                })
            }
        }
    }
}

/// Where a want stands inside its tenant: class, priority, minimums before surplus, age.
type Inside = (Class, Reverse<i32>, bool, (Timestamp, JobId));
/// Where a tenant stands among its siblings.
type Among<'a> = (Reverse<i32>, Ratio, Option<Class>, Reverse<u64>, (Timestamp, JobId), &'a str);

impl<'a> Round<'a> {
    /// What everybody wants on this draft, in the pools that have not refused it.
    fn wants(&self) -> Vec<Want<'a>> {
        let mut wants: Vec<Want<'a>> = Vec::new();
        for (id, job) in self.facts.state.jobs.iter().filter(|(_, job)| job.not_before <= self.facts.now) {
            wants.extend(match self.begun.iter().find(|begun| begun.job == id) {
                Some(begun) => begun.more.clone(),
                // Who has to give up tasks in this plan gets none in it.
                None if self.world.giving_up.contains(&id) => None,
                None => self.facts.want(id, job),
            });
        }
        for want in &mut wants {
            let like = want.clone();
            want.pools
                .retain(|pool| !self.refused.iter().any(|(other, no)| no == pool && other.is_like(&like)));
        }
        wants.retain(|want| !want.pools.is_empty());
        wants
    }

    /// What a want asks for in each pool, where it is in this pass or a better one.
    pub(super) fn asks(&self, want: &Want<'a>, turn: Turn) -> Vec<Ask<'a>> {
        let mut asks = Vec::new();
        for &pool in &want.pools {
            let mut ask = Ask {
                first_task: self.first_task(want),
                domain: want.domain,
                surplus: want.surplus,
                fair_share: self.allowance(want.job),
                ..Ask::plain(self.facts, want.job, want.spec, pool, want.tasks)
            };
            ask.pass = self.world.pass(&ask);
            if ask.pass <= turn.0 {
                asks.push(ask);
            }
        }
        asks
    }

    /// The want that is served next.
    pub(super) fn next(&self, turn: Turn) -> Option<Want<'a>> {
        let mut wants = self.wants();
        wants.retain(|want| turn.1.is_none_or(|class| want.spec.class == class));
        wants.retain(|want| !self.asks(want, turn).is_empty());
        self.best_of(&wants, None, turn)
    }

    /// The best of the siblings below a tenant, each represented by the best want in it.
    fn best_of(&self, wants: &[Want<'a>], parent: Option<TenantId>, turn: Turn) -> Option<Want<'a>> {
        let siblings = self.facts.children(parent).into_iter();
        let best = siblings.filter_map(|tenant| Some((tenant, self.best_in(wants, tenant, turn)?)));
        best.min_by_key(|(tenant, want)| self.among(*tenant, want, turn)).map(|(_, want)| want)
    }

    /// The best want of a tenant: its own, else the best of those below it.
    fn best_in(&self, wants: &[Want<'a>], tenant: TenantId, turn: Turn) -> Option<Want<'a>> {
        let own = wants.iter().filter(|want| want.spec.tenant == tenant);
        let inside = |want: &&Want<'a>| -> Inside {
            (want.spec.class, Reverse(want.spec.priority), want.surplus, want.age)
        };
        own.min_by_key(inside).cloned().or_else(|| self.best_of(wants, Some(tenant), turn))
    }

    fn among(&self, tenant: TenantId, want: &Want<'a>, turn: Turn) -> Among<'a> {
        let line = match turn.0 {
            Pass::WithinGuarantee => Line::Guarantee,
            Pass::WithinFairShare | Pass::Surplus => Line::FairShare,
        };
        let charge = self.facts.charge(&want.spec.shape, want.pools[0], 1);
        let neediness = self.world.neediness(tenant, &charge, line);
        let class = (turn.0 == Pass::WithinFairShare).then_some(want.spec.class);
        let priority = Reverse(self.facts.tenant_priority(tenant));
        let path = self.facts.state.tenants.path(tenant);
        (priority, neediness, class, Reverse(neediness.line), self.oldest(tenant), path)
    }

    /// The oldest job of a tenant, or below it, that wanted something when the plan began.
    fn oldest(&self, tenant: TenantId) -> (Timestamp, JobId) {
        let jobs = self.facts.state.jobs.iter();
        let below = jobs.filter(|(_, job)| self.facts.is_below(job.spec.tenant, tenant));
        let wants = below.filter_map(|(id, job)| self.facts.want(id, job));
        wants.map(|want| want.age).min().expect("who is compared has a want")
    }
}
