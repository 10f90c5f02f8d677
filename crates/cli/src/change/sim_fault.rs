//! `wharf sim-fault`: something goes wrong in a simulated fleet, to see what follows.

use std::process::ExitCode;

use wharf_api::client::Client;
use wharf_api::v1::{FaultReply, FaultRequest};
use wharf_engine::device::catalogue::xid;

use crate::args::SimFaultArgs;
use crate::render::next_line;
use crate::render::output::{self, Paint, Tone};
use crate::render::problem::Usage;

/// Lets it happen.
pub(crate) fn run(client: &Client, args: &SimFaultArgs) -> anyhow::Result<ExitCode> {
    let SimFaultArgs { target, xid, down, refuse_starts, span, heal, output } = args;
    reject_what_cannot_happen(args)?;
    let request = FaultRequest {
        target: target.clone(),
        xid: *xid,
        down: *down,
        refuse_starts: *refuse_starts,
        span: span.clone(),
        heal: *heal,
    };
    let reply = client.fault(&request)?;
    output::answer(*output, &reply, |paint| text(&request, &reply, paint))?;
    Ok(ExitCode::SUCCESS)
}

/// A GPU reports errors, a node fails: what does not fit is told in the words of the command line.
fn reject_what_cannot_happen(args: &SimFaultArgs) -> Result<(), Usage> {
    let SimFaultArgs { target, xid, down, refuse_starts, .. } = args;
    let (what, next) = match target.split_once('/') {
        Some(("gpu", name)) if *down || *refuse_starts => {
            let node = name.split(':').next().unwrap_or(name);
            let next = format!(
                "wharf sim-fault {target} --xid 79, or for the whole node: wharf sim-fault node/{node} --down"
            );
            ("is a GPU: it reports an error (--xid) or is healed (--heal)", next)
        }
        Some(("node", name)) if xid.is_some() => {
            let next = format!(
                "wharf sim-fault {target} --down, or for one GPU of it: wharf sim-fault gpu/{name}:0 --xid 79"
            );
            ("is a node: it fails (--down), refuses starts (--refuse-starts) or is healed (--heal)", next)
        }
        Some(("gpu" | "node", _)) => return Ok(()),
        Some(_) | None => ("is neither a GPU nor a node", "write gpu/NODE:INDEX or node/NODE".to_owned()),
    };
    Err(Usage { what: format!("{target} {what}"), next })
}

fn text(request: &FaultRequest, reply: &FaultReply, paint: Paint) -> String {
    let mut lines = vec![paint.tone(Tone::Strong, &reply.text)];
    lines.extend(reply.jobs.iter().map(|job| format!("  job/{job} lost tasks by it")));
    // An error that costs no device leaves nothing to undo.
    let costs = request.xid.and_then(xid).is_none_or(|known| known.recovery.costs_device());
    if costs && !request.heal {
        let target = &request.target;
        lines.push(next_line(paint, "undo:", &format!("wharf sim-fault {target} --heal")));
    }
    lines.push(next_line(
        paint,
        "next:",
        &match reply.jobs.first() {
            Some(job) => format!("wharf explain job/{job}"),
            None => format!("wharf explain {}", request.target),
        },
    ));
    output::lines(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Format;

    #[test]
    fn what_cannot_happen_is_told_as_it_was_typed() {
        let args = |target: &str, xid, down| SimFaultArgs {
            target: target.into(),
            xid,
            down,
            refuse_starts: false,
            span: None,
            heal: false,
            output: Format::Text,
        };
        let told = reject_what_cannot_happen(&args("gpu/n1:1", None, true)).unwrap_err();
        assert!(told.what.starts_with("gpu/n1:1 is a GPU: it reports an error (--xid)"), "{told}");
        assert!(told.next.ends_with("wharf sim-fault node/n1 --down"), "{told}");
        assert!(reject_what_cannot_happen(&args("node/n1", Some(79), false)).is_err());
        assert!(reject_what_cannot_happen(&args("n1", None, true)).is_err());
        assert!(reject_what_cannot_happen(&args("node/n1", None, true)).is_ok());
    }

    #[test]
    fn what_was_lost_is_named_with_the_undo() {
        let request = FaultRequest { target: "gpu/n1:3".into(), xid: Some(79), ..FaultRequest::default() };
        let reply = FaultReply {
            schema: String::new(),
            text: "gpu/n1:3 has failed".into(),
            jobs: vec!["lab/a".into()],
        };
        let told = text(&request, &reply, Paint::OFF);
        assert!(told.contains("job/lab/a lost tasks by it"), "{told}");
        assert!(told.contains("wharf sim-fault gpu/n1:3 --heal"), "{told}");
        assert!(told.contains("wharf explain job/lab/a"), "{told}");
        let told = text(&FaultRequest { xid: Some(13), ..request }, &reply, Paint::OFF);
        assert!(!told.contains("undo"), "an application's error costs nothing that could return: {told}");
    }
}
