//! `wharf cancel`: takes jobs back, gives bookings up, calls maintenance off.

use std::process::ExitCode;

use serde::Serialize;
use wharf_api::client::{Client, ClientError};
use wharf_api::v1::{BookingReply, DowntimeReply, JobReply};

use super::booking;
use super::{jobs, nodes};
use crate::args::names::{each_once, without_kind};
use crate::args::{CancelArgs, Format};
use crate::render::output::{self, Paint};
use crate::render::problem;

/// What was taken back; alone it is written as the control plane answered.
#[derive(Serialize)]
#[serde(untagged)]
enum Taken {
    Job(Box<JobReply>),
    Booking(BookingReply),
    Maintenance(DowntimeReply),
}

impl Taken {
    fn text(&self, paint: Paint) -> String {
        match self {
            Self::Job(reply) => jobs::taken_back(reply, paint),
            Self::Booking(reply) => booking::cancelled(reply, paint),
            Self::Maintenance(reply) => nodes::called_off(&reply.downtime, paint),
        }
    }
}

/// Several answers in one document.
#[derive(Serialize)]
struct Answer<'a> {
    schema: &'static str,
    cancelled: &'a [Taken],
}

/// Runs it. Of several, one that cannot be cancelled does not keep the others.
pub(crate) fn run(client: &Client, args: &CancelArgs) -> anyhow::Result<ExitCode> {
    let names = each_once(args.names.iter().map(String::as_str));
    if let [one] = names.as_slice() {
        let taken = take_back(client, one)?;
        output::answer(args.output, &taken, |paint| taken.text(paint))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut cancelled, mut errors) = (Vec::new(), Vec::new());
    for name in names {
        match take_back(client, name) {
            Ok(taken) => cancelled.push(taken),
            Err(error) => errors.push(anyhow::Error::from(error)),
        }
    }
    match args.output {
        Format::Text => {
            let texts: Vec<String> = cancelled.iter().map(|taken| taken.text(Paint::stdout())).collect();
            output::print(&together(&texts))?;
        }
        Format::Json => output::print_json(&Answer { schema: "wharf.cancel.v1", cancelled: &cancelled })?,
    }
    let codes: Vec<ExitCode> = errors.iter().map(|error| problem::report(error, args.output)).collect();
    Ok(codes.into_iter().next().unwrap_or(ExitCode::SUCCESS))
}

fn take_back(client: &Client, name: &str) -> Result<Taken, ClientError> {
    match name.split_once('/') {
        Some(("booking", name)) => client.unbook(name).map(Taken::Booking),
        Some(("maintenance", name)) => client.call_off(name).map(Taken::Maintenance),
        Some(_) | None => client.cancel(without_kind(name, "job")).map(Box::new).map(Taken::Job),
    }
}

/// A line for each, then what can be done next, each once.
fn together(texts: &[String]) -> String {
    let mut lines: Vec<String> =
        texts.iter().filter_map(|text| text.lines().next()).map(str::to_owned).collect();
    for line in texts.iter().flat_map(|text| text.lines().skip(1)) {
        if !lines.iter().any(|known| known == line) {
            lines.push(line.to_owned());
        }
    }
    output::lines(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_have_a_line_each_and_one_undo() {
        let text = |name: &str| format!("job/{name} is cancelled: it held nothing\nundo: none\n");
        let expected = "\
job/a is cancelled: it held nothing
job/b is cancelled: it held nothing
undo: none
";
        assert_eq!(together(&[text("a"), text("b")]), expected);
    }
}
