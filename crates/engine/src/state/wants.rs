//! What jobs that hold places or have an earmark want in all, and what active jobs still lack. Both are derived from a job
//! and its places whenever one of them changes; the ledger and the jobs keep them, because they are asked for in every plan.

use alloc::vec::Vec;

use crate::model::exit::Exit;
use crate::model::group::Lacks;
use crate::model::job::Shape;
use crate::model::need::Need;
use crate::state::State;
use crate::state::holding::Holding;
use crate::state::jobs::event::Next;
use crate::state::jobs::{Job, More, Phase};
use crate::state::ledger::WantedTotal;
use crate::state::ways::first_way;
use crate::units::JobId;

impl State {
    pub(super) fn places_changed(&mut self, job: JobId) {
        let tenant = self.jobs.get(job).expect("places belong to a live job").spec.tenant;
        self.ledger.note_changed_of(self.tenants.lineage(tenant));
        self.refresh(job);
    }

    /// Works out again what a job wants and lacks, and when its time limit asks something of it.
    pub(super) fn refresh(&mut self, id: JobId) {
        let job = self.jobs.get(id).expect("what changed belongs to a live job");
        let (wants, more) = (self.wants(id, job), self.more(id, job));
        self.ledger.set_wants(id, wants);
        self.jobs.set_more(id, more);
        self.refresh_limit(id);
    }

    pub(super) fn refresh_limit(&mut self, id: JobId) {
        self.jobs.set_wrap_up(id, self.wrap_up_at(id));
    }

    /// What a job, or each of its groups, wants where its first place is or, without a place, in the first pool it may use.
    fn wants(&self, id: JobId, job: &Job) -> Vec<WantedTotal> {
        let spec = &job.spec;
        let holding = self.ledger.holding(id);
        let earmarked = self.earmarks.of(id).map(|earmark| earmark.tasks.as_slice()).unwrap_or_default();
        let ending = matches!(job.phase, Phase::Leaving(Next::End(_)));
        if ending || (holding.is_none() && earmarked.is_empty()) {
            return Vec::new();
        }
        let held = || holding.into_iter().flat_map(|holding| &holding.tasks).map(|task| &task.place);
        let want = |group: Option<usize>, shape: &Shape, tasks_in_all: u32| {
            let own = |task: u32| spec.group_of(task) == group;
            let given = held()
                .chain(earmarked)
                .find(|place| own(place.task))
                .map(|place| (place.pool, place.units()));
            let (pool, each) = given.or_else(|| {
                let (pool, need) = group.and_then(|_| first_way(&self.fleet, shape))?;
                Some((pool, need.units()))
            })?;
            let done = holding.map_or(0, |holding| holding.done().filter(|&task| own(task)).count());
            let tasks = tasks_in_all.saturating_sub(u32::try_from(done).unwrap_or(u32::MAX));
            let resources = shape.resources.times(tasks);
            Some(WantedTotal { tenant: spec.tenant, pool, units: each.times(tasks), resources })
        };
        if !spec.has_groups() {
            return want(None, &spec.shape, spec.tasks).into_iter().collect();
        }
        let groups = spec.groups.iter().enumerate();
        groups.filter_map(|(at, group)| want(Some(at), &group.shape, group.tasks_in_all())).collect()
    }

    /// What an active job lacks: first the tasks that repair it, then those that let it grow.
    fn more(&self, id: JobId, job: &Job) -> Option<More> {
        let holding = self.ledger.holding(id).filter(|_| job.phase == Phase::Active)?;
        // What is earmarked for a job that runs is on its way; one piece at a time.
        if holding.exits(Exit::Failed) > 0 || self.earmarks.of(id).is_some() {
            return None;
        }
        let grouped = job.spec.has_groups();
        let (tasks, repair) = if grouped { lacks_in_groups(job, holding) } else { lacks(job, holding) }?;
        let first = holding.staying().next().or(holding.tasks.first())?;
        let level = job.spec.topology.gang_within;
        let domain = level.and_then(|level| self.fleet.domain_of(first.place.node, level));
        let (pool, need) = (first.place.pool, Need::held(&first.place));
        Some(More { tasks, repair, pool, need, domain, of: grouped.then_some(id) })
    }
}

/// How many tasks a job without groups lacks, and whether they repair it. It grows by one task at a time.
fn lacks(job: &Job, holding: &Holding) -> Option<(u32, bool)> {
    let done = holding.done().count();
    let alive = u32::try_from(holding.staying().count() + done).unwrap_or(u32::MAX);
    if alive < job.spec.min {
        return Some((job.spec.min - alive, true));
    }
    (alive < job.spec.tasks && done == 0).then_some((1, false))
}

fn lacks_in_groups(job: &Job, holding: &Holding) -> Option<(u32, bool)> {
    let (lacks, repair) = match job.spec.lacks(holding.alive()) {
        Lacks::Repair(lacks) => (lacks, true),
        // A job of which tasks have finished is repaired, but not grown any more.
        Lacks::Growth(_) if holding.done().next().is_some() => return None,
        Lacks::Growth(lacks) => (lacks, false),
    };
    let tasks: usize = lacks.iter().map(|lack| lack.slots.len()).sum();
    u32::try_from(tasks).ok().filter(|&tasks| tasks > 0).map(|tasks| (tasks, repair))
}
