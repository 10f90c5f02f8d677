//! I8 of the jobs section: every list of jobs, counted again from the jobs themselves and what they hold.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{GroupKey, Job, Jobs, Kind, KindKey, Phase};
use crate::model::dependency::ArrayMember;
use crate::model::exit::Exit;
use crate::model::job::GpuAsk;
use crate::state::State;
use crate::state::holding::{HeldTask, Holding, TaskPhase};
use crate::state::jobs::event::Next;
use crate::state::recount::{grouped, parts, stays, wrong};
use crate::units::{JobId, KindId, Millis, NodeId, Timestamp, Uid};

impl Jobs {
    /// The lists that do not say what the jobs do.
    pub(crate) fn wrong_indexes(&self, state: &State) -> Vec<&'static str> {
        let by_uid = self.iter().map(|(id, job)| (job.uid, id));
        let by_name = self.iter().map(|(id, job)| ((job.spec.tenant, job.spec.name.clone()), id));
        let those = |which: &dyn Fn(JobId, &Job) -> bool| -> BTreeSet<JobId> {
            self.iter().filter(|&(id, job)| which(id, job)).map(|(id, _)| id).collect()
        };
        let held_back = those(&|id, job| self.is_held(id, job));
        let waiting = those(&|id, job| {
            job.phase == Phase::Waiting && state.earmarks.of(id).is_none() && !held_back.contains(&id)
        });
        let growing = those(&|_, job| job.more.is_some());
        let backing_off = waiting.iter().map(|&id| (self.live[&id].not_before, id));
        let backing_off = backing_off.filter(|(at, _)| at.0 > 0);
        let due = self.iter().filter_map(|(id, job)| Some((limit_asks_at(state, id, job)?, id)));
        let ended = self.ended.iter().map(|(&uid, &at)| (at, uid));
        let each_lacks_as_it_says = self.iter().all(|(id, job)| lacks_as_it_says(state, id, job));
        wrong(&[
            ("jobs by identity", by_uid.collect::<BTreeMap<_, _>>() == self.by_uid),
            ("jobs by name", by_name.collect::<BTreeMap<_, _>>() == self.by_name),
            ("services", those(&|_, job| job.spec.service.is_some()) == self.services),
            ("jobs of windows", those(&|_, job| job.spec.booking.is_some()) == self.booked),
            ("jobs that the world owns", those(&|_, job| job.owned) == self.owned),
            ("jobs that avoid nodes", those(&|_, job| !job.past.refused.is_empty()) == self.refused),
            ("how many are held back", usize::try_from(self.held_back_len) == Ok(held_back.len())),
            ("who waits for whom", self.chains_are_listed()),
            ("kinds that wait", self.lists(&self.waiting, &waiting)),
            ("kinds that grow", self.lists(&self.growing, &growing)),
            ("kinds", self.kinds_are_named()),
            ("how many wait", usize::try_from(self.waiting_len) == Ok(waiting.len())),
            ("who backs off", backing_off.collect::<BTreeSet<_>>() == self.backing_off),
            ("time limits", due.collect::<BTreeSet<_>>() == self.wrapping_up),
            ("who ended lately", ended.collect::<BTreeSet<_>>() == self.ended_by_time),
            ("what jobs lack", each_lacks_as_it_says),
        ])
    }

    fn is_held(&self, id: JobId, job: &Job) -> bool {
        let before = |array: &ArrayMember| {
            let earlier = self.live.range(..id).filter_map(|(_, other)| other.spec.array.as_ref());
            let earlier = earlier.filter(|other| other.id == array.id).count();
            u32::try_from(earlier).is_ok_and(|earlier| earlier >= array.at_most)
        };
        let turn = job.spec.array.as_ref().is_some_and(before);
        job.phase == Phase::Waiting && (turn || job.held.is_some() || !job.spec.after.is_empty())
    }

    /// True when those that wait for the end of a job, those whose dependency failed, and the members of arrays are
    /// listed as the jobs say.
    fn chains_are_listed(&self) -> bool {
        let after = || self.iter().flat_map(|(id, job)| job.spec.after.iter().map(move |on| (id, on)));
        let dependents = grouped(after().filter(|(_, on)| !on.failed).map(|(id, on)| (on.job, id)));
        let failed: BTreeSet<JobId> = after().filter(|(_, on)| on.failed).map(|(id, _)| id).collect();
        let members =
            || self.iter().filter_map(|(id, job)| Some((id, job.spec.tenant, job.spec.array.as_ref()?)));
        let arrays = grouped(members().map(|(id, _, array)| (array.id, id)));
        let by_name = grouped(members().map(|(_, tenant, array)| ((tenant, array.name.clone()), array.id)));
        let listed: BTreeMap<Uid, BTreeSet<JobId>> =
            self.arrays.iter().map(|(&id, array)| (id, array.members.clone())).collect();
        let arrays_fit = arrays == listed && by_name == self.arrays_by_name;
        dependents == self.dependents && arrays_fit && failed == self.broken
    }

    /// True when these jobs, and nobody else, stand in lists of those that are alike.
    fn lists(&self, kinds: &BTreeMap<KindId, Kind>, those: &BTreeSet<JobId>) -> bool {
        let own = those.iter().map(|&id| (id, &self.live[&id]));
        let alike = grouped(own.map(|(id, job)| ((kind_again(job), job.more), (job.submitted_at, id))));
        let listed = kinds.values().map(|kind| ((kind.key.clone(), kind.more), kind.jobs.clone()));
        alike.len() == kinds.len() && listed.collect::<BTreeMap<_, _>>() == alike
    }

    /// True when every kind that has jobs is found by what its jobs have in common, and nothing else is.
    fn kinds_are_named(&self) -> bool {
        let listed = self.waiting.iter().chain(&self.growing);
        let mut listed = listed.map(|(&id, kind)| ((kind.key.clone(), kind.more), id));
        let len = self.waiting.len() + self.growing.len();
        self.kinds.len() == len && listed.all(|(known, id)| self.kinds.get(&known) == Some(&id))
    }
}

