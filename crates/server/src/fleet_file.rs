//! Hot reload of a simulated fleet's file.
//!
//! The file is looked at once a second and read when it has changed. Nodes that it names and the fleet lacks join, nodes that it
//! no longer names leave with everything on them, the others become as it says. A file with an error changes nothing:
//! the fleet stays, and the error is shown until it is mended.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tracing::{info, warn};
use wharf_api::file::fleet::{Fleet, load_fleet};
use wharf_controller::world::{Happened, Happening, NodeReport};

use crate::desk::Desk;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The most names that are told.
const NAMES_MAX: usize = 8;

/// What is wrong with the fleet file now, if anything.
#[derive(Clone, Debug, Default)]
pub struct FleetStatus(Arc<Mutex<Option<String>>>);

impl FleetStatus {
    /// What is wrong.
    pub fn error(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, error: Option<String>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*held, &error) {
            (before, after) if before == after => {}
            (_, Some(error)) => warn!("the fleet file has an error, the fleet stays as it is: {error}"),
            (_, None) => info!("the fleet file is in order again"),
        }
        *held = error;
    }
}

/// Watches a file for as long as the desk lives. `read` is what the fleet was opened with.
pub fn watch(file: PathBuf, read: Option<Vec<NodeReport>>, desk: Desk, status: FleetStatus) {
    let look = move || {
        let mut watched = Watched { applied: read, ..Watched::default() };
        while !desk.has_stopped() {
            watched.look(&file, &desk, &status);
            std::thread::sleep(LOOK_EVERY);
        }
    };
    std::thread::Builder::new().name("fleet".to_owned()).spawn(look).expect("a thread can be started");
}

/// How a file looks from outside.
type Stamp = (SystemTime, u64);

#[derive(Default)]
struct Watched {
    seen: Option<Stamp>,
    /// What was read last.
    last: Option<Vec<NodeReport>>,
    /// It looked the same twice, so nobody is in the middle of writing it.
    whole: bool,
    applied: Option<Vec<NodeReport>>,
    /// The fleet did not take what was applied: it is given once more.
    refused: Arc<AtomicBool>,
}

impl Watched {
    fn look(&mut self, file: &Path, desk: &Desk, status: &FleetStatus) {
        if self.refused.swap(false, Ordering::AcqRel) {
            (self.applied, self.whole) = (None, false);
        }
        let stamp = match stamp(file) {
            Ok(stamp) => stamp,
            Err(error) => {
                status.set(Some(format!("{}: {error}", file.display())));
                self.seen = None;
                return;
            }
        };
        if self.seen.replace(stamp) == Some(stamp) && self.whole {
            return;
        }
        self.whole = false;
        let nodes = match load_fleet(&file.display().to_string()) {
            Ok(Fleet { nodes, .. }) => nodes,
            Err(error) => {
                status.set(Some(error.to_string()));
                return;
            }
        };
        status.set(None);
        self.whole = self.last.as_ref() == Some(&nodes);
        self.last = Some(nodes.clone());
        if self.whole && self.applied.as_ref() != Some(&nodes) {
            self.apply(nodes, desk);
        }
    }

    fn apply(&mut self, nodes: Vec<NodeReport>, desk: &Desk) {
        let refused = Arc::clone(&self.refused);
        let given = desk.let_happen(Happening::Fleet(nodes.clone()), move |happened| match happened {
            Ok(happened) => tell(&happened),
            Err(why) => {
                warn!("the fleet did not take the change of its file, which is tried again: {why}");
                refused.store(true, Ordering::Release);
            }
        });
        if given.is_ok() {
            self.applied = Some(nodes);
        }
    }
}

/// A pipe or a device would keep whoever reads it waiting.
fn stamp(file: &Path) -> std::io::Result<Stamp> {
    let known = std::fs::metadata(file)?;
    if !known.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    Ok((known.modified()?, known.len()))
}

/// Says what changed.
pub fn tell(happened: &Happened) {
    let Happened { jobs, joined, left, changed } = happened;
    let parts = [("joined", joined), ("left", left), ("changed", changed)];
    let told = parts.into_iter().filter(|(_, nodes)| !nodes.is_empty());
    let told: Vec<String> = told.map(|(what, nodes)| format!("{} {what}", names(nodes))).collect();
    if told.is_empty() {
        return;
    }
    let lost = match jobs.len() {
        0 => "nothing that ran was lost".to_owned(),
        count => format!("{count} jobs lost tasks and wait again or are repaired: {}", names(jobs)),
    };
    info!("the fleet file was read: {}; {lost}", told.join(", "));
}

fn names(all: &[String]) -> String {
    let shown = all.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
