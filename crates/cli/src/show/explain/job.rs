//! `wharf explain job/NAME`: the one screen about a job that lives.
//!
//! The verdict first, then facts under labels, as many as there are, then what to type next.

use wharf_api::client::{Client, ClientError};
use wharf_api::file::duration_text;
use wharf_api::v1::{
    ArrayView, ChosenView, Code, EstimateView, Explanation, GroupView, JobState, JobView, LearnedView,
    ReplacingView, TaskUseView,
};

use super::{array, ended_job, promises};
use crate::args::Format;
use crate::args::names::job_name;
use crate::render::numbers::{age, counted, gpus, mib, percent_or_unknown, span};
use crate::render::output::{self, Paint, Tone};
use crate::render::places::place_lines;
use crate::render::{labelled, next_line};
use crate::show::verdict::{self, Need};
use crate::show::world_now;

/// The most tasks of which is told what they really use.
const USES_SHOWN_MAX: usize = 16;

/// Explains a job, or what has that name and is not a job that lives: an array, or a job that is over.
pub(super) fn explain(client: &Client, name: &str, format: Format) -> anyhow::Result<()> {
    let explanation = match client.explain(name) {
        Ok(explanation) => explanation,
        Err(ClientError::Problem(problem)) if problem.code == Code::NoSuchJob => {
            if let Some(array) = array::meant(client, name)? {
                return array::explain(&array, format);
            }
            // It may be over; what is said then is about that.
            let Ok(reply) = client.ended_job(name) else { return Err(ClientError::Problem(problem).into()) };
            return ended_job::explain(client, &reply, format);
        }
        Err(error) => return Err(error.into()),
    };
    output::answer(format, &explanation, |paint| text(&explanation, world_now(client), paint))
}

/// The screen.
fn text(explanation: &Explanation, now: Option<u64>, paint: Paint) -> String {
    let Explanation { schema: _, job, evictions, earmark, .. } = explanation;
    let Explanation { chosen, tasks, ooms, .. } = explanation;
    let need = need(job);
    let mut screen =
        vec![format!("{}  {}", paint.tone(Tone::Strong, &job_name(job)), shape(job)), String::new()];
    screen.extend(verdict::head(&job.verdict, paint));
    screen.extend(verdict::details(&job.verdict, need, paint));
    screen.push(String::new());
    let (earmarked, leaves) =
        earmark.as_ref().map(|earmark| promises::earmark(earmark, now)).unwrap_or_default();
    let facts = [
        ("groups", groups(job)),
        ("places", place_lines(&job.placements)),
        ("uses", tasks.iter().take(USES_SHOWN_MAX).map(uses).collect()),
        ("marked", earmarked),
        ("starts", promises::starts(explanation, now)),
        ("there", chosen.iter().map(why_there).collect()),
        ("leaves", leaves),
        ("ahead", verdict::ahead(&job.verdict).into_iter().collect()),
        ("order", verdict::order(&job.verdict).into_iter().collect()),
        ("fresh", job.replacing.iter().map(replacing).collect()),
        ("takes", estimate(job).into_iter().collect()),
        ("limit", limit(job, now).into_iter().collect()),
        (
            "window",
            job.booking.iter().map(|name| format!("booking/{name}: its places are this job's")).collect(),
        ),
        ("after", job.after.iter().map(|on| format!("job/{} ({})", on.job, on.when)).collect()),
        ("array", job.array.iter().map(member).collect()),
        (
            "failed",
            job.last_failure.iter().map(|of| format!("{} ago: {}", age(of.at_ms, now), of.text)).collect(),
        ),
        ("by", job.submitted_by.iter().map(|by| format!("{by}, as the client said")).collect()),
        ("so far", [past(job, now)].into_iter().chain(ran_out(*ooms)).chain(evicted(evictions)).collect()),
        ("basis", vec![verdict::basis(&job.verdict)]),
        ("uid", vec![job.uid.clone()]),
    ];
    screen.extend(facts.iter().flat_map(|(label, lines)| labelled(label, lines, paint)));
    screen.push(next(explanation, paint));
    output::lines(&screen)
}

