//! `preemption.yaml` and `gangs.yaml`: who has to leave for whom, and when a gang lets go.
//!
//! A key that is left out keeps its built-in value. Every amount has a bound, beyond which it is a slip of the pen
//! and would quietly switch a rule off or make it hurt; the bound comes with its reason.

use wharf_engine::model::job::Class;
use wharf_engine::model::policy::{Gangs, Preemption, Within};
use wharf_engine::units::Millis;

use super::super::Fault;
use super::super::field::{Field, Map};
use super::super::tree::Node;

const KEYS: &[&str] = &[
    "within",
    "borrow_grace_max",
    "min_runtime",
    "evictions",
    "victims_max",
    "moves_max",
    "restart",
    "value",
    "wait_horizon",
    "fixed_may_borrow",
];
const WITHIN: [(&str, Within); 3] =
    [("project", Within::Project), ("team", Within::Team), ("org", Within::Org)];

const SECOND: Millis = Millis::from_secs(1);
const MINUTE: Millis = Millis::from_secs(60);
const DAY: Millis = Millis::from_secs(86_400);
const WEEK: Millis = Millis(7 * DAY.0);
const MONTH: Millis = Millis(30 * DAY.0);

/// The most evictions of one job in a window: more than that is no budget.
const EVICTIONS_MAX: u32 = 1000;
/// The most jobs that may have to leave for one: a tenth of the queue's default, far beyond any gang's need.
const VICTIMS_MAX: u32 = 1000;
/// The most jobs that may be moved for one.
const MOVES_MAX: u32 = 1000;
/// The most that a second of waiting may be worth: a product with years and with a whole fleet fits 64 bits.
const VALUE_MAX: u32 = 1_000_000;

/// Reads `preemption.yaml`.
pub(super) fn preemption(root: &Node) -> Result<Preemption, Fault> {
    let keys = Map::root(root, KEYS)?;
    let mut read = Preemption::default();
    if let Some(field) = keys.get("within")? {
        read.within = WITHIN[field.word(&WITHIN.map(|(word, _)| word))?].1;
    }
    let why = "a guarantee that takes longer to come back than a day promises nothing";
    set(&keys, "borrow_grace_max", &mut read.borrow_grace_max, |field| {
        field.duration_in(Millis(0)..=DAY, why)
    })?;
    if let Some(field) = keys.get("min_runtime")? {
        min_runtime(&field, &mut read)?;
    }
    if let Some(field) = keys.get("evictions")? {
        evictions(&field, &mut read)?;
    }
    set(&keys, "victims_max", &mut read.victims_max, |field| field.whole(0..=VICTIMS_MAX))?;
    set(&keys, "moves_max", &mut read.moves_max, |field| field.whole(0..=MOVES_MAX))?;
    let why = "a restart that costs more than a day would forbid every eviction";
    set(&keys, "restart", &mut read.restart, |field| field.duration_in(Millis(0)..=DAY, why))?;
    if let Some(field) = keys.get("value")? {
        value(&field, &mut read)?;
    }
    let why =
        "with no wait ahead no eviction is ever worth its cost, and no job waits for longer than a month";
    set(&keys, "wait_horizon", &mut read.wait_horizon, |field| field.duration_in(SECOND..=MONTH, why))?;
    set(&keys, "fixed_may_borrow", &mut read.fixed_may_borrow, Field::truth)?;
    Ok(read)
}

/// Reads `gangs.yaml`.
pub(super) fn gangs(root: &Node) -> Result<Gangs, Fault> {
    let keys = Map::root(root, &["start_within", "repair_within"])?;
    let mut read = Gangs::default();
    let why = "sooner no gang has started, later it holds GPUs idle for days";
    set(&keys, "start_within", &mut read.start_within, |field| field.duration_in(SECOND..=WEEK, why))?;
    let why = "a gang below its minimum holds GPUs that do nothing";
    set(&keys, "repair_within", &mut read.repair_within, |field| field.duration_in(Millis(0)..=WEEK, why))?;
    Ok(read)
}

fn min_runtime(field: &Field<'_>, read: &mut Preemption) -> Result<(), Fault> {
    let keys = field.map(&["reclaim", "preempt"])?;
    let why =
        "work that is safe for longer than a week is not to be evicted: say preemptible: false in the job";
    let span = |field: &Field<'_>| field.duration_in(Millis(0)..=WEEK, why);
    set(&keys, "reclaim", &mut read.min_runtime_reclaim, span)?;
    set(&keys, "preempt", &mut read.min_runtime_preempt, span)
}

fn evictions(field: &Field<'_>, read: &mut Preemption) -> Result<(), Fault> {
    let keys = field.map(&["max", "window"])?;
    set(&keys, "max", &mut read.evictions_max, |field| field.whole(0..=EVICTIONS_MAX))?;
    let why = "a shorter window forgets evictions before they can be counted";
    set(&keys, "window", &mut read.eviction_window, |field| field.duration_in(MINUTE..=MONTH, why))
}

fn value(field: &Field<'_>, read: &mut Preemption) -> Result<(), Fault> {
    let keys = field.map(&Class::ALL.map(Into::into))?;
    for (class, value) in Class::ALL.into_iter().zip(&mut read.value) {
        set(&keys, class.into_str(), value, |field| field.whole(0..=VALUE_MAX))?;
    }
    Ok(())
}

