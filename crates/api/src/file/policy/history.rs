//! `history.yaml`: how long the past is kept, how far back what was borrowed counts, and whether estimates are learned.

use wharf_engine::model::policy::Policy;
use wharf_engine::units::Millis;

use super::super::Fault;
use super::super::field::{Field, Map};
use super::super::tree::Node;

const HOUR: Millis = Millis::from_secs(3600);
const YEAR: Millis = Millis::from_secs(365 * 86_400);

/// Reads `history.yaml`.
pub(super) fn history(root: &Node, policy: &mut Policy) -> Result<(), Fault> {
    let keys = Map::root(root, &["keep", "half_life", "estimates"])?;
    if let Some(field) = keys.get("keep")? {
        policy.history_keep = field.duration(Millis(0))?;
    }
    if let Some(field) = keys.get("half_life")? {
        policy.half_life = half_life(&field)?;
    }
    if let Some(field) = keys.get("estimates")? {
        let keys = field.map(&["learned", "label"])?;
        if let Some(field) = keys.get("learned")? {
            policy.estimates.learned = field.truth()?;
        }
        if let Some(field) = keys.get("label")? {
            policy.estimates.label = Some(field.label()?).filter(|label| !label.is_empty());
        }
    }
    Ok(())
}

fn half_life(field: &Field<'_>) -> Result<Option<Millis>, Fault> {
    if field.text().is_ok_and(|text| text == "never") {
        return Ok(None);
    }
    let why = "or never; fair shares move sixteen times in it, and what moves with them has to save its work";
    field.duration_in(HOUR..=YEAR, why).map(Some)
}

#[cfg(test)]
mod tests {
    use wharf_engine::model::policy::Estimates;

    use super::super::{PolicyFile, compile};
    use super::*;

    fn read(text: &str) -> Result<Policy, String> {
        let file = |name: &str, text: &str| PolicyFile { name: name.to_owned(), content: text.into() };
        let files = [file("tenants.yaml", "tenants: {lab: {}}\n"), file("history.yaml", text)];
        compile("p", &files).map_err(|errors| errors[0].to_string())
    }

    #[test]
    fn a_half_life_is_a_day_unless_another_is_given() {
        assert_eq!(read("keep: 7d\n").unwrap().half_life, Some(Millis::from_secs(86_400)));
        assert_eq!(read("half_life: never\n").unwrap().half_life, None);
        assert_eq!(read("half_life: 12h\n").unwrap().half_life, Some(Millis::from_secs(43_200)));
    }

    #[test]
    fn estimates_are_learned_unless_that_is_switched_off() {
        assert_eq!(read("keep: 7d\n").unwrap().estimates, Estimates { learned: true, label: None });
        assert_eq!(read("estimates: {learned: false}\n").unwrap().estimates, Estimates::default());
        let read = read("estimates: {learned: true, label: experiment}\n").unwrap().estimates;
        assert_eq!(read, Estimates { learned: true, label: Some("experiment".into()) });
    }

    #[test]
    fn a_half_life_of_minutes_is_refused() {
        let error = read("half_life: 10m\n").unwrap_err();
        assert!(error.starts_with("p/history.yaml:1: half_life"), "{error}");
        assert!(error.contains("or never"), "{error}");
        let error = read("halflife: 10h\n").unwrap_err();
        assert!(error.contains("did you mean \"half_life\""), "{error}");
    }
}
