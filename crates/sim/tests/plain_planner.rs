//! The engine's planner against the plain one, decision by decision, on random small fleets at moments of a short
//! life. A failing seed is a bug report: the message has the shortest life that still shows it.

#[path = "plain_planner/generate.rs"]
mod generate;
#[path = "plain_planner/life.rs"]
mod life;

use std::panic::{AssertUnwindSafe, catch_unwind};

use life::{Life, Tally};

/// Lives of about a dozen plans each: a few seconds. `WHARF_SEEDS` multiplies.
const LIVES: u64 = 600;
/// Trees whose shares are compared.
const TREES: u64 = 4_000;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// So many seeds, from `WHARF_FROM` on, so that one can be run alone.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let from = number("WHARF_FROM", 0);
    from..from + count * number("WHARF_SEEDS", 1)
}

/// Plays a life; a panic is a difference too.
fn play(life: &Life) -> Result<Tally, String> {
    catch_unwind(AssertUnwindSafe(|| life.play())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// What a difference is about, without the numbers.
fn heading(difference: &str) -> String {
    let line = difference.lines().next().unwrap_or_default();
    let what = line.split_once("): ").map_or(line, |(_, what)| what);
    what.split('{').next().unwrap_or_default().to_owned()
}

/// The life with everything left out that is not needed to show a difference.
fn shortest(mut life: Life, heading: &str) -> Life {
    loop {
        let size = life.steps.len() + life.policy.tenants.len() + life.nodes.len();
        drop_one_by_one(&mut life, heading, |life| &mut life.steps);
        drop_one_by_one(&mut life, heading, |life| &mut life.policy.tenants);
        drop_one_by_one(&mut life, heading, |life| &mut life.nodes);
        if life.steps.len() + life.policy.tenants.len() + life.nodes.len() == size {
            return life;
        }
    }
}

fn drop_one_by_one<T>(life: &mut Life, known: &str, part: impl Fn(&mut Life) -> &mut Vec<T>) {
    for at in (0..part(life).len()).rev() {
        let mut without = life.clone();
        part(&mut without).remove(at);
        if play(&without).is_err_and(|difference| heading(&difference) == known) {
            *life = without;
        }
    }
}

#[test]
fn the_planner_decides_as_the_plain_one() {
    let mut tally = Tally::default();
    for seed in seeds(LIVES) {
        let life = generate::life(seed);
        match play(&life) {
            Ok(of_life) => tally.add(of_life),
            Err(first) => {
                let shortest = shortest(life, &heading(&first));
                let difference = play(&shortest).err().unwrap_or(first);
                panic!("seed {seed}: {difference}\n\n{shortest}");
            }
        }
    }
    println!("{tally:?}");
    let all = [
        tally.starts,
        tally.priced,
        tally.grown,
        tally.earmarks,
        tally.evictions,
        tally.moves,
        tally.straddles,
    ];
    assert!(tally.states >= 3_000, "{tally:?}: too few states to say much");
    assert!(all.iter().all(|&count| count > 0), "{tally:?}: something is never compared");
}

#[test]
fn fair_shares_are_those_of_the_water_level() {
    for seed in seeds(TREES) {
        let crowd = generate::crowd(seed);
        if let Err(difference) = crowd.compare_shares(&[]) {
            panic!("seed {seed}: {difference}\n\n{crowd}");
        }
    }
}

#[test]
fn fair_shares_with_a_past_are_those_of_the_water_level_and_add_up() {
    let mut lowered = 0;
    for seed in seeds(TREES) {
        let crowd = generate::crowd_with_a_past(seed);
        let past = generate::past(seed);
        match crowd.compare_shares(&past) {
            Ok(differs) => lowered += u64::from(differs),
            Err(difference) => panic!("seed {seed}: {difference}\n\n{crowd}\npast {past:?}"),
        }
    }
    println!("{lowered} trees in which the past makes a difference");
    assert!(lowered > TREES / 8, "the past makes a difference in {lowered} trees only");
}