/// `member 7 of sweep, at most 4 at a time`
fn member(of: &ArrayView) -> String {
    format!("member {} of {}, at most {} at a time", of.index, of.name, of.at_most)
}

/// What the answer counts in, and how much of it the minimum takes; of a job with groups, of the group it is about.
fn need(job: &JobView) -> Need {
    let unit = |gpus: f64| if gpus > 0.0 { "GPUs" } else { "tasks" };
    if job.groups.is_empty() {
        let each = if job.gpus_per_task > 0.0 { job.gpus_per_task } else { 1.0 };
        let least = f64::from(job.min) * each;
        return Need { unit: unit(job.gpus_per_task), amount: Some(job.verdict.need.unwrap_or(least)) };
    }
    let named = job.groups.iter().find(|group| Some(&group.name) == job.verdict.group.as_ref());
    let least = named.map(|group| {
        let each = if group.gpus_per_task > 0.0 { group.gpus_per_task } else { 1.0 };
        f64::from(group.min) * f64::from(group.min_copies) * each
    });
    let gpus = named.map_or(job.gpus_per_task, |group| group.gpus_per_task);
    Need { unit: unit(gpus), amount: job.verdict.need.or(least) }
}

/// `worker  7 of 8 copies stand (at least 6); each 4 tasks (at least 3) of 8 GPUs; 27 tasks run`
fn groups(job: &JobView) -> Vec<String> {
    let width = job.groups.iter().map(|group| group.name.chars().count()).max().unwrap_or_default();
    let line = |group: &GroupView| {
        let GroupView { name, tasks, min, copies, min_copies, standing, running_tasks, .. } = group;
        let least = |of: &u32, all: &u32| if of < all { format!(" (at least {of})") } else { String::new() };
        let each = format!(
            "{}{} {}",
            counted((*tasks).into(), "task"),
            least(min, tasks),
            of_gpus(group.gpus_per_task)
        );
        let stand = if *copies == 1 {
            format!("{}; {each}", if *standing == 1 { "stands" } else { "does not stand" })
        } else {
            let at_least = least(min_copies, copies);
            format!("{standing} of {copies} copies stand{at_least}; each {each}")
        };
        format!("{name:<width$}  {stand}; {} run", counted((*running_tasks).into(), "task"))
    };
    job.groups.iter().map(line).collect()
}

/// `task 0    61% of its SMs, 11.2GiB of 19.5GiB`
fn uses(told: &TaskUseView) -> String {
    let TaskUseView { task, sm_active, memory_used_mib, memory_limit_mib } = told;
    let active = percent_or_unknown(*sm_active);
    format!("task {task:<4} {active} of its SMs, {} of {}", mib(*memory_used_mib), mib(*memory_limit_mib))
}

/// `killed 2 times: it used more memory than it may`
fn ran_out(ooms: Option<u32>) -> Option<String> {
    let times = ooms.filter(|&count| count > 0)?;
    Some(format!("killed {}: it used more memory than it may", counted(times.into(), "time")))
}

/// `costs 0.012 GPUs of what usually comes, n7 would cost 0.108`
fn why_there(chosen: &ChosenView) -> String {
    let ChosenView { by, cost_gpus, runner_up, runner_up_cost_gpus } = chosen;
    if by == "cut" {
        let next = runner_up.as_deref().unwrap_or("?");
        return format!("it spoils the least of what could still be cut out; next was {next}");
    }
    let cost = format!("it costs {cost_gpus:.3} GPUs of room for the work that usually comes");
    let (Some(node), Some(other)) = (runner_up, runner_up_cost_gpus) else {
        return format!("{cost}; no other node had room");
    };
    let why = match by.as_str() {
        "worth" => "more is lost there",
        "drains" => "a task has to leave there first",
        "without_gpus" => "it has GPUs",
        "scarce" => "as good, but the fleet has few of its model",
        _ => "as good; the order of nodes decided",
    };
    format!("{cost}; next was {node} at {other:.3}: {why}")
}

/// `evictions 18234, 17002, newest first`
fn evicted(evictions: &[u64]) -> Option<String> {
    let ids: Vec<String> = evictions.iter().map(u64::to_string).collect();
    match ids.len() {
        0 => None,
        1 => Some(format!("eviction {}", ids.concat())),
        _ => Some(format!("evictions {}, newest first", ids.join(", "))),
    }
}

