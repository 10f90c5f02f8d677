//! What the lists say about one tenant, node or GPU, put on one screen.

use std::collections::BTreeMap;

use wharf_api::client::{Client, JobFilter};
use wharf_api::v1::{
    Code, GpuList, GpuView, Health, JobState, JobView, NodeReply, NodeView, TenantList, TenantView, schema_of,
};

use super::memory_axis;
use crate::args::Format;
use crate::render::numbers::{cores, counted, mib, percent, percent_or_unknown, size, span, tenths};
use crate::render::output::{self, Paint, Tone};
use crate::render::problem::missing;
use crate::render::{fact, next_line};
use crate::show::get::{fleet, tenants};
use crate::show::world_now;

/// Why a tenant's jobs run or wait.
pub(super) fn tenant(client: &Client, path: &str, format: Format) -> anyhow::Result<()> {
    let TenantList { schema, tenants, half_life_ms } = client.tenants()?;
    let Some(found) = tenants.iter().find(|tenant| tenant.path == path).cloned() else {
        let known = tenants.iter().map(|tenant| tenant.path.as_str());
        return Err(missing(Code::UnknownTenant, ("tenant", path), known, "tenants"));
    };
    match format {
        Format::Json => output::print_json(&TenantList { schema, tenants: vec![found], half_life_ms }),
        Format::Text => {
            let (tenant, state) = (Some(path.to_owned()), Some(JobState::Waiting));
            let filter = JobFilter { tenant, state, ..JobFilter::default() };
            let waiting = client.jobs(&filter)?.jobs;
            output::print(&tenant_text(&found, half_life_ms, &waiting, Paint::stdout()))
        }
    }
}

/// What a node has and who is on it.
pub(super) fn node(client: &Client, name: &str, format: Format) -> anyhow::Result<()> {
    let nodes = client.nodes()?.nodes;
    let Some(found) = nodes.iter().find(|node| node.name == name).cloned() else {
        let known = nodes.iter().map(|node| node.name.as_str());
        return Err(missing(Code::NoSuchNode, ("node", name), known, "nodes"));
    };
    match format {
        Format::Json => output::print_json(&NodeReply { schema: schema_of::<NodeReply>(), node: found }),
        Format::Text => {
            let mut gpus = client.gpus()?.gpus;
            gpus.retain(|gpu| gpu.node == name);
            output::print(&node_text(&found, &gpus, world_now(client), Paint::stdout()))
        }
    }
}

/// What a GPU does and for whom.
pub(super) fn gpu(client: &Client, node: &str, index: u32, format: Format) -> anyhow::Result<()> {
    let mut list = client.gpus()?;
    let Some(found) =
        std::mem::take(&mut list.gpus).into_iter().find(|gpu| gpu.node == node && gpu.index == index)
    else {
        let name = format!("{node}:{index}");
        return Err(missing(Code::NotFound, ("GPU", &name), [], "gpus"));
    };
    let answer = GpuList { gpus: vec![found], ..list };
    output::answer(format, &answer, |paint| gpu_text(&answer.gpus[0], paint))
}

fn tenant_text(tenant: &TenantView, half_life_ms: Option<u64>, waiting: &[JobView], paint: Paint) -> String {
    let jobs = format!(
        "{} running, {} waiting, weight {}, priority {}",
        tenant.running, tenant.waiting, tenant.weight, tenant.priority
    );
    let mut lines = title(&format!("tenant/{}", tenant.path), &jobs, paint);
    lines.extend(tenants::lines_table(tenant).indented(paint));
    if let Some(half_life) = half_life_ms {
        let what = format!("what it borrowed on average, half as much after {}", span(half_life));
        lines.extend([String::new(), format!("  PAST is {what}: it counts when what is left is divided")]);
    }
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for job in waiting {
        *reasons.entry(job.verdict.reason.as_deref().unwrap_or("?")).or_default() += 1;
    }
    if !reasons.is_empty() {
        lines.extend([String::new(), "  why its jobs wait".to_owned()]);
    }
    lines.extend(reasons.into_iter().map(|(reason, count)| format!("  {count:>5}  {reason}")));
    lines.push(String::new());
    lines.push(next_line(paint, "next:", &format!("wharf get jobs --tenant {}", tenant.path)));
    output::lines(&lines)
}

