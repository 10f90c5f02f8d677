//! The desk: one thread that owns the controller.
//!
//! Requests that are waiting when a turn begins share it, and its one commit. A question is answered between
//! turns, from committed state, and only for a short while: inputs do not wait behind a line of readers. Both wait in
//! bounded numbers, and a caller is told when there are too many. What nobody waits for any more is dropped: a question
//! is not computed, and an input does not take effect ([`claim`]).

mod claim;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tracing::{info, warn};
use wharf_controller::disk::Disk;
use wharf_controller::turn::{Controller, Fault, Glance, Reply, SnapshotFault};
use wharf_controller::world::{ClockSteps, Happened, Happening, Impossible, World};
use wharf_engine::decide::input::Input;
use wharf_engine::model::actor::{self, Actor, Source};
use wharf_engine::units::{JobId, Timestamp};

use self::claim::Claim;
use crate::pricing::Pricing;
use crate::text;

/// The most requests that wait for the desk. At a millisecond a turn and many to a turn this is well under a
/// second of work; more would only hide an overload.
const QUEUE_MAX: usize = 4096;
/// The most questions that wait for the desk. Others wait for their place in line, each for a bounded time.
const QUESTIONS_MAX: usize = 64;
/// Questions are answered for so long between two turns, and at least one is: long enough that a turn of nothing does
/// not cost more than the answers, short enough that a submission hardly notices.
const QUESTIONS_TIME: Duration = Duration::from_millis(20);
/// The most happenings of a simulated world in one turn, for the same reason.
const HAPPENINGS_PER_TURN_MAX: usize = 32;
/// The most inputs in one turn, so that a flood of submissions does not starve the world's reports.
const INPUTS_PER_TURN_MAX: usize = 256;
/// The longest the desk sleeps: a world may have news that it could not announce.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// The shortest: news of the world is gathered for this long, so that a burst of it costs one commit and not many
/// that requests would have to wait behind. A request wakes the desk at once.
const SLEEP_MIN: Duration = Duration::from_millis(25);

/// Longer decisions are counted as this long: a minute is far beyond anything worth telling apart.
const DECISION_MICROS_MAX: u64 = 60_000_000;

/// What happens at the desk after the turn of an input, with the committed state at hand.
type After = Box<dyn FnOnce(Reply, Turned<'_>) + Send>;
/// A question, answered between turns.
type Question = Box<dyn FnOnce(Glance<'_>) + Send>;

/// What happens at the desk after the turn that learnt of a happening.
type Witness = Box<dyn FnOnce(Result<Happened, Impossible>, Glance<'_>) + Send>;

enum Request {
    Input(Box<Given>),
    /// Asked before something is done, or to know whether we are alive: it waits behind no reader.
    First(Question),
    Question(Question),
    Happening {
        what: Happening,
        after: Witness,
    },
    Stop,
}

/// An input as it waits.
struct Given {
    request: actor::Request,
    since: Instant,
    claim: Claim,
    after: After,
}

/// How long callers wait.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a place in the line of questions.
    pub line: Duration,
    /// For the answer to a question.
    pub answer: Duration,
    /// Until an input that no turn has taken is withdrawn.
    pub turn: Duration,
    /// For the end of the turn that has taken it.
    pub commit: Duration,
}

impl Default for Patience {
    /// Together less than the minute for which our own client waits.
    fn default() -> Self {
        let [line, answer, turn, commit] = [5, 10, 20, 15].map(Duration::from_secs);
        Self { line, answer, turn, commit }
    }
}

/// What an input's turn left behind.
pub struct Turned<'a> {
    /// The parts that answers are made of.
    pub glance: Glance<'a>,
    /// Jobs from this id on are new.
    pub next_job_before: JobId,
}

/// Times of decisions, from the request's arrival at the desk to its commit, in microseconds.
pub type Decisions = Arc<Mutex<Histogram<u64>>>;

/// A handle to the desk.
#[derive(Clone)]
pub struct Desk {
    requests: SyncSender<Request>,
    line: Arc<Semaphore>,
    patience: Patience,
    decisions: Decisions,
    failed: Arc<AtomicBool>,
}

/// Why the desk did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// It has more requests than it can take; nothing was done.
    #[error("the control plane has more requests than it can take; nothing was changed")]
    Busy,
    /// It did not come to the question in time.
    #[error("the control plane did not answer in time; nothing was changed")]
    Slow,
    /// It did not come to the input in time, which was withdrawn.
    #[error(
        "the control plane did not come to the request in time; it was withdrawn and did not take effect"
    )]
    Withdrawn,
    /// It has taken the input, and nobody knows what came of it.
    #[error("the control plane took the request and did not say what came of it; it may have taken effect")]
    Unknown,
    /// It has stopped; nothing was done.
    #[error("the control plane has stopped; the request did not take effect")]
    Stopped,
}

