//! `wharf cordon`, `uncordon`, `drain`, `undrain`, `maintain`: levers on nodes, each with its undo.

use std::process::ExitCode;

use serde::Serialize;
use wharf_api::client::{Client, ClientError};
use wharf_api::file::lever::{parse_downtime, parse_drain};
use wharf_api::file::{FileError, nearest, span_text};
use wharf_api::v1::{
    Code, CordonRequest, DowntimeBody, DowntimeView, DrainBody, NodeList, NodeReply, NodeView, Problem,
    schema_of,
};
use wharf_engine::model::actor::Source;

use crate::args::names::{each_once, without_kind};
use crate::args::{CordonArgs, DrainArgs, Format, MaintainArgs, NodeNames, NodesArgs};
use crate::render::next_line;
use crate::render::numbers::{counted, moment, tenths};
use crate::render::output::{self, Paint, Tone};
use crate::show::world_now;

/// What errors in arguments are errors of.
const COMMAND_LINE: &str = "command line";

/// Keeps new work off nodes.
pub(crate) fn cordon(client: &Client, args: &CordonArgs) -> anyhow::Result<ExitCode> {
    let request = CordonRequest { reason: args.reason.clone() };
    let nodes = pull(client, &args.nodes, "is cordoned already", |node| client.cordon(node, &request))?;
    say(&args.nodes, &nodes, "uncordon", cordoned)
}

/// Lets new work come again.
pub(crate) fn uncordon(client: &Client, args: &NodesArgs) -> anyhow::Result<ExitCode> {
    let nodes = pull(client, &args.nodes, "is not cordoned", |node| client.uncordon(node))?;
    say(&args.nodes, &nodes, "cordon", opened)
}

/// Empties nodes.
pub(crate) fn drain(client: &Client, args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let DrainArgs { nodes, within, reason, force } = args;
    let request = DrainBody {
        within: within.clone(),
        reason: reason.clone(),
        everything: *force,
        ..DrainBody::default()
    };
    as_typed(&request, |text| parse_drain(COMMAND_LINE, text).map(|_| ()))?;
    let drained = match nodes.names.as_slice() {
        [_] => pull(client, nodes, "drains like that already", |node| client.drain(node, &request))?,
        // All of them close before anything leaves one, or work would move from one to the next.
        several => {
            let several = several.iter().map(|node| without_kind(node, "node").to_owned()).collect();
            client.drain_all(&DrainBody { nodes: several, ..request })?.nodes
        }
    };
    let now = world_now(client);
    say(nodes, &drained, "undrain", |node, paint| draining(node, now, paint))
}

/// Nodes need not be empty any more.
pub(crate) fn undrain(client: &Client, args: &NodesArgs) -> anyhow::Result<ExitCode> {
    let nodes = pull(client, &args.nodes, "does not drain", |node| client.undrain(node))?;
    say(&args.nodes, &nodes, "drain", opened)
}

/// Plans a downtime.
pub(crate) fn maintain(client: &Client, args: &MaintainArgs) -> anyhow::Result<ExitCode> {
    let MaintainArgs { nodes, from, lasts, name, reason, force } = args;
    let request = DowntimeBody {
        name: name.clone(),
        nodes: nodes.names.iter().map(|node| without_kind(node, "node").to_owned()).collect(),
        from: from.clone(),
        lasts: lasts.clone(),
        reason: reason.clone(),
        everything: *force,
    };
    as_typed(&request, |text| parse_downtime(COMMAND_LINE, text).map(|_| ()))?;
    let reply = client.maintain(&request)?;
    output::answer(nodes.output, &reply, |paint| planned(&reply.downtime, world_now(client), paint))?;
    Ok(ExitCode::SUCCESS)
}

/// What is wrong with a request is told of what was typed, not of the body that it is sent as.
fn as_typed(request: &impl Serialize, read: impl Fn(&str) -> Result<(), FileError>) -> anyhow::Result<()> {
    let text = serde_json::to_string(request)?;
    read(&text).map_err(|error| FileError { line: None, ..error })?;
    Ok(())
}

