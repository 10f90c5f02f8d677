//! The one answer about a job, drawn: headline, sentence, funnel, what stands in the way.
//!
//! `plan` and `explain` draw with the same code what the engine says with the same type.

use wharf_api::v1::{FunnelStage, VerdictView, VerdictWord};

use crate::render::numbers::{bar, counted, float, number};
use crate::render::output::{Paint, Tone};
use crate::render::table::{Cell, Column, Table};

/// Cells of the longest bar.
const BAR_WIDTH: u16 = 32;

/// What a job counts its needs in, and how much its minimum takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// GPUs, or tasks for a job without GPUs.
    pub(crate) unit: &'static str,
    /// Of these; `None` where the answer does not say.
    pub(crate) amount: Option<f64>,
}

/// The word at the head of the answer, and how it looks.
pub(crate) fn headline(verdict: VerdictWord) -> (&'static str, Tone) {
    match verdict {
        VerdictWord::RunnableNow => ("STARTS NOW", Tone::Good),
        VerdictWord::Running => ("RUNNING", Tone::Good),
        VerdictWord::Starting => ("STARTING", Tone::Good),
        VerdictWord::Waits => ("WAITS", Tone::Warn),
        VerdictWord::Leaving => ("LEAVING", Tone::Warn),
        VerdictWord::Never => ("NEVER", Tone::Bad),
        VerdictWord::Denied => ("REFUSED", Tone::Bad),
    }
}

/// The word and the reason; below them the sentence.
pub(crate) fn head(verdict: &VerdictView, paint: Paint) -> Vec<String> {
    let (word, tone) = headline(verdict.verdict);
    let reason = verdict.reason.as_deref().unwrap_or_default();
    let mut lines = vec![format!("{}  {}", paint.strong(tone, word), paint.tone(Tone::Strong, reason))];
    lines.extend(sentence(verdict));
    lines
}

/// The sentence, set in.
pub(crate) fn sentence(verdict: &VerdictView) -> Option<String> {
    (!verdict.text.is_empty()).then(|| format!("  {}", verdict.text))
}

/// The funnel and what stands in the way, each with an empty line before it.
pub(crate) fn details(verdict: &VerdictView, need: Need, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    if !verdict.funnel.is_empty() {
        lines.push(String::new());
        lines.extend(funnel(&verdict.funnel, need, paint));
    }
    if !verdict.blockers.is_empty() {
        lines.push(String::new());
        lines.extend(blockers(verdict, paint));
    }
    lines
}

/// By what it was judged.
pub(crate) fn basis(verdict: &VerdictView) -> String {
    format!("policy {}, journal index {}", verdict.policy_version, verdict.basis)
}

/// Who is served first, where that matters.
pub(crate) fn ahead(verdict: &VerdictView) -> Option<String> {
    let ahead = verdict.ahead?;
    let waits = matches!(verdict.verdict, VerdictWord::Waits | VerdictWord::RunnableNow);
    waits.then(|| match ahead {
        0 => "no job of its tenant is served before it".to_owned(),
        1 => "1 job of its tenant is served before it".to_owned(),
        _ => format!("{} of its tenant are served before it", counted(u64::from(ahead), "job")),
    })
}

/// By what its class is ordered inside its tenant, where that is not its age.
pub(crate) fn order(verdict: &VerdictView) -> Option<String> {
    let order = verdict.order.as_ref()?;
    Some(format!("{}; served {:.1} GPU hours so far", order.by, order.served_gpu_s / 3600.0))
}

fn funnel(stages: &[FunnelStage], need: Need, paint: Paint) -> Vec<String> {
    let unit = need.unit;
    let needs = need.amount.map_or_else(String::new, |need| format!("; it needs {}", number(need)));
    let title = paint.tone(Tone::Faint, &format!("{unit} left after each question{needs}"));
    let mut lines = vec![format!("  {title}")];
    let failing = stages.iter().position(|stage| need.amount.is_some_and(|need| float(stage.gpus) < need));
    let most = stages.iter().map(|stage| stage.gpus).max().unwrap_or_default().max(1);
    let name_width = stages.iter().map(|stage| stage.stage.chars().count()).max().unwrap_or_default();
    let width = most.to_string().len();
    for (index, FunnelStage { stage, gpus }) in stages.iter().enumerate() {
        let fails = failing == Some(index);
        let after = failing.is_some_and(|failing| index > failing);
        let mark = if fails { "✗" } else { " " };
        let tone = match (fails, after) {
            (true, _) => Tone::Bad,
            (false, true) => Tone::Faint,
            (false, false) => Tone::Accent,
        };
        let bar = bar(float(*gpus) / float(most), BAR_WIDTH);
        let line = format!("{} {stage:<name_width$}  {gpus:>width$}", paint.strong(Tone::Bad, mark));
        lines.push(format!("  {line}  {}{}", paint.tone(tone, &bar), stop(need, *gpus, fails, paint)));
    }
    lines
}

/// What is written behind the first stage that leaves too little.
fn stop(need: Need, have: u64, fails: bool, paint: Paint) -> String {
    match need.amount.filter(|_| fails) {
        Some(amount) => {
            let short = format!("◄ {} short", number(amount - float(have)));
            format!(" {}", paint.strong(Tone::Bad, &short))
        }
        None => String::new(),
    }
}

fn blockers(verdict: &VerdictView, paint: Paint) -> Vec<String> {
    let columns = [
        Column::text("in the way", "what"),
        Column::number("need", "need"),
        Column::number("have", "have"),
        Column::number("gap", "gap"),
    ];
    let mut table = Table::new(&columns);
    for blocker in &verdict.blockers {
        let amounts = [blocker.need, blocker.have, blocker.gap].map(|amount| Cell::new(number(amount)));
        let what = Cell::new(blocker.what.clone());
        table.row([what].into_iter().chain(amounts).collect());
    }
    table.indented(paint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::output::lines;

    fn stage(stage: &str, gpus: u64) -> FunnelStage {
        FunnelStage { stage: stage.into(), gpus }
    }

    #[test]
    fn only_the_first_failing_stage_is_marked() {
        let need = Need { unit: "GPUs", amount: Some(8.0) };
        let stages = [stage("fleet", 16), stage("free", 4), stage("within quota", 0)];
        let expected = "  GPUs left after each question; it needs 8
    fleet         16  ████████████████████████████████
  ✗ free           4  ████████ ◄ 4 short
    within quota   0
";
        assert_eq!(lines(&funnel(&stages, need, Paint::OFF)), expected);
    }

    #[test]
    fn an_empty_fleet_divides_nothing_by_zero() {
        let need = Need { unit: "tasks", amount: Some(1.0) };
        let text = lines(&funnel(&[stage("fleet", 0)], need, Paint::OFF));
        assert_eq!(text, "  tasks left after each question; it needs 1\n  ✗ fleet  0   ◄ 1 short\n");
        let unknown = funnel(&[stage("fleet", 0)], Need { unit: "GPUs", amount: None }, Paint::OFF);
        assert_eq!(lines(&unknown), "  GPUs left after each question\n    fleet  0\n");
    }
}
