//! Who is on one simulated GPU, and what else may come: a node refuses what no driver would do.

use wharf_engine::device::catalogue::Mig;
use wharf_engine::device::geometry::Layout;
use wharf_engine::model::action::StartTask;
use wharf_engine::model::policy::Mode;
use wharf_engine::units::GpuUnits;

use super::SimTask;

/// What tasks, running or about to, have of one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Occupancy {
    /// How much of it, in parts of a GPU.
    parts: u64,
    /// How many of them there are.
    pub(super) tasks: usize,
    /// Of these, so many take turns on it.
    turns: usize,
    /// The slices that they have.
    pub(super) slices: Layout,
}

impl Occupancy {
    /// Whether a task could come too. An old attempt may still be there.
    pub(super) fn allows(&self, place: &StartTask, mig: Option<&Mig>) -> bool {
        if self.parts + place.units_each.parts() > GpuUnits::WHOLE.parts() {
            return false;
        }
        let sliced = self.slices.slices().count();
        if let Some(slice) = place.slice {
            // Beside an undivided user nothing can be cut out.
            let legal = mig.is_some_and(|mig| self.slices.allows(mig, slice));
            return place.enforced == Mode::Mig && sliced == self.tasks && legal;
        }
        let turns = place.enforced == Mode::TimeSlicing;
        let same_way = if turns { self.turns == self.tasks } else { self.turns == 0 };
        place.enforced != Mode::Mig && sliced == 0 && same_way
    }

    pub(super) fn come(&mut self, task: &SimTask) {
        self.parts += task.units_each.parts();
        self.tasks += 1;
        self.turns += usize::from(task.enforced == Mode::TimeSlicing);
        if let Some(slice) = task.slice {
            self.slices = self.slices.with(slice);
        }
    }

    pub(super) fn go(&mut self, task: &SimTask) {
        self.parts -= task.units_each.parts();
        self.tasks -= 1;
        self.turns -= usize::from(task.enforced == Mode::TimeSlicing);
        if let Some(slice) = task.slice {
            self.slices = self.slices.without(slice);
        }
    }
}
