//! What the fleet answers to actions, and which of them it refuses.
//!
//! An answer is kept until it is acknowledged and told again with every list. That something is done is told with whatever there is
//! to tell next, because nobody waits for it; anything else is told at once. A start that was refused is never carried out
//! later, however late a copy of it arrives.

use std::collections::{BTreeMap, BTreeSet};

use wharf_engine::model::action::StartTask;
use wharf_engine::model::observed::TaskRef;
use wharf_engine::model::outcome::{ActionOutcome, ActionRef, Answer, Denial};
use wharf_engine::units::{GpuMask, Timestamp};

use super::SimFleet;

/// Answers that were not acknowledged.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// With the generation of the report that told it last; 0 before the first.
    kept: BTreeMap<ActionRef, (ActionOutcome, u64)>,
    unreported: BTreeSet<ActionRef>,
    /// Whether one of them is more than that something is done.
    urgent: bool,
}

impl Answers {
    /// True when somebody waits for what was not told yet.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    fn give(&mut self, about: ActionRef, outcome: ActionOutcome) {
        self.urgent |= outcome != ActionOutcome::Done;
        self.kept.insert(about, (outcome, 0));
        self.unreported.insert(about);
    }

    /// What was not told yet, or all that is kept.
    pub(super) fn tell(&mut self, all: bool, generation: u64) -> Vec<Answer> {
        let unreported = std::mem::take(&mut self.unreported);
        self.urgent = false;
        let told = self.kept.iter_mut().filter(|(about, _)| all || unreported.contains(about));
        told.map(|(&about, (outcome, told_in))| {
            *told_in = generation;
            Answer { about, outcome: outcome.clone() }
        })
        .collect()
    }

    pub(super) fn acknowledge(&mut self, generation: u64) {
        self.kept.retain(|_, (_, told_in)| *told_in == 0 || *told_in > generation);
    }
}

/// What nodes refuse to do, and until when; `None` for as long as nobody heals them.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusing {
    starts: BTreeMap<String, (Denial, Option<Timestamp>)>,
    stops: BTreeMap<String, (Denial, Option<Timestamp>)>,
}

impl Refusing {
    pub(super) fn heal(&mut self, node: &str) {
        self.starts.remove(node);
        self.stops.remove(node);
    }
}

fn denial(by: &BTreeMap<String, (Denial, Option<Timestamp>)>, node: &str, now: Timestamp) -> Option<Denial> {
    let (why, until) = by.get(node)?;
    until.is_none_or(|until| now < until).then(|| why.clone())
}

impl SimFleet {
    /// From now on a node starts nothing and says why, until then or until it is healed.
    pub fn refuse_starts(&mut self, node: &str, why: Denial, until: Option<Timestamp>) {
        self.refusing.starts.insert(node.to_owned(), (why, until));
    }

    /// From now on nothing on a node is asked to leave or stopped, until then or until it is healed.
    pub fn refuse_stops(&mut self, node: &str, why: Denial, until: Option<Timestamp>) {
        self.refusing.stops.insert(node.to_owned(), (why, until));
    }

    pub(super) fn answer(&mut self, about: ActionRef, outcome: ActionOutcome) {
        self.answers.give(about, outcome);
    }

    /// Why a task is not started, if it is not.
    pub(super) fn not_started(&self, task: TaskRef, place: &StartTask) -> Option<ActionOutcome> {
        let late = self.over.get(&(task.uid, task.task)).is_some_and(|&(attempt, _)| task.attempt <= attempt);
        if late {
            return Some(ActionOutcome::Gone);
        }
        let why = match self.nodes.get(&place.node) {
            None => Some(Denial::NodeUnknown),
            Some(node) if !node.node.up => Some(Denial::NodeNotReady),
            Some(_) => denial(&self.refusing.starts, &place.node, self.now).or_else(|| self.no_room(place)),
        };
        why.map(|why| ActionOutcome::Refused { why })
    }

    /// A node refuses a device that is in use, or that cannot be divided like that: an old attempt may still run there.
    fn no_room(&self, place: &StartTask) -> Option<Denial> {
        let mig = self.mig_of(&place.node);
        let gpus = &self.occupied[&place.node];
        let of_node = &self.nodes[&place.node].node.gpus;
        let those = |which: &dyn Fn(usize) -> bool| {
            let mut mask = GpuMask::default();
            place.gpus.indexes().filter(|&gpu| which(gpu)).for_each(|gpu| mask.insert(gpu));
            (mask != GpuMask::default()).then_some(mask)
        };
        let failed = those(&|gpu| !of_node.get(gpu).is_some_and(|gpu| gpu.healthy));
        let taken = those(&|gpu| !gpus.get(gpu).is_some_and(|gpu| gpu.allows(place, mig)));
        let one_if_sliced = place.slice.is_none() || place.gpus.count() == 1;
        let unsupported = (!one_if_sliced).then_some(Denial::Unsupported);
        let failed = failed.map(|gpus| Denial::DevicesFailed { gpus });
        failed.or(taken.map(|gpus| Denial::DevicesTaken { gpus })).or(unsupported)
    }

    /// Why tasks on a node are not made to leave, if they are not.
    pub(super) fn keeps(&self, node: &str) -> Option<Denial> {
        denial(&self.refusing.stops, node, self.now)
    }
}
