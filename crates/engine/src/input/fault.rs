//! What is wrong with a spec, whoever asks.

use serde::{Deserialize, Serialize};

use crate::job::{GpuAsk, Topology};

/// What is wrong with a spec in itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpecFault {
    /// Between 1 and `max`.
    Tasks {
        /// What was given.
        given: u32,
        /// The most.
        max: u32,
    },
    /// Between 1 and the number of tasks.
    Min {
        /// What was given.
        given: u32,
        /// The number of tasks.
        tasks: u32,
    },
    /// At most so many on one node, and a share is less than one.
    Gpus {
        /// What was given.
        given: GpuAsk,
        /// The most.
        max: u32,
    },
    /// At most so many.
    Alternatives {
        /// How many were given.
        given: usize,
        /// The most.
        max: usize,
    },
    /// Only whole GPUs have an island to share.
    IslandNeedsGpus {
        /// What was asked.
        topology: Topology,
    },
    /// Only inference jobs are services.
    ServiceClass,
    /// A service wants at most as many replicas as it may have.
    ServiceMax {
        /// How many it wants.
        replicas: u32,
        /// The most.
        max: u32,
    },
    /// It asks for nothing at all.
    Empty,
    /// At most so many groups.
    Groups {
        /// How many were given.
        given: usize,
        /// The most.
        max: usize,
    },
    /// Replicas of a service are all alike.
    GroupsOfService,
    /// A group contradicts itself or another.
    Group {
        /// Which, from 0.
        at: usize,
        /// How.
        fault: GroupFault,
    },
}

/// What is wrong with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupFault {
    /// It has none, or that of a group before it.
    Name,
    /// Between 1 and the number of tasks.
    Min {
        /// What was given.
        given: u32,
        /// Tasks of one copy.
        tasks: u32,
    },
    /// Between 1 and the number of copies.
    MinCopies {
        /// What was given.
        given: u32,
        /// The number of copies.
        copies: u32,
    },
    /// At most so many on one node, and a share is less than one.
    Gpus {
        /// What was given.
        given: GpuAsk,
        /// The most.
        max: u32,
    },
    /// At most so many alternatives.
    Alternatives {
        /// How many were given.
        given: usize,
        /// The most.
        max: usize,
    },
    /// A part of a GPU has no island.
    Island,
    /// It asks for nothing at all.
    Empty,
}
