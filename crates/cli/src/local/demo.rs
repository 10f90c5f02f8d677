//! A synthetic stream of jobs, so that there is something to watch.
//!
//! Jobs of all classes come from the policy's tenants whenever the fleet is asked for less than a little more than
//! it has: some wait, most run, and what is handed out is visibly more than what is used. A job that has waited
//! long no longer counts as asked for, so that one large gang does not end the stream.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_controller::selectors::NodeSelector;
use wharf_engine::decide::input::{Input, Request};
use wharf_engine::model::actor::Actor;
use wharf_engine::model::job::{Checkpoint, Class, GpuAsk, Least, Shape, Spec};
use wharf_engine::model::submission::Submission;
use wharf_engine::state::State;
use wharf_engine::state::jobs::{Job, Phase};
use wharf_engine::units::{GpuUnits, Millis, Resources, Timestamp, Uid};
use wharf_server::desk::Desk;

/// How often the stream looks whether more is wanted, by the wall.
const BEAT: Duration = Duration::from_millis(200);
/// The most jobs in one beat, so that people's own requests are not held up.
const PER_BEAT_MAX: u32 = 100;
/// What is asked for relative to what there is, in percent.
const LOAD_PERCENT: u64 = 108;
/// After so long a waiting job is no longer counted.
const PATIENCE: Millis = Millis::from_secs(15 * 60);
/// The most jobs that the stream leaves waiting, for a small fleet.
const WAITING_MIN: usize = 40;

/// Starts the stream; it ends with the desk.
pub(crate) fn start(desk: Desk, seed: u64) {
    let stream = move || {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        while !desk.has_stopped() {
            std::thread::sleep(BEAT);
            let mut load = {
                let replica = desk.latest();
                Load::of(&replica.state, replica.now())
            };
            for _ in 0..PER_BEAT_MAX {
                if load.tenants.is_empty() || load.wanted_parts >= load.target_parts {
                    break;
                }
                let job = job(&mut rng, &load.tenants);
                load.wanted_parts += job.spec.units_wanted().parts();
                let request = Request { actor: Actor::embedded(), input: Input::Submit(Box::new(job)) };
                if desk.post(request, |_| {}).is_err() {
                    break;
                }
            }
        }
    };
    std::thread::Builder::new().name("demo".to_owned()).spawn(stream).expect("a thread can be started");
}

/// How much is asked for, and of how much.
struct Load {
    tenants: Vec<String>,
    wanted_parts: u64,
    target_parts: u64,
}

impl Load {
    fn of(state: &State, now: Timestamp) -> Self {
        let policy = state.tenants.policy();
        let leaf = |path: &&str| state.tenants.children(path).is_empty();
        let tenants = policy.tenants.iter().map(|tenant| tenant.path.as_str()).filter(leaf);
        let gpus: usize = state.fleet.nodes().map(|(_, node)| node.facts.gpus.len()).sum();
        let capacity = u64::try_from(gpus).unwrap_or_default() * GpuUnits::WHOLE.parts();
        let counts = |job: &Job| job.phase != Phase::Waiting || now - job.submitted_at < PATIENCE;
        let wanted = state.jobs.iter().filter(|(_, job)| counts(job));
        let waiting = usize::try_from(state.jobs.waiting_len()).unwrap_or(usize::MAX);
        let enough_wait = waiting >= WAITING_MIN.max(gpus / 8);
        Self {
            tenants: tenants.map(str::to_owned).collect(),
            wanted_parts: wanted.map(|(_, job)| job.spec.units_wanted().parts()).sum(),
            target_parts: if enough_wait { 0 } else { capacity * LOAD_PERCENT / 100 },
        }
    }
}

/// A kind of work that teams really do.
struct Habit {
    word: &'static str,
    class: Class,
    tasks: &'static [u32],
    gpus: &'static [GpuAsk],
    minutes: std::ops::Range<u64>,
    sm_active_milli: std::ops::Range<u32>,
}

const fn slice(memory_gib: u32) -> GpuAsk {
    GpuAsk::AtLeast(Least { memory_mib: memory_gib * 1024, compute: 0, compute_of: 0 })
}

const HABITS: [Habit; 6] = [
    Habit {
        word: "serve",
        class: Class::Inference,
        tasks: &[1, 2, 2, 4],
        gpus: &[GpuAsk::Whole(1), GpuAsk::Whole(2), GpuAsk::Whole(4)],
        minutes: 60..600,
        sm_active_milli: 150..400,
    },
    Habit {
        word: "chat",
        class: Class::Inference,
        tasks: &[1, 1, 2],
        gpus: &[slice(9), slice(9), slice(18), slice(36)],
        minutes: 30..300,
        sm_active_milli: 200..600,
    },
    Habit {
        word: "notebook",
        class: Class::Interactive,
        tasks: &[1],
        gpus: &[
            GpuAsk::Whole(1),
            GpuAsk::Share(GpuUnits::from_parts(1500)),
            GpuAsk::Share(GpuUnits::from_parts(750)),
        ],
        minutes: 10..120,
        sm_active_milli: 20..150,
    },
    Habit {
        word: "eval",
        class: Class::Interactive,
        tasks: &[1, 1, 2],
        gpus: &[GpuAsk::Whole(1), GpuAsk::Whole(2)],
        minutes: 5..30,
        sm_active_milli: 300..600,
    },
    Habit {
        word: "tune",
        class: Class::Batch,
        tasks: &[1],
        gpus: &[GpuAsk::Whole(1), GpuAsk::Whole(2), GpuAsk::Whole(4), GpuAsk::Whole(8)],
        minutes: 10..180,
        sm_active_milli: 400..750,
    },
    Habit {
        word: "train",
        class: Class::Batch,
        tasks: &[1, 1, 2, 2, 4],
        gpus: &[GpuAsk::Whole(8)],
        minutes: 30..480,
        sm_active_milli: 500..850,
    },
];

fn one_of<'a, T>(rng: &mut ChaCha8Rng, all: &'a [T]) -> &'a T {
    &all[rng.random_range(0..all.len())]
}

fn job(rng: &mut ChaCha8Rng, tenants: &[String]) -> Submission {
    let habit = one_of(rng, &HABITS);
    let tenant = one_of(rng, tenants).clone();
    let uid = Uid(rng.random());
    let tasks = *one_of(rng, habit.tasks);
    let gpus = *one_of(rng, habit.gpus);
    let duration_ms = rng.random_range(habit.minutes.clone()) * 60_000;
    let sm_active_milli = rng.random_range(habit.sm_active_milli.clone());
    let cores = gpus.units().parts().div_ceil(GpuUnits::WHOLE.parts()) * 4;
    let resources =
        Resources { cpu_milli: cores * 1000, memory: (cores * 8) << 30, pods: 1, ..Resources::default() };
    let spec = Spec {
        class: habit.class,
        tasks,
        min: tasks,
        checkpoint: (habit.class == Class::Batch).then_some(Checkpoint {
            every: Millis::from_secs(1800),
            grace: Millis::from_secs(60),
            on_request: false,
        }),
        retries: 2,
        payload: format!(r#"{{"duration_ms":{duration_ms},"sm_active_milli":{sm_active_milli}}}"#),
        ..Spec::of(format!("{}-{:06x}", habit.word, uid.0 & 0xff_ffff), Shape::of(gpus, resources))
    };
    Submission { nodes: NodeSelector::default().source(), ..Submission::of(uid, tenant, spec) }
}
