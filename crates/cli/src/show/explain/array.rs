//! Arrays: as many jobs alike, meant by one name.

use wharf_api::client::{Client, ClientError};
use wharf_api::v1::{ArrayReply, Code, EndedAs, MemberView};

use crate::args::Format;
use crate::render::numbers::counted;
use crate::render::output::{self, Paint, Tone};
use crate::render::{first_lines, next_line};

/// The most members that are listed; programs read all.
const MEMBERS_SHOWN_MAX: usize = 40;

/// The array that a name means, if it means one and not a job.
pub(crate) fn meant(client: &Client, name: &str) -> Result<Option<ArrayReply>, ClientError> {
    match client.array(name) {
        Ok(array) => Ok(Some(array)),
        Err(ClientError::Problem(problem)) if problem.code == Code::NoSuchJob => Ok(None),
        Err(error) => Err(error),
    }
}

/// `array lab/nlp/sweep`
pub(crate) fn array_name(array: &ArrayReply) -> String {
    format!("array {}/{}", array.tenant, array.name)
}

/// Explains it.
pub(crate) fn explain(array: &ArrayReply, format: Format) -> anyhow::Result<()> {
    output::answer(format, array, |paint| text(array, paint))
}

fn text(array: &ArrayReply, paint: Paint) -> String {
    let ArrayReply { schema: _, name: _, tenant, at_most, members, shortened } = array;
    let jobs = counted(u64::try_from(members.len()).unwrap_or(u64::MAX), "job");
    let name = array_name(array);
    let mut lines = vec![
        format!("{}  {jobs}, at most {at_most} at a time", paint.tone(Tone::Strong, &name)),
        format!("  {}", counts(members)),
        String::new(),
    ];
    let wide = members.iter().map(|member| member.name.len()).max().unwrap_or_default();
    let told = first_lines(members, MEMBERS_SHOWN_MAX, |member| line(member, wide));
    lines.extend(told.iter().map(|line| format!("  {line}")));
    if *shortened {
        lines.push("  too many jobs ended since: members that are over may be missing".to_owned());
    }
    if let Some(first) = members.first() {
        let next = format!("wharf explain job/{tenant}/{}", first.name);
        lines.push(next_line(paint, "next:", &next));
    }
    output::lines(&lines)
}

/// `1 succeeded, 2 running, 1 waiting`
fn counts(members: &[MemberView]) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for word in members.iter().map(word) {
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    counts.iter().map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

fn word(member: &MemberView) -> String {
    let outcome = || member.outcome.map(|outcome| outcome.into_str().replace('_', " "));
    member.state.map(|state| state.into_str().to_owned()).or_else(outcome).unwrap_or_default()
}

/// `sweep-1  failed: task 0 on n1 failed with exit code 1`
fn line(member: &MemberView, wide: usize) -> String {
    let why = match member.outcome {
        None | Some(EndedAs::Succeeded) => String::new(),
        Some(EndedAs::Failed | EndedAs::Cancelled | EndedAs::TimeLimit) => format!(": {}", member.text),
    };
    format!("{:wide$}  {}{why}", member.name, word(member))
}

#[cfg(test)]
mod tests {
    use wharf_api::v1::JobState;

    use super::*;

    #[test]
    fn an_array_is_told_with_its_members() {
        let member = |index: u32, state, outcome, text: &str| MemberView {
            index,
            name: format!("mix-{index}"),
            uid: String::new(),
            state,
            outcome,
            text: text.into(),
            exit_code: None,
        };
        let members = vec![
            member(0, None, Some(EndedAs::Failed), "task 0 on n1 failed with exit code 1"),
            member(1, None, Some(EndedAs::Succeeded), "it succeeded"),
            member(2, Some(JobState::Running), None, "all of its tasks run"),
            member(10, Some(JobState::Waiting), None, "not its turn"),
        ];
        let (schema, name, tenant) = (String::new(), "mix".to_owned(), "lab/nlp".to_owned());
        let array = ArrayReply { schema, name, tenant, at_most: 2, members, shortened: false };
        let expected = "\
array lab/nlp/mix  4 jobs, at most 2 at a time
  1 failed, 1 succeeded, 1 running, 1 waiting

  mix-0   failed: task 0 on n1 failed with exit code 1
  mix-1   succeeded
  mix-2   running
  mix-10  waiting
next: wharf explain job/lab/nlp/mix-0
";
        assert_eq!(text(&array, Paint::OFF), expected);
    }
}
