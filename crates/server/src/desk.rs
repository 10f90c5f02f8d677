//! The desk: one thread that owns the controller and decides.
//!
//! Requests that are waiting when a turn begins share it, and its one commit. What was committed goes to the
//! [`follower`](crate::follower), which keeps the state that is read from and answers the callers; the desk itself
//! answers no caller, and waits for the follower only when that is far behind. Inputs wait in bounded numbers, readers are let in a few at a time, and a caller is
//! told when there are too many. What nobody waits for any more is dropped: a question is not computed, and an input
//! does not take effect ([`claim`]).

mod claim;
#[cfg(test)]
mod tests;

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
use wharf_controller::turn::{Controller, Fault, Reply, SnapshotFault};
use wharf_controller::world::{ClockSteps, Happened, Happening, Impossible, World};
use wharf_engine::decide::input::{self, Input};
use wharf_engine::model::actor::{Actor, Source};
use wharf_engine::units::{JobId, Timestamp};

use self::claim::Claim;
use crate::feed::Feed;
use crate::follower::{self, CommittedTurn, Delivery, FollowerHandle, Latest};
use crate::pricing::Prices;
use crate::replica::{Replica, Vitals};
use crate::text;

/// The most requests that wait for the desk. At a millisecond a turn and many to a turn this is well under a
/// second of work; more would only hide an overload.
const QUEUE_MAX: usize = 4096;
/// The most questions that are answered at a time, each on a thread of its own. Others wait for their place in line, each
/// for a bounded time: more at a time would take the processor from the desk and would be answered no sooner.
const READERS_MAX: usize = 4;
/// The same for questions that go before the line.
const URGENT_MAX: usize = 2;
/// The most happenings of a simulated world in one turn, so that a flood of them does not hold up requests.
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

/// Where a reply goes once its turn is published. It hands over and computes nothing.
type ReplyTo<T> = Box<dyn FnOnce(T) + Send>;

/// What the desk is called for.
enum Call {
    Input(Box<PendingInput>),
    Happening {
        what: Happening,
        reply_to: ReplyTo<Result<Happened, Impossible>>,
    },
    /// Somebody wants to know whether the desk turns and is followed.
    Ping(oneshot::Sender<Arc<Replica>>),
    Stop,
}

/// An input that waits for its turn.
struct PendingInput {
    request: input::Request,
    since: Instant,
    claim: Claim,
    reply_to: ReplyTo<Decided>,
}

/// How long callers wait.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a place among the readers.
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

/// What a turn made of an input.
pub struct Decided {
    /// The job it is about, or why not.
    pub reply: Reply,
    /// What was committed by then: the end of its turn.
    pub replica: Arc<Replica>,
    /// Jobs from this id on are new.
    pub next_job_before: JobId,
}

/// Times of decisions, from the request's arrival at the desk to its commit, in microseconds.
pub type Decisions = Arc<Mutex<Histogram<u64>>>;