fn node_text(node: &NodeView, gpus: &[GpuView], now: Option<u64>, paint: Paint) -> String {
    let (state, _) = fleet::node_state(node);
    let kind = if node.gpus == 0 { "no GPUs".to_owned() } else { format!("{} × {}", node.gpus, node.model) };
    let mut lines = title(&format!("node/{}", node.name), &format!("{kind}, {state}"), paint);
    let levels: Vec<String> = node.levels.iter().map(|(level, domain)| format!("{level} {domain}")).collect();
    let used = percent_or_unknown(node.sm_active);
    let allocated = format!("{} of {} allocated, {used} really used", tenths(node.gpus_allocated), node.gpus);
    let others = format!("{} used by others", counted(u64::from(node.gpus_others), "GPU"));
    let facts = [
        ("gpus", allocated, node.gpus > 0),
        ("others", others, node.gpus_others > 0),
        ("cpu", format!("{} of {} cores free", cores(node.cpu_free_milli), cores(node.cpu_milli)), true),
        ("memory", format!("{} of {} free", size(node.memory_free), size(node.memory)), true),
        ("levels", levels.join(", "), !levels.is_empty()),
    ];
    lines.extend(facts.iter().filter(|fact| fact.2).map(|(label, value, _)| fact(label, value, paint)));
    lines.extend(emptied(node, now).iter().map(|(label, value)| fact(label, value, paint)));
    lines.push(String::new());
    if !gpus.is_empty() {
        lines.extend(fleet::gpus_table(gpus).indented(paint));
        lines.push(String::new());
    }
    let lever = match (&node.drain, node.cordoned) {
        (Some(_), _) => "undrain",
        (None, true) => "uncordon",
        (None, false) => "cordon",
    };
    lines.push(next_line(paint, "next:", &format!("wharf {lever} {}", node.name)));
    output::lines(&lines)
}

/// What keeps new work away from a node or will, who wants it, how far it is and what it waits for.
fn emptied(node: &NodeView, now: Option<u64>) -> Vec<(&'static str, String)> {
    let why = |reason: &str| if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let mut facts = Vec::new();
    let reason = node.cordon_reason.as_deref().unwrap_or_default();
    match &node.cordoned_by {
        Some(by) => facts.push(("cordon", format!("by {by}{}", why(reason)))),
        None if !reason.is_empty() => facts.push(("cordon", reason.to_owned())),
        None => {}
    }
    if let Some(drain) = &node.drain {
        let left = counted(node.tasks.into(), "task");
        let time = now.map(|now| drain.deadline_ms.saturating_sub(now));
        let far = match time {
            // How much time is left says nothing about a node that is empty.
            _ if node.tasks == 0 => "nothing is left there".to_owned(),
            None => format!("{left} left"),
            Some(0) => format!("{left} left, to be empty at once"),
            Some(time) => format!("{left} left, to be empty in {}", span(time)),
        };
        facts.push(("drain", format!("by {}{}; {far}", drain.by, why(&drain.reason))));
    }
    for downtime in &node.maintenance {
        let state = fleet::downtime_state(downtime, now);
        facts.push(("out", format!("maintenance/{}, {state}{}", downtime.name, why(&downtime.reason))));
    }
    if !node.waits_for.is_empty() {
        facts.push(("waits", format!("for work that may not be evicted: {}", node.waits_for.join(", "))));
    }
    facts
}

fn gpu_text(gpu: &GpuView, paint: Paint) -> String {
    let memory = gpu.memory_gb.map_or_else(|| "memory ?".to_owned(), |gb| format!("{gb} GB"));
    let health = match gpu.health {
        Health::Healthy => "healthy",
        Health::Failed => match &gpu.failure {
            Some(failure) => &format!("failed by {}; nothing is placed on it", failure.text),
            None => "failed: nothing is placed on it",
        },
        Health::Unknown => "unknown: its node is down",
    };
    let what = format!("{}, {memory}, island {}", gpu.model, gpu.island);
    let mut lines = title(&format!("gpu/{}:{}", gpu.node, gpu.index), &what, paint);
    let used = percent_or_unknown(gpu.sm_active);
    let nobody = if gpu.allocated > 0.0 { "?" } else { "none" };
    let jobs = if gpu.jobs.is_empty() { nobody.to_owned() } else { gpu.jobs.join(", ") };
    let next = match gpu.jobs.first() {
        Some(job) => format!("wharf explain job/{job}"),
        None => format!("wharf explain node/{}", gpu.node),
    };
    let memory = format!("{} of {} in use", mib(gpu.memory_used_mib), mib(gpu.memory_mib));
    lines.extend([
        fact("health", health, paint),
        fact("gpu", &format!("{} allocated, {used} really used", percent(gpu.allocated)), paint),
        fact("memory", &memory, paint),
        fact("jobs", &jobs, paint),
    ]);
    lines.extend(memory_axis::lines(gpu, paint));
    lines.push(next_line(paint, "next:", &next));
    output::lines(&lines)
}

