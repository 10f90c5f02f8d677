//! The world's part of a turn: what is new is heard before anything is decided, and what is due is sent after the
//! commit. Either may fail; the turn goes on without it and the next one that is due tries again.

use wharf_engine::model::rejection::Rejection;

use super::{Controller, Fault};
use crate::disk::{Disk, Standing};
use crate::outage::Operation;
use crate::world::{World, WorldFault};

type Heard = Result<(), (Operation, WorldFault)>;

impl<D: Disk, W: World> Controller<D, W> {
    /// Learns what is new, unless the world does not answer, or did not lately.
    pub(super) fn hear(&mut self) {
        if !self.reach.is_open(self.now) {
            return;
        }
        let heard = if self.reach.must_list() { self.list_again() } else { self.hear_changes() };
        if let Err((operation, fault)) = heard {
            self.reach.failed(operation, &fault, self.now, &self.world);
        }
    }

    fn hear_changes(&mut self) -> Heard {
        let reports = self.world.changes().map_err(|fault| (Operation::Changes, fault))?;
        for report in reports {
            if let Err(Rejection::Gap { .. }) = self.take_report(report) {
                self.figures.gaps += 1;
                self.list_again()?;
            }
        }
        Ok(())
    }

    fn list_again(&mut self) -> Heard {
        let listed = self.world.list().map_err(|fault| (Operation::List, fault))?;
        // Whoever put an old world back under a running control plane can put the right one back, too.
        self.take_report(listed).map_err(|_| {
            let source = Fault::WorldBehind.into();
            (Operation::List, WorldFault { attempted: "listing the fleet".to_owned(), source })
        })?;
        self.reach.listed();
        Ok(())
    }

    /// Sends what is due and was not sent. What the world did not take stays due.
    pub(super) fn act(&mut self) {
        let due = self.sent.unsent(self.state.actions_due(), self.now, self.settings.resend_after);
        if !due.is_empty() {
            if let Err(fault) = self.world.act(Standing { term: self.term, next: self.state.index() }, &due) {
                self.reach.failed(Operation::Act, &fault, self.now, &self.world);
                return;
            }
            self.sent.mark(&due, self.now);
        }
        self.reach.answered();
    }
}
