//! The job that a user hands in: a file, standard input, or flags.

use std::io::IsTerminal;
use std::path::Path;

use wharf_api::file::job::{JobFile, JobFlags, load_job, parse_job};

use super::files::standard_input;
use crate::args::{JobArgs, JobFlagArgs};
use crate::render::output::remark;
use crate::render::problem::Usage;

/// Reads the job.
pub(crate) fn given(args: JobArgs) -> anyhow::Result<JobFile> {
    let JobArgs { file, file_flag, flags } = args;
    let flags = JobFlags::from(flags);
    let given = flags.given();
    match (file.or(file_flag), given.is_empty()) {
        (Some(path), true) if path == Path::new("-") => from_standard_input(),
        (Some(path), true) => Ok(load_job(&path)?),
        (Some(path), false) => Err(both(&path, &given).into()),
        (None, false) => from_flags(flags),
        (None, true) => Err(neither().into()),
    }
}

impl From<JobFlagArgs> for JobFlags {
    fn from(args: JobFlagArgs) -> Self {
        Self {
            name: args.name,
            tenant: args.tenant,
            class: args.class,
            priority: args.priority,
            tasks: args.tasks,
            min: args.min,
            gpus: args.gpus,
            slice: args.slice,
            cpu: args.cpu,
            memory: args.memory,
            model: args.model,
            booking: args.booking,
            limit: args.limit,
            estimate: args.estimate,
            checkpoint: args.checkpoint,
            retries: args.retries,
            labels: args.labels,
            after: args.after,
            array: args.array,
            duration: args.duration,
        }
    }
}

fn both(path: &Path, given: &[&str]) -> Usage {
    Usage {
        what: format!("a job file ({}) and flags that describe a job ({})", path.display(), given.join(", ")),
        next: "write the flags into the file, or leave the file out".into(),
    }
}

fn neither() -> Usage {
    Usage {
        what: "no job is given".into(),
        next: "give a file (wharf submit job.yaml), or flags (--name hello --tenant PATH --gpus 1); wharf get tenants has the paths".into(),
    }
}

/// What a job cannot do without is named as a flag here, not as the key of a file.
fn from_flags(flags: JobFlags) -> anyhow::Result<JobFile> {
    let missing = |what: &str, next: &str| Usage { what: what.into(), next: next.into() };
    if flags.name.is_none() {
        return Err(missing("--name is missing", "give the job a name: --name hello").into());
    }
    if flags.tenant.is_none() {
        return Err(missing(
            "--tenant is missing",
            "say who pays: --tenant PATH; wharf get tenants has the paths",
        )
        .into());
    }
    Ok(flags.job()?)
}

fn from_standard_input() -> anyhow::Result<JobFile> {
    if std::io::stdin().is_terminal() {
        remark("reading a job from this terminal; Ctrl-D ends it");
    }
    Ok(parse_job("standard input", &standard_input("cannot read a job from standard input")?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_flags(flags: JobFlagArgs) -> anyhow::Result<JobFile> {
        given(JobArgs { flags, ..JobArgs::default() })
    }

    #[test]
    fn flags_make_the_same_job_as_a_file() {
        let flags = JobFlagArgs {
            name: Some("a".into()),
            tenant: Some("lab/nlp".into()),
            gpus: Some("0.25".into()),
            priority: Some("-5".into()),
            ..JobFlagArgs::default()
        };
        let file = parse_job("f", "{name: a, tenant: lab/nlp, gpus: 0.25, priority: -5}").unwrap();
        assert_eq!(of_flags(flags).unwrap(), file);
        let some = |text: &str| Some(text.to_owned());
        let flags = JobFlagArgs {
            name: some("a"),
            tenant: some("lab/nlp"),
            slice: some("1g.10gb"),
            tasks: some("4"),
            min: some("2"),
            limit: some("6h"),
            estimate: some("4h"),
            checkpoint: some("30m,2m"),
            retries: some("0"),
            labels: vec!["team=red".into(), "run=7".into()],
            after: vec!["prepare".into(), "clean:any".into()],
            array: some("0-3%2"),
            ..JobFlagArgs::default()
        };
        let text = "{name: a, tenant: lab/nlp, slice: 1g.10gb, tasks: 4, min: 2, time: {limit: 6h, estimate: 4h}, \
                    checkpoint: {every: 30m, grace: 2m}, retries: 0, labels: {team: red, run: \"7\"}, \
                    after: [prepare, \"clean:any\"], array: \"0-3%2\"}";
        assert_eq!(of_flags(flags).unwrap(), parse_job("f", text).unwrap());
    }

    #[test]
    fn a_file_and_flags_exclude_each_other() {
        let flags = JobFlagArgs { gpus: Some("1".into()), ..JobFlagArgs::default() };
        let args = JobArgs { file: Some("job.yaml".into()), file_flag: None, flags };
        let error = given(args).unwrap_err().to_string();
        assert!(error.contains("job.yaml") && error.contains("--gpus"), "{error}");
        let nameless = JobFlagArgs { gpus: Some("1".into()), ..JobFlagArgs::default() };
        assert!(of_flags(nameless).unwrap_err().to_string().starts_with("--name is missing"));
        assert!(given(JobArgs::default()).unwrap_err().to_string().contains("no job is given"));
    }
}
