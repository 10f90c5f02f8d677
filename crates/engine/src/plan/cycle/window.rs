//! Jobs of a booked window: they start in its places, and work that fills those leaves for them.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Cycle, Grant};
use crate::model::placement::Placement;
use crate::plan::evict::victims::{Unit, whole_job};
use crate::plan::later::booked;
use crate::plan::lines::{self, Pass};
use crate::plan::memory::Obstacles;
use crate::plan::place::Ask;
use crate::state::bookings::Booking;
use crate::state::ledger::Step;
use crate::state::ledger::event::EvictionRule;
use crate::units::{BookingId, JobId};

impl<'a> Cycle<'a> {
    /// Gives a job of a window places of it, or names the ways that will not do.
    pub(super) fn serve_in_window(
        &mut self,
        at: usize,
        id: BookingId,
        asks: Vec<(Ask<'a>, Pass)>,
    ) -> Result<Grant<'a>, Vec<Ask<'a>>> {
        let state = self.draft.state;
        let booking = state.bookings.get(id).expect("a job names a window that is to come or lasts");
        let mut obstacles = Obstacles::default();
        let mut tried = Vec::new();
        for (ask, pass) in asks {
            if let Some(grant) = self.in_window(at, id, booking, &ask) {
                return Ok(grant);
            }
            obstacles.add(&ask, pass, lines::limit_exceeded(&self.draft, &ask));
            tried.push(ask);
        }
        self.refuse(at, obstacles);
        Err(tried)
    }

    fn in_window(&mut self, at: usize, id: BookingId, booking: &Booking, ask: &Ask<'a>) -> Option<Grant<'a>> {
        let mark = self.draft.mark();
        let counted = self.window_idle.get(&id).copied().unwrap_or_default();
        let left = booked::admit(&mut self.draft, booking, ask, counted)?;
        let Some((tasks, fillers)) = self.places_in(id, booking, ask) else {
            self.draft.roll_back(mark);
            return None;
        };
        self.window_idle.insert(id, left);
        let job = self.queue.get(at).first.1;
        for filler in fillers {
            self.evict_job(filler, EvictionRule::Booking, job);
        }
        let (resources, trust) = (ask.key.shape.resources, Some(ask.key.trust));
        for &place in &tasks {
            self.draft.occupy(Step { place, resources, trust });
        }
        self.draft.count(lines::work_group(ask.key), ask.total(), true);
        Some(Grant::new(ask, tasks))
    }

    /// Where all that is asked for goes, and which jobs have to leave for it. The draft stays as it is.
    fn places_in(
        &mut self,
        id: BookingId,
        booking: &Booking,
        ask: &Ask<'a>,
    ) -> Option<(Vec<Placement>, Vec<Unit>)> {
        if let Some(tasks) = booked::place_in(&self.draft, ask, booking) {
            return Some((tasks, Vec::new()));
        }
        let mark = self.draft.mark();
        let mut drained: Vec<Unit> = Vec::new();
        let tasks = self.fillers(id, booking).into_iter().find_map(|filler| {
            let unit = whole_job(&self.draft, filler)?;
            self.draft.evict(&unit);
            drained.push(unit);
            booked::place_in(&self.draft, ask, booking)
        });
        self.draft.roll_back(mark);
        let tasks = tasks?;
        let meets =
            |unit: &Unit| unit.steps.iter().any(|step| tasks.iter().any(|task| task.meets(&step.place)));
        drained.retain(meets);
        Some((tasks, drained))
    }

    /// Jobs that fill places of a window, the newest first.
    fn fillers(&self, id: BookingId, booking: &Booking) -> Vec<JobId> {
        let state = self.draft.state;
        let mut there: Vec<JobId> = state.strangers_in(id, &booking.places).into_iter().collect();
        there.retain(|&job| self.commitments.may_move(job));
        there.sort_by_key(|&job| (Reverse(state.ledger.holding(job).map(|holding| holding.at)), job));
        there
    }
}
