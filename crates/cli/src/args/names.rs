//! How things are named on the command line: a kind before a name, and who types.

use wharf_api::v1::JobView;

/// A job as other commands take it.
pub(crate) fn job_name(job: &JobView) -> String {
    format!("job/{}/{}", job.tenant, job.name)
}

/// Who the user says to be: `WHARF_USER`, or the name on this machine. Kept as a claim with what is submitted.
pub(crate) fn user() -> Option<String> {
    let named = |key: &str| std::env::var(key).ok().filter(|name| !name.is_empty());
    named("WHARF_USER").or_else(|| named("USER"))
}

/// What the user typed without the kind before it, if it is that kind.
pub(crate) fn without_kind<'a>(typed: &'a str, kind: &str) -> &'a str {
    typed.strip_prefix(kind).and_then(|rest| rest.strip_prefix('/')).unwrap_or(typed)
}

/// Names in the order in which they were typed, each once.
pub(crate) fn each_once<'a>(typed: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for name in typed {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_may_be_left_out() {
        assert_eq!(without_kind("job/lab/nlp/a", "job"), "lab/nlp/a");
        assert_eq!(without_kind("lab/nlp/a", "job"), "lab/nlp/a");
        assert_eq!(without_kind("jobs", "job"), "jobs");
    }
}