/// A handle to the desk.
#[derive(Clone)]
pub struct Desk {
    calls: SyncSender<Call>,
    latest: Latest,
    feed: Feed,
    readers: Arc<Semaphore>,
    /// Places of those who do not wait behind readers.
    urgent: Arc<Semaphore>,
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
        let (calls, waiting) = sync_channel(QUEUE_MAX);
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
            let prices = Prices::default();
            let (followed, latest, feed) = follower::start(Replica::of(&controller), prices.clone());
            let _ = opened.send(Ok((latest, feed)));
            // However the desk ends, by a panic too, it is known to have ended.
            let _gone = Gone(gone);
            Worker { controller, followed, prices, decisions: times }.run(&waiting)
        });
        let running = Running(spawned.expect("a thread can be started"));
        let (latest, feed) = open.recv().map_err(|_| Fault::Panicked)??;
        let [readers, urgent] = [READERS_MAX, URGENT_MAX].map(|places| Arc::new(Semaphore::new(places)));
        Ok((Self { calls, latest, feed, readers, urgent, patience, decisions, failed }, running))
    }

    /// Gives an input to the next turn (`Worker::turn`) and waits until that is committed and can be read.
    ///
    /// An input whose caller goes away, or has waited for too long, before a turn takes it does not take effect.
    pub async fn decide(&self, request: input::Request) -> Result<Decided, Closed> {
        let (answer, mut answered) = oneshot::channel();
        let reply_to: ReplyTo<Decided> = Box::new(move |decided| {
            let _ = answer.send(decided);
        });
        let (caller, claim) = claim::open();
        self.send(Call::Input(Box::new(PendingInput { request, since: Instant::now(), claim, reply_to })))?;
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

    /// What is committed, as far as it can be read. For what takes no time; anything else is [read](Self::read).
    pub fn latest(&self) -> Arc<Replica> {
        self.latest.get()
    }

    /// What changed, for whoever watches.
    pub(crate) fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// Reads the committed state, on a thread of its own, a few readers at a time.
    pub async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        self.read_among(&self.readers, question).await
    }

    /// Reads before the line: something to be done depends on it, or somebody monitors us.
    pub async fn read_first<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        self.read_among(&self.urgent, question).await
    }

    async fn read_among<T: Send + 'static>(
        &self,
        places: &Arc<Semaphore>,
        question: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let place = timeout(self.patience.line, Arc::clone(places).acquire_owned()).await;
        let place = place.map_err(|_| Closed::Busy)?.map_err(|_| Closed::Stopped)?;
        // The place is given back when the question is answered, whatever becomes of its caller.
        let (latest, answer) = (self.latest.clone(), self.patience.answer);
        let answering = tokio::task::spawn_blocking(move || {
            let answer = question(&latest.get());
            drop(place);
            answer
        });
        match timeout(answer, answering).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(failed)) => match failed.try_into_panic() {
                // It is a bug of ours, and is told as one.
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Closed::Stopped),
            },
            Err(_) => Err(Closed::Slow),
        }
    }

    /// Waits until the desk has taken another turn and that can be read.
    pub async fn ping(&self) -> Result<Arc<Replica>, Closed> {
        let (answer, answered) = oneshot::channel();
        self.send(Call::Ping(answer))?;
        answered.await.map_err(|_| Closed::Stopped)
    }

    /// Lets something happen to a simulated world; what came of it is told once it can be read.
    pub async fn happen(&self, what: Happening) -> Result<Result<Happened, Impossible>, Closed> {
        let (answer, answered) = oneshot::channel();
        self.let_happen(what, move |happened| {
            let _ = answer.send(happened);
        })?;
        // The world has changed before the turn that follows from it is committed, and that may fail.
        answered.await.map_err(|_| Closed::Unknown)
    }

    /// The same without waiting. `after` computes nothing: others wait behind it.
    pub fn let_happen(
        &self,
        what: Happening,
        after: impl FnOnce(Result<Happened, Impossible>) + Send + 'static,
    ) -> Result<(), Closed> {
        self.send(Call::Happening { what, reply_to: Box::new(after) })
    }

    /// Gives an input and does not wait for what comes of it. `after` computes nothing: others wait behind it.
    pub fn post(
        &self,
        request: input::Request,
        after: impl FnOnce(Reply) + Send + 'static,
    ) -> Result<(), Closed> {
        let reply_to: ReplyTo<Decided> = Box::new(move |decided| after(decided.reply));
        let claim = Claim::unshared();
        self.send(Call::Input(Box::new(PendingInput { request, since: Instant::now(), claim, reply_to })))
    }

    /// Lets the desk finish what it has, take a snapshot and end.
    pub fn stop(&self) {
        let _ = self.calls.send(Call::Stop);
    }

    /// True when the desk has ended, whatever the reason.
    pub fn has_stopped(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Times of decisions so far.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    fn send(&self, call: Call) -> Result<(), Closed> {
        self.calls.try_send(call).map_err(|refused| match refused {
            TrySendError::Full(_) => Closed::Busy,
            TrySendError::Disconnected(_) => Closed::Stopped,
        })
    }
}

/// The desk's own side.
struct Worker<D, W> {
    controller: Controller<D, W>,
    followed: FollowerHandle,
    prices: Prices,
    decisions: Decisions,
}

impl<D: Disk, W: World> Worker<D, W> {
    fn run(mut self, waiting: &Receiver<Call>) -> Result<(), Fault> {
        let mut log = FaultLog::default();
        log.look(&self.controller);
        while let Some(batch) = gather(waiting, self.controller.sleep()) {
            let stop = batch.stop;
            self.turn(batch)?;
            log.look(&self.controller);
            if stop {
                break;
            }
        }
        self.controller.close()?;
        log.look(&self.controller);
        // Nobody is answered any more once the thread has ended.
        self.followed.finish();
        Ok(())
    }