/// `batch, 4 tasks of 8 GPUs, priority 0`
fn shape(job: &JobView) -> String {
    let tasks = counted(u64::from(job.tasks), "task");
    if let Some(max) = job.replicas_max {
        let replicas = counted(job.tasks.into(), "replica");
        let (between, gpus) = (format!("{} to {max}", job.min), of_gpus(job.gpus_per_task));
        return format!("service, {replicas} ({between}) {gpus}, priority {}", job.priority);
    }
    let least = if job.min < job.tasks { format!(" (at least {})", job.min) } else { String::new() };
    if !job.groups.is_empty() {
        let groups = counted(u64::try_from(job.groups.len()).unwrap_or(u64::MAX), "group");
        return format!("{}, {tasks}{least} in {groups}, priority {}", job.class.into_str(), job.priority);
    }
    let gpus = of_gpus(job.gpus_per_task);
    format!("{}, {tasks}{least} {gpus}, priority {}", job.class.into_str(), job.priority)
}

fn of_gpus(each: f64) -> String {
    match each {
        none if none <= 0.0 => "without GPU".to_owned(),
        some => format!("of {}", gpus(some)),
    }
}

/// `submitted 12m ago, first started 10m ago; 2 attempts, 1 eviction, 0 failures`
fn past(job: &JobView, now: Option<u64>) -> String {
    let submitted = format!("submitted {} ago", age(job.submitted_at_ms, now));
    let started = match job.first_start_ms {
        Some(at) => format!("first started {} ago", age(at, now)),
        None => "never started".to_owned(),
    };
    let running = match job.state {
        JobState::Starting | JobState::Running if job.tasks > 1 => {
            format!(", {} of {} tasks run", job.running_tasks, job.tasks)
        }
        JobState::Waiting | JobState::Starting | JobState::Running | JobState::Leaving => String::new(),
    };
    let counts = [(job.attempts, "attempt"), (job.evictions, "eviction"), (job.failures, "failure")];
    let counts = counts.map(|(count, what)| counted(u64::from(count), what)).join(", ");
    format!("{submitted}, {started}{running}; {counts}")
}

/// `2 replicas still to be replaced by fresh ones, with up to 1 more for the time`
fn replacing(of: &ReplacingView) -> String {
    let how = match of.surge {
        0 => format!("with up to {} fewer for the time", of.unavailable),
        more => format!("with up to {more} more for the time"),
    };
    format!("{} still to be replaced by fresh ones, {how}", counted(of.old.into(), "replica"))
}

/// `estimate 2h10m, learned from 34 finished jobs of lab/nlp with label experiment=e42`
fn estimate(job: &JobView) -> Option<String> {
    let EstimateView { ms, learned } = job.estimate.as_ref()?;
    let text = duration_text(*ms / 1000 * 1000);
    let Some(LearnedView { jobs, label }) = learned else {
        return Some(format!("estimate {text}, as its owner says"));
    };
    let of = format!("estimate {text}, learned from {} of {}", counted(*jobs, "finished job"), job.tenant);
    Some(match label {
        Some(label) => format!("{of} with label {label}"),
        None => format!("{of} of its class and size"),
    })
}

/// `6h in all, 2h of them in earlier attempts; up in 40m`
fn limit(job: &JobView, now: Option<u64>) -> Option<String> {
    let all = duration_text(job.time_limit_ms?);
    let used = match job.ran_ms {
        0 => String::new(),
        ran => format!(", {} of them in earlier attempts", span(ran)),
    };
    let left = job.limit_at_ms.zip(now).map(|(at, now)| span(at.saturating_sub(now)));
    let left = left.map(|left| format!("; up in {left}")).unwrap_or_default();
    Some(format!("{all} in all{used}{left}"))
}

