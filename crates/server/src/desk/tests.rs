//! A desk that is held up: what waits for it meanwhile, and what becomes of that.

use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Sender, channel};

use tokio::runtime::Runtime;
use wharf_controller::disk::Standing;
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::Settings;
use wharf_controller::world::{Samples, WorldFault, WorldReport};
use wharf_engine::model::action::Action;
use wharf_engine::model::policy::{Policy, Tenant};
use wharf_engine::units::Timestamp;

use super::*;

const SHORT: Duration = Duration::from_millis(50);

/// A world in which nothing is and nothing happens.
struct Nowhere;

impl World for Nowhere {
    fn now(&self) -> Timestamp {
        Timestamp(1)
    }

    fn obeyed(&self) -> Standing {
        Standing::default()
    }

    fn list(&mut self) -> Result<WorldReport, WorldFault> {
        Ok(WorldReport::default())
    }

    fn changes(&mut self) -> Result<Vec<WorldReport>, WorldFault> {
        Ok(Vec::new())
    }

    fn act(&mut self, _: Standing, _: &[Action]) -> Result<(), WorldFault> {
        Ok(())
    }

    fn next_change(&self) -> Option<Timestamp> {
        None
    }

    fn samples(&self) -> Samples {
        Samples::default()
    }
}

struct Stage {
    desk: Desk,
    runtime: Runtime,
}

impl Stage {
    fn with(patience: Patience) -> Self {
        let make = || Controller::open(MemoryDisk::new(), Nowhere, Settings::default());
        let (desk, _) = Desk::open(patience, make).unwrap();
        Self { desk, runtime: tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap() }
    }

    /// Holds the desk up until what is returned is dropped.
    fn hold(&self) -> Sender<()> {
        let (release, held) = channel::<()>();
        let (entered, inside) = channel();
        let desk = self.desk.clone();
        self.runtime.spawn(async move {
            let wait = move |_: Glance<'_>| {
                entered.send(()).unwrap();
                let _ = held.recv();
            };
            let _ = desk.ask_first(wait).await;
        });
        inside.recv().unwrap();
        release
    }
}

fn policies_in_force(stage: &Stage) -> u32 {
    stage.runtime.block_on(stage.desk.ask_first(|glance| glance.state.tenants.version())).unwrap()
}

fn applied(policy: Policy) -> actor::Request {
    actor::Request { actor: Actor::of(Source::PolicyFile), input: Input::ApplyPolicy(policy) }
}

fn another_policy(desk: &Desk, path: &str) -> impl Future<Output = Result<Reply, Closed>> + use<> {
    let (desk, tenant) = (desk.clone(), Tenant::without_lines(path));
    let policy = Policy { tenants: vec![tenant], digest: path.to_owned(), ..Policy::default() };
    async move { desk.give(applied(policy), |reply, _| reply).await }
}

/// Seen before: a submission that was answered 408 existed all the same.
#[test]
fn an_input_that_waits_too_long_for_its_turn_does_not_take_effect() {
    let stage = Stage::with(Patience { turn: SHORT, ..Patience::default() });
    let held = stage.hold();
    let late = stage.runtime.block_on(another_policy(&stage.desk, "late"));
    assert_eq!(late, Err(Closed::Withdrawn));
    drop(held);
    assert_eq!(policies_in_force(&stage), 0, "what was withdrawn never comes");
}

#[test]
fn an_input_that_a_turn_has_taken_may_have_taken_effect() {
    let stage = Stage::with(Patience { turn: SHORT, commit: SHORT, ..Patience::default() });
    let (release, held) = channel::<()>();
    let policy = Policy { tenants: vec![Tenant::without_lines("lab")], ..Policy::default() };
    let slow = stage.desk.give(applied(policy), move |reply, _| {
        let _ = held.recv();
        reply
    });
    assert_eq!(stage.runtime.block_on(slow), Err(Closed::Unknown));
    drop(release);
    assert_eq!(policies_in_force(&stage), 1);
}

#[test]
fn an_input_whose_caller_is_gone_does_not_take_effect() {
    let stage = Stage::with(Patience::default());
    let held = stage.hold();
    let call = another_policy(&stage.desk, "gone");
    let gone = stage.runtime.block_on(async { timeout(SHORT, call).await });
    assert!(gone.is_err(), "the caller has given up");
    drop(held);
    assert_eq!(policies_in_force(&stage), 0);
}

#[test]
fn a_desk_that_stops_says_of_each_input_that_it_did_not_take_effect() {
    let stage = Stage::with(Patience::default());
    let held = stage.hold();
    stage.desk.stop();
    let call = stage.runtime.spawn(another_policy(&stage.desk, "late"));
    drop(held);
    assert_eq!(stage.runtime.block_on(call).unwrap(), Err(Closed::Stopped));
}

#[test]
fn a_question_that_nobody_waits_for_is_not_computed() {
    let stage = Stage::with(Patience { answer: SHORT, ..Patience::default() });
    let computed = Arc::new(AtomicU32::new(0));
    let ask = |number| {
        let count = Arc::clone(&computed);
        stage.desk.ask(move |_| {
            count.fetch_add(number, Ordering::SeqCst);
        })
    };
    let held = stage.hold();
    assert_eq!(stage.runtime.block_on(ask(1)), Err(Closed::Slow));
    drop(held);
    assert_eq!(stage.runtime.block_on(ask(10)), Ok(()));
    assert_eq!(computed.load(Ordering::SeqCst), 10);
}

#[test]
fn the_line_of_questions_is_bounded_and_what_is_urgent_does_not_wait_in_it() {
    let stage = Stage::with(Patience { line: SHORT, ..Patience::default() });
    let held = stage.hold();
    let ask = || {
        let desk = stage.desk.clone();
        async move { desk.ask(|_| ()).await }
    };
    let in_line: Vec<_> = (0..QUESTIONS_MAX).map(|_| stage.runtime.spawn(ask())).collect();
    stage.runtime.block_on(async {
        while stage.desk.line.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(stage.runtime.block_on(ask()), Err(Closed::Busy));
    let desk = stage.desk.clone();
    let first = stage.runtime.spawn(async move { desk.ask_first(|_| ()).await });
    drop(held);
    assert_eq!(stage.runtime.block_on(first).unwrap(), Ok(()));
    for asked in in_line {
        assert_eq!(stage.runtime.block_on(asked).unwrap(), Ok(()));
    }
}
