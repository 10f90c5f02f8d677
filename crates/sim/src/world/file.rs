//! The simulated fleet of `wharf up`: a file and a clock of its own.
//!
//! The [clock](clock) runs by the machine's, times a speed, whether or not anybody looks; the file remembers where it stood.
//! A control plane that comes back finds what ended meanwhile, each at its own moment. What is reported is
//! saved first, so that a generation that somebody saw is never used again. Opening only reads: the file is written, and
//! founded, when something is first saved, so that a start that is refused leaves it as it was.

pub mod clock;
mod mirror;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use wharf_controller::checkpoints::Checkpoints;
use wharf_controller::disk::Standing;
use wharf_controller::look;
use wharf_controller::telemetry::Telemetry;
use wharf_controller::world::{
    ClockSteps, Happened, Happening, Impossible, NodeReport, World, WorldFault, WorldReport,
};
use wharf_engine::model::action::Action;
use wharf_engine::model::observed::TaskRef;
use wharf_engine::units::{Millis, Timestamp, Uid};

use self::clock::{Clock, Remembered, Source, Step};
use self::mirror::Mirror;
use crate::world::fleet::{Changes, Device, End, Progress, Saved, SimFleet, SimTask};

/// Far more reports than a process makes in its life.
const GENERATIONS_PER_LIFE: u64 = 1 << 32;

/// The longest a turn waits for somebody else's lock on the file. While it waits nobody is answered, so it is short:
/// the controller tries again. At the opening, when there is nobody to answer yet, the library's five seconds hold.
const BUSY_TIME_MAX: Duration = Duration::from_millis(100);

/// How often the file learns the time where nothing else is saved: so much of it is lost at most by a power cut.
const CLOCK_SAVED_EVERY: Millis = Millis::from_secs(5);

/// A fleet with a file.
pub struct FileWorld {
    fleet: SimFleet,
    store: Store,
    clock: Clock,
    /// What the steady clock showed when the file last learnt the time.
    clock_saved: Millis,
    steps: ClockSteps,
    mirror: Mirror,
}

/// The file, opened when something is first saved.
struct Store {
    path: PathBuf,
    /// The name of a fleet that is not in the file yet.
    founds: Option<(String, u64)>,
    open: Option<(Checkpoints, Connection)>,
    in_use: bool,
}

impl Store {
    fn writer(&mut self) -> rusqlite::Result<&mut Connection> {
        if self.open.is_none() {
            let mut file = open(&self.path)?;
            if let Some((name, id)) = &self.founds {
                found(&mut file, name, *id)?;
                self.founds = None;
            }
            let checkpoints = Checkpoints::beside(&file, &self.path)?;
            self.open = Some((checkpoints, file));
        }
        Ok(&mut self.open.as_mut().expect("it was just opened").1)
    }

    /// Something was saved: from now on somebody waits for every save. The first one may take its time.
    fn is_in_use(&mut self) -> rusqlite::Result<()> {
        if !self.in_use
            && let Some((_, file)) = &self.open
        {
            file.busy_timeout(BUSY_TIME_MAX)?;
            self.in_use = true;
        }
        Ok(())
    }
}

/// Which nodes a fleet has when its file is made.
pub struct Founding {
    /// A name that is kept, so that a restart with another fleet is noticed.
    pub name: String,
    /// The nodes.
    pub nodes: Vec<NodeReport>,
}

/// Why a fleet's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileFault {
    /// The file holds another fleet.
    #[error("the data directory holds the fleet `{held}`, not `{asked}`")]
    OtherFleet {
        /// What the file holds.
        held: String,
        /// What was asked for.
        asked: String,
    },
    /// It cannot be read or written.
    #[error("the simulated fleet's file {file} cannot be used: {why}. Nothing was changed")]
    Unusable {
        /// The file.
        file: String,
        /// Why.
        why: String,
        /// Whether it may pass by itself: somebody holds a lock, or the disk is full.
        may_pass: bool,
    },
}

impl FileFault {
    /// Whether it may pass by itself: somebody holds a lock, or the disk is full.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unusable { may_pass: true, .. })
    }

    /// What to do about it.
    pub fn next(&self) -> &'static str {
        match self {
            Self::OtherFleet { .. } => "leave out --fleet, or choose another directory with --data DIR",
            Self::Unusable { may_pass: true, .. } => {
                "close whatever has the file open, or make room on the disk"
            }
            Self::Unusable { may_pass: false, .. } => {
                "restore a copy, or move the file and those beside it away and say which fleet it is with --fleet: what ran is then lost"
            }
        }
    }
}