/// Reads the value of a key, if the key is there.
pub(super) fn set<'a, T>(
    keys: &Map<'a>,
    key: &str,
    value: &mut T,
    read: impl FnOnce(&Field<'a>) -> Result<T, Fault>,
) -> Result<(), Fault> {
    if let Some(field) = keys.get(key)? {
        *value = read(&field)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wharf_engine::model::policy::Policy;

    use super::super::{PolicyFile, compile};
    use super::*;

    fn compiled(name: &str, text: &str) -> Result<Policy, Vec<String>> {
        let file = |name: &str, text: &str| PolicyFile { name: name.into(), content: text.into() };
        let files = [file("tenants.yaml", "tenants: {a: {}}"), file(name, text)];
        compile("p", &files).map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    fn refused(name: &str, text: &str) -> Vec<String> {
        compiled(name, text).expect_err("wrong input is refused")
    }

    #[test]
    fn every_key_is_read() {
        let text = "within: org\nborrow_grace_max: 0s\nmin_runtime: {reclaim: 1m, preempt: 3m}\n\
                    evictions: {max: 0, window: 2h}\nvictims_max: 5\nmoves_max: 0\nrestart: 90s\n\
                    value: {inference: 3, interactive: 2, batch: 1}\nwait_horizon: 1d\nfixed_may_borrow: true\n";
        let expected = Preemption {
            within: Within::Org,
            borrow_grace_max: Millis(0),
            min_runtime_reclaim: MINUTE,
            min_runtime_preempt: Millis(180_000),
            evictions_max: 0,
            eviction_window: Millis(7_200_000),
            victims_max: 5,
            moves_max: 0,
            restart: Millis(90_000),
            value: [3, 2, 1],
            wait_horizon: DAY,
            fixed_may_borrow: true,
        };
        assert_eq!(compiled("preemption.yaml", text).unwrap().preemption, expected);
        let gangs = compiled("gangs.yaml", "start_within: 1s\nrepair_within: 0s\n").unwrap().gangs;
        assert_eq!(gangs, Gangs { start_within: SECOND, repair_within: Millis(0) });
    }

    #[test]
    fn what_is_left_out_keeps_its_built_in_value() {
        let read = compiled("preemption.yaml", "min_runtime: {preempt: 0s}\nvalue: {batch: 9}\n").unwrap();
        let expected =
            Preemption { min_runtime_preempt: Millis(0), value: [20, 8, 9], ..Preemption::default() };
        assert_eq!((read.preemption, read.gangs), (expected, Gangs::default()));
        let gangs = compiled("gangs.yaml", "start_within: 1h\n").unwrap().gangs;
        assert_eq!(gangs, Gangs { start_within: Millis(3_600_000), ..Gangs::default() });
    }

    #[test]
    fn wrong_values_are_refused_with_line_bounds_and_reason() {
        for (text, shown) in [
            (
                "within: teams\n",
                "1: within is \"teams\"; did you mean \"team\"? Allowed here: project, team, org",
            ),
            (
                "\nborrow_grace_max: 25h\n",
                "2: borrow_grace_max is \"25h\"; allowed here: a duration from 0s to 1d (a guarantee that takes longer \
                 to come back than a day promises nothing)",
            ),
            (
                "restart: soon\n",
                "1: restart is \"soon\"; allowed here: a duration such as 48h, 1h30m, 90s or 2d (units: d, h, m, s, ms)",
            ),
            (
                "evictions:\n  max: 3\n  window: 0s\n",
                "3: evictions.window is \"0s\"; allowed here: a duration from 1m to 30d (a shorter window forgets \
                 evictions before they can be counted)",
            ),
            ("evictions: 3\n", "1: evictions is \"3\"; allowed here: a map of keys and values"),
            ("victims_max: -1\n", "1: victims_max is \"-1\"; allowed here: a whole number from 0 to 1000"),
            (
                "value: {training: 2}\n",
                "1: unknown key \"training\" in value; did you mean \"batch\"? Allowed here: inference, interactive, \
                 batch",
            ),
            ("fixed_may_borrow: no\n", "1: fixed_may_borrow is \"no\"; allowed here: true, false"),
        ] {
            assert_eq!(refused("preemption.yaml", text), [format!("p/preemption.yaml:{shown}")]);
        }
    }

    #[test]
    fn an_unknown_key_comes_with_the_one_that_was_perhaps_meant() {
        assert_eq!(
            refused("preemption.yaml", "borrow_grace: 5m\n"),
            [
                "p/preemption.yaml:1: unknown key \"borrow_grace\"; did you mean \"borrow_grace_max\"? Allowed here: \
              within, borrow_grace_max, min_runtime, evictions, victims_max, moves_max, restart, value, wait_horizon, \
              fixed_may_borrow"
            ]
        );
        assert_eq!(
            refused("gangs.yaml", "start_with: 5m\n"),
            [
                "p/gangs.yaml:1: unknown key \"start_with\"; did you mean \"start_within\"? Allowed here: start_within, \
              repair_within"
            ]
        );
    }

    #[test]
    fn a_gang_needs_time_to_start() {
        assert_eq!(
            refused("gangs.yaml", "start_within: 0s\n"),
            [
                "p/gangs.yaml:1: start_within is \"0s\"; allowed here: a duration from 1s to 7d (sooner no gang has \
              started, later it holds GPUs idle for days)"
            ]
        );
    }
}
