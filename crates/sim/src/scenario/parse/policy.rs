//! `policy within team, min runtime 0s, evictions 1 per 1h`: who has to leave for whom, and when a gang lets go.

use wharf_engine::policy::{Policy, Preemption, Within};

use super::super::measure::span;
use super::words::{Words, unknown};

const OPTIONS: [&str; 12] = [
    "within project|team|org",
    "borrow grace 5m",
    "min runtime 2m [reclaim|preempt]",
    "restart 30s",
    "horizon 2h",
    "value N N N",
    "evictions N per 1h",
    "victims N",
    "moves N",
    "fixed may borrow",
    "start within 15m",
    "repair within 2m",
];

/// Changes what the line names; the rest stays as it was.
pub(super) fn read(words: &mut Words<'_>, policy: &mut Policy) -> Result<(), String> {
    loop {
        option(words, policy)?;
        if !words.take(",") {
            return words.end();
        }
    }
}

fn option(words: &mut Words<'_>, policy: &mut Policy) -> Result<(), String> {
    let rules = &mut policy.preemption;
    match words.need("what the policy says, like `moves 0`")? {
        "within" => rules.within = within(words)?,
        "borrow" => {
            words.expect("grace")?;
            rules.borrow_grace_max = span(words.need("how long, like 5m")?)?;
        }
        "min" => min_runtime(words, rules)?,
        "restart" => rules.restart = span(words.need("how long, like 30s")?)?,
        "horizon" => rules.wait_horizon = span(words.need("how long, like 2h")?)?,
        "value" => {
            for value in &mut rules.value {
                *value = words.number("what a second of waiting is worth, for each class")?;
            }
        }
        "evictions" => {
            rules.evictions_max = words.number("how many")?;
            words.expect("per")?;
            rules.eviction_window = span(words.need("how long, like 1h")?)?;
        }
        "victims" => rules.victims_max = words.number("how many jobs at most")?,
        "moves" => rules.moves_max = words.number("how many jobs at most")?,
        "fixed" => {
            words.expect("may")?;
            words.expect("borrow")?;
            rules.fixed_may_borrow = true;
        }
        "start" => {
            words.expect("within")?;
            policy.gangs.start_within = span(words.need("how long, like 15m")?)?;
        }
        "repair" => {
            words.expect("within")?;
            policy.gangs.repair_within = span(words.need("how long, like 2m")?)?;
        }
        other => return Err(unknown("a policy has no", other, &OPTIONS)),
    }
    Ok(())
}

fn within(words: &mut Words<'_>) -> Result<Within, String> {
    match words.need("project, team or org")? {
        "project" => Ok(Within::Project),
        "team" => Ok(Within::Team),
        "org" => Ok(Within::Org),
        other => Err(unknown("nobody preempts within", other, &["project", "team", "org"])),
    }
}

fn min_runtime(words: &mut Words<'_>, rules: &mut Preemption) -> Result<(), String> {
    words.expect("runtime")?;
    let span = span(words.need("how long, like 2m")?)?;
    if !words.take("preempt") {
        rules.min_runtime_reclaim = span;
        if words.take("reclaim") {
            return Ok(());
        }
    }
    rules.min_runtime_preempt = span;
    Ok(())
}
