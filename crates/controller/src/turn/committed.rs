//! What a turn wrote, for whoever follows the controller with a state of its own.

use wharf_engine::state::event::Event;

use super::Controller;
use crate::disk::Disk;
use crate::selectors::Strings;
use crate::world::World;

/// What the last turn wrote. It is kept until the next turn begins.
#[derive(Debug, Default)]
pub struct Committed {
    /// Its events, in the order of the journal.
    pub events: Vec<Event>,
    /// True when selectors may match other nodes than before.
    pub strings_changed: bool,
}

impl<D: Disk, W: World> Controller<D, W> {
    /// Hands over the events of the last turn, and what selectors see of the nodes where that changed. Applied in
    /// order to a copy of the state before the turn, the events make the state after it.
    pub fn take_committed(&mut self) -> (Vec<Event>, Option<Strings>) {
        let Committed { events, strings_changed } = std::mem::take(&mut self.committed);
        (events, strings_changed.then(|| self.strings.clone()))
    }
}
