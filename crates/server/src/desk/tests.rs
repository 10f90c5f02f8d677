//! A desk that is held up: what waits for it meanwhile, and what becomes of that. And readers that take their time.

use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Sender, channel};

use tokio::runtime::Runtime;
use tokio::task::JoinHandle as Task;
use wharf_api::file::job::parse_job;
use wharf_controller::memory::{CrashPoint, MemoryDisk};
use wharf_controller::turn::Settings;
use wharf_engine::model::policy::{Policy, Tenant};
use wharf_engine::units::Uid;

use super::*;
use crate::tests::nowhere::{Hold, Nowhere};

const SHORT: Duration = Duration::from_millis(50);

/// A reader that says which policy it saw in force.
type Reader = Task<Result<u32, Closed>>;

struct Stage {
    desk: Desk,
    world: Nowhere,
    runtime: Runtime,
}

impl Stage {
    fn with(patience: Patience) -> Self {
        Self::over(MemoryDisk::new(), Nowhere::default(), patience)
    }

    fn over(journal: MemoryDisk, world: Nowhere, patience: Patience) -> Self {
        let given = world.clone();
        let make = move || Controller::open(journal, given, Settings::default());
        let (desk, _) = Desk::open(patience, make).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        Self { desk, world, runtime }
    }

    /// Holds the desk up, in the middle of a turn, until what is returned is dropped.
    fn hold(&self) -> Hold {
        let hold = self.world.arrange();
        hold.entered.recv().unwrap();
        hold
    }

    fn policies_in_force(&self) -> u32 {
        self.runtime.block_on(self.desk.ping()).unwrap().state.tenants.version()
    }

    fn apply(&self, path: &str) -> Result<Reply, Closed> {
        self.runtime.block_on(another_policy(&self.desk, path))
    }

    /// Takes every place among the readers, until what is returned is dropped. The readers say what they then see.
    fn stalled_readers(&self) -> (Vec<Sender<()>>, Vec<Reader>) {
        let stalled = (0..READERS_MAX).map(|_| {
            let ((release, released), (enter, entered)) = (channel::<()>(), channel());
            let desk = self.desk.clone();
            let look = move |replica: &Replica| {
                enter.send(()).unwrap();
                let _ = released.recv();
                replica.state.tenants.version()
            };
            let reader = self.runtime.spawn(async move { desk.read(look).await });
            entered.recv().unwrap();
            (release, reader)
        });
        stalled.unzip()
    }
}

fn applied(policy: Policy) -> input::Request {
    input::Request { actor: Actor::of(Source::PolicyFile), input: Input::ApplyPolicy(policy) }
}

fn another_policy(desk: &Desk, path: &str) -> impl Future<Output = Result<Reply, Closed>> + use<> {
    let (desk, tenant) = (desk.clone(), Tenant::without_lines(path));
    let policy = Policy { tenants: vec![tenant], digest: path.to_owned(), ..Policy::default() };
    async move { desk.decide(applied(policy)).await.map(|decided| decided.reply) }
}

/// Seen before: a submission that was answered 408 existed all the same.
#[test]
fn an_input_that_waits_too_long_for_its_turn_does_not_take_effect() {
    let stage = Stage::with(Patience { turn: SHORT, ..Patience::default() });
    let held = stage.hold();
    assert_eq!(stage.apply("late"), Err(Closed::Withdrawn));
    drop(held);
    assert_eq!(stage.policies_in_force(), 0, "what was withdrawn never comes");
}

#[test]
fn an_input_that_a_turn_has_taken_may_have_taken_effect() {
    let stage = Stage::with(Patience { turn: SHORT, commit: SHORT, ..Patience::default() });
    let (held, next) = (stage.hold(), stage.world.arrange());
    let mut call = Box::pin(another_policy(&stage.desk, "lab"));
    let given = stage.runtime.block_on(async { timeout(Duration::from_millis(1), &mut call).await });
    assert!(given.is_err(), "it waits for the next turn");
    drop(held);
    next.entered.recv().unwrap();
    assert_eq!(stage.runtime.block_on(call), Err(Closed::Unknown));
    drop(next);
    assert_eq!(stage.policies_in_force(), 1);
}

#[test]
fn an_input_whose_caller_is_gone_does_not_take_effect() {
    let stage = Stage::with(Patience::default());
    let held = stage.hold();
    let call = another_policy(&stage.desk, "gone");
    let gone = stage.runtime.block_on(async { timeout(SHORT, call).await });
    assert!(gone.is_err(), "the caller has given up");
    drop(held);
    assert_eq!(stage.policies_in_force(), 0);
}

