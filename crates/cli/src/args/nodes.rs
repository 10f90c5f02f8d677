//! Levers on nodes: `wharf cordon`, `uncordon`, `drain`, `undrain`, `maintain`.

use clap::Args;

use super::Format;

/// `wharf cordon`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Work that runs on the nodes stays; new work keeps away until they are uncordoned. The reason is shown by
wharf get nodes -o wide and wharf explain node/NAME.

Examples:
  wharf cordon n1
  wharf cordon n1 n2 n3 --reason \"switch s4 is being replaced\"")]
pub(crate) struct CordonArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeNames,
    /// The reason, which is shown with the node
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// `wharf uncordon` and `wharf undrain`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  wharf uncordon n1                    new work may come again
  wharf undrain n1 n2                  what was asked to leave stays, where it has not saved its work yet")]
pub(crate) struct NodesArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeNames,
}

/// `wharf drain`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Nothing new is placed on a node that drains. What is there has to be gone within the given time: a job that is over by then
is left alone, every other one is asked to save its work as late as its grace allows, and waits or starts elsewhere. A service
and an elastic job give up only what they have on the node; a gang moves whole. Work that may not be evicted
(preemptible: false) is waited for; --force asks it to leave too. The node stays closed until wharf undrain.

Examples:
  wharf drain n1                       now
  wharf drain n1 n2 --within 30m --reason \"fans\"
  wharf drain n1 --force               also work that may not be evicted
  wharf explain node/n1                how far it is, and what it waits for")]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeNames,
    /// It is to be empty after so long [default: at once]
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub(crate) within: Option<String>,
    /// What for
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Work that may not be evicted has to leave too
    #[arg(long)]
    pub(crate) force: bool,
}

/// `wharf maintain`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
From its begin to its end the nodes are out of service. Before that they take only work that is over or can be gone by then;
what remains is asked in time, as by wharf drain. Afterwards they return by themselves.

Examples:
  wharf maintain n1 n2 --from 2026-11-20T08:00Z --for 4h --reason \"new firmware\"
  wharf maintain n1 --from +2h --for 30m --name fans
  wharf get maintenance
  wharf cancel maintenance/fans")]
pub(crate) struct MaintainArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeNames,
    /// When it begins: 2026-11-20T08:00Z, or +2h from now
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: String,
    /// How long it lasts: 4h
    #[arg(long = "for", value_name = "SPAN", allow_hyphen_values = true)]
    pub(crate) lasts: String,
    /// Unique among planned maintenance [default: made of the begin]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// What for
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Work that may not be evicted has to leave too
    #[arg(long)]
    pub(crate) force: bool,
}

/// Nodes, and how the answer is written.
#[derive(Debug, Args)]
pub(crate) struct NodeNames {
    /// NAME or node/NAME; several, also with commas between them
    #[arg(value_name = "NODE", required = true, value_delimiter = ',')]
    pub(crate) names: Vec<String>,
    /// How the answer is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}
