//! `wharf explain`: one screen that says why something is as it is.
//!
//! About jobs, bookings and evictions the control plane answers; about tenants, nodes and GPUs [`from_lists`] puts
//! together what the lists say.

pub(crate) mod array;
pub(crate) mod booking;
pub(crate) mod ended_job;
pub(crate) mod eviction;
mod from_lists;
mod job;
mod memory_axis;
mod promises;

use std::process::ExitCode;

use wharf_api::client::Client;

use crate::args::ExplainArgs;
use crate::render::problem::Usage;

/// Runs it.
pub(crate) fn run(client: &Client, args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let ExplainArgs { what, output } = args;
    match subject(what)? {
        Subject::Job(name) => job::explain(client, name, *output)?,
        Subject::Tenant(path) => from_lists::tenant(client, path, *output)?,
        Subject::Node(name) => from_lists::node(client, name, *output)?,
        Subject::Gpu { node, index } => from_lists::gpu(client, node, index, *output)?,
        Subject::Eviction(id) => eviction::explain(client, id, *output)?,
        Subject::Booking(name) => booking::explain(client, name, *output)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is asked about.
#[derive(Debug, PartialEq, Eq)]
enum Subject<'a> {
    Job(&'a str),
    Tenant(&'a str),
    Node(&'a str),
    Gpu { node: &'a str, index: u32 },
    Eviction(u64),
    Booking(&'a str),
}

fn subject(what: &str) -> Result<Subject<'_>, Usage> {
    let wrong = |what: String, next: &str| Usage { what, next: next.to_owned() };
    let (kind, name) = what.split_once('/').unwrap_or(("job", what));
    if name.is_empty() {
        return Err(wrong(
            format!("{what:?} names nothing"),
            "write job/NAME, tenant/PATH, node/NAME, gpu/NODE:INDEX, booking/NAME, eviction/ID or model/NAME",
        ));
    }
    match kind {
        "job" => Ok(Subject::Job(name)),
        "tenant" => Ok(Subject::Tenant(name)),
        "booking" => Ok(Subject::Booking(name)),
        "node" => Ok(Subject::Node(name)),
        "gpu" => {
            let parts =
                name.rsplit_once([':', '/']).and_then(|(node, index)| Some((node, index.parse().ok()?)));
            let Some((node, index)) = parts else {
                return Err(wrong(format!("{name:?} is no GPU"), "write gpu/NODE:INDEX, such as gpu/n1:3"));
            };
            Ok(Subject::Gpu { node, index })
        }
        "eviction" => match name.parse() {
            Ok(id) => Ok(Subject::Eviction(id)),
            Err(_) => Err(wrong(
                format!("{name:?} is no eviction: its id is a number"),
                "list them with: wharf get evictions",
            )),
        },
        // Not a kind: a job named by tenant and name, as the list shows it.
        _ => Ok(Subject::Job(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_about_is_read_from_its_name() {
        assert_eq!(subject("hello").unwrap(), Subject::Job("hello"));
        assert_eq!(subject("job/lab/nlp/hello").unwrap(), Subject::Job("lab/nlp/hello"));
        assert_eq!(subject("lab/nlp/hello").unwrap(), Subject::Job("lab/nlp/hello"));
        assert_eq!(subject("tenant/lab/nlp").unwrap(), Subject::Tenant("lab/nlp"));
        assert_eq!(subject("node/n1").unwrap(), Subject::Node("n1"));
        assert_eq!(subject("gpu/n1:3").unwrap(), Subject::Gpu { node: "n1", index: 3 });
        assert_eq!(subject("gpu/n1/3").unwrap(), Subject::Gpu { node: "n1", index: 3 });
        assert_eq!(subject("eviction/18234").unwrap(), Subject::Eviction(18_234));
        for wrong in [
            "eviction/",
            "eviction/x",
            "eviction/-1",
            "eviction/99999999999999999999",
            "gpu/n1",
            "gpu/n1:x",
            "gpu/n1:-1",
            "job/",
            "",
            "node/",
        ] {
            subject(wrong).expect_err(wrong);
        }
    }
}
