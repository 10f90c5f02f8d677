//! `trust.yaml`: who shares a GPU with whom, how, and what throughput that may cost.
//!
//! Strangers never share a GPU except as MIG slices, and only interactive work that allows it takes turns: no file can
//! change that. What can be said is which of the other ways a class or a trust domain may use, and who may claim a domain
//! that is not its team's.

use wharf_engine::model::job::Class;
use wharf_engine::model::policy::trust::TrustClaim;
use wharf_engine::model::policy::{Mode, Sharing, SharingRules};

use super::super::Fault;
use super::super::field::{Field, Map};
use super::super::tree::Node;

const TAX_ALLOWED: &str = "a part of throughput from 0 to 1 with at most three decimals, like 0.3";

/// Reads `trust.yaml`.
pub(super) fn trust(root: &Node) -> Result<Sharing, Fault> {
    let keys = Map::root(root, &["sharing", "domains", "tax"])?;
    let mut read = Sharing::default();
    if let Some(field) = keys.get("sharing")? {
        let classes = field.map(&Class::ALL.map(Into::into))?;
        for (class, rules) in Class::ALL.into_iter().zip(&mut read.classes) {
            if let Some(field) = classes.get(class.into_str())? {
                sharing(&field, rules)?;
            }
        }
    }
    if let Some(field) = keys.get("domains")? {
        for (domain, field) in field.label_fields()? {
            let keys = field.map(&["modes", "tenants"])?;
            if let Some(field) = keys.get("modes")? {
                read.domains.push((domain.clone(), modes(&field)?));
            }
            match keys.get("tenants")? {
                Some(field) => read.claims.push(TrustClaim { domain, tenants: tenants(&field)? }),
                // One of the two is said.
                None => {
                    keys.need("modes", "{modes: [mig, whole]} or {tenants: [lab/nlp]}")?;
                }
            }
        }
    }
    if let Some(field) = keys.get("tax")? {
        let keys = field.map(&["mps", "time-slicing"])?;
        set_tax(&keys, "mps", &mut read.mps_tax)?;
        set_tax(&keys, "time-slicing", &mut read.time_slicing_tax)?;
    }
    Ok(read)
}

/// Who may claim a domain; each stands for everybody below it.
fn tenants(field: &Field<'_>) -> Result<Vec<String>, Fault> {
    field.one_or_more()?.iter().map(Field::tenant).collect()
}

fn sharing(field: &Field<'_>, rules: &mut SharingRules) -> Result<(), Fault> {
    let keys = field.map(&["modes", "tax_max"])?;
    if let Some(field) = keys.get("modes")? {
        rules.modes = modes(&field)?;
    }
    set_tax(&keys, "tax_max", &mut rules.tax_max)
}

fn set_tax(keys: &Map<'_>, key: &str, tax: &mut u16) -> Result<(), Fault> {
    if let Some(field) = keys.get(key)? {
        let milli = field.thousandths(0..=1000, TAX_ALLOWED)?;
        *tax = u16::try_from(milli).expect("at most 1000 was read");
    }
    Ok(())
}

fn modes(field: &Field<'_>) -> Result<Vec<Mode>, Fault> {
    let mut modes = Vec::new();
    for item in field.one_or_more()? {
        let mode = item.one_of()?;
        if modes.contains(&mode) {
            return Err(item
                .fault("stands twice")
                .allowed("each way of sharing once, the first choice first"));
        }
        modes.push(mode);
    }
    Ok(modes)
}

#[cfg(test)]
mod tests {
    use super::super::{PolicyFile, compile};
    use super::*;

    fn compiled(text: &str) -> Result<Sharing, String> {
        let files = [("tenants.yaml", "tenants: {lab: {}}\n"), ("trust.yaml", text)]
            .map(|(name, text)| PolicyFile { name: name.to_owned(), content: text.as_bytes().to_vec() });
        let policy = compile("p", &files);
        policy.map(|policy| policy.sharing).map_err(|errors| errors[0].to_string())
    }

    #[test]
    fn what_is_left_out_keeps_its_built_in_value() {
        let read = compiled("sharing: {inference: {modes: [mig, whole], tax_max: 0.1}}\n").unwrap();
        assert_eq!(read.classes[0], SharingRules { modes: vec![Mode::Mig, Mode::Whole], tax_max: 100 });
        assert_eq!(read.classes[1..], Sharing::default().classes[1..]);
        let read = compiled("domains: {vendor: {modes: mig}}\ntax: {mps: 0.05}\n").unwrap();
        assert_eq!(read.domains, [("vendor".to_owned(), vec![Mode::Mig])]);
        assert_eq!((read.mps_tax, read.time_slicing_tax), (50, 240));
        assert_eq!(read.modes(Class::Batch, "vendor"), [Mode::Mig]);
        assert_eq!(read.modes(Class::Batch, "vendor/x"), [Mode::Mig], "and those below it");
        assert_eq!(read.modes(Class::Batch, "lab"), [Mode::Mps, Mode::TimeSlicing]);
        let read = compiled("domains: {joint: {tenants: [lab, partner/eval]}}\n").unwrap();
        let tenants = vec!["lab".to_owned(), "partner/eval".to_owned()];
        assert_eq!(read.claims, [TrustClaim { domain: "joint".to_owned(), tenants }]);
        assert_eq!(read.domains, []);
    }

    #[test]
    fn the_example_says_what_is_built_in() {
        let example = include_str!("../../../policy/trust.yaml");
        assert_eq!(compiled(example).unwrap(), Sharing::default());
    }

    #[test]
    fn wrong_words_and_amounts_are_named() {
        let refused = |text: &str| compiled(text).unwrap_err();
        assert!(refused("sharing: {batch: {modes: [mips]}}\n").contains("did you mean \"mps\""));
        assert!(refused("sharing: {batch: {modes: [mps, mps]}}\n").contains("stands twice"));
        assert!(refused("sharing: {batch: {tax_max: 2}}\n").contains("from 0 to 1"));
        assert!(refused("domains: {vendor: {}}\n").contains("modes"));
        assert!(refused("domains: {vendor: {tenants: 'lab/*'}}\n").contains("lab/*"));
        assert!(refused("share: {}\n").contains("unknown key"));
    }
}
