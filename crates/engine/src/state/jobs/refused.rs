//! Jobs that nodes refused to start: how often in a row, and which nodes they avoid for a while.

use alloc::vec::Vec;

use super::{Job, Jobs};
use crate::state::jobs::event::{NodeRefusal, StartRefusal};
use crate::units::{JobId, NodeId, Timestamp};

/// A job that was refused so often in a row is held. With the default policy that takes five minutes where
/// other nodes can be tried and twenty where none can: longer than a node takes to restart its agent.
pub(crate) const START_TRIES_MAX: u32 = 6;

/// A job avoids at most so many nodes; those that refused it first are forgotten for others.
const AVOIDED_MAX: usize = 8;

impl Job {
    /// The nodes that it avoids, in id order.
    pub(crate) fn avoided(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.past.refused.iter().map(|refusal| refusal.node).collect();
        nodes.sort_unstable();
        nodes
    }

    pub(super) fn avoid(&mut self, by: &[NodeRefusal], at: Timestamp, until: Timestamp) {
        let refused = &mut self.past.refused;
        for NodeRefusal { node, why } in by {
            refused.retain(|before| before.node != *node);
            refused.push(StartRefusal { node: *node, why: why.clone(), at, until });
        }
        refused.drain(..refused.len().saturating_sub(AVOIDED_MAX));
    }

    /// Somebody says that it may be tried again, as if it had never been refused.
    pub(super) fn release_refused(&mut self) {
        if self.past.refused_tries > 0 {
            self.not_before = Timestamp(0);
        }
        self.past.refused_tries = 0;
        self.past.refused.clear();
    }
}

impl Jobs {
    /// Jobs that avoid nodes.
    pub fn refused(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.refused.iter().filter_map(|&id| Some((id, self.live.get(&id)?)))
    }

    pub(super) fn forget_refusals(&mut self, id: JobId, at: Timestamp) {
        self.live_mut(id).past.refused.retain(|refusal| refusal.until > at);
        self.list(id);
    }

    /// All that it was given runs.
    pub(crate) fn no_longer_refused(&mut self, id: JobId) {
        self.live_mut(id).past.refused_tries = 0;
    }
}
