//! The attained section: how much each live job was served, since when it waits, and how long jobs took that are over.
//!
//! It is what the orders beyond age go by (rule 3), and what estimates are learned from. Counting begins with the first policy
//! that has either and ends with the first that has none: where every class is served by age and nothing is learned there is
//! nothing in here, and nothing of it in a snapshot.

mod finished;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::is_default;
use crate::model::job::{Class, Spec};
use crate::model::policy::OrderRules;
use crate::state::event::Event;
use crate::state::holding::Holding;
use crate::state::jobs::Job;
use crate::units::{GpuUnits, JobId, Millis, TenantId, Timestamp};

use finished::Finished;
pub use finished::Size;
pub(crate) use finished::{age_floor, next_age};

/// The most groups of jobs alike that are told apart: a label with a new value for every job would fill the memory.
const GROUPS_MAX: usize = 1024;

/// What the order of a job goes by, beside what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedTime {
    /// GPU time of earlier attempts and of tasks that are over, in milliseconds of one GPU.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu_ms: u64,
    /// Since when it waits, or waited last; 0 while that is since it was submitted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waits_since: Timestamp,
    /// It was first once because it had waited for so long, and is safe until then.
    #[serde(default, skip_serializing_if = "is_default")]
    pub safe_until: Option<Timestamp>,
}

/// Jobs that are expected to take as long as each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FinishedGroup {
    pub tenant: TenantId,
    pub class: Class,
    pub size: Size,
    /// `key=value` of the label that tells them apart, if one does.
    #[serde(default, skip_serializing_if = "is_default")]
    pub label: Option<String>,
}

/// How long a job is expected to run, by what finished before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedEstimate {
    /// Nine of ten were over by then.
    pub millis: Millis,
    pub jobs: usize,
    pub label: Option<String>,
}

/// What happens to how much jobs were served. It follows from starts and ends; only a snapshot has to say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttainedEvent {
    /// What a live job was served, in a snapshot.
    CarriedJob { job: JobId, served: ServedTime },
    /// How long jobs alike took that are over, in milliseconds, the oldest first, in a snapshot.
    CarriedFinished { group: FinishedGroup, durations: Vec<u64> },
}

/// How much each live job was served, and how long finished ones took.
#[derive(Clone, Debug, Default)]
pub struct Attained {
    counting: bool,
    jobs: BTreeMap<JobId, ServedTime>,
    finished: BTreeMap<FinishedGroup, Finished>,
    /// How often something was learned of a tenant's jobs.
    learned: BTreeMap<TenantId, u64>,
}

/// The GPUs that the minimum of a job takes, in 1/3000; what service is divided by to tell how long it ran.
pub fn minimum(spec: &Spec) -> u64 {
    spec.units_min().parts()
}

/// The same in GPUs, a part of one counted as one.
pub(crate) fn minimum_gpus(spec: &Spec) -> u64 {
    minimum(spec).div_ceil(GpuUnits::WHOLE.parts())
}

impl Attained {
    /// True when service is counted.
    pub fn is_counting(&self) -> bool {
        self.counting
    }

    /// What is known of a job.
    pub fn of(&self, job: JobId) -> ServedTime {
        self.jobs.get(&job).copied().unwrap_or_default()
    }

    /// Changes whenever something is learned of how long a tenant's jobs take.
    pub fn learned(&self, tenant: TenantId) -> u64 {
        self.learned.get(&tenant).copied().unwrap_or_default()
    }

    /// GPU time that a job was served so far, in milliseconds of one GPU.
    pub fn gpu_ms(&self, job: JobId, holding: Option<&Holding>, now: Timestamp) -> u64 {
        let running = holding.map_or(0, |holding| holding.served(now));
        self.of(job).gpu_ms.saturating_add(running)
    }

    /// Since when a job waits, or waited last.
    pub(crate) fn waits_since(&self, id: JobId, job: &Job) -> Timestamp {
        self.of(id).waits_since.max(job.submitted_at)
    }

