//! When an ask finds its places beside what is promised, and which.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::holders::holders;
use super::horizon::{Ends, Slot, first_fit};
use super::is_over_by;
use super::promise::StartPromiser;
use crate::model::placement::Placement;
use crate::plan::later::kept::KeptPlaces;
use crate::plan::place::{Ask, place_on};
use crate::state::State;
use crate::state::holding::Holding;
use crate::state::ledger::Step;
use crate::state::reservations::Reservation;
use crate::units::{JobId, NodeId, Timestamp};

/// So many moments are tried at which each group of a job would fit by itself.
const TOGETHER_MAX: u32 = 16;

/// True when a job holds something of one of these nodes.
pub(super) fn is_near(state: &State, job: JobId, places: &[Placement]) -> bool {
    let held = state.ledger.holding(job).into_iter().flat_map(Holding::staying);
    held.map(|task| task.place.node).any(|node| places.iter().any(|place| place.node == node))
}

impl StartPromiser<'_, '_> {
    /// When an ask fits these slots, and on which nodes. Groups that fit each by itself may be in each other's way, and only a
    /// try tells.
    pub(super) fn first_fit(
        &mut self,
        ask: &Ask<'_>,
        slots: &[Slot],
        ends: Ends<'_>,
    ) -> Option<(Timestamp, BTreeSet<NodeId>)> {
        let (state, mut tries) = (self.draft.state, 0);
        first_fit(state, ask, slots, |at, nodes| {
            tries += 1;
            let alike = ask.beside.is_none();
            alike || (tries <= TOGETHER_MAX && self.places_at(ask, at, nodes, ends).is_some())
        })
    }

    /// Where the tasks of an ask go on these nodes when every task has left that has by then.
    pub(super) fn places_at(
        &mut self,
        ask: &Ask<'_>,
        start: Timestamp,
        nodes: &BTreeSet<NodeId>,
        ends: Ends<'_>,
    ) -> Option<Vec<Placement>> {
        let mark = self.draft.mark();
        for &node in nodes {
            for held in self.horizon.held_on(self.draft, node) {
                let leaves = self.commitments.leaving.contains(&held.job);
                if !leaves && ends(&held).is_some_and(|end| end <= start) {
                    self.draft.drain(held.step);
                }
            }
        }
        let placed = place_on(self.draft, ask, &|node| nodes.contains(&node));
        self.draft.roll_back(mark);
        placed.map(|placed| placed.tasks)
    }

    /// True when an ask fits once every task with a known end is gone, and nothing is promised to others.
    pub(super) fn fits_at_last(&mut self, ask: &Ask<'_>) -> bool {
        let slots = self.horizon.slots_at_last(self.draft, ask);
        let alone = first_fit(self.draft.state, ask, &slots, |_, _| true).is_some();
        if ask.beside.is_none() || !alone {
            return alone;
        }
        let mark = self.draft.mark();
        let waiting = self.current().filter(|of| self.commitments.awaits(self.draft, of));
        let promised: Vec<Step> = waiting.flat_map(|of| KeptPlaces::Start(of).steps(self.draft)).collect();
        self.draft.vacate_all(&promised);
        let nodes = slots.iter().map(|slot| slot.node).collect();
        let fits = self.places_at(ask, Timestamp(u64::MAX), &nodes, &|held| held.end).is_some();
        self.draft.roll_back(mark);
        fits
    }

    /// Jobs that are in the way of a promise and neither over by its start nor told to leave: they would have to be asked.
    pub(super) fn late_for(&self, of: &Reservation) -> BTreeSet<JobId> {
        let mut late = holders(self.draft, of, &of.fillers);
        late.retain(|&job| {
            !is_over_by(self.draft, job, of.start) && !self.commitments.leaving.contains(&job)
        });
        late
    }
}