/// Pulls a lever on each node. Of several, none is touched where one is not there; one that is as asked already is told
/// in the words of `already`.
fn pull(
    client: &Client,
    nodes: &NodeNames,
    already: &str,
    lever: impl Fn(&str) -> Result<NodeReply, ClientError>,
) -> anyhow::Result<Vec<NodeView>> {
    let names = each_once(nodes.names.iter().map(|node| without_kind(node, "node")));
    if let [one] = names.as_slice() {
        return match lever(one) {
            Err(error) if is_nothing_to_do(&error) => {
                Err(Problem::new(Code::NothingToDo, format!("node/{one} {already}"))
                    .hint(format!("how it is: wharf explain node/{one}"))
                    .into())
            }
            reply => Ok(vec![reply?.node]),
        };
    }
    let known = client.nodes()?.nodes;
    let known: Vec<&str> = known.iter().map(|node| node.name.as_str()).collect();
    if let Some(stranger) = names.iter().find(|name| !known.contains(name)) {
        return Err(no_such_node(stranger, &known).into());
    }
    let mut done = Vec::new();
    for name in names {
        match lever(name) {
            Ok(reply) => done.push(reply.node),
            Err(error) if is_nothing_to_do(&error) => output::remark(&format!("node/{name} {already}")),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

fn is_nothing_to_do(error: &ClientError) -> bool {
    matches!(error, ClientError::Problem(problem) if problem.code == Code::NothingToDo)
}

fn no_such_node(name: &str, known: &[&str]) -> Problem {
    let near = nearest(name, known).map(|near| format!("did you mean {near}? "));
    let hint = format!("{}list them with: wharf get nodes", near.unwrap_or_default());
    Problem::new(Code::NoSuchNode, format!("there is no node {name:?}; nothing was changed")).hint(hint)
}

fn say(
    asked: &NodeNames,
    nodes: &[NodeView],
    undo: &str,
    text: impl Fn(&NodeView, Paint) -> String,
) -> anyhow::Result<ExitCode> {
    match (asked.output, nodes) {
        (Format::Text, _) => output::print(&lines(nodes, undo, text, Paint::stdout()))?,
        (Format::Json, [node]) if asked.names.len() == 1 => {
            output::print_json(&NodeReply { schema: schema_of::<NodeReply>(), node: node.clone() })?;
        }
        (Format::Json, _) => {
            output::print_json(&NodeList {
                schema: schema_of::<NodeList>(),
                nodes: nodes.to_vec(),
                index: 0,
                term: 0,
                next: None,
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(nodes: &[NodeView], undo: &str, text: impl Fn(&NodeView, Paint) -> String, paint: Paint) -> String {
    let Some(first) = nodes.first() else { return String::new() };
    let mut lines: Vec<String> = nodes.iter().map(|node| text(node, paint)).collect();
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let by = first.drain.as_ref().map(|drain| &drain.by).or(first.cordoned_by.as_ref());
    lines.extend(by.map(|by| next_line(paint, "by:", &claim(by))));
    lines.push(next_line(paint, "undo:", &format!("wharf {undo} {}", names.join(" "))));
    if first.drain.is_some() {
        lines.push(next_line(paint, "next:", &format!("wharf explain node/{}", first.name)));
    }
    output::lines(&lines)
}

/// A name that a lever came with: nobody has checked it. Whoever gave none is called by a word of ours.
fn claim(by: &str) -> String {
    if by == Source::Http.into_str() { by.to_owned() } else { format!("{by} (unverified)") }
}

fn title(node: &NodeView, paint: Paint) -> String {
    paint.tone(Tone::Strong, &format!("node/{}", node.name))
}

fn cordoned(node: &NodeView, paint: Paint) -> String {
    let stays = match node.gpus_allocated {
        used if used > 0.0 => format!("what runs on {} of its {} GPUs stays", tenths(used), node.gpus),
        _ => "nothing runs there now".to_owned(),
    };
    format!("{} is cordoned: new work keeps away, {stays}", title(node, paint))
}

/// A lever that was taken back may leave another one that keeps the node closed.
fn opened(node: &NodeView, paint: Paint) -> String {
    let name = title(node, paint);
    let closed =
        match (&node.drain, node.cordoned, node.maintenance.first().filter(|downtime| downtime.began)) {
            (Some(_), ..) => format!("it still drains: wharf undrain {}", node.name),
            (None, true, _) => format!("it is still cordoned: wharf uncordon {}", node.name),
            (None, false, Some(downtime)) => {
                format!("it is still out of service: maintenance/{}", downtime.name)
            }
            (None, false, None) if !node.up => "it is down".to_owned(),
            (None, false, None) => return format!("{name} is open: new work may come"),
        };
    format!("{name} takes no new work yet; {closed}")
}

/// `node/n1 drains: 3 tasks leave within 30m`
fn draining(node: &NodeView, now: Option<u64>, paint: Paint) -> String {
    let name = title(node, paint);
    if node.tasks == 0 {
        return format!("{name} is drained: nothing runs there, and nothing new comes");
    }
    let left = node.drain.as_ref().zip(now).map(|(drain, now)| drain.deadline_ms.saturating_sub(now));
    let within =
        left.filter(|&left| left > 0).map_or_else(String::new, |left| format!(" within {}", span_text(left)));
    let tasks = counted(node.tasks.into(), "task");
    let leave = if node.tasks == 1 { "leaves" } else { "leave" };
    let told = format!("{name} drains: nothing new comes, {tasks} {leave}{within}");
    match node.waits_for.as_slice() {
        [] => told,
        jobs => format!("{told}; it waits for work that may not be evicted: {}", jobs.join(", ")),
    }
}

fn planned(downtime: &DowntimeView, now: Option<u64>, paint: Paint) -> String {
    let DowntimeView { name, nodes, from_ms, until_ms, .. } = downtime;
    let title = paint.tone(Tone::Strong, &format!("maintenance/{name}"));
    let begins =
        now.map(|now| format!(" (in {})", span_text(from_ms.saturating_sub(now)))).unwrap_or_default();
    let lasts = span_text(until_ms.saturating_sub(*from_ms));
    output::lines(&[
        format!(
            "{title} is planned: {} out of service from {}{begins} for {lasts}",
            nodes.join(", "),
            moment(*from_ms)
        ),
        "  until then only work comes that can be gone by then; what remains is asked in time".to_owned(),
        next_line(paint, "undo:", &format!("wharf cancel maintenance/{name}")),
        next_line(paint, "next:", "wharf get maintenance"),
    ])
}

/// What is said of a downtime that was called off.
pub(super) fn called_off(downtime: &DowntimeView, paint: Paint) -> String {
    let DowntimeView { name, nodes, from_ms, until_ms, began, .. } = downtime;
    let title = paint.tone(Tone::Strong, &format!("maintenance/{name}"));
    let again = format!("wharf maintain {} --name {name}", nodes.join(" "));
    let after = match (began, nodes.len()) {
        (true, 1) => "is in service again",
        (true, _) => "are in service again",
        (false, 1) => "stays in service",
        (false, _) => "stay in service",
    };
    let lasts = span_text(until_ms.saturating_sub(*from_ms));
    output::lines(&[
        format!("{title} is called off: {} {after}", nodes.join(", ")),
        next_line(paint, "undo:", &format!("{again} --from TIME --for {lasts}")),
    ])
}

#[cfg(test)]
mod tests {
    use wharf_api::v1::DrainView;

    use super::*;
    use crate::render::samples::node;

    fn told(nodes: &[NodeView], undo: &str, text: impl Fn(&NodeView, Paint) -> String) -> String {
        lines(nodes, undo, text, Paint::OFF)
    }

    fn drain() -> DrainView {
        let (by, reason) = ("ada".into(), "fans".into());
        DrainView { by, reason, since_ms: 0, deadline_ms: 1_800_000, everything: false }
    }

    #[test]
    fn every_lever_prints_its_undo() {
        let used = NodeView { cordoned: true, gpus_allocated: 4.5, ..node("n1") };
        let both = told(&[used.clone(), NodeView { gpus_allocated: 0.0, ..used }], "uncordon", cordoned);
        assert!(both.contains("what runs on 4.5 of its 8 GPUs stays\n"), "{both}");
        assert!(both.ends_with("nothing runs there now\nundo: wharf uncordon n1 n1\n"), "{both}");
        let open = told(&[node("n1")], "cordon", opened);
        assert_eq!(open, "node/n1 is open: new work may come\nundo: wharf cordon n1\n");
        assert_eq!(told(&[], "cordon", opened), "");
    }

    #[test]
    fn who_pulled_a_lever_is_told_as_a_claim() {
        let drains =
            |by: &str| NodeView { drain: Some(DrainView { by: by.into(), ..drain() }), ..node("n1") };
        assert!(told(&[drains("ada")], "undrain", opened).contains("\nby: ada (unverified)\nundo: "));
        assert!(told(&[drains("anonymous")], "undrain", opened).contains("\nby: anonymous\nundo: "));
    }

    #[test]
    fn a_lever_that_is_left_is_named() {
        let drains = NodeView { drain: Some(drain()), ..node("n1") };
        assert!(opened(&drains, Paint::OFF).ends_with("it still drains: wharf undrain n1"));
        let cordoned = NodeView { cordoned: true, ..node("n1") };
        assert!(opened(&cordoned, Paint::OFF).ends_with("it is still cordoned: wharf uncordon n1"));
    }

    #[test]
    fn a_drain_says_what_leaves_and_what_it_waits_for() {
        let drains = NodeView { tasks: 3, drain: Some(drain()), ..node("n1") };
        let text = draining(&drains, Some(0), Paint::OFF);
        assert_eq!(text, "node/n1 drains: nothing new comes, 3 tasks leave within 30m");
        let blocked = NodeView { tasks: 1, waits_for: vec!["lab/nlp/a".into()], ..drains };
        let text = draining(&blocked, Some(1_800_000), Paint::OFF);
        let expected = "node/n1 drains: nothing new comes, 1 task leaves; it waits for work that may not be evicted: lab/nlp/a";
        assert_eq!(text, expected);
        assert!(draining(&node("n1"), None, Paint::OFF).contains("is drained"));
    }
}