/// A running desk; it ends with the fault that stopped it, if one did.
pub struct Running(JoinHandle<Result<(), Fault>>);

impl Running {
    /// Waits for its end.
    pub fn join(self) -> Result<(), Fault> {
        match self.0.join() {
            Ok(ended) => ended,
            Err(_) => Err(Fault::Panicked),
        }
    }
}

impl Desk {
    /// Opens a desk over a controller.
    ///
    /// The controller is made on the desk's own thread, because a disk and a world need not be shareable.
    pub fn open<D: Disk, W: World>(
        patience: Patience,
        make: impl FnOnce() -> Result<Controller<D, W>, Fault> + Send + 'static,
    ) -> Result<(Self, Running), Fault> {
        let (requests, waiting) = sync_channel(QUEUE_MAX);
        let histogram =
            Histogram::new_with_bounds(1, DECISION_MICROS_MAX, 3).expect("the bounds are in order");
        let decisions: Decisions = Arc::new(Mutex::new(histogram));
        let failed = Arc::new(AtomicBool::new(false));
        let (opened, open) = sync_channel(1);
        let (times, gone) = (Arc::clone(&decisions), Arc::clone(&failed));
        let thread = std::thread::Builder::new().name("desk".to_owned());
        let spawned = thread.spawn(move || {
            let controller = match make() {
                Ok(controller) => controller,
                Err(fault) => {
                    let _ = opened.send(Err(fault));
                    return Ok(());
                }
            };
            let _ = opened.send(Ok(()));
            // However the desk ends, by a panic too, it is known to have ended.
            let _gone = Gone(gone);
            work(controller, &waiting, &times)
        });
        let running = Running(spawned.expect("a thread can be started"));
        open.recv().map_err(|_| Fault::Panicked)??;
        let line = Arc::new(Semaphore::new(QUESTIONS_MAX));
        Ok((Self { requests, line, patience, decisions, failed }, running))
    }

