//! Random runs over many seeds. A failing seed is a bug report: the message says how to run it alone.

use wharf_sim::testing::random::RandomRun;

/// Enough for every kind of fault to meet every kind of job, in a few seconds. `WHARF_SEEDS` asks for more.
const SEEDS: u64 = 200;

fn seeds() -> u64 {
    std::env::var("WHARF_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

fn run_all(faults: bool, from: u64) {
    let (mut crashes, mut windows, mut prices) = (0, 0, 0);
    for seed in from..from + seeds() {
        let report = RandomRun { seed, steps: 150, faults }.run();
        let flag = if faults { " --faults" } else { "" };
        assert!(
            report.findings.is_empty(),
            "{:#?}\nreproduce with: wharf sim --random {seed} --steps 150{flag}",
            report.findings
        );
        crashes += report.crashes;
        windows += report.windows;
        prices += report.prices;
    }
    println!("{windows} booked windows were used, prices changed {prices} times");
    assert!(prices > 0, "places have prices in random lives");
    assert!(windows > 0, "booked windows are used in random lives");
    assert_eq!(faults, crashes > 0, "crashes happen when they are asked for, and only then");
}

#[test]
fn nothing_breaks_when_nothing_goes_wrong() {
    run_all(false, 0);
}

#[test]
fn nothing_breaks_when_everything_goes_wrong() {
    run_all(true, 1_000_000);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = RandomRun { seed: 7, steps: 120, faults: true };
    let (one, two) = (run.run(), run.run());
    assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&two).unwrap());
    assert!(!one.state_hash.is_empty(), "the run reached its end");
}
