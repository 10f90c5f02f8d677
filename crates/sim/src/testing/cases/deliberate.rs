//! Where we differ from what a case expects and mean to.
//!
//! The collected cases tell what another scheduler does. A case is listed here only with a reason, and only for the
//! outcome that the reason is about: when we come to another one, it differs like any other.

use super::CaseResult;

/// A case in which we differ on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Deliberate {
    /// The case.
    pub id: &'static str,
    /// How many tasks of each job hold their resources with us.
    pub got: &'static [(&'static str, u32)],
    /// Why we differ.
    pub reason: &'static str,
}

/// Every case in which we differ on purpose; `docs/reference/cases.md` has the same list.
pub const DELIBERATE: [Deliberate; 2] = [
    Deliberate {
        id: "c402",
        got: &[("j0", 0), ("j1", 1), ("j2", 1), ("j3", 1)],
        reason: "the peer evicts two GPUs where one suffices and leaves an owner below its guarantee: no victim straddles while a set without one exists",
    },
    Deliberate {
        id: "c413",
        got: &[("j0", 1), ("j1", 1), ("j2", 0)],
        reason: "rule 7: it would free three GPUs, start one and leave two idle",
    },
];

impl Deliberate {
    /// The reason why a result differs from what was expected, where that is meant.
    pub fn of(result: &CaseResult) -> Option<&'static Self> {
        let same = |known: &&Self| {
            known.id == result.id
                && known.got.len() == result.got.len()
                && known.got.iter().all(|(job, tasks)| result.got.get(*job) == Some(tasks))
        };
        (result.ok == Some(false)).then(|| DELIBERATE.iter().find(same)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    fn result(id: &str, got: &[(&str, u32)], ok: Option<bool>) -> CaseResult {
        CaseResult {
            id: id.to_owned(),
            ok,
            got: got.iter().map(|&(job, tasks)| (job.to_owned(), tasks)).collect(),
            placed: Vec::new(),
            evicted: Vec::new(),
            waits: BTreeMap::new(),
            fair: BTreeMap::new(),
            plans: 5,
            settled: true,
        }
    }

    #[test]
    fn only_the_outcome_that_the_reason_is_about_is_deliberate() {
        let known = &DELIBERATE[1];
        assert!(Deliberate::of(&result(known.id, known.got, Some(false))).is_some());
        assert!(Deliberate::of(&result(known.id, known.got, Some(true))).is_none(), "it agrees");
        assert!(Deliberate::of(&result(known.id, known.got, None)).is_none(), "nothing was expected");
        assert!(Deliberate::of(&result("mine", known.got, Some(false))).is_none(), "another case");
        let other = [("j0", 0), ("j1", 1), ("j2", 0)];
        assert!(Deliberate::of(&result(known.id, &other, Some(false))).is_none(), "another outcome");
    }

    #[test]
    fn the_reference_has_the_same_list() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cases.md");
        let text = fs::read_to_string(path).unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `c"));
        let told: Vec<String> = rows.map(|row| format!("| `c{row}")).collect();
        let known = DELIBERATE.map(|known| format!("| `{}` | {} |", known.id, known.reason));
        assert_eq!(told, known);
    }
}