    /// The running it takes to see a job like this one end when it has run for so long, in milliseconds; `None` where
    /// too few like it are over.
    pub fn left(&self, spec: &Spec, rules: &OrderRules, ran_ms: u64) -> Option<u64> {
        let mut groups = groups_of(spec, rules.label.as_ref());
        groups.find_map(|group| self.finished.get(&group)?.left(ran_ms))
    }

    /// How long a job like this one is expected to run in all; `None` where too few like it are over.
    pub fn estimate(&self, spec: &Spec, label: Option<&String>) -> Option<LearnedEstimate> {
        groups_of(spec, label).find_map(|group| {
            let finished = self.finished.get(&group)?;
            let millis = Millis(finished.most?);
            Some(LearnedEstimate { millis, jobs: finished.durations.len(), label: group.label })
        })
    }

    pub(crate) fn apply(&mut self, event: &AttainedEvent) {
        match event {
            AttainedEvent::CarriedJob { job, served } => {
                self.jobs.insert(*job, *served);
            }
            AttainedEvent::CarriedFinished { group, durations } => {
                self.finished.insert(group.clone(), Finished::of(durations));
            }
        }
    }

    /// Another policy is in force. Of work before the first one that counts only its length is known.
    pub(crate) fn count<'a>(&mut self, counting: bool, jobs: impl Iterator<Item = (JobId, &'a Job)>) {
        if !counting {
            *self = Self::default();
            return;
        }
        if !self.counting {
            for (id, job) in jobs.filter(|(_, job)| job.past.ran_ms > 0) {
                let gpu_ms = gpu_time(job.past.ran_ms, minimum(&job.spec));
                self.jobs.insert(id, ServedTime { gpu_ms, ..ServedTime::default() });
            }
        }
        self.counting = true;
    }

    pub(crate) fn served(&mut self, job: JobId, gpu_ms: u64) {
        if self.counting && gpu_ms > 0 {
            let total = &mut self.jobs.entry(job).or_default().gpu_ms;
            *total = total.saturating_add(gpu_ms);
        }
    }

    pub(crate) fn waits(&mut self, job: JobId, at: Timestamp) {
        if self.counting {
            self.jobs.entry(job).or_default().waits_since = at;
        }
    }

    /// It starts. Who was first because it had waited so long is safe for as long, this once.
    pub(crate) fn started(&mut self, id: JobId, job: &Job, rules: &OrderRules, at: Timestamp) {
        let waited = at - self.waits_since(id, job);
        let promoted = rules.promote_after.is_some_and(|after| waited >= after);
        if self.counting && promoted {
            self.jobs.entry(id).or_default().safe_until.get_or_insert(at + waited);
        }
    }

    /// It is over, after so much service in all. What is learned of it is learned by each of these labels.
    pub(crate) fn ended(&mut self, id: JobId, spec: &Spec, by: &[Option<&String>], gpu_ms: u64) {
        self.jobs.remove(&id);
        if !self.counting || gpu_ms == 0 {
            return;
        }
        // However it ended: a job that its owner gives up early is done early too.
        let Some(millis) = run_time(gpu_ms, minimum(spec)) else { return };
        *self.learned.entry(spec.tenant).or_default() += 1;
        let groups: BTreeSet<FinishedGroup> = by.iter().flat_map(|&label| groups_of(spec, label)).collect();
        for group in groups {
            if self.finished.len() < GROUPS_MAX || self.finished.contains_key(&group) {
                self.finished.entry(group).or_default().add(millis);
            }
        }
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        for (&job, &served) in self.jobs.iter().filter(|(_, served)| **served != ServedTime::default()) {
            into.push(Event::Attained(AttainedEvent::CarriedJob { job, served }));
        }
        for (group, finished) in &self.finished {
            let (group, durations) = (group.clone(), finished.durations.clone());
            into.push(Event::Attained(AttainedEvent::CarriedFinished { group, durations }));
        }
    }
}

