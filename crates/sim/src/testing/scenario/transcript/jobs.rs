//! What is told of jobs from their submission to their end.

use std::collections::BTreeSet;

use wharf_engine::model::exit::Outcome;
use wharf_engine::model::job::Spec;
use wharf_engine::state::jobs::event::{Canceller, HeldWhy, JobsEvent, Next, NodeRefusal, RequeueWhy};
use wharf_engine::units::{JobId, Millis, Uid};

use super::{Known, Transcript, span_text};

impl Transcript {
    pub(super) fn job(&mut self, event: JobsEvent, ran: Option<Millis>) -> Option<String> {
        match event {
            JobsEvent::Queued { job, uid, spec, .. } => {
                self.queued(job, uid, spec);
                None
            }
            JobsEvent::Leaving { job, next, .. } => {
                self.known(job).next = Some(next);
                None
            }
            JobsEvent::Stays { job, .. } => {
                self.known(job).next = None;
                None
            }
            JobsEvent::Scaled { job, tasks, .. } => {
                let known = self.known(job);
                known.wanted = tasks;
                Some(format!("{} wants {tasks}", known.name))
            }
            JobsEvent::Rolled { job, tasks, rolling, .. } => {
                let wanted = rolling.map_or(tasks, |rolling| rolling.wanted);
                self.rolled(job, wanted, rolling.map(|rolling| rolling.surge))
            }
            JobsEvent::ReplicaFailed { job, .. } => {
                Some(format!("a replica of {} failed", self.known(job).name))
            }
            JobsEvent::Extended { job, limit, .. } => {
                Some(format!("{} may run {} in all", self.known(job).name, span_text(limit)))
            }
            JobsEvent::Held { job, why: HeldWhy::Restored, .. } => {
                Some(format!("{} is held: nobody knows what became of it", self.known(job).name))
            }
            JobsEvent::Held { job, why: HeldWhy::StartRefused, .. } => {
                Some(format!("{} is held: refused as often as it is tried", self.known(job).name))
            }
            JobsEvent::Changed { job, .. } => Some(format!("{} is changed", self.known(job).name)),
            JobsEvent::StartRefused { job, by, .. } => Some(self.start_refused(job, &by)),
            JobsEvent::RefusalsForgotten { job, .. } => {
                Some(format!("{} avoids its nodes no longer", self.known(job).name))
            }
            JobsEvent::Released { job, .. } => Some(format!("{} is released", self.known(job).name)),
            JobsEvent::Requeued { job, .. } => Some(self.requeued(job)),
            JobsEvent::Ended { job, by: Some(Canceller::Dependency { name }), .. } => {
                let known = self.jobs.remove(&job)?;
                let other = name.rsplit('/').next().unwrap_or_default();
                Some(format!("{} ends: cancelled, {other} did not succeed", known.name))
            }
            JobsEvent::Ended { job, outcome, .. } => {
                let known = self.jobs.remove(&job)?;
                let how = match outcome {
                    Outcome::Succeeded => "succeeded",
                    Outcome::Failed => "failed",
                    Outcome::Cancelled => "cancelled",
                    Outcome::TimedOut => "its time limit is up",
                };
                let ran = ran.filter(|ran| ran.0 > 0);
                let after = ran.map(|ran| format!(" after {}", span_text(ran))).unwrap_or_default();
                Some(format!("{} ends: {how}{after}", known.name))
            }
            JobsEvent::Carried { .. } | JobsEvent::CarriedJob { .. } | JobsEvent::CarriedEnded { .. } => None,
        }
    }

    fn requeued(&mut self, job: JobId) -> String {
        let known = self.known(job);
        let why = match known.next {
            Some(Next::Requeue(RequeueWhy::TaskFailed)) => "a task failed",
            Some(Next::Requeue(RequeueWhy::NodeLost)) => "its place was lost",
            Some(Next::Requeue(RequeueWhy::Evicted)) => "evicted",
            Some(Next::Requeue(RequeueWhy::StartStuck)) => "it did not start in time",
            Some(Next::Requeue(RequeueWhy::StartRefused)) => "its node refused it",
            Some(Next::End(_)) | None => "nobody knows why",
        };
        let name = known.name.clone();
        self.waits.remove(&name);
        format!("{name} waits again: {why}")
    }

    fn start_refused(&mut self, job: JobId, by: &[NodeRefusal]) -> String {
        let told: Vec<String> =
            by.iter().map(|of| format!("{} ({})", self.node(of.node), of.why.into_str())).collect();
        format!("{} refused by {}", self.known(job).name, told.join(", "))
    }

    fn queued(&mut self, job: JobId, uid: Uid, spec: Spec) {
        self.names.insert(uid, spec.name.clone());
        let known = Known {
            name: spec.name,
            groups: spec.groups.into_iter().map(|group| group.name).collect(),
            wanted: spec.tasks,
            rolling: None,
            adopted: false,
            places: Vec::new(),
            running: BTreeSet::new(),
            next: None,
        };
        self.jobs.insert(job, known);
    }

    fn rolled(&mut self, job: JobId, wanted: u32, surge: Option<u32>) -> Option<String> {
        let known = self.known(job);
        known.wanted = wanted;
        let what = match (std::mem::replace(&mut known.rolling, surge), surge) {
            (None, Some(_)) => "replaces its replicas",
            (Some(1..), Some(0)) => "finds no room for more: with fewer for the time",
            (Some(_), None) => "replaces no more replicas",
            (Some(_), Some(_)) | (None, None) => return None,
        };
        Some(format!("{} {what}", known.name))
    }
}
