//! From text to a [`Scenario`]. Every name is checked here, so that running meets no name it does not know.

mod fleet;
mod job;
mod order;
mod policy;
mod quota;
mod tasks;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use wharf_engine::decide::input::{DowntimeRequest, DrainRequest, Extension, Replacement};
use wharf_engine::device::catalogue::xid;
use wharf_engine::model::policy::Policy;
use wharf_engine::state::fleet::Whom;
use wharf_engine::units::{Millis, Timestamp, Uid};

use super::{Act, Ask, Fate, Mistake, Placed, Scenario, Step};
use words::{Words, unknown};

/// What a line may begin with.
const WORDS: [&str; 27] = [
    "fleet", "quota", "policy", "running", "submit", "plan", "after", "cancel", "evict", "extend", "scale",
    "replace", "book", "cordon", "uncordon", "drain", "undrain", "maintain", "node", "gpu", "restart",
    "lose", "stale", "expect", "own", "disown", "release",
];

pub(super) fn parse(file: &str, text: &str) -> Result<Scenario, Mistake> {
    let mistake = |line, what| Mistake { file: file.to_owned(), line, what };
    if !text.starts_with('#') {
        return Err(mistake(1, "the first line is a comment that tells the story: `# …`".to_owned()));
    }
    let mut reader = Reader::default();
    for (at, line) in text.lines().enumerate() {
        let code = line.split('#').next().unwrap_or_default();
        reader.line(at + 1, code).map_err(|what| mistake(at + 1, what))?;
    }
    if reader.scenario.nodes.is_empty() {
        return Err(mistake(1, "there is no `fleet` line".to_owned()));
    }
    Ok(reader.scenario)
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    scenario: Scenario,
    /// What the newest `quota` and `policy` lines say.
    policy: Policy,
    jobs: BTreeSet<String>,
    bookings: BTreeSet<String>,
    submissions: u128,
    /// Identities of jobs that were submitted, by name.
    uids: BTreeMap<String, Uid>,
    /// Identities of jobs that the world owns, by name.
    owned: BTreeMap<String, Uid>,
    islands: u32,
    /// What `running` lines hold, in 1/3000, by node and GPU.
    held: BTreeMap<(String, usize), u64>,
}

impl Reader {
    fn line(&mut self, number: usize, code: &str) -> Result<(), String> {
        let mut words = Words::of(code);
        let Some(word) = words.next() else { return Ok(()) };
        let step = match word {
            "expect" => return Ok(()),
            "fleet" => return self.fleet(&mut words),
            "running" => return self.running(&mut words),
            "quota" | "policy" => {
                if word == "quota" {
                    self.quota(&mut words)?;
                } else {
                    policy::read(&mut words, &mut self.policy)?;
                }
                match self.policy_step() {
                    Some(step) => step,
                    None => return Ok(()),
                }
            }
            "submit" => self.submit(&mut words)?,
            "own" => self.own(&mut words)?,
            "disown" => Step::Own(self.owned_uid(&mut words)?, None),
            "book" => self.book(&mut words)?,
            "cancel" if words.take("booking") => self.unbook(&mut words)?,
            "cancel" if words.take("maintenance") => {
                let name = words.need("the name of the maintenance")?.to_owned();
                Step::Ask(Ask::CallOff { name })
            }
            "cancel" => Step::Ask(Ask::Cancel { job: self.named(&mut words)? }),
            "release" => Step::Ask(Ask::Release { job: self.named(&mut words)? }),
            "evict" => self.evict(&mut words)?,
            "extend" => self.extend(&mut words)?,
            "scale" => {
                let job = self.named(&mut words)?;
                words.expect("to")?;
                Step::Ask(Ask::Scale { job, tasks: words.number("how many replicas")? })
            }
            "replace" => self.replace(&mut words)?,
            "cordon" | "uncordon" => {
                Step::Ask(Ask::Cordon { node: self.node(&mut words)?, on: word == "cordon" })
            }
            "drain" => self.drain(&mut words)?,
            "undrain" => Step::Ask(Ask::Drain { node: self.node(&mut words)?, how: None }),
            "maintain" => self.maintain(&mut words)?,
            "node" => self.node_step(&mut words)?,
            "gpu" => self.gpu_step(&mut words)?,
            "plan" => Step::Act(Act::Plan),
            "after" => Step::Act(Act::After(words.span("how long, like 5m")?)),
            "restart" => Step::Act(Act::Restart(away(&mut words)?)),
            "lose" => fixed(&mut words, "journal", Act::LoseJournal)?,
            "stale" => fixed(&mut words, "leader", Act::StaleLeader)?,
            other => return Err(unknown("a line does not begin with", other, &WORDS)),
        };
        words.end()?;
        self.scenario.steps.push(Placed { line: number, step });
        Ok(())
    }

    fn before_the_story(&self, word: &str) -> Result<(), String> {
        if self.scenario.steps.is_empty() {
            return Ok(());
        }
        Err(format!("`{word}` comes before the first step: it tells how things are when the story begins"))
    }

    /// A job appears in the world; one of that name that is there changes.
    fn own(&mut self, words: &mut Words<'_>) -> Result<Step, String> {
        let Step::Ask(Ask::Submit(mut job)) = self.submit(words)? else {
            return Err("the world owns jobs".to_owned());
        };
        let uid = *self.owned.entry(job.spec.name.clone()).or_insert(job.uid);
        job.uid = uid;
        Ok(Step::Own(uid, Some(job)))
    }

    fn owned_uid(&self, words: &mut Words<'_>) -> Result<Uid, String> {
        let name = self.named(words)?;
        let known: Vec<&str> = self.owned.keys().map(String::as_str).collect();
        self.owned.get(&name).copied().ok_or_else(|| unknown("the world owns no", &name, &known))
    }

