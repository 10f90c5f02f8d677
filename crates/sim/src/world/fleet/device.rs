//! How one simulated GPU is divided, and what it takes to divide it otherwise.
//!
//! A GPU is in one mode, has slices cut out of it, and undergoes at most one change at a time: what comes meanwhile
//! waits in a queue. A change takes its time and fails now and then; both depend on nothing but the fleet's seed, the
//! device and the number of the operation, so that a run can be repeated. A mode is left only when work comes that
//! needs another one: whoever comes and goes under MPS finds the daemon running.
//!
//! Nobody has published how long these operations take: the figures are assumptions of ours, in the order of what
//! operators tell. Carving up a GPU that is in use is not part of this.

use serde::{Deserialize, Serialize};
use wharf_engine::device::catalogue::Mig;
use wharf_engine::device::catalogue::mig::AXIS_MAX;
use wharf_engine::device::geometry::{Layout, Slice};
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::policy::Mode;
use wharf_engine::units::{Millis, Timestamp};

/// One operation in so many fails.
const FAILS_ONE_IN: u64 = 500;
/// The last part of an operation, in which its result is read back, is one in so many of it.
const VERIFYING_ONE_IN: u64 = 5;

/// How a GPU is divided, and what is being done to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    slices: Vec<Slice>,
    /// The last change, over or not.
    #[serde(default)]
    change: Option<Change>,
    /// Operations begun so far.
    #[serde(default)]
    operations: u64,
    /// Tasks that wait until it is as they need it, in order of arrival.
    #[serde(default)]
    queue: Vec<TaskRef>,
}

/// One operation on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its number on this device.
    pub number: u64,
    /// What is done.
    pub operation: Operation,
    /// For whom; `None` when a slice is cleared away that nobody has any more.
    pub task: Option<TaskRef>,
    /// How far it is.
    pub step: Step,
}

/// What can be done to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Cut a slice out of it.
    Create(Slice),
    /// Merge a slice with the rest again.
    Destroy(Slice),
    /// Put it into a mode, from or to an undivided one.
    Enter(Mode),
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The GPU has to be empty first.
    Waiting,
    /// The driver is at it.
    Changing {
        /// Until then.
        until: Timestamp,
    },
    /// The result is read back.
    Verifying {
        /// Until then.
        until: Timestamp,
    },
    /// The device is as it was before.
    Failed {
        /// When.
        at: Timestamp,
    },
    /// The device is as wanted.
    Done {
        /// When.
        at: Timestamp,
    },
}

/// What a task needs of a device before it can run there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// The mode.
    pub mode: Mode,
    /// The slice, where it is given one.
    pub slice: Option<Slice>,
}

/// Which device, for figures that look random and can be repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub(super) seed: u64,
    pub(super) node: &'a str,
    pub(super) gpu: usize,
    pub(super) mig: Option<&'static Mig>,
}

/// What is new when an operation went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progressed {
    /// It is verified until then.
    Verifies(Timestamp),
    /// The device is as wanted.
    Done(Operation),
    /// The device is as it was, and the task it was for cannot run.
    Failed(Option<TaskRef>),
}

impl Device {
    /// How it is divided.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The slices that exist.
    pub fn layout(&self) -> Layout {
        self.slices.iter().fold(Layout::default(), |layout, &slice| layout.with(slice))
    }

    /// The last change, over or not.
    pub fn change(&self) -> Option<Change> {
        self.change
    }

    /// Tasks that wait for it, in order.
    pub fn queue(&self) -> &[TaskRef] {
        &self.queue
    }

    /// As it must be for what runs on it, in a file that does not tell.
    pub(super) fn used_as(&mut self, want: Want) {
        self.mode = want.mode;
        self.slices.extend(want.slice.filter(|slice| usize::from(slice.start) < AXIS_MAX));
    }

    /// After the machine was off: slices and daemons are gone; the mode that needs a reset to change stays.
    pub(super) fn restart(&mut self, mig: Option<&Mig>) {
        let stays = self.mode == Mode::Mig && mig.is_some_and(|mig| mig.mode_resets);
        self.mode = if stays { Mode::Mig } else { Mode::Whole };
        (self.change, self.queue, self.slices) = (None, Vec::new(), Vec::new());
    }

    pub(super) fn is_changing(&self) -> bool {
        let over = |change: &Change| matches!(change.step, Step::Failed { .. } | Step::Done { .. });
        self.change.as_ref().is_some_and(|change| !over(change))
    }

