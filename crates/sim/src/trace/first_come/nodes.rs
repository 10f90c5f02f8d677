//! Nodes of eight GPUs, as plainly as they can be kept: how many GPUs of each are free.

use std::collections::BTreeSet;

/// GPUs of a node.
pub(super) const NODE_GPUS: usize = 8;

/// What a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ask {
    /// So many GPUs of one node, at most all of them.
    Part(usize),
    /// So many empty nodes.
    Nodes(usize),
}

/// What a job was given: how many GPUs of which nodes.
#[derive(Clone, Debug)]
pub(super) struct Given {
    gpus: usize,
    nodes: Vec<usize>,
}

/// A set of nodes that are alike.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    free: Vec<usize>,
    /// Nodes by how many of their GPUs are free.
    by_free: [BTreeSet<usize>; NODE_GPUS + 1],
}

impl Nodes {
    pub(super) fn new(count: usize) -> Self {
        let mut by_free: [BTreeSet<usize>; NODE_GPUS + 1] = Default::default();
        by_free[NODE_GPUS] = (0..count).collect();
        Self { free: vec![NODE_GPUS; count], by_free }
    }

    pub(super) fn count(&self) -> usize {
        self.free.len()
    }

    /// Whether an ask could be met if everything were free.
    pub(super) fn could_ever(&self, ask: Ask) -> bool {
        match ask {
            Ask::Part(_) => self.count() > 0,
            Ask::Nodes(nodes) => nodes <= self.count(),
        }
    }

    /// The node with the least room that suffices, the lowest of these; for more than a node, the lowest empty ones.
    pub(super) fn take(&mut self, ask: Ask) -> Option<Given> {
        let given = match ask {
            Ask::Part(gpus) => {
                let node = self.by_free[gpus..].iter().find_map(BTreeSet::first)?;
                Given { gpus, nodes: vec![*node] }
            }
            Ask::Nodes(count) => {
                let empty = &self.by_free[NODE_GPUS];
                if empty.len() < count {
                    return None;
                }
                Given { gpus: NODE_GPUS, nodes: empty.iter().take(count).copied().collect() }
            }
        };
        for &node in &given.nodes {
            self.set_free(node, self.free[node] - given.gpus);
        }
        Some(given)
    }

    pub(super) fn give_back(&mut self, given: &Given) {
        for &node in &given.nodes {
            self.set_free(node, self.free[node] + given.gpus);
        }
    }

    fn set_free(&mut self, node: usize, free: usize) {
        self.by_free[self.free[node]].remove(&node);
        self.by_free[free].insert(node);
        self.free[node] = free;
    }
}