/// What the planner looks at in a job, field by field.
fn kind_again(job: &Job) -> KindKey {
    let spec = &job.spec;
    let ends_within = time_left(job).map(|left| {
        let mut minutes: u64 = 1;
        while minutes.saturating_mul(60_000) < left {
            minutes = minutes.saturating_mul(2);
        }
        Millis(minutes.saturating_mul(60_000))
    });
    let avoided: BTreeSet<NodeId> = job.past.refused.iter().map(|refusal| refusal.node).collect();
    let all = KindKey {
        tenant: spec.tenant,
        class: spec.class,
        priority: spec.priority,
        tasks: spec.tasks,
        min: spec.min,
        shape: spec.shape.clone(),
        groups: Vec::new(),
        topology: spec.topology,
        preemptible: spec.preemptible,
        trust: spec.trust,
        service: spec.service.is_some(),
        grace: spec.checkpoint.map_or(Millis(0), |checkpoint| checkpoint.grace),
        ends_within,
        booking: spec.booking,
        avoids: avoided.into_iter().collect(),
    };
    let groups = spec.groups.iter().map(|group| {
        let (tasks, min) = (group.tasks * group.copies, group.min * group.min_copies);
        let mut key = KindKey { tasks, min, shape: group.shape.clone(), ..all.clone() };
        key.topology.task_on_island &= group.shape.gpus != GpuAsk::Whole(0);
        GroupKey { key, min: group.min, copies: group.copies }
    });
    KindKey { groups: groups.collect(), ..all.clone() }
}

fn time_left(job: &Job) -> Option<u64> {
    let limit = job.past.extended.or(job.spec.time_limit)?;
    Some(limit.0.saturating_sub(job.past.ran_ms))
}

/// When a time limit asks something of a job that runs.
fn limit_asks_at(state: &State, id: JobId, job: &Job) -> Option<Timestamp> {
    let left = time_left(job)?;
    let holding = state.ledger.holding(id)?;
    let since = holding.tasks.iter().filter_map(|task| task.since).chain(holding.first_since).min()?;
    let up = since.0.saturating_add(left);
    match job.phase {
        Phase::Active => {
            let grace = job.spec.checkpoint.map_or(0, |checkpoint| checkpoint.grace.0);
            Some(Timestamp(up.saturating_sub(grace.min(left / 2))))
        }
        Phase::Leaving(Next::Requeue(_)) => Some(Timestamp(up)),
        Phase::Leaving(Next::End(_)) | Phase::Waiting => None,
    }
}

/// True when a job lacks what it is listed with: so many tasks, as a repair or as growth, in the pool and domain it is in.
fn lacks_as_it_says(state: &State, id: JobId, job: &Job) -> bool {
    let expected = expected_lack(state, id, job);
    let Some(more) = job.more else { return expected.is_none() };
    let Some(holding) = state.ledger.holding(id) else { return false };
    let first = holding.tasks.iter().find(|task| stays(task)).or(holding.tasks.first());
    let Some(place) = first.map(|task| task.place) else { return false };
    let domain = job.spec.topology.gang_within.and_then(|level| {
        let domains = &state.fleet.node(place.node)?.facts.domains;
        domains.iter().find(|(known, _)| *known == level).map(|&(_, domain)| domain)
    });
    expected == Some((more.tasks, more.repair))
        && (more.pool, more.domain) == (place.pool, domain)
        && more.need.units().parts() == parts(&place)
        && more.of == (!job.spec.groups.is_empty()).then_some(id)
}

