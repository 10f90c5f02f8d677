//! `wharf explain eviction/ID`, and those who would have to leave in `wharf plan`.

use wharf_api::client::Client;
use wharf_api::v1::{ActorView, BelowLineView, EvictionReply, EvictionView, Rule, VictimView};

use crate::args::Format;
use crate::render::numbers::{UNKNOWN, age, indexes, moment, number, tenths};
use crate::render::output::{self, Paint, Tone};
use crate::render::table::{Cell, Column, Table};
use crate::render::{fact, next_line};
use crate::show::world_now;

/// Why somebody had to leave.
pub(crate) fn explain(client: &Client, id: u64, format: Format) -> anyhow::Result<()> {
    let reply = client.eviction(id)?;
    output::answer(format, &reply, |paint| text(&reply, world_now(client), paint))
}

fn text(reply: &EvictionReply, now: Option<u64>, paint: Paint) -> String {
    let EvictionView {
        id,
        at_ms,
        victim,
        beneficiary: _,
        rule_text,
        victim_text,
        below_line,
        policy_version,
        booking: _,
        node,
        drained_by,
        actor,
    } = &reply.eviction;
    let job = format!("job/{}/{}", victim.tenant, victim.job);
    let winner = left_for(&reply.eviction);
    let title = if reply.withdrawn {
        format!("{job} was to leave for {winner}, and may stay after all")
    } else {
        format!("{job} had to leave for {winner}")
    };
    let mut screen = vec![
        format!("{}  {title}", paint.tone(Tone::Strong, &format!("eviction/{id}"))),
        String::new(),
        paint.strong(Tone::Warn, &victim.rule.into_str().to_uppercase().replace('_', " ")),
        format!("  {rule_text}"),
        format!("  why this one: {victim_text}"),
        String::new(),
        fact("who", &format!("{job}, {}", pieces(victim)), paint),
        fact("for", &winner, paint),
        fact("by", &by(node.as_deref(), drained_by.as_deref(), actor.as_ref()), paint),
        fact("when", &format!("{}, {} ago", moment(*at_ms), age(*at_ms, now)), paint),
        fact("lost", &format!("{} since the last checkpoint", gpu_seconds(victim.lost_gpu_s)), paint),
        fact("cost", &format!("{} with the restart", gpu_seconds(Some(victim.cost_gpu_s))), paint),
        fact("gain", &gain(victim), paint),
    ];
    screen.extend(below_line.as_ref().map(|below| fact("below", &fell(below), paint)));
    screen.push(fact("basis", &format!("policy {policy_version}, journal index {id}"), paint));
    screen.push(next_line(
        paint,
        "next:",
        &format!("wharf explain {job}   all of them: wharf get evictions"),
    ));
    output::lines(&screen)
}

/// `engine`, `engine, since ada drains node/n1`
fn by(node: Option<&str>, drained_by: Option<&str>, actor: Option<&ActorView>) -> String {
    let decided = actor.map_or_else(|| UNKNOWN.to_owned(), ActorView::text);
    match node.zip(drained_by) {
        Some((node, who)) => format!("{decided}, since {who} drains node/{node}"),
        None => decided,
    }
}

/// The job that benefits, or the booked window where no job of that is there yet.
pub(crate) fn left_for(eviction: &EvictionView) -> String {
    let EvictionView { victim, beneficiary, booking, node, .. } = eviction;
    if let Some(node) = node {
        return format!("node/{node}");
    }
    match booking {
        Some(booking) if beneficiary.uid == victim.uid => format!("booking/{booking}"),
        Some(_) | None => format!("job/{}/{}", beneficiary.tenant, beneficiary.job),
    }
}

/// `all of it: tasks 0-3`, `surplus task 5`, `task 5; what it has elsewhere runs on`
fn pieces(victim: &VictimView) -> String {
    let tasks = match victim.tasks.as_slice() {
        [one] => format!("task {one}"),
        many => format!("tasks {}", indexes(many)),
    };
    match victim.rule {
        _ if victim.whole => format!("all of it: {tasks}"),
        // Nobody looked for a surplus: these are the tasks that it has on the node.
        Rule::Drain => format!("{tasks}; what it has elsewhere runs on"),
        _ => format!("surplus {tasks}; the rest runs on"),
    }
}

fn gain(victim: &VictimView) -> String {
    match victim.gain_gpu_s {
        Some(_) => format!("{} by not waiting", gpu_seconds(victim.gain_gpu_s)),
        None if victim.rule == Rule::Booking => "not asked for: a window begins when it begins".to_owned(),
        None if victim.rule == Rule::Drain => "not asked for: the node has to be empty".to_owned(),
        None => "not asked for: a guarantee comes back at any cost".to_owned(),
    }
}

fn gpu_seconds(amount: Option<f64>) -> String {
    format!("{} GPU-seconds", amount.map_or_else(|| UNKNOWN.to_owned(), tenths))
}

