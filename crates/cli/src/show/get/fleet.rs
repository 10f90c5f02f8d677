//! Nodes, GPUs and downtimes: what is handed out beside what is really used.
use wharf_api::client::Client;
use wharf_api::v1::{Code, DowntimeView, GpuView, Health, NodeView};

use super::{List, now_for_people, show};
use crate::args::GetArgs;
use crate::args::names::without_kind;
use crate::render::numbers::{UNKNOWN, cores, mib, moment, percent, percent_or_unknown, size, span, tenths};
use crate::render::output::Tone;
use crate::render::problem::missing;
use crate::render::table::{Cell, Column, Table};

const NODE_COLUMNS: [Column; 11] = [
    Column::text("NAME", "name"),
    Column::text("MODEL", "model"),
    Column::text("STATE", "state"),
    Column::number("GPUS", "gpus"),
    Column::number("ALLOC", "gpus_allocated"),
    Column::number("SM", "sm_active"),
    Column::number("OTHERS", "gpus_others").wide(),
    Column::number("CPU FREE", "cpu_free_milli").wide(),
    Column::number("MEMORY FREE", "memory_free").wide(),
    Column::text("LEVELS", "levels").wide(),
    Column::text("REASON", "reason").wide(),
];

const DOWNTIME_COLUMNS: [Column; 6] = [
    Column::text("NAME", "name"),
    Column::text("NODES", "nodes"),
    Column::text("FROM", "from_ms"),
    Column::text("FOR", "until_ms"),
    Column::text("STATE", "state"),
    Column::text("REASON", "reason"),
];

const GPU_COLUMNS: [Column; 17] = [
    Column::text("GPU", "gpu"),
    Column::text("NODE", "node").wide(),
    Column::number("INDEX", "index").wide(),
    Column::text("MODEL", "model"),
    Column::text("MODE", "mode"),
    Column::text("SLICES", "slices"),
    Column::text("HEALTH", "health"),
    Column::number("ALLOC", "allocated"),
    Column::number("FREE", "free"),
    Column::number("SM", "sm_active"),
    Column::number("MEMORY", "memory_used_mib"),
    Column::number("TOTAL", "memory_mib").wide(),
    Column::number("NOMINAL", "memory_gb").wide(),
    Column::number("ISLAND", "island").wide(),
    Column::text("TRUST", "trust").wide(),
    Column::text("TENANTS", "tenants").wide(),
    Column::text("JOBS", "jobs"),
];

/// Lists nodes.
pub(super) fn list_nodes(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let answer = client.nodes()?;
    let names = answer.nodes.iter().map(|node| format!("node/{}", node.name)).collect();
    let table = nodes_table(&answer.nodes);
    show(args, &List { answer: &answer, names, table, empty: "the fleet has no nodes yet".into() })
}

/// Lists GPUs, of one node or of all.
pub(super) fn list_gpus(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let mut answer = client.gpus()?;
    if let Some(node) = args.node.as_deref().map(|node| without_kind(node, "node")) {
        let known: Vec<String> = answer.gpus.iter().map(|gpu| gpu.node.clone()).collect();
        answer.gpus.retain(|gpu| gpu.node == node);
        if answer.gpus.is_empty() {
            let known = known.iter().map(String::as_str);
            return Err(missing(Code::NoSuchNode, ("node with GPUs", node), known, "nodes"));
        }
    }
    let names = answer.gpus.iter().map(|gpu| format!("gpu/{}:{}", gpu.node, gpu.index)).collect();
    let table = gpus_table(&answer.gpus);
    let empty = "the fleet has no GPUs; its nodes: wharf get nodes".into();
    show(args, &List { answer: &answer, names, table, empty })
}

/// Lists planned maintenance.
pub(super) fn list_downtimes(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let answer = client.downtimes()?;
    let names: Vec<String> =
        answer.downtimes.iter().map(|downtime| format!("maintenance/{}", downtime.name)).collect();
    let now = now_for_people(client, args, &names);
    let table = downtimes_table(&answer.downtimes, now);
    let empty = "no maintenance is planned; plan some: wharf maintain NODE --from +2h --for 4h".into();
    show(args, &List { answer: &answer, names, table, empty })
}

/// One row per node.
pub(in crate::show) fn nodes_table(nodes: &[NodeView]) -> Table {
    let mut table = Table::new(&NODE_COLUMNS);
    for node in nodes {
        let (state, tone) = node_state(node);
        let levels: Vec<String> =
            node.levels.iter().map(|(level, domain)| format!("{level}={domain}")).collect();
        let free = |free: String, all: String| format!("{free}/{all}");
        table.row(vec![
            Cell::new(node.name.clone()),
            Cell::new(if node.model.is_empty() { "-" } else { &node.model }).plain(&node.model),
            Cell::new(state).tone(tone),
            Cell::new(node.gpus.to_string()),
            Cell::new(tenths(node.gpus_allocated)).plain(&node.gpus_allocated),
            Cell::new(percent_or_unknown(node.sm_active)).plain_if_known(node.sm_active.as_ref()),
            Cell::new(node.gpus_others.to_string()),
            Cell::new(free(cores(node.cpu_free_milli), cores(node.cpu_milli))).plain(&node.cpu_free_milli),
            Cell::new(free(size(node.memory_free), size(node.memory))).plain(&node.memory_free),
            Cell::new(levels.join(",")),
            Cell::new(node_reason(node)),
        ]);
    }
    table
}

