//! What a simulated job really does, read from the payload its submitter gave.

use serde::{Deserialize, Serialize};
use wharf_engine::model::exit::Exit;
use wharf_engine::model::job::Class;
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{Millis, Timestamp, Uid};

/// Points of a run that its mean is taken from: enough for a hundredth or two, and few enough that tens of thousands of
/// tasks take some milliseconds.
const MEAN_POINTS: u32 = 16;

/// What a job really does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behaviour {
    /// The work it has to do; without end where absent.
    pub duration_ms: Option<u64>,
    /// A task gives up after so long.
    pub fail_after_ms: Option<u64>,
    /// How busy it keeps a GPU, in thousandths of SM_ACTIVE.
    pub sm_active_milli: u32,
    /// How long saving its work takes when asked.
    pub checkpoint_ms: u64,
    /// Whether saving fails.
    pub checkpoint_fails: bool,
    /// How long it takes to end when it is stopped.
    #[serde(default)]
    pub stop_ms: u64,
    /// Whether what it saves when asked is the work as of the ask: writing it takes until the answer, and what is done
    /// meanwhile is lost.
    #[serde(default)]
    pub saves_as_of_ask: bool,
    /// How long it takes to get going again after it was stopped, before its work goes on.
    #[serde(default)]
    pub restart_ms: u64,
    /// The memory of each GPU that it uses, in MiB; a part of what it may where absent.
    #[serde(default)]
    pub memory_mib: Option<u32>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            duration_ms: None,
            fail_after_ms: None,
            sm_active_milli: 0,
            checkpoint_ms: 2_000,
            checkpoint_fails: false,
            stop_ms: 0,
            saves_as_of_ask: false,
            restart_ms: 0,
            memory_mib: None,
        }
    }
}

/// The payload as a submitter writes it.
#[derive(Debug, Default, Deserialize)]
struct Payload {
    duration_ms: Option<u64>,
    fail_after_ms: Option<u64>,
    sm_active_milli: Option<u32>,
    checkpoint_ms: Option<u64>,
    checkpoint: Option<String>,
    stop_ms: Option<u64>,
    #[serde(default)]
    saves_as_of_ask: bool,
    restart_ms: Option<u64>,
    memory_mib: Option<u32>,
}

impl Behaviour {
    /// What the payload says, and for the rest what is usual for the class, varied by the job's identity.
    ///
    /// A payload that is not ours to read (a command line, say) is no error: the world then makes it up.
    pub fn of(job: &Submission) -> Self {
        let said: Payload = serde_json::from_str(&job.spec.payload).unwrap_or_default();
        let minutes = |least: u64, most: u64| Some((least + mix(job.uid, 1) % (most - least)) * 60_000);
        let (duration, busy) = match job.spec.class {
            Class::Inference => (None, 250),
            Class::Interactive => (minutes(5, 30), 120),
            Class::Batch => (minutes(2, 45), 600),
        };
        Self {
            duration_ms: said.duration_ms.or(duration),
            fail_after_ms: said.fail_after_ms,
            sm_active_milli: said.sm_active_milli.unwrap_or(busy).min(1000),
            checkpoint_ms: said.checkpoint_ms.unwrap_or(2_000),
            checkpoint_fails: said.checkpoint.as_deref() == Some("fail"),
            stop_ms: said.stop_ms.unwrap_or(0),
            saves_as_of_ask: said.saves_as_of_ask,
            restart_ms: said.restart_ms.unwrap_or(0),
            memory_mib: said.memory_mib,
        }
    }

    /// When a task that starts with `saved_ms` of its work done ends by itself, and how.
    pub fn true_end(&self, since: Timestamp, saved_ms: u64) -> Option<(Timestamp, Exit)> {
        let done = self.duration_ms.map(|work| work.saturating_sub(saved_ms));
        match (self.fail_after_ms, done) {
            (Some(fail), done) if done.is_none_or(|done| fail < done) => {
                Some((since + Millis(fail), Exit::Failed))
            }
            (_, Some(done)) => Some((since + Millis(done), Exit::Succeeded)),
            (_, None) => None,
        }
    }

    /// SM_ACTIVE of one GPU now, in thousandths: the job's level with a slow wobble of a tenth either way.
    pub fn sm_active_now(&self, task: TaskRef, gpu: usize, now: Timestamp) -> u32 {
        let salt = (now.0 / 10_000) ^ u64::try_from(gpu).unwrap_or_default();
        let wobble = u32::try_from(mix(task.uid, salt) % 200).unwrap_or_default();
        (self.sm_active_milli * (900 + wobble) / 1000).min(1000)
    }

    /// The mean of that over a span of time, in thousandths, from points that are equally far apart; each is on the
    /// next of the GPUs, so that a long run on many costs no more than a short one.
    pub fn sm_active_mean(
        &self,
        task: TaskRef,
        gpus: &[usize],
        (since, until): (Timestamp, Timestamp),
    ) -> Option<u16> {
        let span = until.0.saturating_sub(since.0);
        let at = |point: u32| since + Millis(span / u64::from(MEAN_POINTS) * u64::from(point));
        let points = (0..MEAN_POINTS).zip(gpus.iter().cycle());
        let sum: u32 = points.map(|(point, &gpu)| self.sm_active_now(task, gpu, at(point))).sum();
        u16::try_from(sum / MEAN_POINTS).ok().filter(|_| !gpus.is_empty())
    }
}

impl Behaviour {
    /// The memory of each GPU that it wants, in MiB: what was said, or four to nine tenths of what it may.
    pub fn memory_wanted(&self, uid: Uid, limit_mib: Option<u32>) -> Option<u32> {
        let usual = |limit: u32| u64::from(limit) * (400 + mix(uid, 3) % 500) / 1000;
        self.memory_mib.or_else(|| u32::try_from(usual(limit_mib?)).ok())
    }

    /// How long after its start a task that wants more memory than it may is killed: a few seconds of loading.
    pub fn out_of_memory(&self, task: TaskRef, limit_mib: Option<u32>) -> Option<Millis> {
        let beyond = self.memory_mib? > limit_mib?;
        beyond.then(|| Millis(2_000 + mix(task.uid, u64::from(task.task) ^ 4) % 4_000))
    }
}

/// A number that looks random and depends on nothing but its arguments.
fn mix(uid: Uid, salt: u64) -> u64 {
    let folded = u64::try_from(uid.0 & u128::from(u64::MAX)).unwrap_or_default();
    let mut z = folded ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