    /// When the change that is under way next goes on by itself.
    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        match self.change?.step {
            Step::Changing { until } | Step::Verifying { until } => Some(until),
            Step::Waiting | Step::Failed { .. } | Step::Done { .. } => None,
        }
    }

    /// True when a task could run on it now.
    pub(super) fn is_ready_for(&self, want: Want) -> bool {
        !self.is_changing() && self.queue.is_empty() && self.next_operation(want).is_none()
    }

    pub(super) fn enqueue(&mut self, task: TaskRef) {
        self.queue.push(task);
    }

    pub(super) fn dequeue(&mut self, task: TaskRef) -> bool {
        let before = self.queue.len();
        self.queue.retain(|waiting| *waiting != task);
        self.queue.len() < before
    }

    /// What has to be done next before that can run; modes are reached by way of the undivided GPU.
    pub(super) fn next_operation(&self, want: Want) -> Option<Operation> {
        if self.mode != want.mode {
            let to = if self.mode == Mode::Whole { want.mode } else { Mode::Whole };
            return Some(Operation::Enter(to));
        }
        want.slice.filter(|slice| !self.slices.contains(slice)).map(Operation::Create)
    }

    /// A slice that exists and that nobody has.
    pub(super) fn left_over(&self, owned: Layout) -> Option<Slice> {
        self.slices.iter().copied().find(|&slice| !owned.slices().any(|known| known == slice))
    }

    /// Begins an operation, or waits with it until the GPU is empty.
    pub(super) fn begin(&mut self, operation: Operation, task: Option<TaskRef>) {
        assert!(!self.is_changing(), "one change at a time");
        self.change = Some(Change { number: self.operations, operation, task, step: Step::Waiting });
        self.operations += 1;
    }

    /// Lets an operation that waits go on, where nothing is in its way.
    pub(super) fn set_off(&mut self, key: Key<'_>, is_empty: bool, now: Timestamp) {
        let Some(change) = self.change.filter(|change| change.step == Step::Waiting) else { return };
        let needs_empty = matches!(change.operation, Operation::Enter(_));
        if needs_empty && !(is_empty && self.slices.is_empty()) {
            return;
        }
        let delay = self.delay(key, change);
        let until = now + Millis(delay - delay / VERIFYING_ONE_IN);
        self.change = Some(Change { step: Step::Changing { until }, ..change });
    }

    /// A moment of an operation has come.
    pub(super) fn go_on(&mut self, key: Key<'_>, at: Timestamp) -> Option<Progressed> {
        let change = self.change?;
        match change.step {
            Step::Changing { until } if until <= at => {
                let until = until + Millis(self.delay(key, change) / VERIFYING_ONE_IN);
                self.change = Some(Change { step: Step::Verifying { until }, ..change });
                Some(Progressed::Verifies(until))
            }
            Step::Verifying { until } if until <= at => {
                let failed = fails(key, change);
                let step = if failed { Step::Failed { at } } else { Step::Done { at } };
                self.change = Some(Change { step, ..change });
                if failed {
                    return Some(Progressed::Failed(change.task));
                }
                self.take_effect(change.operation);
                Some(Progressed::Done(change.operation))
            }
            Step::Waiting
            | Step::Changing { .. }
            | Step::Verifying { .. }
            | Step::Failed { .. }
            | Step::Done { .. } => None,
        }
    }

    fn take_effect(&mut self, operation: Operation) {
        match operation {
            Operation::Create(slice) => self.slices.push(slice),
            Operation::Destroy(slice) => self.slices.retain(|known| *known != slice),
            Operation::Enter(mode) => self.mode = mode,
        }
        self.slices.sort_by_key(|slice| slice.start);
    }

    /// How long an operation takes, in milliseconds.
    fn delay(&self, key: Key<'_>, change: Change) -> u64 {
        let (least, most) = span(change.operation, self.mode, key.mig);
        least + mixed(key, change.number, 1) % (most - least + 1)
    }
}

/// The shortest and the longest that an operation takes, in milliseconds: assumptions of ours.
fn span(operation: Operation, from: Mode, mig: Option<&Mig>) -> (u64, u64) {
    match operation {
        Operation::Create(_) => (400, 1_500),
        Operation::Destroy(_) => (200, 600),
        Operation::Enter(to) => match if to == Mode::Whole { from } else { to } {
            Mode::Mig if mig.is_some_and(|mig| mig.mode_resets) => (8_000, 25_000),
            Mode::Mig => (2_000, 6_000),
            Mode::Mps => (300, 1_000),
            Mode::Whole | Mode::TimeSlicing => (100, 300),
        },
    }
}

/// Giving a GPU back undivided never fails: whole GPUs are as dependable as without a model of devices.
fn fails(key: Key<'_>, change: Change) -> bool {
    change.operation != Operation::Enter(Mode::Whole)
        && mixed(key, change.number, 2).is_multiple_of(FAILS_ONE_IN)
}

/// A number that looks random and depends on nothing but its arguments.
fn mixed(key: Key<'_>, number: u64, salt: u64) -> u64 {
    let gpu = u64::try_from(key.gpu).unwrap_or_default();
    let name = key.node.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let salted = [name, gpu, number, salt];
    salted.into_iter().fold(key.seed, |mixed, part| {
        let mut z = (mixed ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
mod tests;
