//! Scenarios: a fleet, some jobs and what should happen to them, as a text of a few lines.
//!
//! A scenario is run by the real controller over a simulated disk and fleet. After every step that lets the
//! controller act, what changed is told in short sentences; these are the `expect` lines. Running a scenario gives
//! its own text back with the right `expect` lines, so comparing is `==` and blessing is writing the file. What is
//! found broken on the way is kept apart: no blessing makes that right. The grammar is in `docs/scenarios.md`.

mod measure;
mod parse;
mod run;
mod transcript;

use std::collections::BTreeMap;

use wharf_controller::world::NodeReport;
use wharf_engine::decide::input::{BookingRequest, DowntimeRequest, DrainRequest, Extension, Replacement};
use wharf_engine::device::catalogue::Xid;
use wharf_engine::model::action::StartTask;
use wharf_engine::model::policy::Policy;
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{Millis, Uid};

use crate::testing::pricing::Pricing;

/// What stands before each `expect` sentence: the word, padded like the other words.
const EXPECT: &str = "expect   ";

/// A line that is not of the grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct Mistake {
    /// Name of the file.
    pub file: String,
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong, and what is allowed.
    pub what: String,
}

/// A scenario after it was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retold {
    /// Its text with the `expect` lines as they should be.
    pub text: String,
    /// What must not be, whatever the text says.
    pub findings: Vec<String>,
}

/// Runs a scenario and tells it again.
pub fn retell(file: &str, text: &str) -> Result<Retold, Mistake> {
    retell_with(file, text, Pricing::Off)
}

/// The same where places may have prices.
pub fn retell_with(file: &str, text: &str, pricing: Pricing) -> Result<Retold, Mistake> {
    let scenario = parse::parse(file, text)?;
    let run::Ran { told, findings } = run::run(&scenario, pricing);
    Ok(Retold { text: weave(text, &told), findings })
}

/// A scenario as it was written.
#[derive(Debug, Default)]
struct Scenario {
    nodes: Vec<NodeReport>,
    policy: Policy,
    running: Vec<Running>,
    steps: Vec<Placed>,
}

/// Work that runs before the story begins.
#[derive(Debug)]
struct Running {
    job: Submission,
    tasks: Vec<StartTask>,
}

/// A step and its line, from 1.
#[derive(Debug)]
struct Placed {
    line: usize,
    step: Step,
}

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    /// Somebody asks for something; the next turn answers.
    Ask(Ask),
    /// Something happens to a node; the next turn notices.
    Node { name: String, fate: Fate },
    /// A job that the world owns appears or changes there, or is gone; the next turn notices.
    Own(Uid, Option<Box<Submission>>),
    /// The controller acts.
    Act(Act),
}

#[derive(Clone, Debug)]
enum Ask {
    Submit(Box<Submission>),
    Cancel {
        job: String,
    },
    Release {
        job: String,
    },
    Evict {
        job: String,
        by: String,
    },
    Extend {
        job: String,
        to: Extension,
    },
    Scale {
        job: String,
        tasks: u32,
    },
    Replace {
        job: String,
        how: Option<Replacement>,
    },
    /// Begins so long after the story.
    Book(Box<BookingRequest>),
    Unbook {
        name: String,
    },
    Cordon {
        node: String,
        on: bool,
    },
    Drain {
        node: String,
        how: Option<DrainRequest>,
    },
    /// Begins so long after the story.
    PlanDowntime(Box<DowntimeRequest>),
    CallOff {
        name: String,
    },
    Quota(Box<Policy>),
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Fails,
    Unreachable,
    /// It is there and starts nothing.
    Hangs,
    /// It is there and says that it starts nothing, for a while or until it returns.
    RefusesStarts(Option<Millis>),
    /// It does not let tasks go, for a while or until it returns.
    RefusesStops(Option<Millis>),
    Returns,
    /// One of its GPUs reports an error.
    GpuError(usize, &'static Xid),
    GpuReturns(usize),
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Plan,
    After(Millis),
    /// The control plane comes back after this long; the world went on.
    Restart(Millis),
    LoseJournal,
    StaleLeader,
}

/// The text with the sentences that were told after each line, by line number.
fn weave(text: &str, told: &BTreeMap<usize, Vec<String>>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut woven = String::new();
    let mut push = |line: &str| {
        woven.push_str(line);
        woven.push('\n');
    };
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| expected(line).is_none()) {
        push(line);
        let after = &lines[at + 1..];
        let before: Vec<&str> = after.iter().map_while(|line| expected(line).map(|_| *line)).collect();
        for sentence in told.get(&(at + 1)).into_iter().flatten() {
            // A line that says the same keeps its comment.
            match before.iter().find(|line| expected(line) == Some(sentence)) {
                Some(same) => push(same),
                None => push(&format!("{EXPECT}{sentence}")),
            }
        }
    }
    woven
}

/// The sentence of an `expect` line.
fn expected(line: &str) -> Option<&str> {
    let code = line.split('#').next().unwrap_or_default().trim();
    let rest = code.strip_prefix("expect")?;
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then_some(rest.trim())
}

#[cfg(test)]
mod tests;