/// Seen before: the world had changed, the turn could not be written, and the answer was that nothing took effect.
#[test]
fn what_happens_while_the_desk_fails_may_have_taken_effect() {
    let journal = MemoryDisk::new();
    let stage = Stage::over(journal.clone(), Nowhere::default(), Patience::default());
    let held = stage.hold();
    let desk = stage.desk.clone();
    let mut call = Box::pin(async move { desk.happen(Happening::NodeDown("n1".to_owned())).await });
    let mut policy = Box::pin(another_policy(&stage.desk, "lab"));
    let waits = Duration::from_millis(1);
    assert!(stage.runtime.block_on(async { timeout(waits, &mut call).await }).is_err());
    assert!(stage.runtime.block_on(async { timeout(waits, &mut policy).await }).is_err());
    journal.crash_after(1, CrashPoint::Before);
    drop(held);
    assert!(matches!(stage.runtime.block_on(call), Err(Closed::Unknown)));
    assert!(stage.runtime.block_on(policy).is_err(), "nothing could be written");
}

/// A submission waits for its commit. That the fleet is slow to take its start is nothing to whoever submitted.
#[test]
fn a_caller_has_its_answer_while_the_world_is_still_being_told() {
    let stage = Stage::over(MemoryDisk::new(), Nowhere::with_a_node(), Patience::default());
    stage.apply("lab").unwrap().unwrap();
    let told = stage.world.arrange_act();
    let job = parse_job("a job", "{name: a, tenant: lab, gpus: 1}").unwrap().submission(Uid(7));
    let submit = input::Request { actor: Actor::of(Source::Http), input: Input::Submit(Box::new(job)) };
    let decided = stage.runtime.block_on(stage.desk.decide(submit)).unwrap();
    let job = decided.reply.unwrap().unwrap();
    assert!(decided.replica.state.ledger.holding(job).is_some(), "it has its places");
    told.entered.recv().unwrap();
    let again = stage.runtime.block_on(async { timeout(SHORT, stage.desk.ping()).await });
    assert!(again.is_err(), "the turn that answered has not ended");
    drop(told);
    stage.runtime.block_on(stage.desk.ping()).unwrap();
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

/// Reads ran on the deciding thread once: a list of everything held up whoever submitted.
#[test]
fn readers_that_take_their_time_hold_up_no_decision() {
    let stage = Stage::with(Patience::default());
    let (stalled, readers) = stage.stalled_readers();
    for number in 1..=100 {
        stage.apply(&format!("lab-{number}")).unwrap().unwrap();
        assert_eq!(stage.desk.latest().state.tenants.version(), number, "who wrote reads what it wrote");
    }
    drop(stalled);
    for reader in readers {
        let seen = stage.runtime.block_on(reader).unwrap();
        assert_eq!(seen, Ok(0), "what a reader holds does not change under it");
    }
}

#[test]
fn a_desk_that_is_held_up_is_read_all_the_same_and_does_not_answer_a_ping() {
    let stage = Stage::with(Patience::default());
    stage.apply("lab").unwrap().unwrap();
    let held = stage.hold();
    let seen = stage.runtime.block_on(stage.desk.read(|replica| replica.state.tenants.version()));
    assert_eq!(seen, Ok(1));
    let ping = stage.runtime.block_on(async { timeout(SHORT, stage.desk.ping()).await });
    assert!(ping.is_err(), "it is stuck, and that can be told");
    drop(held);
    assert_eq!(stage.policies_in_force(), 1);
}

#[test]
fn readers_are_bounded_and_what_is_urgent_does_not_wait_behind_them() {
    let stage = Stage::with(Patience { line: SHORT, ..Patience::default() });
    let computed = Arc::new(AtomicU32::new(0));
    let ask = |number| {
        let count = Arc::clone(&computed);
        stage.desk.read(move |_| {
            count.fetch_add(number, Ordering::SeqCst);
        })
    };
    let (stalled, readers) = stage.stalled_readers();
    assert_eq!(stage.runtime.block_on(ask(1)), Err(Closed::Busy));
    assert_eq!(stage.runtime.block_on(stage.desk.read_first(|_| ())), Ok(()));
    drop(stalled);
    for reader in readers {
        stage.runtime.block_on(reader).unwrap().unwrap();
    }
    assert_eq!(stage.runtime.block_on(ask(10)), Ok(()));
    assert_eq!(computed.load(Ordering::SeqCst), 10, "what nobody waits for is not computed");
}

#[test]
fn a_reader_that_takes_too_long_is_told_so_and_keeps_its_place_until_it_ends() {
    let stage = Stage::with(Patience { answer: SHORT, ..Patience::default() });
    let (stalled, readers) = stage.stalled_readers();
    for reader in readers {
        assert_eq!(stage.runtime.block_on(reader).unwrap(), Err(Closed::Slow));
    }
    assert_eq!(stage.desk.readers.available_permits(), 0);
    drop(stalled);
    assert_eq!(stage.runtime.block_on(stage.desk.read(|_| 7)), Ok(7));
}
