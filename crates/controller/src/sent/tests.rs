//! What is sent, beside a list of everything that was ever said.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_engine::device::geometry::Slice;
use wharf_engine::model::job::{GpuAsk, Shape, Spec};
use wharf_engine::model::outcome::Denial;
use wharf_engine::model::policy::Mode;
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{GpuMask, GpuUnits, Resources, Uid};

use super::*;

const RESEND: Millis = Millis(30_000);

fn start_task(task: u32, node: u32) -> StartTask {
    StartTask {
        task,
        node: format!("n{node}"),
        gpus: GpuMask::default(),
        units_each: GpuUnits::WHOLE,
        enforced: Mode::Whole,
        slice: None,
        memory_mib: None,
    }
}

fn start(uid: u128, attempt: u32, tasks: Vec<StartTask>) -> Action {
    let spec = Spec::of("j".to_owned(), Shape::of(GpuAsk::Whole(1), Resources::default()));
    Action::Start { attempt, job: Box::new(Submission::of(Uid(uid), "lab", spec)), tasks }
}

fn task(uid: u128, attempt: u32, task: u32) -> TaskRef {
    TaskRef { uid: Uid(uid), task, attempt }
}

/// What is due goes out and is taken.
fn send(sent: &mut Sent, due: Vec<Action>, now: u64) -> Vec<Action> {
    let unsent = sent.unsent(due, Timestamp(now), RESEND);
    sent.mark(&unsent, Timestamp(now));
    unsent
}

/// A service of two replicas: both starts are sent; the second replica runs and fails, and its replacement is started
/// while the first is still made ready. Both times two tasks are due and the first of them is task 0: the replacement
/// was taken for a repetition and waited until the first replica ran.
#[test]
fn a_replacement_is_started_while_the_other_replica_is_made_ready() {
    let mut sent = Sent::default();
    let both = start(1, 1, vec![start_task(0, 1), start_task(1, 1)]);
    assert_eq!(send(&mut sent, vec![both.clone()], 0), [both]);
    let due = start(1, 1, vec![start_task(0, 1), start_task(2, 1)]);
    assert_eq!(send(&mut sent, vec![due], 5), [start(1, 1, vec![start_task(2, 1)])]);
}

#[test]
fn stops_and_asks_of_other_tasks_are_told_apart() {
    let mut sent = Sent::default();
    let stop = |tasks: &[u32]| Action::Stop {
        tasks: tasks.iter().map(|&number| task(1, 1, number)).collect(),
        deadline: Timestamp(9),
    };
    let ask = |tasks: &[u32]| Action::AskCheckpoint {
        uid: Uid(2),
        attempt: 1,
        tasks: tasks.to_vec(),
        deadline: Timestamp(9),
    };
    assert_eq!(send(&mut sent, vec![stop(&[0, 1]), ask(&[0, 1])], 0).len(), 2);
    let sent_next = send(&mut sent, vec![stop(&[0, 2]), ask(&[0, 2])], 1);
    assert_eq!(sent_next, [stop(&[2]), ask(&[0, 2])], "who is asked together is part of what an ask says");
}

#[test]
fn what_could_not_be_sent_stays_unsent() {
    let mut sent = Sent::default();
    let due = || vec![start(1, 1, vec![start_task(0, 1)]), Action::Acknowledge { generation: 4 }];
    assert_eq!(sent.unsent(due(), Timestamp(0), RESEND), due(), "and then the world does not answer");
    assert_eq!(sent.next_resend(RESEND), None, "nothing was sent, so nothing is sent again");
    assert_eq!(send(&mut sent, due(), 1), due());
    assert_eq!(send(&mut sent, due(), 2), []);
    assert_eq!(sent.next_resend(RESEND), Some(Timestamp(30_001)));
    assert_eq!(send(&mut sent, due(), 30_001), due()[..1], "what was heard is acknowledged once");
}

fn answer(about: ActionRef, outcome: ActionOutcome) -> Vec<Answer> {
    vec![Answer { about, outcome }]
}

fn refused() -> ActionOutcome {
    ActionOutcome::Refused { why: Denial::NodeNotReady }
}

