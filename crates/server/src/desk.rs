//! The desk: one thread that owns the controller.
//!
//! Requests that are waiting when a turn begins share it, and its one commit. A question is answered between
//! turns, from committed state. Everything that waits for the desk waits in one bounded queue; when that is full
//! the caller is told so at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::oneshot;
use tracing::{info, warn};
use wharf_controller::disk::Disk;
use wharf_controller::turn::{Controller, Fault, Glance, Reply, SnapshotFault};
use wharf_controller::world::{ClockSteps, Happened, Happening, Impossible, World};
use wharf_engine::input::Input;
use wharf_engine::units::{JobId, Timestamp};

use crate::pricing::Pricing;
use crate::text;

/// The most requests that wait for the desk. At a millisecond a turn and many to a turn this is well under a
/// second of work; more would only hide an overload.
const QUEUE_MAX: usize = 4096;
/// The most questions between two turns, for the same reason.
const QUESTIONS_PER_TURN_MAX: usize = 32;
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
    Input { input: Box<Input>, since: Instant, after: After },
    Question(Question),
    Happening { what: Happening, after: Witness },
    Stop,
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
    decisions: Decisions,
    failed: Arc<AtomicBool>,
}

/// Why the desk did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// Its queue is full.
    #[error("the control plane has more requests than it can take")]
    Busy,
    /// It has stopped.
    #[error("the control plane has stopped")]
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
        Ok((Self { requests, decisions, failed }, running))
    }

    /// Gives an input to the next turn; `after` runs at the desk once it is committed.
    pub async fn give<T: Send + 'static>(
        &self,
        input: Input,
        after: impl FnOnce(Reply, Turned<'_>) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let (answer, answered) = oneshot::channel();
        let after: After = Box::new(move |reply, turned| {
            let _ = answer.send(after(reply, turned));
        });
        self.send(Request::Input { input: Box::new(input), since: Instant::now(), after })?;
        answered.await.map_err(|_| Closed::Stopped)
    }

    /// Asks a question of the committed state.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(Glance<'_>) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let (answer, answered) = oneshot::channel();
        let question: Question = Box::new(move |glance| {
            let _ = answer.send(question(glance));
        });
        self.send(Request::Question(question))?;
        answered.await.map_err(|_| Closed::Stopped)
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
    pub fn post(&self, input: Input, after: impl FnOnce(Reply) + Send + 'static) -> Result<(), Closed> {
        let after: After = Box::new(move |reply, _| after(reply));
        self.send(Request::Input { input: Box::new(input), since: Instant::now(), after })
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
    loop {
        let Some(batch) = gather(waiting, controller.sleep()) else {
            return close(controller);
        };
        let next_job_before = controller.state().jobs.next();
        let mut inputs: Vec<Input> = batch.inputs.iter().map(|(input, _, _)| Input::clone(input)).collect();
        inputs.extend(pricing.ready(controller.state()));
        let happened: Vec<_> =
            batch.happenings.into_iter().map(|(what, after)| (controller.happen(&what), after)).collect();
        let replies = controller.turn(&inputs)?;
        told.look(&controller);
        for ((_, since, after), reply) in batch.inputs.into_iter().zip(replies) {
            let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
            decisions.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(micros);
            guarded(|| after(reply, Turned { glance: controller.glance(), next_job_before }));
        }
        for (happened, after) in happened {
            guarded(|| after(happened, controller.glance()));
        }
        for question in batch.questions {
            guarded(|| question(controller.glance()));
        }
        faults_told = tell_snapshot_faults(&controller.glance(), faults_told);
        if batch.stop {
            return close(controller);
        }
        pricing.begin(controller.state());
    }
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
    inputs: Vec<(Box<Input>, Instant, After)>,
    questions: Vec<Question>,
    happenings: Vec<(Happening, Witness)>,
    stop: bool,
}

/// What waits now, or after a sleep; `None` when nobody can ask any more.
fn gather(waiting: &Receiver<Request>, sleep: Option<Duration>) -> Option<Gathered> {
    let mut gathered = Gathered::default();
    let mut next = match waiting.recv_timeout(sleep.unwrap_or(SLEEP_MAX).clamp(SLEEP_MIN, SLEEP_MAX)) {
        Ok(request) => Some(request),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => return None,
    };
    while let Some(request) = next {
        match request {
            Request::Input { input, since, after } => gathered.inputs.push((input, since, after)),
            Request::Question(question) => gathered.questions.push(question),
            Request::Happening { what, after } => gathered.happenings.push((what, after)),
            Request::Stop => gathered.stop = true,
        }
        let full = gathered.inputs.len() >= INPUTS_PER_TURN_MAX
            || gathered.questions.len() >= QUESTIONS_PER_TURN_MAX
            || gathered.happenings.len() >= QUESTIONS_PER_TURN_MAX
            || gathered.stop;
        next = if full { None } else { waiting.try_recv().ok() };
    }
    Some(gathered)
}