fn next(explanation: &Explanation, paint: Paint) -> String {
    let job = &explanation.job;
    match (job.state, explanation.evictions.first()) {
        (JobState::Waiting | JobState::Leaving, Some(newest)) => {
            let command = format!("wharf explain eviction/{newest}   what runs there now: wharf top");
            next_line(paint, "next:", &command)
        }
        (JobState::Waiting, None) => {
            let command = format!("wharf explain tenant/{}   what runs there now: wharf top", job.tenant);
            next_line(paint, "next:", &command)
        }
        (JobState::Starting | JobState::Running | JobState::Leaving, _) => {
            let command = format!("wharf get history --name {}", job.name);
            next_line(paint, "next:", &command)
        }
    }
}

#[cfg(test)]
mod tests {
    use wharf_api::v1::{EarmarkView, LeavingStep, LeavingView, VerdictWord};

    use super::*;
    use crate::render::samples::{explanation, placed, running, verdict, waiting};

    #[test]
    fn a_waiting_job_shows_where_the_funnel_stops() {
        let expected = "\
job/lab/nlp/llama-70b  batch, 4 tasks of 8 GPUs, priority 0

WAITS  WaitingForRoomTogether
  16 of the 32 GPUs it needs are free on one leaf.

  GPUs left after each question; it needs 32
    fleet          512  ████████████████████████████████
    healthy        504  ███████████████████████████████▌
    right model    256  ████████████████
    allowed        256  ████████████████
    free            40  ██▌
  ✗ free together   16  █ ◄ 16 short
    within quota    16  █

  in the way          need  have  gap
  GPUs free together    32    16   16

  ahead   3 jobs of its tenant are served before it
  so far  submitted 12m ago, first started 11m ago; 2 attempts, 1 eviction, 0 failures
  basis   policy 3, journal index 18234
  uid     00000000000000000000000000000abc
next: wharf explain tenant/lab/nlp   what runs there now: wharf top
";
        assert_eq!(text(&explanation(waiting()), Some(1_720_000), Paint::OFF), expected);
    }

    #[test]
    fn a_learned_estimate_says_what_it_was_learned_from() {
        let told = |learned: Option<LearnedView>| {
            let estimate = Some(EstimateView { ms: 7_800_123, learned });
            estimate_of(JobView { estimate, ..waiting() })
        };
        let learned = |label: Option<&str>| LearnedView { jobs: 34, label: label.map(str::to_owned) };
        assert_eq!(told(None), "estimate 2h10m, as its owner says");
        let by_label = "estimate 2h10m, learned from 34 finished jobs of lab/nlp with label experiment=e42";
        assert_eq!(told(Some(learned(Some("experiment=e42")))), by_label);
        let of_all = "estimate 2h10m, learned from 34 finished jobs of lab/nlp of its class and size";
        assert_eq!(told(Some(learned(None))), of_all);
    }

    fn estimate_of(job: JobView) -> String {
        let screen = text(&explanation(job), Some(1_720_000), Paint::OFF);
        let line = screen.lines().find_map(|line| line.strip_prefix("  takes   "));
        line.expect("an estimate is shown").to_owned()
    }

    #[test]
    fn a_running_job_shows_its_places() {
        let expected = "\
job/lab/nlp/llama-70b  batch, 4 tasks of 8 GPUs, priority 0

RUNNING  Running
  All of its tasks run.

  places  task 0    n0 (GPUs 0-7)
          task 1    n1 (GPUs 0-7)
          task 2    n2 (GPUs 0-7)
          task 3    n3 (GPUs 0-7)
  so far  submitted ? ago, first started ? ago, 4 of 4 tasks run; 2 attempts, 1 eviction, 0 failures
  basis   policy 3, journal index 18234
  uid     00000000000000000000000000000abc
next: wharf get history --name llama-70b
";
        assert_eq!(text(&explanation(running()), None, Paint::OFF), expected);
    }

