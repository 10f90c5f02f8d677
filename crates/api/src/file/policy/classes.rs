//! `classes.yaml`: in which order waiting jobs of a class are served inside their tenant.
//!
//! A key that is left out keeps its built-in value; without the file every class is served by age. Inference is left
//! out on purpose: it serves until it is stopped, so that having run for long says nothing about it.

use wharf_engine::model::job::Class;
use wharf_engine::model::policy::{Order, OrderRules, Orders};
use wharf_engine::units::Millis;

use super::super::Fault;
use super::super::field::{Field, Map};
use super::super::tree::Node;

const KEYS: &[&str] =
    &["order", "levels", "patience", "min_run", "gang_over", "landing_room", "promote_after", "label"];

const MINUTE: Millis = Millis::from_secs(60);
const DAY: Millis = Millis::from_secs(86_400);
const WEEK: Millis = Millis(7 * DAY.0);
const YEAR: Millis = Millis(365 * DAY.0);

/// The most levels: each is a step at which plans are looked at again, and more of them tell nothing apart.
const LEVELS_MAX: usize = 16;
/// The most GPUs that one job could have on the largest fleet we plan for.
const GPUS_MAX: u32 = 131_072;

/// Reads `classes.yaml`.
pub(super) fn classes(root: &Node) -> Result<Orders, Fault> {
    let keys = Map::root(root, &Class::ALL.map(Into::into))?;
    let mut read = Orders::default();
    for (class, rules) in Class::ALL.into_iter().zip(read.0.iter_mut()) {
        if let Some(field) = keys.get(class.into_str())? {
            order(class, &field, rules)?;
        }
    }
    Ok(read)
}

fn order(class: Class, field: &Field<'_>, read: &mut OrderRules) -> Result<(), Fault> {
    let keys = field.map(KEYS)?;
    if let Some(field) = keys.get("order")? {
        read.order = field.one_of()?;
        if class == Class::Inference && read.order != Order::Age {
            let why = "age (inference runs until it is stopped: having run for long is no reason to leave)";
            return Err(field.wrong(why));
        }
    }
    if let Some(field) = keys.get("levels")? {
        read.levels = levels(&field)?;
    }
    if let Some(field) = keys.get("patience")? {
        let why = "a job that waits for longer than a day gains nothing from patience";
        read.patience = field.duration_in(Millis(0)..=DAY, why)?;
    }
    if let Some(field) = keys.get("min_run")? {
        let why = "work that is safe for longer than a week is not to be evicted: say preemptible: false in the job";
        read.min_run = field.duration_in(Millis(0)..=WEEK, why)?;
    }
    if let Some(field) = keys.get("gang_over")? {
        read.gang_over = field.whole(1..=GPUS_MAX)?;
    }
    if let Some(field) = keys.get("landing_room")? {
        read.landing_room = field.whole(0..=GPUS_MAX)?;
    }
    if let Some(field) = keys.get("promote_after")? {
        read.promote_after = promote_after(&field)?;
    }
    if let Some(field) = keys.get("label")? {
        read.label = Some(field.label()?).filter(|label| !label.is_empty());
    }
    Ok(())
}

fn levels(field: &Field<'_>) -> Result<Vec<Millis>, Fault> {
    let items = field.one_or_more()?;
    if items.len() > LEVELS_MAX {
        return Err(field.fault("has too many levels").allowed(format!("at most {LEVELS_MAX}")));
    }
    let mut levels: Vec<Millis> = Vec::new();
    for item in items {
        let why = "GPU time: ten hours on eight GPUs are 80h";
        let level = item.duration_in(MINUTE..=YEAR, why)?;
        if levels.last().is_some_and(|&before| level <= before) {
            return Err(item
                .fault("is not above the level before it")
                .allowed("levels that rise, like [10h, 100h]"));
        }
        levels.push(level);
    }
    Ok(levels)
}

fn promote_after(field: &Field<'_>) -> Result<Option<Millis>, Fault> {
    if field.text().is_ok_and(|text| text == "never") {
        return Ok(None);
    }
    let why = "or never; promotion after less than a minute would make it an order by age";
    field.duration_in(MINUTE..=YEAR, why).map(Some)
}

#[cfg(test)]
mod tests {
    use super::super::{PolicyFile, compile};
    use super::*;

    fn compiled(text: &str) -> Result<Orders, String> {
        let files = [("tenants.yaml", "tenants: {lab: {}}\n"), ("classes.yaml", text)]
            .map(|(name, text)| PolicyFile { name: name.to_owned(), content: text.as_bytes().to_vec() });
        compile("p", &files).map(|policy| policy.orders).map_err(|errors| errors[0].to_string())
    }

    #[test]
    fn every_key_is_read() {
        let text = "batch: {order: learned, levels: [1h, 2d], patience: 0s, min_run: 10m, gang_over: 16, \
                    landing_room: 0, promote_after: 24h, label: team}\ninteractive: {order: attained}\n";
        let expected = OrderRules {
            order: Order::Learned,
            levels: vec![Millis(3_600_000), Millis(2 * DAY.0)],
            patience: Millis(0),
            min_run: Millis(600_000),
            gang_over: 16,
            landing_room: 0,
            promote_after: Some(DAY),
            label: Some("team".to_owned()),
        };
        let read = compiled(text).unwrap();
        assert_eq!(read.of(Class::Batch), &expected);
        let attained = OrderRules { order: Order::Attained, ..OrderRules::default() };
        assert_eq!(read.of(Class::Interactive), &attained);
        assert_eq!(read.of(Class::Inference), &OrderRules::default());
    }

    #[test]
    fn the_example_says_what_is_built_in() {
        let example = include_str!("../../../policy/classes.yaml");
        assert_eq!(compiled(example).unwrap(), Orders::default());
        assert!(compiled("{}\n").unwrap().all_by_age());
    }

    #[test]
    fn wrong_values_are_refused_with_line_bounds_and_reason() {
        for (text, shown) in [
            (
                "batch: {order: atained}\n",
                "1: batch.order is \"atained\"; did you mean \"attained\"? Allowed here: age, attained, learned",
            ),
            (
                "\ninference: {order: attained}\n",
                "2: inference.order is \"attained\"; allowed here: age (inference runs until it is stopped: having \
                 run for long is no reason to leave)",
            ),
            (
                "batch: {levels: [10h, 10h]}\n",
                "1: batch.levels[1] is not above the level before it; allowed here: levels that rise, like [10h, 100h]",
            ),
            (
                "batch: {levels: [1s]}\n",
                "1: batch.levels[0] is \"1s\"; allowed here: a duration from 1m to 365d (GPU time: ten hours on eight \
                 GPUs are 80h)",
            ),
            (
                "batch: {patience: 2d}\n",
                "1: batch.patience is \"2d\"; allowed here: a duration from 0s to 1d (who waits for longer than a day \
                 for a place has no use for patience)",
            ),
            (
                "batch: {gang_over: 0}\n",
                "1: batch.gang_over is \"0\"; allowed here: a whole number from 1 to 131072",
            ),
            (
                "batch: {promote_after: 1s}\n",
                "1: batch.promote_after is \"1s\"; allowed here: a duration from 1m to 365d (or never; who is first \
                 after less than a minute makes an order by age of it)",
            ),
            (
                "batches: {order: age}\n",
                "1: unknown key \"batches\"; did you mean \"batch\"? Allowed here: inference, interactive, batch",
            ),
        ] {
            assert_eq!(compiled(text).unwrap_err(), format!("p/classes.yaml:{shown}"));
        }
    }
}