    /// Gives an input to the next turn; `after` runs at the desk once it is committed.
    ///
    /// An input whose caller goes away, or has waited for too long, before a turn takes it does not take effect.
    pub async fn give<T: Send + 'static>(
        &self,
        request: actor::Request,
        after: impl FnOnce(Reply, Turned<'_>) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let (answer, mut answered) = oneshot::channel();
        let after: After = Box::new(move |reply, turned| {
            let _ = answer.send(after(reply, turned));
        });
        let (caller, claim) = claim::open();
        self.send(Request::Input(Box::new(Given { request, since: Instant::now(), claim, after })))?;
        match timeout(self.patience.turn, &mut answered).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(_)) if caller.withdraw() => return Err(Closed::Stopped),
            Err(_) if caller.withdraw() => return Err(Closed::Withdrawn),
            Ok(Err(_)) => return Err(Closed::Unknown),
            Err(_) => {}
        }
        match timeout(self.patience.commit, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(Closed::Unknown),
        }
    }

    /// Asks a question of the committed state, in the line of all that only read.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(Glance<'_>) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let place = timeout(self.patience.line, Arc::clone(&self.line).acquire_owned()).await;
        let place = place.map_err(|_| Closed::Busy)?.map_err(|_| Closed::Stopped)?;
        // The place is given back when the question is answered or dropped, whichever becomes of its caller.
        let question = move |glance: Glance<'_>| {
            let answer = question(glance);
            drop(place);
            answer
        };
        self.put(question, Request::Question).await
    }

    /// Asks a question that goes before the line: one that is cheap, and that something to be done depends on.
    pub async fn ask_first<T: Send + 'static>(
        &self,
        question: impl FnOnce(Glance<'_>) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        self.put(question, Request::First).await
    }

    /// The same for a thread of its own, which may wait.
    pub fn ask_blocking<T: Send + 'static>(
        &self,
        question: impl FnOnce(Glance<'_>) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let (answer, answered) = sync_channel(1);
        let question: Question = Box::new(move |glance| {
            let _ = answer.send(question(glance));
        });
        self.send(Request::First(question))?;
        answered.recv_timeout(self.patience.answer).map_err(|failed| match failed {
            RecvTimeoutError::Timeout => Closed::Slow,
            RecvTimeoutError::Disconnected => Closed::Stopped,
        })
    }

    async fn put<T: Send + 'static>(
        &self,
        question: impl FnOnce(Glance<'_>) -> T + Send + 'static,
        request: impl FnOnce(Question) -> Request,
    ) -> Result<T, Closed> {
        let (answer, answered) = oneshot::channel();
        let question: Question = Box::new(move |glance| {
            if !answer.is_closed() {
                let _ = answer.send(question(glance));
            }
        });
        self.send(request(question))?;
        let answered = timeout(self.patience.answer, answered).await.map_err(|_| Closed::Slow)?;
        answered.map_err(|_| Closed::Stopped)
    }

    /// Lets something happen to a simulated world; `after` runs once the control plane has learnt of it.
    pub async fn happen<T: Send + 'static>(
        &self,
        what: Happening,
        after: impl FnOnce(Result<Happened, Impossible>, Glance<'_>) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let (answer, answered) = oneshot::channel();
        let after: Witness = Box::new(move |happened, glance| {
            let _ = answer.send(after(happened, glance));
        });
        self.send(Request::Happening { what, after })?;
        answered.await.map_err(|_| Closed::Stopped)
    }

    /// The same without waiting.
    pub fn let_happen(
        &self,
        what: Happening,
        after: impl FnOnce(Result<Happened, Impossible>) + Send + 'static,
    ) -> Result<(), Closed> {
        self.send(Request::Happening { what, after: Box::new(move |happened, _| after(happened)) })
    }

    /// Gives an input and does not wait for what comes of it.
    pub fn post(
        &self,
        request: actor::Request,
        after: impl FnOnce(Reply) + Send + 'static,
    ) -> Result<(), Closed> {
        let after: After = Box::new(move |reply, _| after(reply));
        let claim = Claim::unshared();
        self.send(Request::Input(Box::new(Given { request, since: Instant::now(), claim, after })))
    }

    /// Lets the desk finish what it has, take a snapshot and end.
    pub fn stop(&self) {
        let _ = self.requests.send(Request::Stop);
    }

    /// True when the desk has ended, whatever the reason.
    pub fn has_stopped(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Times of decisions so far.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    fn send(&self, request: Request) -> Result<(), Closed> {
        self.requests.try_send(request).map_err(|refused| match refused {
            TrySendError::Full(_) => Closed::Busy,
            TrySendError::Disconnected(_) => Closed::Stopped,
        })
    }
}

fn work<D: Disk, W: World>(
    mut controller: Controller<D, W>,
    waiting: &Receiver<Request>,
    decisions: &Decisions,
) -> Result<(), Fault> {
    let mut pricing = Pricing::new();
    let mut told = Told::default();
    told.look(&controller);
    let mut faults_told = 0;
    let mut line = VecDeque::new();
    loop {
        let sleep = if line.is_empty() { controller.sleep() } else { Some(Duration::ZERO) };
        let Some(gathered) = gather(waiting, sleep, &mut line) else {
            return close(controller);
        };
        let next_job_before = controller.state().jobs.next();
        let mut inputs = gathered.inputs;
        inputs.extend(pricing.ready(controller.state()).map(by_engine));
        let happened: Vec<_> =
            gathered.happenings.into_iter().map(|(what, after)| (controller.happen(&what), after)).collect();
        let replies = controller.turn_of(&inputs)?;
        told.look(&controller);
        for ((since, after), reply) in gathered.callers.into_iter().zip(replies) {
            let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
            decisions.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(micros);
            guarded(|| after(reply, Turned { glance: controller.glance(), next_job_before }));
        }
        for (happened, after) in happened {
            guarded(|| after(happened, controller.glance()));
        }
        for question in gathered.first {
            guarded(|| question(controller.glance()));
        }
        let begin = Instant::now();
        while let Some(question) = line.pop_front() {
            guarded(|| question(controller.glance()));
            if begin.elapsed() >= QUESTIONS_TIME {
                break;
            }
        }
        faults_told = tell_snapshot_faults(&controller.glance(), faults_told);
        if gathered.stop {
            return close(controller);
        }
        pricing.begin(controller.state());
    }
}

