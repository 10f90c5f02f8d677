//! `wharf plan`: what would happen to a job if it were handed in now.

use std::process::ExitCode;

use wharf_api::client::Client;
use wharf_api::file::job::JobFile;
use wharf_api::v1::{PlanView, VerdictWord};
use wharf_engine::model::job::GpuAsk;

use super::explain::eviction;
use super::verdict::{self, Need};
use crate::args::PlanArgs;
use crate::input::job;
use crate::render::output::{self, Paint};
use crate::render::places::place_lines;
use crate::render::{fact, next_line};

/// Runs it.
pub(crate) fn run(client: &Client, args: PlanArgs) -> anyhow::Result<ExitCode> {
    let PlanArgs { job, output } = args;
    let job = job::given(job)?;
    let plan = client.plan(&job)?;
    output::answer(output, &plan, |paint| text(&job, &plan, paint))?;
    Ok(ExitCode::from(plan.verdict.verdict.exit_code()))
}

fn text(job: &JobFile, plan: &PlanView, paint: Paint) -> String {
    let mut lines = verdict::head(&plan.verdict, paint);
    lines.extend(place_lines(&plan.placements).into_iter().map(|line| format!("  {line}")));
    let named = job.groups.iter().find(|group| Some(&group.name) == plan.verdict.group.as_ref());
    let largest = job.groups.iter().map(|group| group.asks.gpus).max_by_key(|gpus| gpus.units());
    let gpus = named.map(|group| group.asks.gpus).or(largest).unwrap_or(job.gpus);
    let unit = if gpus == GpuAsk::Whole(0) { "tasks" } else { "GPUs" };
    lines.extend(verdict::details(&plan.verdict, Need { unit, amount: plan.verdict.need }, paint));
    lines.extend(eviction::would_leave(&plan.would_preempt, paint));
    lines.push(String::new());
    lines.extend(verdict::ahead(&plan.verdict).map(|ahead| fact("ahead", &ahead, paint)));
    lines.push(fact("basis", &verdict::basis(&plan.verdict), paint));
    lines.push(next(plan, paint));
    output::lines(&lines)
}

fn next(plan: &PlanView, paint: Paint) -> String {
    match plan.verdict.verdict {
        VerdictWord::RunnableNow | VerdictWord::Running | VerdictWord::Starting => {
            next_line(paint, "next:", "wharf submit, with the same arguments")
        }
        VerdictWord::Waits | VerdictWord::Leaving if !plan.would_preempt.is_empty() => {
            next_line(paint, "next:", "wharf submit makes them leave; it starts when they are gone")
        }
        VerdictWord::Waits | VerdictWord::Leaving => {
            next_line(paint, "next:", "wharf submit queues it; wharf top shows what runs now")
        }
        VerdictWord::Never => {
            next_line(paint, "next:", "ask for less; what there is: wharf get nodes -o wide")
        }
        VerdictWord::Denied => next_line(paint, "next:", "what each tenant may use: wharf get tenants"),
    }
}

#[cfg(test)]
mod tests {
    use wharf_api::file::job::parse_job;
    use wharf_api::v1::{Rule, VictimView, schema_of};

    use super::*;
    use crate::render::samples::{placed, verdict, victim, waiting};

    fn plan(verdict: wharf_api::v1::VerdictView) -> PlanView {
        let (schema, placements) = (schema_of::<PlanView>(), vec![placed(0, "n1", &[2], 1.0)]);
        PlanView { schema, verdict, placements, would_preempt: Vec::new() }
    }

    #[test]
    fn a_job_that_would_start_says_where() {
        let job = parse_job("f", "{name: a, tenant: lab/nlp}").unwrap();
        let now = plan(verdict(VerdictWord::RunnableNow, "Startable", "It would start now."));
        let expected = "\
STARTS NOW  Startable
  It would start now.
  task 0    n1 (GPU 2)

  basis   policy 3, journal index 18234
next: wharf submit, with the same arguments
";
        assert_eq!(text(&job, &now, Paint::OFF), expected);
    }

    #[test]
    fn a_job_for_which_others_would_leave_says_who_and_at_what_price() {
        let job = parse_job("f", "{name: a, tenant: lab/nlp}").unwrap();
        let (rule, gain_gpu_s) = (Rule::Preempt, Some(57_600.5));
        let elastic =
            VictimView { job: "wide".into(), tasks: vec![3], whole: false, rule, gain_gpu_s, ..victim() };
        let waits = verdict(VerdictWord::Waits, "WaitingForVictims", "It starts when they are gone.");
        let plan = PlanView { would_preempt: vec![victim(), elastic], ..plan(waits) };
        let expected = "\
WAITS  WaitingForVictims
  It starts when they are gone.
  task 0    n1 (GPU 2)

  would have to leave  tasks        rule       lost  cost  gain in GPU-seconds
  lab/vision/filler    0-1 (all)    guarantee   960  1440                    -
  lab/vision/wide      3 (surplus)  preempt     960  1440              57600.5

  basis   policy 3, journal index 18234
next: wharf submit makes them leave; it starts when they are gone
";
        assert_eq!(text(&job, &plan, Paint::OFF), expected);
    }

    #[test]
    fn a_job_that_would_wait_shows_the_funnel() {
        let job = parse_job("f", "{name: a, tenant: lab/nlp, tasks: 4, gpus: 8}").unwrap();
        let text = text(&job, &PlanView { placements: vec![], ..plan(waiting().verdict) }, Paint::OFF);
        assert!(text.contains("✗ free together   16  █ ◄ 16 short\n"), "{text}");
        assert!(text.contains("  ahead   3 jobs of its tenant are served before it\n"), "{text}");
    }
}