/// The groups a job belongs to, the narrowest first.
fn groups_of(spec: &Spec, label: Option<&String>) -> impl Iterator<Item = FinishedGroup> {
    let (tenant, class, size) = (spec.tenant, spec.class, Size::of(minimum_gpus(spec)));
    let wide = FinishedGroup { tenant, class, size, label: None };
    let label = label.and_then(|key| {
        let (_, value) = spec.labels.iter().find(|(known, _)| known == key)?;
        Some(alloc::format!("{key}={value}"))
    });
    let narrow = label.map(|label| FinishedGroup { label: Some(label), ..wide.clone() });
    narrow.into_iter().chain(core::iter::once(wide))
}

/// GPU time of so long on so much, in milliseconds of one GPU.
pub fn gpu_time(millis: u64, parts: u64) -> u64 {
    let exact = u128::from(millis) * u128::from(parts) / u128::from(GpuUnits::WHOLE.parts());
    u64::try_from(exact).unwrap_or(u64::MAX)
}

/// How long so much GPU time takes on so much; `None` for work without GPUs.
pub(crate) fn run_time(gpu_ms: u64, parts: u64) -> Option<u64> {
    let exact = (u128::from(gpu_ms) * u128::from(GpuUnits::WHOLE.parts())).checked_div(u128::from(parts))?;
    Some(u64::try_from(exact).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::{GpuAsk, Shape};
    use crate::units::Resources;

    fn spec(label: Option<&str>) -> Spec {
        Spec {
            labels: label.map(|value| (String::from("app"), String::from(value))).into_iter().collect(),
            ..Spec::of(String::from("job"), Shape::of(GpuAsk::Whole(2), Resources::default()))
        }
    }

    fn ended(attained: &mut Attained, jobs: core::ops::Range<u64>, value: &str, millis: u64) {
        for job in jobs.map(JobId) {
            let by = [None, Some(&String::from("app"))];
            attained.ended(job, &spec(Some(value)), &by, gpu_time(millis, 6000));
        }
    }

    #[test]
    fn a_label_tells_jobs_apart_once_enough_of_them_are_known() {
        let rules = OrderRules { label: Some(String::from("app")), ..OrderRules::default() };
        let mut attained = Attained { counting: true, ..Attained::default() };
        ended(&mut attained, 0..20, "short", 1000);
        ended(&mut attained, 20..39, "long", 100_000);
        assert_eq!(attained.left(&spec(Some("short")), &rules, 0), Some(1000));
        // 19 of 20: it goes by all of its size, of which half end after a second.
        let all = attained.left(&spec(None), &rules, 0);
        assert_eq!((attained.left(&spec(Some("long")), &rules, 0), all), (all, Some(1950)));
        ended(&mut attained, 39..40, "long", 100_000);
        assert_eq!(attained.left(&spec(Some("long")), &rules, 0), Some(100_000));
    }

    #[test]
    fn an_estimate_says_what_it_was_learned_from() {
        let label = String::from("app");
        let mut attained = Attained { counting: true, ..Attained::default() };
        ended(&mut attained, 0..20, "long", 100_000);
        let learned = |label| LearnedEstimate { millis: Millis(100_000), jobs: 20, label };
        let long = attained.estimate(&spec(Some("long")), Some(&label));
        assert_eq!(long, Some(learned(Some(String::from("app=long")))));
        assert_eq!(attained.estimate(&spec(Some("new")), Some(&label)), Some(learned(None)));
        assert_eq!(attained.estimate(&Spec { tenant: TenantId(1), ..spec(None) }, None), None);
    }

    #[test]
    fn where_every_class_goes_by_age_nothing_is_kept() {
        let mut attained = Attained::default();
        attained.served(JobId(0), 5000);
        attained.waits(JobId(0), Timestamp(7));
        attained.ended(JobId(0), &spec(None), &[None], 5000);
        let mut events = Vec::new();
        attained.snapshot(&mut events);
        assert_eq!(events, []);
    }
}
