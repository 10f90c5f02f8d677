//! `policy order batch attained levels 10h 100h patience 30s`: the order of a class inside a tenant.

use wharf_engine::model::policy::OrderRules;

use super::super::measure::span;
use super::words::{Words, one_of, unknown};

const OPTIONS: [&str; 6] =
    ["levels SPAN SPAN", "patience 30s", "min run 60m", "gang over N", "landing N", "promote after 24h"];

/// Changes what the words name; the rest stays as it was.
pub(super) fn read(words: &mut Words<'_>, rules: &mut OrderRules) -> Result<(), String> {
    let word = words.need("an order: age, attained or learned")?;
    rules.order = one_of("there is no order", word)?;
    while words.peek().is_some_and(|word| word != ",") {
        option(words, rules)?;
    }
    Ok(())
}

fn option(words: &mut Words<'_>, rules: &mut OrderRules) -> Result<(), String> {
    match words.need("an option of the order")? {
        "levels" => {
            rules.levels.clear();
            while let Some(level) = words.peek().and_then(|word| span(word).ok()) {
                words.next();
                rules.levels.push(level);
            }
        }
        "patience" => rules.patience = words.span("how long, like 30s")?,
        "min" => {
            words.expect("run")?;
            rules.min_run = words.span("how long, like 60m")?;
        }
        "gang" => {
            words.expect("over")?;
            rules.gang_over = words.number("how many GPUs")?;
        }
        "landing" => rules.landing_room = words.number("how many GPUs")?,
        "promote" => {
            words.expect("after")?;
            rules.promote_after = Some(words.span("how long, like 24h")?);
        }
        other => return Err(unknown("an order has no", other, &OPTIONS)),
    }
    Ok(())
}
