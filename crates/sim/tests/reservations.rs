//! No starvation (rule 5): a gang of the whole fleet under an endless stream of small jobs starts within the bound that the
//! manual states, and does not without promised starts. 1,000 seeds in an optimised build, fewer otherwise; `WHARF_SEEDS`
//! asks for another number.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "reservations/lean.rs"]
mod lean;

use lean::{Lean, nodes, spec, submit};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_engine::decide::input::Input;
use wharf_engine::model::job::{Checkpoint, GpuAsk, Spec};
use wharf_engine::model::policy::{Amount, GpuQuota, Policy, Quota, Tenant};
use wharf_engine::units::{JobId, Millis, Timestamp, Uid};

/// The gang has all of them.
const NODES: u32 = 64;
/// L: no small job may run longer.
const LIMIT_MAX: Millis = Millis::from_secs(600);
/// How often somebody looks at the fleet when nothing is due.
const STEP: Millis = Millis::from_secs(20);
/// So many small jobs wait at any time.
const QUEUE: u32 = 12;
const GANG: u128 = 1_000_000;

fn policy(reservations_max: u32) -> Policy {
    let all = Amount::Of(u64::from(NODES) * 8 * 3000);
    let quota = Quota { guaranteed: all, limit: Amount::Unlimited };
    let tenants = vec![Tenant { gpus: GpuQuota::Any(quota), ..Tenant::without_lines("lab") }];
    Policy { digest: format!("k{reservations_max}"), tenants, reservations_max, ..Policy::default() }
}

/// A small job: all that run before the gang is promised its start say how long at most; some that come later do not, but
/// may be asked to leave.
fn small(random: &mut ChaCha8Rng, number: u128, all_limited: bool) -> Input {
    let limit = Millis::from_secs(60 * random.random_range(2..=LIMIT_MAX.0 / 60_000));
    let limited = all_limited || random.random_bool(0.7);
    let preemptible = !limited || random.random_bool(0.5);
    let checkpoint =
        Checkpoint { every: Millis::from_secs(300), grace: Millis::from_secs(60), on_request: false };
    let mut spec = Spec {
        time_limit: limited.then_some(limit),
        preemptible,
        checkpoint: preemptible.then_some(checkpoint),
        ..spec(number, Millis(random.random_range(60_000..=limit.0)))
    };
    spec.shape.gpus = GpuAsk::Whole([2, 4, 4, 8][random.random_range(0..4)]);
    submit(number, "lab", spec)
}

/// The stream: whatever waits less than it should is sent.
struct Stream {
    random: ChaCha8Rng,
    sent: u128,
}

impl Stream {
    fn next(&mut self, lean: &Lean, all_limited: bool) -> Vec<Input> {
        let missing = QUEUE.saturating_sub(lean.state.jobs.waiting_len());
        let one = |_| {
            self.sent += 1;
            small(&mut self.random, self.sent, all_limited)
        };
        (0..missing).map(one).collect()
    }
}

/// Plays a fleet full of small jobs, with more at every turn, until the gang starts or the time is over. Returns how long
/// it waited.
fn play(seed: u64, reservations_max: u32, patience: Millis) -> Option<Millis> {
    let mut lean = Lean::new(seed, nodes((0..NODES).map(|_| 8)));
    lean.turn(&[Input::ApplyPolicy(policy(reservations_max))]);
    let mut stream = Stream { random: ChaCha8Rng::seed_from_u64(seed), sent: 0 };
    // The fleet fills up, and its jobs come to be in the middle of their lives.
    for _ in 0..28 {
        let inputs = stream.next(&lean, true);
        lean.fleet.advance(lean.now() + STEP);
        lean.turn(&inputs);
    }
    // What was started last runs when the gang comes.
    while !lean.state.ledger.bound().is_empty() {
        lean.fleet.advance(lean.next_wake().unwrap());
        lean.turn(&[]);
    }
    let mut gang = spec(GANG, Millis::from_secs(60));
    (gang.tasks, gang.min, gang.shape.gpus) = (NODES, NODES, GpuAsk::Whole(8));
    lean.turn(&[submit(GANG, "lab", gang)]);
    let (gang, asked_at) = (lean.state.jobs.with_uid(Uid(GANG)).unwrap(), lean.now());
    wait_for(&mut lean, &mut stream, gang, asked_at + patience).map(|start| start - asked_at)
}

fn wait_for(lean: &mut Lean, stream: &mut Stream, gang: JobId, until: Timestamp) -> Option<Timestamp> {
    let mut promised: Option<Timestamp> = None;
    loop {
        let now = lean.now();
        if lean.state.ledger.holding(gang).is_some() {
            assert!(promised.is_none_or(|start| now <= start), "it started later than was promised");
            return Some(now);
        }
        if now >= until {
            println!("{promised:?}, given up: {:?}", lean.state.reservations.missed(gang));
            return None;
        }
        let step = (now + STEP).min(until);
        let due = lean.state.next_deadline(now).map_or(step, |due| due.min(step));
        lean.fleet.advance(due);
        let inputs = stream.next(lean, promised.is_none());
        lean.turn(&inputs);
        assert!(lean.state.jobs.waiting_len() > 0, "the stream is too thin to show anything");
        if let Some(of) = lean.state.reservations.of(gang) {
            assert!(promised.is_none_or(|before| of.start <= before), "a promised start moved later");
            promised = Some(of.start);
        }
    }
}

fn seeds() -> u64 {
    let asked = std::env::var("WHARF_SEEDS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(if cfg!(debug_assertions) { 24 } else { 1000 })
}

/// Each seed once, on two threads.
fn for_each_seed(look: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for first in 0..2 {
            let look = &look;
            scope.spawn(move || (first..seeds()).step_by(2).for_each(look));
        }
    });
}

/// Twice L and the time to stop, as in docs/rules.md: those who are promised a start before the gang, then the gang itself.
/// A promise is not made earlier by less than a minute; and tasks begin to run within seconds.
fn bound() -> Millis {
    Millis(2 * (LIMIT_MAX.0 + policy(0).stop_grace.0 + 60_000) + 10_000)
}

#[test]
fn a_gang_of_the_whole_fleet_starts_within_the_bound() {
    for_each_seed(|seed| {
        let waited = play(seed, 4, Millis(2 * bound().0));
        assert!(waited.is_some_and(|waited| waited <= bound()), "seed {seed}: {waited:?} of {:?}", bound());
    });
}

#[test]
fn without_promised_starts_it_does_not() {
    for_each_seed(|seed| assert_eq!(play(seed, 0, bound()), None, "seed {seed}"));
}