fn by_engine(input: Input) -> actor::Request {
    actor::Request { actor: Actor::of(Source::Engine), input }
}

/// What the log tells of the world: the beginning and the end of an outage, not every try; a clock that was set.
#[derive(Default)]
struct Told {
    since: Option<Timestamp>,
    clock_steps: u64,
}

impl Told {
    fn look<D: Disk, W: World>(&mut self, controller: &Controller<D, W>) {
        let now = controller.now();
        let ClockSteps { count, last } = controller.clock_steps();
        if let Some(step) = last.filter(|_| count > self.clock_steps) {
            warn!("{step}");
        }
        self.clock_steps = count;
        match (controller.outage(), self.since) {
            (Some(outage), None) => {
                warn!("{}", text::outage(outage, now));
                self.since = Some(outage.since);
            }
            (None, Some(since)) => {
                info!("the fleet answers again, after {}", text::passed(now - since));
                self.since = None;
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}

fn close<D: Disk, W: World>(mut controller: Controller<D, W>) -> Result<(), Fault> {
    let faults_told = controller.figures().snapshot_faults;
    controller.close()?;
    tell_snapshot_faults(&controller.glance(), faults_told);
    Ok(())
}

/// Says in the log that a snapshot could not be written, once for each try.
fn tell_snapshot_faults(glance: &Glance<'_>, told: u64) -> u64 {
    if let Some(fault) = glance.snapshot_fault.filter(|_| glance.figures.snapshot_faults > told) {
        let SnapshotFault { what, times, .. } = fault;
        warn!("a snapshot could not be written ({times} in a row): {what}; the journal is whole and grows");
    }
    glance.figures.snapshot_faults
}

/// Answers only read. One that panics costs its caller an answer and nobody else anything.
fn guarded(answer: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(answer));
}

struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[derive(Default)]
struct Gathered {
    inputs: Vec<actor::Request>,
    /// Of the inputs, in their order.
    callers: Vec<(Instant, After)>,
    first: Vec<Question>,
    happenings: Vec<(Happening, Witness)>,
    stop: bool,
}

/// What waits now, or after a sleep; `None` when nobody can ask any more. Questions join the line.
fn gather(
    waiting: &Receiver<Request>,
    sleep: Option<Duration>,
    line: &mut VecDeque<Question>,
) -> Option<Gathered> {
    let mut gathered = Gathered::default();
    let shortest = if line.is_empty() { SLEEP_MIN } else { Duration::ZERO };
    let mut next = match waiting.recv_timeout(sleep.unwrap_or(SLEEP_MAX).clamp(shortest, SLEEP_MAX)) {
        Ok(request) => Some(request),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => return None,
    };
    while let Some(request) = next {
        match request {
            // Whoever gave it may have gone, or been told that it does not take effect.
            Request::Input(given) if given.claim.take() => {
                let Given { request, since, claim: _, after } = *given;
                gathered.inputs.push(request);
                gathered.callers.push((since, after));
            }
            Request::Input(_) => {}
            Request::First(question) => gathered.first.push(question),
            Request::Question(question) => line.push_back(question),
            Request::Happening { what, after } => gathered.happenings.push((what, after)),
            Request::Stop => gathered.stop = true,
        }
        let full = gathered.inputs.len() >= INPUTS_PER_TURN_MAX
            || gathered.happenings.len() >= HAPPENINGS_PER_TURN_MAX
            || gathered.stop;
        next = if full { None } else { waiting.try_recv().ok() };
    }
    Some(gathered)
}