    /// One turn of everything that waited: decided, planned and committed by
    /// [`commit_turn`](Controller::commit_turn), then handed over to the follower, which lets the replies go.
    fn turn(&mut self, batch: Batch) -> Result<(), Fault> {
        let Batch { mut inputs, callers, happenings, pings, stop: _ } = batch;
        let next_job_before = self.controller.state().jobs.next();
        inputs.extend(self.prices.ready(self.controller.state()).map(by_engine));
        let mut deliveries: Vec<Delivery> = Vec::new();
        for (what, reply_to) in happenings {
            let happened = self.controller.happen(&what);
            deliveries.push(Box::new(move |_| reply_to(happened)));
        }
        let replies = self.controller.commit_turn(&inputs)?;
        for ((since, reply_to), reply) in callers.into_iter().zip(replies) {
            let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.decisions.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(micros);
            deliveries.push(Box::new(move |replica| {
                reply_to(Decided { reply, replica: Arc::clone(replica), next_job_before });
            }));
        }
        for ping in pings {
            deliveries.push(Box::new(move |replica| {
                let _ = ping.send(Arc::clone(replica));
            }));
        }
        let vitals = self.hand_over(deliveries)?;
        // Callers have their answers while the world is told. What is found out meanwhile is published, too.
        self.controller.finish_turn()?;
        if Vitals::of(&self.controller) != vitals {
            self.hand_over(Vec::new())?;
        }
        Ok(())
    }

    /// Lets the follower publish what is committed, and then make these deliveries (`Follower::publish`).
    fn hand_over(&mut self, deliveries: Vec<Delivery>) -> Result<Vitals, Fault> {
        let (events, strings) = self.controller.take_committed();
        let vitals = Vitals::of(&self.controller);
        let turn = CommittedTurn::new(events, strings, vitals.clone(), deliveries);
        // Without a follower nobody could see what is decided: as with any bug, a fresh start is better.
        self.followed.hand_over(turn).map_err(|_| Fault::Panicked)?;
        Ok(vitals)
    }
}

fn by_engine(input: Input) -> input::Request {
    input::Request { actor: Actor::of(Source::Engine), input }
}

/// What the log tells: the beginning and the end of an outage, not every try; a clock that was set; a snapshot that could
/// not be written, once for each try.
#[derive(Default)]
struct FaultLog {
    since: Option<Timestamp>,
    clock_steps: u64,
    snapshot_faults: u64,
}

impl FaultLog {
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
        let faults = controller.figures().snapshot_faults;
        if let Some(fault) = controller.snapshot_fault().filter(|_| faults > self.snapshot_faults) {
            let SnapshotFault { what, times, .. } = fault;
            warn!(
                "a snapshot could not be written ({times} in a row): {what}; the journal is whole and grows"
            );
        }
        self.snapshot_faults = faults;
    }
}

struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[derive(Default)]
struct Batch {
    inputs: Vec<input::Request>,
    /// Of the inputs, in their order.
    callers: Vec<(Instant, ReplyTo<Decided>)>,
    happenings: Vec<(Happening, ReplyTo<Result<Happened, Impossible>>)>,
    pings: Vec<oneshot::Sender<Arc<Replica>>>,
    stop: bool,
}

/// What waits now, or after a sleep; `None` when nobody can ask any more.
fn gather(waiting: &Receiver<Call>, sleep: Option<Duration>) -> Option<Batch> {
    let mut batch = Batch::default();
    let mut next = match waiting.recv_timeout(sleep.unwrap_or(SLEEP_MAX).clamp(SLEEP_MIN, SLEEP_MAX)) {
        Ok(request) => Some(request),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => return None,
    };
    while let Some(request) = next {
        match request {
            // Whoever gave it may have gone, or been told that it does not take effect.
            Call::Input(pending) if pending.claim.take() => {
                let PendingInput { request, since, claim: _, reply_to } = *pending;
                batch.inputs.push(request);
                batch.callers.push((since, reply_to));
            }
            Call::Input(_) => {}
            Call::Happening { what, reply_to } => batch.happenings.push((what, reply_to)),
            Call::Ping(ping) => batch.pings.push(ping),
            Call::Stop => batch.stop = true,
        }
        let full = batch.inputs.len() >= INPUTS_PER_TURN_MAX
            || batch.happenings.len() >= HAPPENINGS_PER_TURN_MAX
            || batch.stop;
        next = if full { None } else { waiting.try_recv().ok() };
    }
    Some(batch)
}
