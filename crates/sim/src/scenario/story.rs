//! What happened, in short sentences: read from the journal, so that what came and went between two looks is told
//! too, and in the order in which it happened.

mod downtimes;
mod owned;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use wharf_controller::codec;
use wharf_controller::disk::{Disk, DiskFault, HistoryKind, HistoryQuery, Index};
use wharf_controller::history::FinishedJob;
use wharf_controller::memory::MemoryDisk;
use wharf_engine::answer::verdict::Reason;
use wharf_engine::device::catalogue;
use wharf_engine::model::exit::{Exit, Outcome};
use wharf_engine::model::job::Spec;
use wharf_engine::model::need::SharingRefusal;
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::placement::Placement;
use wharf_engine::model::rejection::Rejection;
use wharf_engine::model::shortfall::{Quantity, Shortfall};
use wharf_engine::plan::Unreserved;
use wharf_engine::state::State;
use wharf_engine::state::earmarks::EarmarksEvent;
use wharf_engine::state::event::Event;
use wharf_engine::state::fleet::FleetEvent;
use wharf_engine::state::jobs::event::{Canceller, HeldWhy, JobsEvent, Next, NodeRefusal, RequeueWhy};
use wharf_engine::state::ledger::event::{Asker, Eviction, EvictionRule, LedgerEvent, Straddle};
use wharf_engine::state::reservations::{Reservation, ReservationsEvent};
use wharf_engine::state::tenants::TenantsEvent;
use wharf_engine::units::{
    BookingId, GpuMask, GpuUnits, JobId, Millis, NodeId, PoolId, TenantId, Timestamp, Uid,
};

use super::measure::span_text;

/// What was told and what it takes to go on.
pub(super) struct Story {
    start: Timestamp,
    /// The first index of the journal that was not read.
    next: Index,
    jobs: BTreeMap<JobId, Known>,
    names: BTreeMap<Uid, String>,
    nodes: BTreeMap<NodeId, String>,
    models: BTreeMap<PoolId, String>,
    tenants: BTreeMap<TenantId, String>,
    /// Whether each node was up, and each of its GPUs healthy, when it was last told of.
    health: BTreeMap<String, (bool, Vec<bool>)>,
    /// Why each waiting job waits, as it was last told.
    waits: BTreeMap<String, String>,
    bookings: BTreeMap<BookingId, windows::Known>,
    lines: Vec<String>,
}

/// What is known of a job from its events.
struct Known {
    name: String,
    /// Names of its groups.
    groups: Vec<String>,
    wanted: u32,
    /// How many more run while its replicas are being replaced.
    rolling: Option<u32>,
    adopted: bool,
    /// Where its tasks are that were not heard to be over.
    places: Vec<Placement>,
    running: BTreeSet<u32>,
    next: Option<Next>,
}

impl Known {
    fn over(&mut self, task: u32) {
        self.places.retain(|place| place.task != task);
        self.running.remove(&task);
    }
}