/// Whether a node takes work, in words: `up`, `up, cordoned`, `up, draining 3 left`, `up, drained`.
pub(in crate::show) fn node_state(node: &NodeView) -> (String, Tone) {
    let up = if node.up { "up" } else { "down" };
    let out = node.maintenance.iter().any(|downtime| downtime.began);
    let left = |what: &str| match node.tasks {
        0 => what.to_owned(),
        tasks => format!("{what} {tasks} left"),
    };
    let lever = match (out, &node.drain, node.cordoned) {
        (true, ..) => Some(left("maintenance")),
        (false, Some(_), _) if node.tasks == 0 => Some("drained".to_owned()),
        (false, Some(_), _) => Some(left("draining")),
        (false, None, true) => Some("cordoned".to_owned()),
        (false, None, false) => None,
    };
    let tone = match (node.up, &lever) {
        (false, _) => Tone::Bad,
        (true, Some(_)) => Tone::Warn,
        (true, None) => Tone::Good,
    };
    (lever.map_or_else(|| up.to_owned(), |lever| format!("{up}, {lever}")), tone)
}

/// Why a node takes no work, as its operator says.
fn node_reason(node: &NodeView) -> String {
    let drain = node.drain.as_ref().map(|drain| drain.reason.clone());
    let downtime =
        node.maintenance.iter().find(|downtime| downtime.began).map(|downtime| downtime.reason.clone());
    let reasons = [downtime, drain, node.cordon_reason.clone()].into_iter().flatten();
    reasons.filter(|reason| !reason.is_empty()).collect::<Vec<_>>().join("; ")
}

/// One row per downtime.
pub(in crate::show) fn downtimes_table(downtimes: &[DowntimeView], now: Option<u64>) -> Table {
    let mut table = Table::new(&DOWNTIME_COLUMNS);
    for downtime in downtimes {
        table.row(vec![
            Cell::new(downtime.name.clone()),
            Cell::new(downtime.nodes.join(",")),
            Cell::new(moment(downtime.from_ms)).plain(&downtime.from_ms),
            Cell::new(span(downtime.until_ms.saturating_sub(downtime.from_ms))).plain(&downtime.until_ms),
            Cell::new(downtime_state(downtime, now)).plain(&if downtime.began { "out" } else { "planned" }),
            Cell::new(downtime.reason.clone()),
        ]);
    }
    table
}

/// `in 2h05m`, or `out, 3h00m left`.
pub(in crate::show) fn downtime_state(downtime: &DowntimeView, now: Option<u64>) -> String {
    let to = |moment: u64| now.map_or_else(|| UNKNOWN.to_owned(), |now| span(moment.saturating_sub(now)));
    if downtime.began {
        format!("out, {} left", to(downtime.until_ms))
    } else {
        format!("in {}", to(downtime.from_ms))
    }
}

/// One row per GPU.
pub(in crate::show) fn gpus_table(gpus: &[GpuView]) -> Table {
    let mut table = Table::new(&GPU_COLUMNS);
    for gpu in gpus {
        let (health, tone) = health(gpu.health);
        let health = match &gpu.failure {
            Some(failure) => format!("{health}, XID {}", failure.xid),
            None => health.to_owned(),
        };
        let nominal = gpu.memory_gb.map_or_else(|| UNKNOWN.to_owned(), |gb| format!("{gb}GB"));
        let used = format!("{}/{}", mib(gpu.memory_used_mib), mib(gpu.memory_mib));
        table.row(vec![
            Cell::new(format!("{}:{}", gpu.node, gpu.index)),
            Cell::new(gpu.node.clone()),
            Cell::new(gpu.index.to_string()),
            Cell::new(gpu.model.clone()),
            Cell::new(gpu.mode.into_str()),
            Cell::new(slices(gpu)),
            Cell::new(health).tone(tone),
            Cell::new(percent(gpu.allocated)).plain(&gpu.allocated),
            Cell::new(percent(gpu.free)).plain(&gpu.free),
            Cell::new(percent_or_unknown(gpu.sm_active)).plain_if_known(gpu.sm_active.as_ref()),
            Cell::new(used).plain_if_known(gpu.memory_used_mib.as_ref()),
            Cell::new(mib(gpu.memory_mib)).plain_if_known(gpu.memory_mib.as_ref()),
            Cell::new(nominal).plain_if_known(gpu.memory_gb.as_ref()),
            Cell::new(gpu.island.to_string()),
            Cell::new(gpu.trust.as_deref().unwrap_or("-")).plain_if_known(gpu.trust.as_ref()),
            Cell::new(gpu.tenants.join(",")),
            Cell::new(gpu.jobs.join(",")),
        ]);
    }
    table
}

/// `1g.10gb@0 3g.40gb@4`
pub(in crate::show) fn slices(gpu: &GpuView) -> String {
    let slices = gpu.slices.iter().map(|held| format!("{}@{}", held.slice.profile, held.slice.start));
    slices.collect::<Vec<_>>().join(" ")
}

fn health(health: Health) -> (&'static str, Tone) {
    match health {
        Health::Healthy => ("healthy", Tone::Good),
        Health::Failed => ("failed", Tone::Bad),
        Health::Unknown => ("?", Tone::Warn),
    }
}