/// What a fleet's file says of itself.
pub struct Inspected {
    /// The name of its fleet; none while it was begun and not finished.
    pub name: Option<String>,
    /// How far the journal had come that it last obeyed.
    pub obeyed: Standing,
}

impl FileWorld {
    /// The name of the fleet that a data directory holds, if it holds one.
    pub fn held(path: &Path) -> Result<Option<String>, FileFault> {
        let Some(file) = look_at(path).map_err(|error| unusable(path, error))? else { return Ok(None) };
        held(&file).map_err(|error| unusable(path, error))
    }

    /// Reads every page and every row of a fleet's file, and changes nothing. A server may be using it.
    pub fn inspect(path: &Path, in_use: bool) -> Result<Inspected, FileFault> {
        let opened = if in_use { look::open_beside_a_writer(path) } else { look::open(path) };
        let file = opened.map_err(|error| unusable(path, error.into()))?;
        if let Some(what) = look::first_fault(&file).map_err(|error| unusable(path, error.into()))? {
            return Err(unusable(path, what.into()));
        }
        let loaded = load(&file).map_err(|error| unusable(path, error))?;
        let name = held(&file).map_err(|error| unusable(path, error))?;
        let obeyed = loaded.map(|(saved, _)| saved.obeyed).unwrap_or_default();
        Ok(Inspected { name, obeyed })
    }

    /// Reads the fleet of a file, or founds one. Time goes on from where it stood, at this speed. Nothing is written yet.
    pub fn open(path: &Path, founding: Founding, speed: u64) -> Result<Self, FileFault> {
        Self::open_by(path, founding, speed, clock::machine())
    }

    /// The same by other clocks than this machine's.
    pub fn open_by(path: &Path, founding: Founding, speed: u64, source: Source) -> Result<Self, FileFault> {
        let fail = |source| unusable(path, source);
        let file = look_at(path).map_err(fail)?;
        let name = file.as_ref().map(held).transpose().map_err(fail)?.flatten();
        if let Some(held) = name.filter(|held| *held != founding.name) {
            return Err(FileFault::OtherFleet { held, asked: founding.name });
        }
        let saved = file.as_ref().map(load).transpose().map_err(fail)?.flatten();
        let (fleet, clock, step, founds) = if let Some((saved, remembered)) = saved {
            let (clock, step) = Clock::resume(source, speed, remembered);
            (SimFleet::restore(saved), clock, step, None)
        } else {
            let clock = Clock::begin(source, speed);
            let begin = clock.now();
            let fleet = SimFleet::new(begin.0, founding.nodes, begin).with_devices(begin.0);
            (fleet, clock, None, Some((founding.name, begin.0)))
        };
        let store = Store { path: path.to_owned(), founds, open: None, in_use: false };
        let (clock_saved, steps) = (clock.looked_at(), ClockSteps::default());
        let mirror = Mirror::of(&fleet);
        let mut opened = Self { fleet, store, clock, clock_saved, steps, mirror };
        opened.note(step);
        opened.fleet.advance(opened.clock.now());
        // A machine that lost its power may have lost the last of what was saved, and somebody has heard of it.
        opened.fleet.skip_generations(GENERATIONS_PER_LIFE);
        Ok(opened)
    }

    /// How much faster than the wall its time runs.
    pub fn speed(&self) -> u64 {
        self.clock.speed()
    }

    fn note(&mut self, step: Option<Step>) {
        if let Some(step) = step {
            self.steps.count += 1;
            self.steps.last = Some(step.to_string());
        }
    }

    /// Lets the time pass that has passed; whether the file should learn it by now.
    fn catch_up(&mut self) -> bool {
        let step = self.clock.look();
        self.note(step);
        self.fleet.advance(self.clock.now());
        step.is_some() || self.clock.looked_at().0 >= self.clock_saved.0 + CLOCK_SAVED_EVERY.0
    }

    /// What could not be saved is saved with what comes next.
    fn save(&mut self) -> rusqlite::Result<()> {
        let changed = self.fleet.take_unsaved();
        self.mirror.teach(self.fleet.show(&changed));
        let saved = self.write(&changed);
        match &saved {
            Ok(()) => self.clock_saved = self.clock.looked_at(),
            Err(_) => self.fleet.keep_unsaved(changed),
        }
        saved.and_then(|()| self.store.is_in_use())
    }

