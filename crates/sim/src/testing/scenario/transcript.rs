//! What happened, in short sentences: read from the journal, so that what came and went between two looks is told
//! too, and in the order in which it happened.

mod downtimes;
mod holdings;
mod jobs;
mod owned;
mod reasons;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use wharf_controller::codec;
use wharf_controller::disk::{Disk, DiskFault, HistoryKind, HistoryQuery, Index};
use wharf_controller::history::FinishedJob;
use wharf_controller::memory::MemoryDisk;
use wharf_engine::answer::verdict::Reason;
use wharf_engine::device::catalogue;
use wharf_engine::model::placement::Placement;
use wharf_engine::plan::Unreserved;
use wharf_engine::state::State;
use wharf_engine::state::earmarks::{Earmark, EarmarksEvent};
use wharf_engine::state::event::Event;
use wharf_engine::state::fleet::FleetEvent;
use wharf_engine::state::jobs::event::Next;
use wharf_engine::state::reservations::{Reservation, ReservationsEvent};
use wharf_engine::state::tenants::TenantsEvent;
use wharf_engine::units::{
    BookingId, GpuMask, GpuUnits, JobId, Millis, NodeId, PoolId, TenantId, Timestamp, Uid,
};

use super::measure::span_text;

/// What was told and what it takes to go on.
pub(super) struct Transcript {
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

impl Transcript {
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

    fn promise(&mut self, event: EarmarksEvent) -> String {
        match event {
            EarmarksEvent::Earmarked(Earmark { job, tasks, .. }) => {
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
            ReservationsEvent::Dropped { job, why, .. } => Some(format!(
                "the start promised to {} is given up: {}",
                self.known(job).name,
                why.into_str()
            )),
            ReservationsEvent::Carried { .. } => None,
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