impl Story {
    pub(super) fn new(start: Timestamp) -> Self {
        Self {
            start,
            next: 0,
            jobs: BTreeMap::new(),
            names: BTreeMap::new(),
            nodes: BTreeMap::new(),
            models: BTreeMap::new(),
            tenants: BTreeMap::new(),
            health: BTreeMap::new(),
            waits: BTreeMap::new(),
            bookings: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    /// The journal is another one: its ids mean something else.
    pub(super) fn begin_journal(&mut self) {
        self.next = 0;
        self.jobs.clear();
        self.bookings.clear();
        self.nodes.clear();
        self.tenants.clear();
    }

    /// What was told since the last time.
    pub(super) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    pub(super) fn push(&mut self, line: String) {
        self.lines.push(line);
    }

    pub(super) fn forgotten(&mut self, name: &str) {
        self.waits.remove(name);
        self.lines.push(format!("{name} is forgotten"));
    }

    /// Tells what the journal holds and was not read.
    pub(super) fn read(&mut self, disk: &MemoryDisk) -> Result<(), DiskFault> {
        let mut events = Vec::new();
        let mut handle = disk.clone();
        let next = handle.read(self.next, &mut |index, record| {
            events.push((index, codec::decode(&record, "the scenario's journal")?));
            Ok(())
        })?;
        self.next = next;
        for (index, event) in events {
            let sentence = match event {
                Event::Fleet(event) => self.fleet(event),
                Event::Tenants(event) => self.tenants(event),
                Event::Jobs(event) => self.job(event, ran(&mut handle, index)?),
                Event::Ledger(event) => self.ledger(event),
                Event::Earmarks(event) => Some(self.promise(event)),
                Event::Reservations(event) => self.reservation(event),
                Event::Bookings(event) => self.window(event),
                Event::Maintenance(event) => Some(self.downtime(event)),
                Event::Owned(event) => self.owned(event),
                Event::Demand(_) | Event::Attained(_) | Event::Past(_) => None,
            };
            self.lines.extend(sentence);
        }
        Ok(())
    }

    /// Tells why jobs wait, where that is another reason than before.
    pub(super) fn waits(&mut self, verdicts: &[(String, Reason, Option<Unreserved>)], state: &State) {
        let mut now = BTreeMap::new();
        for (name, reason, unpromised) in verdicts {
            let mut why = self.reason(name, *reason, state);
            if let Some(Unreserved::NoKnownEnd { holders }) = unpromised {
                let names: Vec<String> = holders.iter().map(|&job| self.known(job).name.clone()).collect();
                why = format!("{why}, no end is known of {}", names.join(", "));
            }
            if self.waits.get(name) != Some(&why) {
                self.lines.push(format!("{name} waits: {why}"));
            }
            now.insert(name.clone(), why);
        }
        self.waits = now;
    }

    fn reason(&self, name: &str, reason: Reason, state: &State) -> String {
        let token = reason.token();
        let groups = || self.jobs.values().find(|known| known.name == name).map(|known| &known.groups);
        match reason {
            Reason::BackingOff { until } => format!("{token} until {}", span_text(until - self.start)),
            Reason::StartRefused { tries, node, retry_at } => {
                let at = span_text(retry_at - self.start);
                format!("{token} by {}, try {tries}, again at {at}", self.node(node))
            }
            Reason::Short(shortfall) => {
                let group = shortfall.group.and_then(|at| groups()?.get(at));
                shortage(token, shortfall, group, state)
            }
            Reason::Sharing(refused) => format!("{token} ({})", sharing(refused)),
            Reason::Fixed { tenant } => format!("{token} ({})", state.tenants.path(tenant)),
            Reason::Reserved { start, .. } => format!("{token} until {}", span_text(start - self.start)),
            Reason::Window { booking, from } | Reason::Booked { booking, from } => {
                self.window_reason(token, booking, from, state)
            }
            Reason::Downtime { from } => format!("{token} from {}", span_text(from - self.start)),
            Reason::LandingRoom { kept } => format!("{token} ({kept} kept)"),
            Reason::Running
            | Reason::Held { .. }
            | Reason::Starting
            | Reason::Repairing
            | Reason::Leaving
            | Reason::Startable
            | Reason::Earmarked => token.to_owned(),
            Reason::Dependency => {
                let job = state.jobs.iter().map(|(_, job)| job).find(|job| job.spec.name == name);
                let after = job.map(|job| job.spec.after.as_slice()).unwrap_or_default();
                let names = after.iter().map(|on| on.name.rsplit('/').next().unwrap_or_default());
                format!("{token} ({})", names.collect::<Vec<_>>().join(", "))
            }
            Reason::ArrayTurn { at_most } => format!("{token} ({at_most} at a time)"),
        }
    }

    fn fleet(&mut self, event: FleetEvent) -> Option<String> {
        match event {
            FleetEvent::NodeSeen { node, facts } => {
                self.nodes.insert(node, facts.name.clone());
                let gpus: Vec<bool> = facts.gpus.iter().map(|gpu| gpu.healthy).collect();
                let (up, before) = self.health.insert(facts.name.clone(), (facts.up, gpus))?;
                let turned = (up != facts.up).then(|| if facts.up { "up" } else { "down" }.to_owned());
                let told = facts.gpus.iter().zip(before).enumerate().filter_map(|(at, (gpu, healthy))| {
                    let why = gpu.xid.map_or_else(String::new, |xid| format!(" by XID {xid}"));
                    let now = if gpu.healthy { "healthy".to_owned() } else { format!("failed{why}") };
                    (gpu.healthy != healthy).then(|| format!("GPU {at} {now}"))
                });
                let told: Vec<String> = turned.into_iter().chain(told).collect();
                (!told.is_empty()).then(|| format!("{} {}", facts.name, told.join(", ")))
            }
            FleetEvent::NodeRemoved { node } => Some(format!("{} is gone", self.node(node))),
            FleetEvent::Cordoned { node, on: true, .. } => Some(format!("{} cordoned", self.node(node))),
            FleetEvent::Cordoned { node, on: false, .. } => Some(format!("{} open again", self.node(node))),
            FleetEvent::Draining { node, drain } => Some(self.draining(node, drain.as_ref())),
            FleetEvent::PoolNamed { pool, model } => {
                self.models.insert(pool, model);
                None
            }
            FleetEvent::LevelNamed { .. }
            | FleetEvent::NodeSetDefined { .. }
            | FleetEvent::DeviceSetDefined { .. }
            | FleetEvent::WorldSeen { .. } => None,
        }
    }

    fn tenants(&mut self, event: TenantsEvent) -> Option<String> {
        match event {
            TenantsEvent::PolicyApplied { version, .. } => Some(format!("policy {version} applies")),
            TenantsEvent::TenantNamed { tenant, path } => {
                self.tenants.insert(tenant, path);
                None
            }
            TenantsEvent::TrustNamed { .. } => None,
        }
    }

    fn job(&mut self, event: JobsEvent, ran: Option<Millis>) -> Option<String> {
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
            by.iter().map(|of| format!("{} ({})", self.node(of.node), of.why.token())).collect();
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

    fn ledger(&mut self, event: LedgerEvent) -> Option<String> {
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
                Some(format!("{} ({})", self.part(job, "is not let go", &tasks), why.token()))
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

    fn promise(&mut self, event: EarmarksEvent) -> String {
        match event {
            EarmarksEvent::Earmarked { job, tasks, .. } => {
                let places = self.places(&tasks);
                format!("{} is promised {places}", self.known(job).name)
            }
            EarmarksEvent::Released { job, .. } => {
                format!("the promise to {} cannot be kept", self.known(job).name)
            }
        }
    }

    fn reservation(&mut self, event: ReservationsEvent) -> Option<String> {
        match event {
            ReservationsEvent::Reserved(Reservation { job, tasks, start, at, .. }) => {
                let places = self.places(&tasks);
                let name = &self.known(job).name;
                Some(format!("{name} is to start within {} on {places}", span_text(start - at)))
            }
            ReservationsEvent::Dropped { job, why, .. } => {
                Some(format!("the start promised to {} is given up: {}", self.known(job).name, why.word()))
            }
            ReservationsEvent::Carried { .. } => None,
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
    fn price(&self, receipt: &Eviction) -> String {
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

    /// Nodes in task order, each with the GPUs that are taken there.
    fn places(&self, tasks: &[Placement]) -> String {
        let mut nodes: Vec<(NodeId, GpuMask, GpuUnits)> = Vec::new();
        for task in tasks.iter().filter(|task| task.slice.is_none()) {
            match nodes.iter_mut().find(|(node, ..)| *node == task.node) {
                Some((_, gpus, _)) => gpus.0 |= task.gpus.0,
                None => nodes.push((task.node, task.gpus, task.units_each)),
            }
        }
        let texts = nodes.into_iter().map(|(node, gpus, units)| {
            let share = if units < GpuUnits::WHOLE { format!(" share {units}") } else { String::new() };
            let turns = if tasks.iter().any(|task| task.time_sliced) { " by turns" } else { "" };
            format!("{}{}{share}{turns}", self.node(node), gpu_text(gpus))
        });
        let slices = tasks.iter().filter_map(|task| {
            let slice = task.slice?;
            let model = self.models.get(&task.pool)?;
            let profile = catalogue::mig(model)?.profile(slice.profile)?;
            let gpu = gpu_text(task.gpus);
            Some(format!("{}{gpu} {}@{}", self.node(task.node), profile.name, slice.start))
        });
        texts.chain(slices).collect::<Vec<_>>().join(", ")
    }

    fn orphan(&self, task: TaskRef) -> String {
        let name = self.names.get(&task.uid).map_or("a stranger", String::as_str);
        format!("attempt {} of {name}", task.attempt)
    }

    fn node(&self, node: NodeId) -> &str {
        self.nodes.get(&node).map_or("?", String::as_str)
    }

    fn known(&mut self, job: JobId) -> &mut Known {
        self.jobs.get_mut(&job).expect("a job is queued before anything else happens to it")
    }
}

/// Nothing for none, ` gpu 3` for one, ` gpus 0-3,6` for more; the space parts it from the node.
fn gpu_text(gpus: GpuMask) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for gpu in gpus.indexes() {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == gpu => *last = gpu,
            Some(_) | None => runs.push((gpu, gpu)),
        }
    }
    let run = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let list = runs.iter().map(run).collect::<Vec<_>>().join(",");
    match gpus.count() {
        0 => String::new(),
        1 => format!(" gpu {list}"),
        _ => format!(" gpus {list}"),
    }
}

/// `task 3`, or `tasks 2, 3`.
fn numbered(tasks: &[u32]) -> String {
    let list: Vec<String> = tasks.iter().map(u32::to_string).collect();
    format!("{} {}", if list.len() == 1 { "task" } else { "tasks" }, list.join(", "))
}

/// How long the job ran that ended with the event of that index, as history has it.
fn ran(disk: &mut MemoryDisk, index: Index) -> Result<Option<Millis>, DiskFault> {
    let query = HistoryQuery { kind: Some(HistoryKind::Job), limit: usize::MAX, ..HistoryQuery::default() };
    let rows = disk.history(&query)?;
    let row = rows.iter().find(|row| row.index == index);
    let finished = row.and_then(|row| serde_json::from_str::<FinishedJob>(&row.body).ok());
    Ok(finished.map(|finished| Millis(finished.ran_ms)))
}

fn shortage(token: &str, shortfall: Shortfall, group: Option<&String>, state: &State) -> String {
    let Shortfall { stage: _, need, have, tenant, group: _, beside } = shortfall;
    let whose = tenant.map(|tenant| format!(" ({})", state.tenants.path(tenant))).unwrap_or_default();
    let of = group.map(|name| format!(" for {name}")).unwrap_or_default();
    let beside =
        beside.map(|beside| format!(", {} each {} of {}", beside.what.word(), beside.each, beside.most));
    let beside = beside.unwrap_or_default();
    format!("{token} need {} have {}{of}{whose}{beside}", quantity(need), quantity(have))
}

fn quantity(quantity: Quantity) -> String {
    match quantity {
        Quantity::Gpus(units) => units.to_string(),
        Quantity::Tasks(1) => "1 task".to_owned(),
        Quantity::Tasks(count) => format!("{count} tasks"),
    }
}

fn sharing(SharingRefusal { mode, tax, tax_max }: SharingRefusal) -> String {
    format!("{} costs {tax}, at most {tax_max} of 1000", mode.word())
}

/// Why a request was refused.
fn rejection(rejection: &Rejection, state: &State) -> String {
    match rejection {
        Rejection::BookingRefused { .. }
        | Rejection::BookingNameInUse { .. }
        | Rejection::NoSuchBooking { .. }
        | Rejection::NotOfBooking { .. } => format!("{rejection:?}"),
        Rejection::Never { shortfall, group } => {
            let where_ = format!("{}:", shortfall.stage.word());
            format!("Never, {}", shortage(&where_, *shortfall, group.as_ref(), state))
        }
        Rejection::UnknownTenant { path } => format!("UnknownTenant {path}"),
        Rejection::TenantHasChildren { path, .. } => format!("TenantHasChildren {path}"),
        Rejection::NameInUse { .. } => "NameInUse".to_owned(),
        Rejection::ArrayNameInUse { name } => format!("ArrayNameInUse {name}"),
        Rejection::UidInUse { .. } => "UidInUse".to_owned(),
        Rejection::UidEnded => "UidEnded".to_owned(),
        Rejection::TrustNotAllowed { domain, .. } => format!("TrustNotAllowed {domain}"),
        Rejection::SharingRefused(refused) => format!("SharingRefused, {}", sharing(*refused)),
        Rejection::BadSpec(fault) => format!("BadSpec {fault:?}"),
        Rejection::UnknownLevel { level, .. } => format!("UnknownLevel {level}"),
        Rejection::UnknownSelector { source } => format!("UnknownSelector {source}"),
        Rejection::QueueFull { limit, .. } => format!("QueueFull, {limit} wait"),
        Rejection::JobTooLarge { limit, .. } => format!("JobTooLarge, at most {limit} bytes"),
        Rejection::BytesFull { limit, .. } => format!("BytesFull, at most {limit} bytes"),
        Rejection::NoSuchNode { name } => format!("NoSuchNode {name}"),
        Rejection::DependencyNotLive { .. } => "DependencyNotLive".to_owned(),
        Rejection::TooManyDependencies { max, .. } => format!("TooManyDependencies, at most {max}"),
        Rejection::TooManyLinks { max, .. } => format!("TooManyLinks, at most {max}"),
        Rejection::BadArray { max, .. } => format!("BadArray, at most {max}"),
        Rejection::BadDowntime { fault } => format!("BadDowntime {fault:?}"),
        Rejection::DowntimeNameInUse { name } => format!("DowntimeNameInUse {name}"),
        Rejection::NoSuchDowntime { name } => format!("NoSuchDowntime {name}"),
        Rejection::NoSuchJob => "NoSuchJob".to_owned(),
        Rejection::NotRunning => "NotRunning".to_owned(),
        Rejection::LimitAboveMax { max, .. } => format!("LimitAboveMax, at most {}", span_text(*max)),
        Rejection::NotAService => "NotAService".to_owned(),
        Rejection::NoneToSpare { min } => format!("NoneToSpare, at least {min}"),
        Rejection::ReplicasOutOfRange { min, max, .. } => format!("ReplicasOutOfRange, {min} to {max}"),
        Rejection::NoTimeLimit => "NoTimeLimit".to_owned(),
        Rejection::LimitNotLonger { limit, .. } => format!("LimitNotLonger than {}", span_text(*limit)),
        Rejection::Ending => "Ending".to_owned(),
        Rejection::NotPreemptible => "NotPreemptible".to_owned(),
        Rejection::Gap { .. } => "Gap".to_owned(),
        Rejection::Stale => "Stale".to_owned(),
        Rejection::BadPrices => "BadPrices".to_owned(),
        Rejection::NothingToDo => "NothingToDo".to_owned(),
    }
}