    fn write(&mut self, changed: &Changes) -> rusqlite::Result<()> {
        let saving = self.store.writer()?.transaction()?;
        for name in &changed.nodes {
            let body = self.fleet.node(name).map(json);
            put(&saving, "node", name, body)?;
        }
        for &task in &changed.tasks {
            let body = self.fleet.task(task).map(json);
            put(&saving, "task", &json(&task), body)?;
        }
        for &uid in &changed.progress {
            let body = Some(json(&self.fleet.progress(uid)));
            put(&saving, "progress", &json(&uid), body)?;
        }
        for name in &changed.devices {
            let known = self.fleet.node(name).map(|_| json(&self.fleet.devices(name)));
            put(&saving, "device", name, known)?;
        }
        for &task in &changed.remembered {
            let body = self.fleet.remembered(task).map(json);
            put(&saving, "ended", &json(&task), body)?;
        }
        let (generation, Standing { term, next }) = (self.fleet.generation(), self.fleet.obeyed());
        let Remembered { world, speed, wall_ms, steady } = self.clock.remembered();
        let marks =
            [("generation", generation), ("term", term), ("obeyed", next), ("now", self.fleet.now().0)];
        let clock = [("clock_wall_ms", wall_ms), ("clock_world_ms", world.0), ("clock_speed", speed)];
        for (key, value) in marks.into_iter().chain(clock) {
            put(&saving, "meta", key, Some(value.to_string()))?;
        }
        put(&saving, "meta", "clock_boot", steady.map(|(boot, _)| boot.to_string()))?;
        put(&saving, "meta", "clock_steady_ms", steady.map(|(_, at)| at.to_string()))?;
        saving.commit()
    }

    fn saved<T>(&mut self, attempted: &str, answer: T) -> Result<T, WorldFault> {
        let saved = self.save();
        saved.map_err(|source| WorldFault { attempted: attempted.to_owned(), source: source.into() })?;
        Ok(answer)
    }
}

impl World for FileWorld {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn heard(&self) -> Option<(u64, u64)> {
        Some((self.fleet.id(), self.fleet.generation()))
    }

    fn obeyed(&self) -> Standing {
        self.fleet.obeyed()
    }

    fn list(&mut self) -> Result<WorldReport, WorldFault> {
        self.catch_up();
        let listed = self.fleet.list();
        self.saved("listing the simulated fleet", listed)
    }

    fn recall(&mut self) -> Result<WorldReport, WorldFault> {
        self.catch_up();
        let recalled = self.fleet.recall();
        self.saved("recalling the simulated fleet", recalled)
    }

    fn changes(&mut self) -> Result<Vec<WorldReport>, WorldFault> {
        let time_to_save = self.catch_up();
        let changes: Vec<WorldReport> = self.fleet.changes().into_iter().collect();
        if changes.is_empty() && !time_to_save {
            self.mirror.teach(self.fleet.show(&Changes::default()));
            return Ok(changes);
        }
        self.saved("looking at the simulated fleet", changes)
    }

    fn act(&mut self, by: Standing, actions: &[Action]) -> Result<(), WorldFault> {
        self.catch_up();
        for action in actions {
            self.fleet.act(by, action);
        }
        self.saved("acting on the simulated fleet", ())
    }

    fn next_change(&self) -> Option<Timestamp> {
        self.fleet.next_change()
    }

    fn wall_until(&self, at: Timestamp) -> Duration {
        Duration::from_millis((at - self.clock.now()).0.div_ceil(self.clock.speed()))
    }

    fn at_wall(&self, after: Duration) -> Timestamp {
        let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        self.clock.now() + Millis(millis.saturating_mul(self.clock.speed()))
    }

    fn happen(&mut self, what: &Happening) -> Result<Happened, Impossible> {
        self.catch_up();
        let happened = self.fleet.happen(what)?;
        Ok(self.saved("changing the simulated fleet", happened)?)
    }

    fn clock_steps(&self) -> ClockSteps {
        self.steps.clone()
    }

    fn telemetry(&self) -> Telemetry {
        self.mirror.telemetry()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "made for `map_err`, which hands errors over")]
fn unusable(path: &Path, source: Anything) -> FileFault {
    let code = source.downcast_ref().and_then(rusqlite::Error::sqlite_error_code);
    let passing = [ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked, ErrorCode::DiskFull];
    let may_pass = code.is_some_and(|code| passing.contains(&code));
    FileFault::Unusable { file: path.display().to_string(), why: source.to_string(), may_pass }
}

/// The file, for reading; none where there is none yet.
fn look_at(path: &Path) -> Result<Option<Connection>, Anything> {
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |known| known.len());
    match (size(path), size(&look::beside(path, "-wal"))) {
        (0, 0) => Ok(None),
        (0, _) => Err("the file is gone or empty, yet its write-ahead log is not".into()),
        (_, _) => Ok(Some(look::open(path)?)),
    }
}

