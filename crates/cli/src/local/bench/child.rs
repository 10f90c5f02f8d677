//! A control plane of our own for a measurement: this program, as a child, on a free port.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};

/// A running `wharf up`; it is killed when dropped.
pub(super) struct Server {
    child: Child,
    /// Kept open: a program whose output nobody takes any more may be told so by the system.
    _out: BufReader<ChildStdout>,
    /// `http://HOST:PORT`.
    pub(super) address: String,
}

impl Server {
    /// Starts `wharf up` with these further arguments and waits until it says where it listens.
    pub(super) fn start(data: &std::path::Path, further: &[&str]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(program)
            .args(["up", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(further)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("cannot start this program again")?;
        let mut out = BufReader::new(child.stdout.take().context("the child has no output")?);
        let mut first = String::new();
        out.read_line(&mut first)?;
        let Some((_, address)) = first.trim().split_once(" is up at ") else {
            let _ = child.kill();
            bail!("`wharf up` did not come up; it said {first:?}");
        };
        Ok(Self { child, address: address.to_owned(), _out: out })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