#[test]
fn what_the_world_has_taken_is_not_sent_again_until_it_lists() {
    let mut sent = Sent::default();
    let due = || vec![start(1, 1, vec![start_task(0, 1), start_task(1, 1)])];
    assert_eq!(send(&mut sent, due(), 0), due());
    sent.hear(&answer(ActionRef::Start(task(1, 1, 0)), ActionOutcome::Done), false, Timestamp(1));
    let unanswered = vec![start(1, 1, vec![start_task(1, 1)])];
    assert_eq!(send(&mut sent, due(), 30_000), unanswered, "the other one may be lost");
    sent.hear(&[], true, Timestamp(40_000));
    assert_eq!(sent.next_resend(RESEND), Some(Timestamp(60_000)));
    assert_eq!(send(&mut sent, due(), 70_000), due(), "a list that does not name it leaves it open");
}

#[test]
fn what_was_refused_is_sent_again_after_a_pause_that_doubles() {
    let mut sent = Sent::default();
    let (about, due) = (ActionRef::Stop(task(1, 1, 0)), || {
        vec![Action::Stop { tasks: vec![task(1, 1, 0)], deadline: Timestamp(9) }]
    });
    let mut now = 0;
    for pause in [2, 4, 8, 16, 16, 16] {
        assert_eq!(send(&mut sent, due(), now), due());
        sent.hear(&answer(about, refused()), false, Timestamp(now));
        sent.hear(&answer(about, refused()), false, Timestamp(now));
        now += pause * RESEND.0;
        assert_eq!(
            sent.next_resend(RESEND),
            Some(Timestamp(now)),
            "a refusal that is told twice counts once"
        );
        assert_eq!(send(&mut sent, due(), now - 1), []);
    }
    assert_eq!(send(&mut sent, due(), now), due());
}

/// What actions say, one line for each task; an ask is one line.
fn lines(actions: &[Action]) -> Vec<String> {
    let mut lines = Vec::new();
    for action in actions {
        match action {
            Action::Start { attempt, job, tasks } => {
                lines.extend(tasks.iter().map(|task| format!("start {:?} {attempt} {task:?}", job.uid)));
            }
            Action::AskCheckpoint { .. }
            | Action::Reject { .. }
            | Action::Close { .. }
            | Action::Acknowledge { .. } => lines.push(format!("{action:?}")),
            Action::Stop { tasks, deadline } => {
                lines.extend(tasks.iter().map(|task| format!("stop {task:?} {deadline:?}")));
            }
        }
    }
    lines
}

/// Each of a few tasks is started, asked, stopped or left alone, with few enough variations that they collide often.
fn random_due(rng: &mut ChaCha8Rng) -> Vec<Action> {
    let mut due = Vec::new();
    for uid in 0..3 {
        let attempt = rng.random_range(1..3);
        let (mut starts, mut asked, mut stopped) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..4 {
            match rng.random_range(0..6) {
                0..2 => {
                    let mut place = start_task(number, rng.random_range(1..3));
                    place.slice = rng.random_bool(0.3).then_some(Slice { profile: 1, start: 0 });
                    starts.push(place);
                }
                2 => asked.push(number),
                3 => stopped.push(task(uid, attempt, number)),
                _ => {}
            }
        }
        let deadline = Timestamp(rng.random_range(1..3));
        if !starts.is_empty() {
            due.push(start(uid, attempt, starts));
        }
        if !asked.is_empty() {
            due.push(Action::AskCheckpoint { uid: Uid(uid), attempt, tasks: asked, deadline });
        }
        if !stopped.is_empty() {
            due.push(Action::Stop { tasks: stopped, deadline });
        }
    }
    due
}

#[test]
fn exactly_what_was_not_said_is_sent() {
    for seed in 0..200 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut sent, mut now) = (Sent::default(), 0);
        let mut told: BTreeMap<String, u64> = BTreeMap::new();
        for step in 0..60 {
            now += rng.random_range(0..15_000);
            let due = random_due(&mut rng);
            let due_lines = lines(&due);
            told.retain(|line, _| due_lines.contains(line));
            let is_unsaid = |line: &&String| told.get(*line).is_none_or(|at| now >= at + RESEND.0);
            let expected: Vec<String> = due_lines.iter().filter(is_unsaid).cloned().collect();
            let unsent = sent.unsent(due, Timestamp(now), RESEND);
            assert_eq!(lines(&unsent), expected, "seed {seed}, step {step}");
            // Now and then the world does not take them.
            if rng.random_bool(0.8) {
                sent.mark(&unsent, Timestamp(now));
                told.extend(expected.into_iter().map(|line| (line, now)));
            }
        }
    }
}