fn title(name: &str, what: &str, paint: Paint) -> Vec<String> {
    vec![format!("{}  {what}", paint.tone(Tone::Strong, name)), String::new()]
}

#[cfg(test)]
mod tests {
    use wharf_api::v1::LineView;

    use super::*;
    use crate::render::samples::{gpu, node as samples_node, waiting};

    #[test]
    fn a_tenant_counts_why_its_jobs_wait() {
        let line = LineView {
            resource: "h100".into(),
            guaranteed: Some(8.0),
            limit: None,
            fair_share: 12.5,
            used: 8.0,
            borrowed: 0.0,
            lent: 0.0,
            demand: 40.0,
            past: None,
        };
        let tenant = TenantView {
            path: "lab/nlp".into(),
            lines: vec![line],
            weight: 1,
            priority: 0,
            waiting: 2,
            running: 1,
        };
        let expected = "\
tenant/lab/nlp  1 running, 2 waiting, weight 1, priority 0

  RESOURCE  GUARANTEED  USED  FAIR      LIMIT  DEMAND  BORROWED  LENT
  h100               8     8  12.5  unlimited      40         0     0

  why its jobs wait
      2  WaitingForRoomTogether

next: wharf get jobs --tenant lab/nlp
";
        assert_eq!(tenant_text(&tenant, None, &[waiting(), waiting()], Paint::OFF), expected);
        let mut tenant = tenant;
        tenant.lines[0].past = Some(3.5);
        let told = tenant_text(&tenant, Some(86_400_000), &[], Paint::OFF);
        assert!(told.contains("BORROWED  LENT  PAST\n") && told.contains("   0   3.5\n"), "{told}");
        let past = "PAST is what it borrowed on average, half as much after 24h: it counts when what is left is divided";
        assert!(told.contains(past), "{told}");
    }

    #[test]
    fn a_node_shows_what_is_handed_out_beside_what_is_used() {
        let node = NodeView {
            name: "n1".into(),
            model: "h100".into(),
            gpus: 2,
            gpus_allocated: 2.0,
            gpus_others: 0,
            up: true,
            cordoned: true,
            cpu_milli: 64_000,
            cpu_free_milli: 48_500,
            memory: 512 << 30,
            memory_free: 256 << 30,
            sm_active: None,
            levels: BTreeMap::from([("leaf".to_owned(), 3)]),
            ..samples_node("n1")
        };
        let expected = "\
node/n1  2 × h100, up, cordoned

  gpus    2 of 2 allocated, ? really used
  cpu     48.5 of 64 cores free
  memory  256GiB of 512GiB free
  levels  leaf 3

  GPU   MODEL  MODE   SLICES  HEALTH   ALLOC  FREE   SM     MEMORY  JOBS
  n1:0  h100   whole          healthy   100%    0%  37%  ?/79.2GiB  lab/nlp/a
  n1:1  h100   whole          healthy   100%    0%    ?  ?/79.2GiB  lab/nlp/a

next: wharf uncordon n1
";
        assert_eq!(node_text(&node, &[gpu(0, Some(0.374)), gpu(1, None)], None, Paint::OFF), expected);
    }

    #[test]
    fn a_gpu_names_its_jobs() {
        let expected = "\
gpu/n1:3  h100, 80 GB, island 0

  health  healthy
  gpu     100% allocated, ? really used
  memory  ? of 79.2GiB in use
  jobs    lab/nlp/a
  mode    whole: not divided
  room    nothing while it is used undivided
next: wharf explain job/lab/nlp/a
";
        assert_eq!(gpu_text(&gpu(3, None), Paint::OFF), expected);
    }
}
