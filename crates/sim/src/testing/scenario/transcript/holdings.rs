//! What is told of places: who starts, grows, is asked to leave, leaves.

use std::collections::BTreeSet;

use wharf_engine::model::exit::Exit;
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::placement::Placement;
use wharf_engine::state::ledger::event::{Asker, Eviction, EvictionRule, LedgerEvent, Straddle};
use wharf_engine::units::{GpuUnits, JobId, Millis};

use super::{Known, Transcript, numbered, span_text};

impl Transcript {
    pub(super) fn ledger(&mut self, event: LedgerEvent) -> Option<String> {
        match event {
            LedgerEvent::Started { job, attempt, tasks, policy, .. } => {
                Some(self.started(job, attempt, tasks, policy == 0))
            }
            LedgerEvent::Running { job, task, .. } => {
                let known = self.known(job);
                known.running.insert(task);
                let all = known.running.len() == known.places.len() && !known.adopted;
                all.then(|| format!("{} runs", known.name))
            }
            LedgerEvent::Asked { job, tasks, by, deadline, at } => {
                let grace = span_text(deadline - at);
                let what = match by {
                    Asker::Lever { who } => format!("asked to leave by {who}"),
                    Asker::Rules { .. } | Asker::Booking { .. } | Asker::Drain { .. } => {
                        "asked to save its work".to_owned()
                    }
                    Asker::Scale | Asker::Replace => "asked to save its work and go".to_owned(),
                    Asker::Limit => "asked to save its work before its time limit".to_owned(),
                };
                Some(format!("{}, grace {grace}", self.part(job, &what, &tasks)))
            }
            LedgerEvent::Evicted { job, tasks, receipt, .. } => Some(self.evicted(job, &tasks, &receipt)),
            LedgerEvent::Withdrawn { job, tasks, .. } => Some(self.part(job, "may stay", &tasks)),
            LedgerEvent::Broken { job, deadline, at } => {
                let within = span_text(deadline - at);
                let known = self.known(job);
                let of = if known.groups.is_empty() { "" } else { "a group of " };
                Some(format!("{of}{} is below its minimum, to be repaired within {within}", known.name))
            }
            LedgerEvent::Grown { job, tasks, .. } => {
                let places = self.places(&tasks);
                let known = self.known(job);
                known.places.extend(tasks.iter().copied());
                known.adopted = false;
                let more = if tasks.len() == 1 { "task" } else { "tasks" };
                Some(format!("{} gets {} more {more} on {places}", known.name, tasks.len()))
            }
            LedgerEvent::Shed { job, task, .. } => {
                let known = self.known(job);
                known.over(task);
                Some(format!("{} gave up task {task}", known.name))
            }
            LedgerEvent::Acked { job, tasks, .. } => Some(self.part(job, "saved", &tasks)),
            LedgerEvent::AskFailed { job, tasks } => Some(self.part(job, "cannot save", &tasks)),
            LedgerEvent::Stopping { job, tasks, .. } => Some(self.part(job, "stops", &tasks)),
            LedgerEvent::LeaveRefused { job, tasks, why, .. } => {
                Some(format!("{} ({})", self.part(job, "is not let go", &tasks), why.into_str()))
            }
            LedgerEvent::Gone { job, task, exit, .. } => self.gone(job, task, exit),
            LedgerEvent::OrphanSeen { task, place, .. } => {
                let node = self.node(place.node);
                Some(format!("{} still runs on {node}", self.orphan(task)))
            }
            LedgerEvent::OrphanGone { task } => Some(format!("{} is gone", self.orphan(task))),
            LedgerEvent::Carried { .. } => None,
        }
    }

    fn evicted(&mut self, job: JobId, tasks: &[u32], receipt: &Eviction) -> String {
        if let Some(booking) = receipt.booking {
            return self.left_for_window(job, booking, receipt);
        }
        let beneficiary = self.known(receipt.beneficiary).name.clone();
        let why = match receipt.why {
            EvictionRule::Guarantee => "reclaim for the guarantee of",
            EvictionRule::FairShare => "reclaim for the fair share of",
            EvictionRule::Preempt => "preempted by",
            EvictionRule::Move => "moved for",
            EvictionRule::Reservation => "its place is promised to",
            EvictionRule::Order => "served for longer than",
            EvictionRule::Booking => "its place is booked for",
            EvictionRule::Drain => return self.left_node(job, tasks, receipt),
        };
        let price = self.price(receipt);
        let name = &self.known(job).name;
        if receipt.whole {
            return format!("{name} has to leave: {why} {beneficiary}{price}");
        }
        format!("{name} gives up {}: {why} {beneficiary}{price}", numbered(tasks))
    }

    /// What a receipt says beside the reason, in GPU time and GPUs.
    pub(super) fn price(&self, receipt: &Eviction) -> String {
        let Eviction { cost, gain, straddles, .. } = receipt;
        let gain = gain.map(|gain| format!(" gain {}", span_text(Millis(gain)))).unwrap_or_default();
        let below = straddles.map(|Straddle { tenant, short }| {
            let path = self.tenants.get(&tenant).map_or("?", String::as_str);
            format!(", {path} falls {} below its line", GpuUnits::from_parts(short))
        });
        format!(", cost {}{gain}{}", span_text(Millis(*cost)), below.unwrap_or_default())
    }

    /// What a job does, and which of its tasks, where not all do.
    fn part(&mut self, job: JobId, does: &str, tasks: &[u32]) -> String {
        let Known { name, places, .. } = self.known(job);
        if places.iter().all(|place| tasks.contains(&place.task)) {
            return format!("{name} {does}");
        }
        format!("{name} {does} ({})", numbered(tasks))
    }

    fn started(&mut self, job: JobId, attempt: u32, tasks: Vec<Placement>, adopted: bool) -> String {
        let places = self.places(&tasks);
        let known = self.known(job);
        let count = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        let which = match (count, known.wanted) {
            (1, 1) => String::new(),
            (count, wanted) if count == wanted => format!(" {count} tasks"),
            (count, wanted) => format!(" {count} of {wanted} tasks"),
        };
        (known.places, known.running, known.next, known.adopted) = (tasks, BTreeSet::new(), None, adopted);
        let how = match (adopted, attempt) {
            (true, _) => "adopted",
            (false, 1) => "starts",
            (false, _) => "starts again",
        };
        format!("{} {how}{which} on {places}", known.name)
    }

    /// A task that was lost or failed is told of; one that did as it should is not.
    fn gone(&mut self, job: JobId, task: u32, exit: Exit) -> Option<String> {
        let known = self.known(job);
        let which = if known.wanted == 1 { String::new() } else { format!(" task {task}") };
        let name = format!("{}{which}", known.name);
        let place = known.places.iter().find(|place| place.task == task).map(|place| place.node);
        known.over(task);
        match exit {
            Exit::Succeeded | Exit::Stopped => None,
            Exit::Failed => Some(format!("{name} failed")),
            Exit::Lost => Some(format!("{name} lost on {}", place.map_or("?", |node| self.node(node)))),
        }
    }

    fn orphan(&self, task: TaskRef) -> String {
        let name = self.names.get(&task.uid).map_or("a stranger", String::as_str);
        format!("attempt {} of {name}", task.attempt)
    }
}