/// How many tasks a job that runs lacks, and whether it is below its minimum without them.
fn expected_lack(state: &State, id: JobId, job: &Job) -> Option<(u32, bool)> {
    let holding = state.ledger.holding(id).filter(|_| job.phase == Phase::Active)?;
    let over = |how: Exit| {
        let of = move |task: &&HeldTask| matches!(task.phase, TaskPhase::Gone { exit, .. } if exit == how);
        holding.tasks.iter().filter(of).count()
    };
    if over(Exit::Failed) > 0 || state.earmarks.of(id).is_some() {
        return None;
    }
    let done = over(Exit::Succeeded);
    if !job.spec.groups.is_empty() {
        return lack_of_groups(job, holding, done);
    }
    let alive = u32::try_from(holding.tasks.iter().filter(|task| stays(task)).count() + done).ok()?;
    if alive < job.spec.min {
        return Some((job.spec.min - alive, true));
    }
    (alive < job.spec.tasks && done == 0).then_some((1, false))
}

/// The same of a job with groups, copy by copy.
fn lack_of_groups(job: &Job, holding: &Holding, done: usize) -> Option<(u32, bool)> {
    let slots: u32 = job.spec.groups.iter().map(|group| group.tasks * group.copies).sum();
    let is_alive =
        |task: &&HeldTask| stays(task) || matches!(task.phase, TaskPhase::Gone { exit: Exit::Succeeded, .. });
    let alive: BTreeSet<u32> =
        holding.tasks.iter().filter(is_alive).map(|task| task.place.task % slots.max(1)).collect();
    let (mut first, mut repair, mut growth) = (0, 0, 0);
    for group in &job.spec.groups {
        let mut copies = Vec::new();
        for _ in 0..group.copies {
            copies.push(u32::try_from(alive.range(first..first + group.tasks).count()).ok()?);
            first += group.tasks;
        }
        let mut fallen: Vec<u32> =
            copies.iter().filter(|&&has| has < group.min).map(|has| group.min - has).collect();
        fallen.sort_unstable();
        let standing = group.copies - u32::try_from(fallen.len()).ok()?;
        let short = usize::try_from(group.min_copies.saturating_sub(standing)).ok()?;
        repair += fallen.into_iter().take(short).sum::<u32>();
        let broken = copies.iter().find(|&&has| has > 0 && has < group.min).map(|has| group.min - has);
        let taller = copies.iter().any(|&has| has >= group.min && has < group.tasks).then_some(1);
        let another = copies.contains(&0).then_some(group.min);
        growth += broken.or(taller).or(another).unwrap_or(0);
    }
    if repair > 0 {
        return Some((repair, true));
    }
    (done == 0 && growth > 0).then_some((growth, false))
}

/// An index and what would be wrong with it: an entry too few, too many, or at the wrong place.
#[cfg(test)]
pub(crate) fn corruptions() -> Vec<crate::state::Corruption<Jobs>> {
    alloc::vec![
        ("jobs by identity", |jobs| _ = jobs.by_uid.pop_first()),
        ("jobs by identity", |jobs| _ = jobs.by_uid.insert(Uid(u128::MAX), JobId(0))),
        ("jobs by name", |jobs| _ = jobs.by_name.pop_first()),
        ("services", |jobs| _ = jobs.services.pop_first()),
        ("jobs of windows", |jobs| _ = jobs.booked.pop_first()),
        ("jobs that the world owns", |jobs| _ = jobs.owned.insert(JobId(0))),
        ("jobs that avoid nodes", |jobs| _ = jobs.refused.insert(JobId(0))),
        ("kinds that wait", |jobs| _ = jobs.waiting.pop_first()),
        ("kinds that wait", |jobs| {
            let mut kind = jobs.waiting.first_entry().expect("somebody waits");
            kind.get_mut().key.priority += 1;
        }),
        ("kinds that grow", |jobs| _ = jobs.growing.pop_first()),
        ("kinds", |jobs| _ = jobs.kinds.pop_first()),
        ("how many wait", |jobs| jobs.waiting_len += 1),
        ("how many are held back", |jobs| jobs.held_back_len += 1),
        ("who waits for whom", |jobs| _ = jobs.broken.insert(JobId(0))),
        ("who waits for whom", |jobs| {
            jobs.arrays_by_name.entry((crate::units::TenantId(0), "gone".into())).or_default().insert(Uid(0));
        }),
        ("who backs off", |jobs| _ = jobs.backing_off.insert((Timestamp(1), JobId(0)))),
        ("bytes by tenant", |jobs| _ = jobs.bytes.pop_first()),
        ("time limits", |jobs| _ = jobs.wrapping_up.pop_first()),
        ("who ended lately", |jobs| _ = jobs.ended_by_time.pop_first()),
        ("what jobs lack", |jobs| {
            let more =
                jobs.live.values_mut().find_map(|job| job.more.as_mut()).expect("somebody lacks a task");
            more.tasks += 1;
        }),
    ]
}
