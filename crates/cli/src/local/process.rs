//! What the operating system says of a process.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Files and connections that a server has open at most, with room to spare.
const OPEN_FILES: u64 = 4096;

/// CPU time of this process so far; `None` where the system does not say.
pub(crate) fn cpu_seconds() -> Option<f64> {
    cpu_seconds_of("self")
}

/// CPU time of this process so far, all threads together, as finely as the system counts it.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("CPU time is never negative")
}

/// CPU time of a process, by pid or `self`.
pub(crate) fn cpu_seconds_of(pid: &str) -> Option<f64> {
    let stat = std::fs::read_to_string(PathBuf::from("/proc").join(pid).join("stat")).ok()?;
    // Fields after the name, which may hold spaces: user and system time are the 12th and 13th, in ticks of 1/100 s.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: Vec<u32> = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    Some(f64::from(ticks.iter().sum::<u32>()) / 100.0)
}

/// Memory of a process in bytes, at its highest so far.
pub(crate) fn memory_peak_of(pid: &str) -> Option<u64> {
    let status = std::fs::read_to_string(PathBuf::from("/proc").join(pid).join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib * 1024)
}

/// Raises the bound on open files to what a server needs, as far as the system lets us. Many systems allow 1024, which
/// is less than the connections that we take.
pub(crate) fn allow_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if current.is_some_and(|current| current < wanted) {
        // Where that fails we go on with fewer: connections are then refused by the system, not by us.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}
