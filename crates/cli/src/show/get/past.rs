//! History and policy: the lists and their tables.
//!
//! The body of a row of history is told key by key, whatever they are: a control plane that records more is read
//! without a change here.
use serde_json::Value;
use wharf_api::client::{Client, HistoryFilter};
use wharf_api::v1::{ActorView, HistoryKind, HistoryView, PolicyView};

use super::{List, now_for_people, show};
use crate::args::GetArgs;
use crate::render::numbers::{UNKNOWN, age, moment, span};
use crate::render::output::Tone;
use crate::render::table::{Cell, Column, Table};

const HISTORY_COLUMNS: [Column; 6] = [
    Column::number("AGO", "at_ms"),
    Column::text("KIND", "kind"),
    Column::text("TENANT", "tenant"),
    Column::text("NAME", "name"),
    Column::text("BY", "actor"),
    Column::text("WHAT", "body"),
];

const POLICY_COLUMNS: [Column; 3] =
    [Column::number("VERSION", "version"), Column::text("DIGEST", "digest"), Column::text("FILES", "error")];

/// Keys that say most, in this order, before all others.
const FIRST: [&str; 3] = ["outcome", "what", "change"];
/// Keys that say nothing to people.
const HIDDEN: [&str; 8] =
    ["uid", "beneficiary_uid", "stood", "labels", "submitted_at", "first_start", "ended_at", "gpu_parts"];

/// Keys whose numbers are moments.
const MOMENTS: [&str; 6] = ["at_ms", "from_ms", "to_ms", "until_ms", "deadline", "deadline_ms"];

/// Shows the policy in force.
pub(super) fn list_policy(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let answer = client.policy()?;
    let names = vec![format!("policy/{}", answer.version)];
    let table = policy_table(&answer);
    show(args, &List { answer: &answer, names, table, empty: String::new() })
}

/// Lists rows of history.
pub(super) fn list_history(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let filter = HistoryFilter {
        kind: args.kind,
        tenant: args.tenant.clone(),
        name: args.name.clone(),
        limit: args.limit,
    };
    let answer = client.history(&filter)?;
    let names: Vec<String> = answer.rows.iter().map(subject).collect();
    let now = now_for_people(client, args, &names);
    let table = history_table(&answer.rows, now);
    let empty = "nothing is over yet that is like that; live jobs: wharf get jobs".into();
    show(args, &List { answer: &answer, names, table, empty })
}
/// Of a digest so much is shown: enough to tell one from another. `wharf get policy` and `-o json` have all of it.
const DIGEST_SIGNS: usize = 12;

/// One row per fact.
pub(in crate::show) fn history_table(rows: &[HistoryView], now: Option<u64>) -> Table {
    let mut table = Table::new(&HISTORY_COLUMNS);
    for row in rows {
        table.row(vec![
            Cell::new(age(row.at_ms, now)).plain(&row.at_ms),
            Cell::new(row.kind.into_str()),
            Cell::new(row.tenant.clone()),
            Cell::new(row.name.clone()),
            Cell::new(row.actor.as_ref().map_or_else(|| UNKNOWN.to_owned(), ActorView::text)),
            Cell::new(told(&row.body)).plain(&row.body),
        ]);
    }
    table
}

/// What a row is about.
pub(in crate::show) fn subject(row: &HistoryView) -> String {
    match row.kind {
        HistoryKind::Audit => row.name.clone(),
        HistoryKind::Guarantee => format!("tenant/{}", row.tenant),
        HistoryKind::Job
        | HistoryKind::Receipt
        | HistoryKind::Eviction
        | HistoryKind::Usage
        | HistoryKind::Allocation
        | HistoryKind::Carried => format!("job/{}/{}", row.tenant, row.name),
    }
}

/// One row.
pub(in crate::show) fn policy_table(policy: &PolicyView) -> Table {
    let mut table = Table::new(&POLICY_COLUMNS);
    let files = match &policy.error {
        None if policy.warnings.is_empty() => Cell::new("in force").tone(Tone::Good),
        None => {
            Cell::new(format!("in force, with warnings: {}", policy.warnings.join("; "))).tone(Tone::Warn)
        }
        Some(error) => Cell::new(format!("not in force: {error}")).tone(Tone::Bad),
    };
    table.row(vec![
        Cell::new(policy.version.to_string()),
        Cell::new(policy.digest.clone()),
        files.plain_if_known(policy.error.as_ref()),
    ]);
    table
}

/// A body as `succeeded attempts=1 ran=3m`.
fn told(body: &Value) -> String {
    let Value::Object(map) = body else { return value("", body) };
    let first = FIRST.iter().filter_map(|key| map.get(*key)).map(|word| value("", word));
    let hidden = |key: &str| HIDDEN.contains(&key) || FIRST.contains(&key);
    let rest = map.iter().filter(|(key, known)| !hidden(key) && !known.is_null());
    let rest = rest.map(|(key, known)| format!("{}={}", key.trim_end_matches("_ms"), value(key, known)));
    first.chain(rest).collect::<Vec<_>>().join(" ")
}

fn value(key: &str, value: &Value) -> String {
    match (value, value.as_u64()) {
        (_, Some(millis)) if MOMENTS.contains(&key) => moment(millis),
        (_, Some(millis)) if key.ends_with("_ms") => span(millis),
        (Value::String(text), _) if key == "digest" => text.chars().take(DIGEST_SIGNS).collect(),
        (Value::String(text), _) => text.clone(),
        (Value::Array(items), _) => {
            items.iter().map(|item| self::value(key, item)).collect::<Vec<_>>().join(",")
        }
        (Value::Object(_), _) => told(value),
        (Value::Null | Value::Bool(_) | Value::Number(_), _) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_body_of_a_row_is_told_in_a_line() {
        let finished = json!({"uid": "x", "outcome": "succeeded", "attempts": 1, "ran_ms": 180_000});
        assert_eq!(told(&finished), "succeeded attempts=1 ran=3m");
        let placed = json!({"what": "placed", "attempt": 1, "nodes": ["n1", "n2"], "policy": 3});
        assert_eq!(told(&placed), "placed attempt=1 nodes=n1,n2 policy=3");
        assert_eq!(told(&json!({"why": {"failed": {"exit": 1}}})), "why=failed=exit=1");
        assert_eq!(told(&json!("word")), "word");
        let evicted =
            json!({"what": "evicted", "why": "guarantee", "below_line": null, "cost_gpu_ms": 240_000});
        assert_eq!(told(&evicted), "evicted cost_gpu=4m why=guarantee");
        let held = json!({"segments": [{"from_ms": 1_794_980_784_000_u64, "to_ms": 1_794_980_785_000_u64}]});
        assert_eq!(told(&held), "segments=from=2026-11-18 05:46:24Z to=2026-11-18 05:46:25Z");
        let drained = json!({"what": "drained", "deadline_ms": 1_794_980_784_000_u64, "reason": "fans"});
        assert_eq!(told(&drained), "drained deadline=2026-11-18 05:46:24Z reason=fans");
        let applied = json!({"what": "policy_applied", "version": 2, "digest": "0123456789abcdef".repeat(4)});
        assert_eq!(told(&applied), "policy_applied digest=0123456789ab version=2");
        let booked = json!({"what": "booking", "from_ms": 1_794_980_784_000_u64, "tasks": 1});
        let told = told(&booked);
        assert!(
            told.contains("from=2026-11-18") && told.ends_with(" tasks=1"),
            "a moment, not a span: {told}"
        );
    }
}
