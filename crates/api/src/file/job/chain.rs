//! What a job waits for before it is a candidate: other jobs (`after`), and its turn in an array (`array`).

use std::collections::BTreeSet;

use wharf_engine::model::dependency::{ARRAY_MAX, ArrayMember, ArrayRequest, Condition};

use crate::file::Fault;
use crate::file::field::{Field, NAME_MAX};

const AFTER_ALLOWED: &str =
    "names of jobs, like prepare or lab/nlp/prepare:any; ok, the default, means after its success";
const ARRAY_ALLOWED: &str =
    "indexes like 0-19, 0-100:10 or 1,3,7, with %N at the end for at most N at a time";

/// A job that another waits for, as its owner wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfterJob {
    /// `NAME`, `TENANT/NAME` or uid.
    pub job: String,
    /// Which end of it.
    pub when: Condition,
}

impl AfterJob {
    /// As a file has it.
    pub fn text(&self) -> String {
        format!("{}:{}", self.job, self.when.into_str())
    }
}

/// One job or a list of them.
pub(super) fn after(field: &Field<'_>) -> Result<Vec<AfterJob>, Fault> {
    field.one_or_more()?.iter().map(one).collect()
}

fn one(field: &Field<'_>) -> Result<AfterJob, Fault> {
    let text = field.text()?;
    let (job, when) = match text.rsplit_once(':') {
        None => (text, Condition::Ok),
        Some((job, "ok")) => (job, Condition::Ok),
        Some((job, "any")) => (job, Condition::Any),
        Some(_) => return Err(field.wrong(AFTER_ALLOWED)),
    };
    let job = job.strip_prefix("job/").unwrap_or(job);
    if job.is_empty() || job.contains(char::is_whitespace) {
        return Err(field.wrong(AFTER_ALLOWED));
    }
    Ok(AfterJob { job: job.to_owned(), when })
}

/// `0-19%4`
pub(super) fn array(field: &Field<'_>) -> Result<ArrayRequest, Fault> {
    let text = field.text()?;
    let wrong = || field.wrong(ARRAY_ALLOWED);
    let (list, at_most) = match text.split_once('%') {
        None => (text, None),
        Some((list, most)) => {
            (list, Some(most.trim().parse::<u32>().ok().filter(|&most| most > 0).ok_or_else(wrong)?))
        }
    };
    let mut indexes = BTreeSet::new();
    for part in list.split(',') {
        let (from, to, step) = range(part.trim()).ok_or_else(wrong)?;
        for index in (from..=to).step_by(step) {
            indexes.insert(index);
            if indexes.len() > ARRAY_MAX {
                let what = format!("has more than {ARRAY_MAX} indexes");
                return Err(field
                    .fault(&what)
                    .allowed(format!("at most {ARRAY_MAX}; submit the rest as another array")));
            }
        }
    }
    let count = u32::try_from(indexes.len()).unwrap_or(u32::MAX);
    Ok(ArrayRequest { indexes: indexes.into_iter().collect(), at_most: at_most.unwrap_or(count).min(count) })
}

/// A member is called by the name and its index, and that too has to be a name.
pub(super) fn check_member_names(field: &Field<'_>, name: &str, array: &ArrayRequest) -> Result<(), Fault> {
    let last = array.indexes.last().copied().unwrap_or_default();
    let longest = ArrayMember::member_name(name, last);
    if longest.len() <= NAME_MAX {
        return Ok(());
    }
    let what = format!("makes names of more than {NAME_MAX} characters: {longest} has {}", longest.len());
    let suffix = longest.len() - name.len();
    Err(field
        .fault(&what)
        .allowed(format!("with these indexes a name of at most {} characters", NAME_MAX - suffix)))
}

/// `7`, `0-19` or `0-100:10`: the first, the last and the step.
fn range(text: &str) -> Option<(u32, u32, usize)> {
    let (ends, step) = text.split_once(':').unwrap_or((text, "1"));
    let (first, last) = ends.split_once('-').unwrap_or((ends, ends));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    let step = step.parse().ok().filter(|&step: &usize| step > 0)?;
    (first <= last).then_some((first, last, step))
}

/// An array as a file has it.
pub(super) fn array_text(array: &ArrayRequest) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &index in &array.indexes {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(index) => *last = index,
            _ => runs.push((index, index)),
        }
    }
    let run = |(first, last): &(u32, u32)| {
        if first == last { format!("{first}") } else { format!("{first}-{last}") }
    };
    let list: Vec<String> = runs.iter().map(run).collect();
    format!("{}%{}", list.join(","), array.at_most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::job::{JobFile, parse_job};

    fn read(rest: &str) -> Result<JobFile, String> {
        let job = format!("{{name: a, tenant: lab/nlp, {rest}}}");
        parse_job("f", &job).map_err(|error| error.to_string())
    }

    #[test]
    fn an_array_is_written_as_slurm_has_it() {
        let array = |text: &str| read(&format!("array: \"{text}\"")).unwrap().array.unwrap();
        assert_eq!(array("0-3%2"), ArrayRequest { indexes: vec![0, 1, 2, 3], at_most: 2 });
        assert_eq!(array("7").indexes, [7]);
        assert_eq!(array("0-10:5,3,3").indexes, [0, 3, 5, 10]);
        assert_eq!(array("1-3%9").at_most, 3, "never more than there are");
        for wrong in ["", "a", "3-1", "0-3%0", "0-3%", "1-", "-1", "0-2:0", "0-1000", "1;2"] {
            let said = read(&format!("array: \"{wrong}\"")).unwrap_err();
            assert!(said.contains("array"), "{wrong}: {said}");
        }
    }

    #[test]
    fn the_names_of_members_are_names_too() {
        let named = |length: usize, indexes: &str| {
            let name = "n".repeat(length);
            let job = format!("{{name: {name}, tenant: lab/nlp, array: \"{indexes}\"}}");
            parse_job("f", &job).map_err(|error| error.to_string())
        };
        assert!(named(61, "0-9").is_ok());
        let said = named(62, "0-10").unwrap_err();
        assert!(said.contains("array makes names of more than 63 characters"), "{said}");
        assert!(said.contains("a name of at most 60 characters"), "{said}");
        assert!(named(63, "7").is_err());
    }

    #[test]
    fn what_a_job_waits_for_is_one_job_or_a_list() {
        let after = |text: &str| read(&format!("after: {text}")).unwrap().after;
        let job = |job: &str, when| AfterJob { job: job.into(), when };
        assert_eq!(after("prepare"), [job("prepare", Condition::Ok)]);
        assert_eq!(
            after("[job/lab/x/y:any, z:ok]"),
            [job("lab/x/y", Condition::Any), job("z", Condition::Ok)]
        );
        for wrong in ["x:later", "':ok'", "a b"] {
            assert!(read(&format!("after: {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_document_of_a_job_says_the_same() {
        let job = read("after: [b, c:any], array: \"0-4,9%2\"").unwrap();
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(parse_job("f", &text).unwrap(), job, "{text}");
    }
}