    fn evict(&self, words: &mut Words<'_>) -> Result<Step, String> {
        let job = self.named(words)?;
        words.expect("by")?;
        let by = words.need("on whose behalf, like `by alice`")?.to_owned();
        Ok(Step::Ask(Ask::Evict { job, by }))
    }

    fn extend(&self, words: &mut Words<'_>) -> Result<Step, String> {
        let job = self.named(words)?;
        let to = match words.need("`to` or `by`")? {
            "to" => Extension::To(words.span("how long in all, like 2h")?),
            "by" => Extension::By(words.span("how much longer, like 1h")?),
            other => return Err(unknown("a job is not extended", other, &["to", "by"])),
        };
        Ok(Step::Ask(Ask::Extend { job, to }))
    }

    fn replace(&self, words: &mut Words<'_>) -> Result<Step, String> {
        let job = self.named(words)?;
        if words.take("stop") {
            return Ok(Step::Ask(Ask::Replace { job, how: None }));
        }
        let mut how = Replacement { surge: 1, unavailable: 1 };
        while let Some(word) = words.next() {
            let number = match word {
                "surge" => &mut how.surge,
                "unavailable" => &mut how.unavailable,
                other => {
                    return Err(unknown("replicas are not replaced with", other, &["surge", "unavailable"]));
                }
            };
            *number = words.number("how many replicas")?;
        }
        Ok(Step::Ask(Ask::Replace { job, how: Some(how) }))
    }

    fn drain(&self, words: &mut Words<'_>) -> Result<Step, String> {
        let node = self.node(words)?;
        let within = if words.take("within") { words.span("how long, like 30m")? } else { Millis(0) };
        let how = DrainRequest { within, reason: String::new(), whom: whom(words) };
        Ok(Step::Ask(Ask::Drain { node, how: Some(how) }))
    }

    fn maintain(&self, words: &mut Words<'_>) -> Result<Step, String> {
        let name = words.need("the name of the maintenance")?.to_owned();
        let mut nodes = vec![self.node(words)?];
        while !words.take("from") {
            nodes.push(self.node(words)?);
        }
        let from = Timestamp(words.span("when, like 1h")?.0);
        words.expect("for")?;
        let span = words.span("how long, like 4h")?;
        let request = DowntimeRequest { name, nodes, from, span, reason: String::new(), whom: whom(words) };
        Ok(Step::Ask(Ask::PlanDowntime(Box::new(request))))
    }

    fn node_step(&self, words: &mut Words<'_>) -> Result<Step, String> {
        let name = self.node(words)?;
        let fate = match words.need("what happens to the node")? {
            "fails" => Fate::Fails,
            "unreachable" => Fate::Unreachable,
            "hangs" => Fate::Hangs,
            "returns" => Fate::Returns,
            "refuses" => return Ok(Step::Node { name, fate: refuses(words)? }),
            other => {
                let allowed = ["fails", "unreachable", "hangs", "refuses", "returns"];
                return Err(unknown("a node", other, &allowed));
            }
        };
        Ok(Step::Node { name, fate })
    }

    fn gpu_step(&self, words: &mut Words<'_>) -> Result<Step, String> {
        let name = self.node(words)?;
        let gpu: usize = words.number("which of its GPUs")?;
        let known = self.scenario.nodes.iter().find(|report| report.node.name == name);
        let gpus = known.map_or(0, |report| report.node.gpus.len());
        if gpu >= gpus {
            return Err(format!("{name} has no GPU {gpu}: it has {gpus}, counted from 0"));
        }
        let fate = match words.need("what happens to the GPU")? {
            "returns" => Fate::GpuReturns(gpu),
            "xid" => {
                let number = words.number("the number of an error, like 79")?;
                Fate::GpuError(gpu, xid(number).ok_or_else(|| format!("there is no XID {number} in use"))?)
            }
            other => return Err(unknown("a GPU", other, &["xid", "returns"])),
        };
        Ok(Step::Node { name, fate })
    }

    fn node(&self, words: &mut Words<'_>) -> Result<String, String> {
        let name = words.need("the name of a node")?;
        let known: Vec<&str> = self.node_names().collect();
        if known.contains(&name) {
            Ok(name.to_owned())
        } else {
            Err(unknown("no node is called", name, &known))
        }
    }

    fn node_names(&self) -> impl Iterator<Item = &str> {
        self.scenario.nodes.iter().map(|report| report.node.name.as_str())
    }

    fn named(&self, words: &mut Words<'_>) -> Result<String, String> {
        let name = words.need("the name of a job")?;
        let known: Vec<&str> = self.jobs.iter().map(String::as_str).collect();
        if known.contains(&name) {
            Ok(name.to_owned())
        } else {
            Err(unknown("no job is called", name, &known))
        }
    }
}

fn refuses(words: &mut Words<'_>) -> Result<Fate, String> {
    let what = words.need("what the node refuses")?;
    let span = if words.take("for") { Some(words.span("how long, like 5m")?) } else { None };
    match what {
        "starts" => Ok(Fate::RefusesStarts(span)),
        "stops" => Ok(Fate::RefusesStops(span)),
        other => Err(unknown("a node refuses", other, &["starts", "stops"])),
    }
}

fn whom(words: &mut Words<'_>) -> Whom {
    if words.take("everything") { Whom::Everything } else { Whom::Preemptible }
}

fn away(words: &mut Words<'_>) -> Result<Millis, String> {
    if words.take("after") { words.span("how long, like 5m") } else { Ok(Millis(0)) }
}

fn fixed(words: &mut Words<'_>, second: &str, act: Act) -> Result<Step, String> {
    words.expect(second)?;
    Ok(Step::Act(act))
}
