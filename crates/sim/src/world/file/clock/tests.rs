//! The clock against machines whose clocks are set, stopped and started by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::*;

const HOUR: u64 = 3_600_000;
const YEAR: u64 = 365 * 24 * HOUR;
const BEGIN: u64 = 50 * YEAR;

/// The clocks of a machine that are set and moved by hand.
#[derive(Clone, Default)]
struct Machine {
    wall: Arc<AtomicU64>,
    steady: Arc<AtomicU64>,
    boot: Arc<AtomicU64>,
}

impl Machine {
    fn new() -> Self {
        let machine = Self::default();
        machine.wall.store(BEGIN, SeqCst);
        machine
    }

    fn source(&self) -> Source {
        let Self { wall, steady, boot } = self.clone();
        Box::new(move || Reading {
            wall_ms: wall.load(SeqCst),
            steady_ms: steady.load(SeqCst),
            boot: Some(boot.load(SeqCst).into()),
        })
    }

    fn pass(&self, millis: u64) {
        self.wall.fetch_add(millis, SeqCst);
        self.steady.fetch_add(millis, SeqCst);
    }

    fn set_ahead(&self, millis: u64) {
        self.wall.fetch_add(millis, SeqCst);
    }

    fn set_back(&self, millis: u64) {
        self.wall.fetch_sub(millis, SeqCst);
    }

    fn reboot(&self) {
        self.steady.store(0, SeqCst);
        self.boot.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_wall_clock_that_is_set_back_does_not_stop_the_fleets() {
    let machine = Machine::new();
    let mut clock = Clock::begin(machine.source(), 2);
    machine.pass(1000);
    machine.set_back(HOUR);
    machine.pass(1000);
    assert_eq!(clock.now(), Timestamp(BEGIN + 4000));
    assert_eq!(clock.look(), Some(Step::Back(Millis(HOUR))));
    assert_eq!(clock.look(), None, "a step is told once");
    machine.pass(10);
    assert_eq!(clock.now(), Timestamp(BEGIN + 4020));
}

#[test]
fn a_wall_clock_ten_years_ahead_that_is_corrected_changes_nothing() {
    let machine = Machine::new();
    let mut clock = Clock::begin(machine.source(), 1);
    machine.set_ahead(10 * YEAR);
    machine.pass(5000);
    assert_eq!(clock.look(), Some(Step::Ahead(Millis(10 * YEAR))));
    assert_eq!(clock.now(), Timestamp(BEGIN + 5000));
    machine.set_back(10 * YEAR);
    machine.pass(5000);
    assert_eq!(clock.look(), Some(Step::Back(Millis(10 * YEAR))));
    assert_eq!(clock.now(), Timestamp(BEGIN + 10_000));
}

#[test]
fn small_corrections_are_no_steps() {
    let machine = Machine::new();
    let mut clock = Clock::begin(machine.source(), 1);
    for _ in 0..100 {
        machine.pass(1000);
        machine.set_ahead(100);
        assert_eq!(clock.look(), None);
    }
}

#[test]
fn a_restart_of_the_process_does_not_ask_the_wall() {
    for set in [Machine::set_back, Machine::set_ahead] {
        let machine = Machine::new();
        let mut clock = Clock::begin(machine.source(), 60);
        machine.pass(1000);
        clock.look();
        set(&machine, 10 * YEAR);
        machine.pass(2000);
        let (resumed, step) = Clock::resume(machine.source(), 1, clock.remembered());
        assert_eq!((resumed.now(), step), (Timestamp(BEGIN + 180_000), None), "at the speed it had then");
        machine.pass(1000);
        assert_eq!(resumed.now(), Timestamp(BEGIN + 181_000), "and at its own from now on");
    }
}

#[test]
fn after_a_restart_of_the_machine_the_wall_is_believed_within_bounds() {
    let machine = Machine::new();
    let clock = Clock::begin(machine.source(), 1);
    machine.pass(1000);
    machine.reboot();
    let restart = || Clock::resume(machine.source(), 1, clock.remembered());
    let (resumed, step) = restart();
    assert_eq!((resumed.now(), step), (Timestamp(BEGIN + 1000), None));

    machine.set_back(HOUR);
    let (resumed, step) = restart();
    assert_eq!(step, Some(Step::RestartedBehind(Millis(HOUR - 1000))));
    assert_eq!(resumed.now(), Timestamp(BEGIN), "from where it stood");
    machine.pass(10);
    assert_eq!(resumed.now(), Timestamp(BEGIN + 10), "and it does not stand still");

    machine.set_ahead(10 * YEAR);
    let (resumed, step) = restart();
    assert!(matches!(step, Some(Step::RestartedAhead(_))), "{step:?}");
    assert_eq!(resumed.now(), Timestamp(BEGIN) + AWAY_MAX);
}

#[test]
fn steps_are_told_in_words() {
    let told = Step::Back(Millis(HOUR)).to_string();
    assert_eq!(told, "the wall clock was set back by 1 h 0 min; the fleet's clock goes on as before");
    let told = Step::RestartedAhead(Millis(10 * YEAR)).to_string();
    assert!(told.contains("3650 days 0 h have passed") && told.contains("30 days"), "{told}");
}