/// A file that was begun and not finished holds nothing yet.
fn held(file: &Connection) -> Result<Option<String>, Anything> {
    let whole = has_table(file, "meta")? && meta(file, "generation")?.is_some();
    if whole { Ok(meta(file, "name")?) } else { Ok(None) }
}

fn has_table(file: &Connection, table: &str) -> rusqlite::Result<bool> {
    let known = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)";
    file.query_row(known, [table], |row| row.get(0))
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let file = Connection::open(path)?;
    file.pragma_update(None, "journal_mode", "WAL")?;
    // The fleet survives the death of a process, which is what it is there to show; the power cut of a real
    // machine takes a simulated fleet with it.
    file.pragma_update(None, "synchronous", "NORMAL")?;
    for table in ["meta", "node", "task", "progress", "device", "ended"] {
        file.execute(
            &format!("CREATE TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY, body TEXT) WITHOUT ROWID"),
            [],
        )?;
    }
    Ok(file)
}

fn found(file: &mut Connection, name: &str, id: u64) -> rusqlite::Result<()> {
    let founding = file.transaction()?;
    put(&founding, "meta", "name", Some(name.to_owned()))?;
    put(&founding, "meta", "id", Some(id.to_string()))?;
    founding.commit()
}

fn put(file: &Connection, table: &str, key: &str, body: Option<String>) -> rusqlite::Result<()> {
    match body {
        Some(body) => {
            let mut put = file.prepare_cached(&format!("INSERT OR REPLACE INTO {table} VALUES (?1, ?2)"))?;
            put.execute(params![key, body])?;
        }
        None => {
            file.prepare_cached(&format!("DELETE FROM {table} WHERE key = ?1"))?.execute([key])?;
        }
    }
    Ok(())
}

fn meta(file: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    file.query_row("SELECT body FROM meta WHERE key = ?1", [key], |row| row.get(0)).optional()
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("strings and numbers always encode")
}

type Anything = Box<dyn std::error::Error + Send + Sync>;

fn load(file: &Connection) -> Result<Option<(Saved, Remembered)>, Anything> {
    let number = |key: &str| -> Result<u64, Anything> {
        let text = meta(file, key)?.ok_or_else(|| format!("it has no `{key}`"))?;
        Ok(text.parse()?)
    };
    if held(file)?.is_none() {
        return Ok(None);
    }
    let steady = match meta(file, "clock_boot")? {
        Some(boot) => Some((boot.parse()?, number("clock_steady_ms")?)),
        None => None,
    };
    let clock = Remembered {
        wall_ms: number("clock_wall_ms")?,
        world: Timestamp(number("clock_world_ms")?),
        speed: number("clock_speed")?,
        steady,
    };
    let nodes: BTreeMap<String, NodeReport> = rows(file, "node", |key| Ok(key.to_owned()))?;
    let tasks: BTreeMap<TaskRef, SimTask> = rows(file, "task", |key| Ok(serde_json::from_str(key)?))?;
    let progress: BTreeMap<Uid, Progress> = rows(file, "progress", |key| Ok(serde_json::from_str(key)?))?;
    let devices: BTreeMap<String, Vec<Device>> = rows(file, "device", |key| Ok(key.to_owned()))?;
    let remembered: BTreeMap<TaskRef, End> = rows(file, "ended", |key| Ok(serde_json::from_str(key)?))?;
    let id = number("id")?;
    let says_index = meta(file, "obeyed")?.is_some();
    let saved = Saved {
        id,
        generation: number("generation")?,
        // A file from before the index was kept says only under which term it obeyed.
        obeyed: Standing { term: number("term")?, next: if says_index { number("obeyed")? } else { 0 } },
        now: Timestamp(number("now")?),
        nodes: nodes.into_values().collect(),
        tasks,
        progress,
        devices,
        // A file from before devices were simulated becomes one with: they are as what runs needs them.
        devices_seed: Some(id),
        remembered,
    };
    Ok(Some((saved, clock)))
}

fn rows<K: Ord, V: serde::de::DeserializeOwned>(
    file: &Connection,
    table: &str,
    key: impl Fn(&str) -> Result<K, Anything>,
) -> Result<BTreeMap<K, V>, Anything> {
    let mut found = BTreeMap::new();
    // A file of an older version lacks what is newer than it.
    if !has_table(file, table)? {
        return Ok(found);
    }
    let mut all = file.prepare(&format!("SELECT key, body FROM {table}"))?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        let (name, body): (String, String) = (row.get(0)?, row.get(1)?);
        found.insert(key(&name)?, serde_json::from_str(&body)?);
    }
    Ok(found)
}
