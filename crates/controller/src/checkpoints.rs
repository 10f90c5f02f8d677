//! Moving a write-ahead log into its file, off the writer's path.
//!
//! A writer that moves its own log stops for several syncs every few megabytes, and requests wait behind it. A second
//! connection can do it beside the writer without holding it up. Only a log that has grown far too long is moved by
//! the writer itself.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

/// How often the log is moved.
const EVERY: Duration = Duration::from_millis(500);
/// Pages after which the writer moves the log itself: 64 MiB, against a log that never comes to rest.
const PAGES_MAX: u32 = 16_384;

/// A thread that moves the log of one file for as long as this lives.
#[derive(Debug)]
pub struct Checkpoints {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Takes the work off a writer's hands.
    pub fn beside(writer: &Connection, path: &Path) -> rusqlite::Result<Self> {
        writer.pragma_update_and_check(None, "wal_autocheckpoint", PAGES_MAX, |_| Ok(()))?;
        let (stop, stopped) = channel();
        let path: PathBuf = path.to_owned();
        let work = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                // What fails now is tried again; the writer's own limit stands behind it.
                let _ = move_log(&path);
            }
        };
        let thread = std::thread::Builder::new().name("checkpoints".to_owned()).spawn(work).ok();
        Ok(Self { stop: Some(stop), thread })
    }
}

fn move_log(path: &Path) -> rusqlite::Result<()> {
    let beside = Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    beside.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
