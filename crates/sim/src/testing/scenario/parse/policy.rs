//! `policy within team, min runtime 0s, evictions 1 per 1h`: who has to leave for whom, and when a gang lets go.

use strum::VariantArray;
use wharf_engine::model::job::Class;
use wharf_engine::model::policy::trust::TrustClaim;
use wharf_engine::model::policy::{Mode, Policy, Preemption, Windows, Within};

use super::order;
use super::words::{Words, one_of, unknown};

const OPTIONS: [&str; 23] = [
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
    "limit max|default CLASS 1h",
    "start within 15m",
    "repair within 2m",
    "sharing CLASS MODES",
    "domain NAME MODES",
    "claim DOMAIN by TENANT and TENANT",
    "tax mps|time-slicing|CLASS N",
    "reservations N",
    "no backfill",
    "order CLASS age|attained|learned",
    "window lead|span|ahead|no-show SPAN, window bookings N, window operators only, window not filled",
    "half-life 24h",
    "estimates learned",
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
            rules.borrow_grace_max = words.span("how long, like 5m")?;
        }
        "min" => min_runtime(words, rules)?,
        "restart" => rules.restart = words.span("how long, like 30s")?,
        "horizon" => rules.wait_horizon = words.span("how long, like 2h")?,
        "value" => {
            for value in &mut rules.value {
                *value = words.number("what a second of waiting is worth, for each class")?;
            }
        }
        "evictions" => {
            rules.evictions_max = words.number("how many")?;
            words.expect("per")?;
            rules.eviction_window = words.span("how long, like 1h")?;
        }
        "victims" => rules.victims_max = words.number("how many jobs at most")?,
        "moves" => rules.moves_max = words.number("how many jobs at most")?,
        "fixed" => {
            words.expect_all(["may", "borrow"])?;
            rules.fixed_may_borrow = true;
        }
        "limit" => limit(words, policy)?,
        "start" => {
            words.expect("within")?;
            policy.gangs.start_within = words.span("how long, like 15m")?;
        }
        "repair" => {
            words.expect("within")?;
            policy.gangs.repair_within = words.span("how long, like 2m")?;
        }
        "sharing" => {
            let class = class(words)?;
            policy.sharing.classes[class].modes = modes(words)?;
        }
        "domain" => {
            let name = words.need("a trust domain, like vendor")?.to_owned();
            policy.sharing.domains.push((name, modes(words)?));
        }
        "claim" => claim(words, policy)?,
        "tax" => tax(words, policy)?,
        "reservations" => policy.reservations_max = words.number("how many promised starts at most")?,
        "half-life" => policy.half_life = Some(words.span("how long, like 24h")?),
        "estimates" => {
            words.expect("learned")?;
            policy.estimates.learned = true;
        }
        "no" => {
            words.expect("backfill")?;
            policy.no_backfill = true;
        }
        "order" => {
            let class = class(words)?;
            order::read(words, &mut policy.orders.0[class])?;
        }
        "window" => window(words, &mut policy.windows)?,
        other => return Err(unknown("a policy has no", other, &OPTIONS)),
    }
    Ok(())
}

/// Which windows may be booked.
fn window(words: &mut Words<'_>, windows: &mut Windows) -> Result<(), String> {
    const KNOWN: [&str; 7] = ["lead", "span", "ahead", "no-show", "bookings", "operators", "not"];
    let word = words.need("what holds for booked windows, like `lead 30m`")?;
    let mut how_long = || words.span("how long, like 30m");
    match word {
        "lead" => windows.lead = how_long()?,
        "span" => windows.span_max = how_long()?,
        "ahead" => windows.ahead_max = how_long()?,
        "no-show" => windows.no_show = how_long()?,
        "bookings" => windows.bookings_max = words.number("how many of one tenant at most")?,
        "operators" => {
            words.expect("only")?;
            windows.tenants_may_book = false;
        }
        "not" => {
            words.expect("filled")?;
            windows.fill = false;
        }
        other => return Err(unknown("a window has no", other, &KNOWN)),
    }
    Ok(())
}

/// The place of a class among its rules.
fn class(words: &mut Words<'_>) -> Result<usize, String> {
    one_of("there is no class", words.need("a class")?).map(Class::index)
}

/// `mps whole`, as long as there are such words.
fn modes(words: &mut Words<'_>) -> Result<Vec<Mode>, String> {
    let mut modes = Vec::new();
    while let Some(mode) =
        words.peek().and_then(|word| Mode::VARIANTS.iter().copied().find(|mode| mode.into_str() == word))
    {
        words.next();
        modes.push(mode);
    }
    if modes.is_empty() {
        return Err("a share is met somehow: write `mps`, `time-slicing`, `mig` or `whole`".to_owned());
    }
    Ok(modes)
}

/// How long jobs of a class may run at most, or where they say nothing.
fn limit(words: &mut Words<'_>, policy: &mut Policy) -> Result<(), String> {
    let limits = &mut policy.limits;
    let of = match words.need("max or default")? {
        "max" => &mut limits.max,
        "default" => &mut limits.default,
        other => return Err(unknown("a policy has no limit", other, &["max", "default"])),
    };
    let class = class(words)?;
    of[class] = Some(words.span("how long, like 1h")?);
    Ok(())
}

/// Who may claim a trust domain.
fn claim(words: &mut Words<'_>, policy: &mut Policy) -> Result<(), String> {
    let domain = words.need("a trust domain, like vendor")?.to_owned();
    words.expect("by")?;
    let mut tenants = Vec::new();
    loop {
        tenants.push(words.need("the path of a tenant, like lab/nlp")?.to_owned());
        if !words.take("and") {
            break;
        }
    }
    policy.sharing.claims.retain(|known| known.domain != domain);
    policy.sharing.claims.push(TrustClaim { domain, tenants });
    Ok(())
}

/// What sharing costs, or what a class may lose by it, in thousandths.
fn tax(words: &mut Words<'_>, policy: &mut Policy) -> Result<(), String> {
    let sharing = &mut policy.sharing;
    let milli = "thousandths of throughput, like 300";
    match words.peek() {
        Some("mps") => {
            words.next();
            sharing.mps_tax = words.number(milli)?;
        }
        Some("time-slicing") => {
            words.next();
            sharing.time_slicing_tax = words.number(milli)?;
        }
        _ => {
            let class = class(words)?;
            sharing.classes[class].tax_max = words.number(milli)?;
        }
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
    let span = words.span("how long, like 2m")?;
    if !words.take("preempt") {
        rules.min_runtime_reclaim = span;
        if words.take("reclaim") {
            return Ok(());
        }
    }
    rules.min_runtime_preempt = span;
    Ok(())
}
