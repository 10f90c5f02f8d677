//! Evictions: who had to leave for whom, by which rule and at what price.
use wharf_api::client::{Client, EvictionFilter};
use wharf_api::v1::{BelowLineView, EvictionView, VictimView};

use super::{List, now_for_people, show};
use crate::args::GetArgs;
use crate::args::names::without_kind;
use crate::render::numbers::{age, indexes, tenths};
use crate::render::table::{Cell, Column, Table};
use crate::show::explain::eviction::left_for;

const COLUMNS: [Column; 13] = [
    Column::number("ID", "id"),
    Column::number("AGO", "at_ms"),
    Column::text("TENANT", "tenant"),
    Column::text("JOB", "job"),
    Column::text("TASKS", "tasks"),
    Column::text("RULE", "rule"),
    Column::text("FOR", "beneficiary"),
    Column::number("COST GPU-S", "cost_gpu_s"),
    Column::text("WHOLE", "whole").wide(),
    Column::number("LOST GPU-S", "lost_gpu_s").wide(),
    Column::number("GAIN GPU-S", "gain_gpu_s").wide(),
    Column::text("BELOW LINE", "below_line").wide(),
    Column::number("POLICY", "policy_version").wide(),
];

/// Lists them.
pub(super) fn list(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let job = args.job.as_deref().map(|job| without_kind(job, "job").to_owned());
    let filter = EvictionFilter { tenant: args.tenant.clone(), job, limit: args.limit };
    let filtered = filter.tenant.is_some() || filter.job.is_some();
    let answer = client.evictions(&filter)?;
    let names: Vec<String> =
        answer.evictions.iter().map(|eviction| format!("eviction/{}", eviction.id)).collect();
    let now = now_for_people(client, args, &names);
    let table = table(&answer.evictions, now);
    let empty = if filtered {
        "no eviction is like that; all of them: wharf get evictions"
    } else {
        "no job had to leave for another one; other past events: wharf get history"
    };
    show(args, &List { answer: &answer, names, table, empty: empty.into() })
}

/// One row per eviction.
pub(in crate::show) fn table(evictions: &[EvictionView], now: Option<u64>) -> Table {
    let mut table = Table::new(&COLUMNS);
    for eviction in evictions {
        table.row(row(eviction, now));
    }
    table
}

fn row(eviction: &EvictionView, now: Option<u64>) -> Vec<Cell> {
    let EvictionView { id, at_ms, victim, below_line, policy_version, .. } = eviction;
    let VictimView { job, tenant, tasks, whole, rule, lost_gpu_s, cost_gpu_s, gain_gpu_s, .. } = victim;
    vec![
        Cell::new(id.to_string()),
        Cell::new(age(*at_ms, now)).plain(at_ms),
        Cell::new(tenant.clone()),
        Cell::new(job.clone()),
        Cell::new(indexes(tasks)),
        Cell::new(rule.into_str()),
        Cell::new(left_for(eviction).trim_start_matches("job/")),
        Cell::new(tenths(*cost_gpu_s)).plain(cost_gpu_s),
        Cell::new(if *whole { "yes" } else { "no" }),
        optional(*lost_gpu_s, "?"),
        // A guarantee does not ask what is gained.
        optional(*gain_gpu_s, "-"),
        Cell::new(below_line.as_ref().map_or("-", |below| below.tenant.as_str()))
            .plain_if_known(below_line.as_ref().map(|BelowLineView { tenant, .. }| tenant)),
        Cell::new(policy_version.to_string()),
    ]
}

fn optional(amount: Option<f64>, absent: &str) -> Cell {
    Cell::new(amount.map_or_else(|| absent.to_owned(), tenths)).plain_if_known(amount.as_ref())
}
