//! A `wharf up` of the test's own, on a free port.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program under test.
pub(crate) fn wharf() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
    command.env_remove("WHARF_SERVER").env("WHARF_LOG", "warn").env("WHARF_USER", "tester");
    command
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    /// What it said when it came up.
    pub(crate) greeting: String,
}

impl Server {
    /// Starts it and waits until it listens.
    pub(crate) fn start(data: &Path, further: &[&str]) -> Self {
        Self::try_start(data, further).expect("the server comes up")
    }

    /// Starts it; `Err` with what it said when it does not come up.
    pub(crate) fn try_start(data: &Path, further: &[&str]) -> Result<Self, String> {
        let mut child = wharf()
            .args(["up", "--data"])
            .arg(data)
            .args(if further.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"] })
            .args(further)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        while out.read_line(&mut greeting).unwrap() > 0 {
            if greeting.contains("stop with Ctrl-C") {
                break;
            }
        }
        let Some((_, rest)) = greeting.split_once(" is up at ") else {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            let status = child.wait().unwrap();
            return Err(format!("{status}: {said}"));
        };
        let address = rest.lines().next().unwrap().to_owned();
        Ok(Self { child, address, greeting })
    }

    /// Its address as the `Host` of a request.
    pub(crate) fn host(&self) -> &str {
        self.address.strip_prefix("http://").unwrap()
    }

    /// Runs a client command against it.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        wharf().env("WHARF_SERVER", &self.address).args(args).output().unwrap()
    }

    /// Runs a client command that must succeed, and gives its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let output = self.run(&[args, &["-o", "json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Kills it, and gives what it said on its standard error.
    pub(crate) fn stop_and_hear(mut self) -> String {
        self.child.kill().unwrap();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    /// Kills it as the power would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal and waits for its end.
    pub(crate) fn signal(mut self, signal: &str) -> (i32, Duration) {
        let begin = Instant::now();
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let status = self.child.wait().unwrap();
        (status.code().unwrap_or(-1), begin.elapsed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `what` holds, for at most half a minute.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}