fn fell(below: &BelowLineView) -> String {
    let BelowLineView { tenant, resource, by } = below;
    let short = match (resource, by) {
        (Some(resource), Some(by)) => format!("{} {resource}", number(*by)),
        (None, _) | (_, None) => UNKNOWN.to_owned(),
    };
    format!(
        "{tenant} fell {short} below its line, since the job is indivisible; it has first claim on what comes next"
    )
}

/// Those who would have to leave, with an empty line before them.
pub(crate) fn would_leave(victims: &[VictimView], paint: Paint) -> Vec<String> {
    if victims.is_empty() {
        return Vec::new();
    }
    let columns = [
        Column::text("would have to leave", "job"),
        Column::text("tasks", "tasks"),
        Column::text("rule", "rule"),
        Column::number("lost", "lost_gpu_s"),
        Column::number("cost", "cost_gpu_s"),
        Column::number("gain in GPU-seconds", "gain_gpu_s"),
    ];
    let mut table = Table::new(&columns);
    for victim in victims {
        let piece = if victim.whole { "all" } else { "surplus" };
        table.row(vec![
            Cell::new(format!("{}/{}", victim.tenant, victim.job)),
            Cell::new(format!("{} ({piece})", indexes(&victim.tasks))),
            Cell::new(victim.rule.into_str()),
            Cell::new(victim.lost_gpu_s.map_or_else(|| UNKNOWN.to_owned(), tenths)),
            Cell::new(tenths(victim.cost_gpu_s)),
            Cell::new(victim.gain_gpu_s.map_or_else(|| "-".to_owned(), tenths)),
        ]);
    }
    [String::new()].into_iter().chain(table.indented(paint)).collect()
}

#[cfg(test)]
mod tests {
    use wharf_api::v1::{BeneficiaryView, Rule, schema_of};
    use wharf_engine::model::actor::{Actor, Source};

    use super::*;
    use crate::render::samples::victim;

    fn reply(victim: VictimView, below_line: Option<BelowLineView>) -> EvictionReply {
        let (job, tenant, uid) = ("llama-70b".into(), "lab/nlp".into(), "abc".into());
        let eviction = EvictionView {
            id: 18_234,
            at_ms: 90_061_000,
            victim,
            beneficiary: BeneficiaryView { job, tenant, uid },
            rule_text: "what the rule says".into(),
            victim_text: "lab/vision held 16 GPUs".into(),
            below_line,
            booking: None,
            node: None,
            drained_by: None,
            actor: Some(Actor::of(Source::Engine).into()),
            policy_version: 3,
        };
        EvictionReply { schema: schema_of::<EvictionReply>(), eviction, withdrawn: false }
    }

    #[test]
    fn a_receipt_says_who_for_whom_by_what_rule_and_at_what_price() {
        let below =
            BelowLineView { tenant: "lab/vision".into(), resource: Some("gpus".into()), by: Some(2.0) };
        let expected = "\
eviction/18234  job/lab/vision/filler had to leave for job/lab/nlp/llama-70b

GUARANTEE
  what the rule says
  why this one: lab/vision held 16 GPUs

  who     job/lab/vision/filler, all of it: tasks 0-1
  for     job/lab/nlp/llama-70b
  by      engine
  when    day 1 01:01:01, 3m ago
  lost    960 GPU-seconds since the last checkpoint
  cost    1440 GPU-seconds with the restart
  gain    not asked for: a guarantee comes back at any cost
  below   lab/vision fell 2 gpus below its line, since the job is indivisible; it has first claim on what comes next
  basis   policy 3, journal index 18234
next: wharf explain job/lab/vision/filler   all of them: wharf get evictions
";
        let mut told = reply(victim(), Some(below));
        assert_eq!(text(&told, Some(90_241_000), Paint::OFF), expected);
        told.withdrawn = true;
        let text = text(&told, None, Paint::OFF);
        assert!(
            text.contains("filler was to leave for job/lab/nlp/llama-70b, and may stay after all\n"),
            "{text}"
        );
    }

    #[test]
    fn what_a_receipt_does_not_know_is_a_question_mark() {
        let (tasks, rule, gain_gpu_s) = (vec![5], Rule::FairShare, Some(57_600.0));
        let elastic = VictimView { tasks, rule, gain_gpu_s, whole: false, lost_gpu_s: None, ..victim() };
        let below = BelowLineView { tenant: "lab".into(), resource: None, by: None };
        let text = text(&reply(elastic, Some(below)), None, Paint::OFF);
        assert!(text.contains("\nFAIR SHARE\n"), "{text}");
        assert!(text.contains("filler, surplus task 5; the rest runs on\n"), "{text}");
        assert!(text.contains("lost    ? GPU-seconds since"), "{text}");
        assert!(text.contains("gain    57600 GPU-seconds by not waiting\n"), "{text}");
        assert!(text.contains("below   lab fell ? below its line"), "{text}");
        let drained = VictimView { tasks: vec![0, 1], rule: Rule::Drain, whole: false, ..victim() };
        assert_eq!(pieces(&drained), "tasks 0-1; what it has elsewhere runs on");
    }
}
