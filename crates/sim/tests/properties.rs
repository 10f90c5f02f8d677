//! Properties of the rules over random lives of small fleets: what no sequence of submissions, ends and plans may
//! break. Every turn is checked from its journal, with first facts only. `WHARF_SEEDS` asks for more lives.
//!
//! A life has no faults beside calls to the world that are lost where a test says so; lives with other faults are in
//! `random.rs`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "properties/generate.rs"]
mod generate;
#[path = "properties/life.rs"]
mod life;

use std::collections::BTreeMap;

use life::Life;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_engine::decide::input::Input;
use wharf_engine::units::{Millis, Timestamp};

/// Lives in the normal run; each is some forty turns.
const LIVES: u64 = 320;
/// What the normal run looks at, at least.
const TURNS_MIN: u64 = 10_000;

fn lives() -> u64 {
    std::env::var("WHARF_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(LIVES)
}

#[test]
fn the_rules_hold_in_every_turn_of_random_lives() {
    let (mut turns, mut lost) = (0, 0);
    for seed in 0..lives() {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut life = Life::new(seed, generate::nodes(&mut rng), generate::policy(&mut rng));
        // In every other life the world does not always answer.
        if seed % 2 == 1 {
            life.lose_calls();
        }
        for number in 0..rng.random_range(6..16) {
            life.give(&[generate::job(&mut rng, number)]);
            life.pass(rng.random_range(0..400_000));
        }
        life.pass(2 * 3_600_000);
        lost += life.repair();
        life.pass(2 * 3_600_000);
        life.expect_rest();
        turns += life.turns;
    }
    println!("{turns} turns, {lost} calls lost");
    assert!(lost > 0, "calls are lost in every other life");
    assert!(lives() < LIVES || turns >= TURNS_MIN, "only {turns} turns were looked at");
}

/// A guest has booked a part of its own guarantee, and perhaps uses it: the owner has its own back as soon as without that.
#[test]
fn a_guarantee_is_back_within_its_bound_beside_a_booked_window() {
    let mut windows = 0;
    for seed in 0..lives() / 2 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let nodes = generate::nodes(&mut rng);
        let gpus = u64::try_from(nodes.iter().map(|node| node.node.gpus.len()).sum::<usize>()).unwrap();
        let owed = rng.random_range(0..gpus);
        let mut policy = generate::owner_and_borrowers(owed, gpus - owed);
        policy.windows.lead = Millis::from_secs(600);
        let bound = policy.recovery_bound();
        let mut life = Life::new(seed, nodes, policy);
        for number in 0..10 {
            life.give(&[generate::borrower(&mut rng, number)]);
        }
        let tasks = u32::try_from(rng.random_range(1..=gpus - owed)).unwrap();
        life.give(&[generate::guests_window(200, tasks, life.now() + Millis::from_secs(1200))]);
        for number in 10..20 {
            life.give(&[generate::borrower(&mut rng, number)]);
        }
        for number in 0..u64::from(rng.random_range(0..=tasks)) {
            life.give(&[generate::of_the_window(300 + number)]);
        }
        life.pass(1_200_000 + rng.random_range(0..800_000));
        windows += life.windows();
        let jobs: Vec<Input> = (0..owed).map(|number| generate::owners_job(100 + number)).collect();
        life.give(&jobs);
        let asked_at = life.now();
        life.pass(bound.0);
        let waits = |job: &wharf_engine::state::jobs::Job| {
            job.spec.name.starts_with("owner") && job.past.first_start.is_none_or(|at| at > asked_at + bound)
        };
        let late: Vec<String> =
            life.live_jobs().filter(|(_, job)| waits(job)).map(|(_, job)| job.spec.name.clone()).collect();
        assert!(late.is_empty(), "seed {seed}: {owed} of {gpus} are owed; late: {late:?}\n{}", life.told());
    }
    println!("{windows} windows had begun");
    assert!(lives() < LIVES || windows > LIVES / 16, "only {windows} windows had begun");
}

/// Borrowers fill the fleet; then the owner asks for what it was promised, one GPU a job, which fits any shape of hole.
/// Everything starts within the bound that lint prints.
#[test]
fn a_guarantee_is_back_within_its_printed_bound() {
    for seed in 0..lives() / 2 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let nodes = generate::nodes(&mut rng);
        let gpus = u64::try_from(nodes.iter().map(|node| node.node.gpus.len()).sum::<usize>()).unwrap();
        let owed = rng.random_range(1..=gpus);
        let policy = generate::owner_and_borrowers(owed, gpus - owed);
        let bound = policy.recovery_bound();
        let mut life = Life::new(seed, nodes, policy);
        for number in 0..20 {
            life.give(&[generate::borrower(&mut rng, number)]);
        }
        life.pass(rng.random_range(0..900_000));
        let jobs: Vec<Input> = (0..owed).map(|number| generate::owners_job(100 + number)).collect();
        life.give(&jobs);
        let asked_at = life.now();
        life.pass(bound.0);
        let late: BTreeMap<String, Option<Timestamp>> = life
            .live_jobs()
            .filter(|(_, job)| job.spec.name.starts_with("owner"))
            .map(|(_, job)| (job.spec.name.clone(), job.past.first_start))
            .filter(|(_, start)| start.is_none_or(|start| start > asked_at + bound))
            .collect();
        assert!(late.is_empty(), "seed {seed}: {owed} of {gpus} are owed; late: {late:?}\n{}", life.told());
    }
}