    #[test]
    fn a_job_with_groups_shows_how_many_of_each_stand() {
        let group = |name: &str, copies, min_copies, gpus_per_task, standing, running_tasks| GroupView {
            name: name.into(),
            tasks: 2,
            min: 1,
            copies,
            min_copies,
            gpus_per_task,
            standing,
            placed_tasks: running_tasks,
            running_tasks,
        };
        let groups = vec![group("head", 1, 1, 0.0, 1, 2), group("worker", 8, 6, 8.0, 7, 13)];
        let mut job = JobView { groups, tasks: 18, min: 7, ..running() };
        job.placements.truncate(2);
        job.placements[0].group = Some("head".into());
        job.placements[1].group = Some("worker".into());
        let text = text(&explanation(job), None, Paint::OFF);
        let expected = "\
job/lab/nlp/llama-70b  batch, 18 tasks (at least 7) in 2 groups, priority 0

RUNNING  Running
  All of its tasks run.

  groups  head    stands; 2 tasks (at least 1) without GPU; 2 tasks run
          worker  7 of 8 copies stand (at least 6); each 2 tasks (at least 1) of 8 GPUs; 13 tasks run
  places  task 0    head    n0 (GPUs 0-7)
          task 1    worker  n1 (GPUs 0-7)
";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn the_group_that_is_short_tells_what_is_counted() {
        let group = GroupView {
            name: "head".into(),
            tasks: 1,
            min: 1,
            copies: 1,
            min_copies: 1,
            gpus_per_task: 0.0,
            standing: 0,
            placed_tasks: 0,
            running_tasks: 0,
        };
        let mut job = JobView { groups: vec![group], ..waiting() };
        (job.verdict.group, job.verdict.need, job.verdict.have) = (Some("head".into()), Some(1.0), Some(0.0));
        let text = text(&explanation(job), None, Paint::OFF);
        assert!(text.contains("  tasks left after each question; it needs 1\n"), "{text}");
        assert!(text.contains("  groups  head  does not stand; 1 task without GPU; 0 tasks run\n"), "{text}");
    }

    #[test]
    fn what_tasks_use_and_who_ran_out_of_memory_is_told() {
        let uses = |task, sm_active, memory_used_mib| TaskUseView {
            task,
            sm_active,
            memory_used_mib,
            memory_limit_mib: Some(19_968),
        };
        let tasks = vec![uses(0, Some(0.61), Some(11_500)), uses(1, None, None)];
        let told = Explanation { tasks, ooms: Some(2), ..explanation(running()) };
        let text = text(&told, None, Paint::OFF);
        let expected = "  uses    task 0    61% of its SMs, 11.2GiB of 19.5GiB
          task 1    ? of its SMs, ? of 19.5GiB
";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("          killed 2 times: it used more memory than it may\n"), "{text}");
    }

    #[test]
    fn a_job_that_waits_for_victims_lists_its_places_and_who_still_leaves() {
        let leaving = |job: &str, step, deadline_ms, eviction| LeavingView {
            job: job.into(),
            tenant: "lab/vision".into(),
            place: placed(0, "n1", &[0, 1], 1.0),
            step,
            deadline_ms,
            eviction,
        };
        let earmark = EarmarkView {
            since_ms: 1_700_000,
            places: vec![placed(0, "n1", &[0, 1], 1.0)],
            leaving: vec![
                leaving("a", LeavingStep::Asked, Some(1_960_000), Some(18_230)),
                leaving("b", LeavingStep::Saved, None, Some(18_231)),
                leaving("c", LeavingStep::Stopping, Some(1_730_000), None),
            ],
        };
        let verdict = verdict(VerdictWord::Waits, "WaitingForVictims", "its places are earmarked");
        let job = JobView { verdict, ..waiting() };
        let (evictions, earmark) = (vec![17_002, 16_000], Some(earmark));
        let told = Explanation { evictions, earmark, ..explanation(job) };
        let expected = "\
WAITS  WaitingForVictims
  its places are earmarked

  marked  task 0    n1 (GPUs 0-1)
  leaves  job/lab/vision/a task 0 on n1 (GPUs 0-1): asked to save its work, stopped in 4m at the latest (eviction/18230)
          job/lab/vision/b task 0 on n1 (GPUs 0-1): has saved its work and is about to be stopped (eviction/18231)
          job/lab/vision/c task 0 on n1 (GPUs 0-1): stopping, killed in 10s at the latest
  so far  submitted 12m ago, first started 11m ago; 2 attempts, 1 eviction, 0 failures
          evictions 17002, 16000, newest first
";
        let text = text(&told, Some(1_720_000), Paint::OFF);
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains("next: wharf explain eviction/17002   what runs there now: wharf top\n"),
            "{text}"
        );
    }
}
