//! A world for tests of what is around a controller.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use wharf_controller::disk::Standing;
use wharf_controller::world::{World, WorldFault, WorldReport};
use wharf_engine::model::action::Action;
use wharf_engine::units::Timestamp;

/// A world in which nothing is and nothing happens. Turns come to it one by one and are held up as was arranged.
#[derive(Clone, Default)]
pub(crate) struct Nowhere(Arc<Mutex<VecDeque<Arranged>>>);

/// The world's end of a [`Hold`].
type Arranged = (Sender<()>, Receiver<()>);

/// A turn that is to be held up, the next one that is not arranged for yet.
pub(crate) struct Hold {
    pub(crate) entered: Receiver<()>,
    _release: Sender<()>,
}

impl Nowhere {
    pub(crate) fn arrange(&self) -> Hold {
        let ((enter, entered), (release, released)) = (channel(), channel());
        self.0.lock().unwrap().push_back((enter, released));
        Hold { entered, _release: release }
    }
}

impl World for Nowhere {
    fn now(&self) -> Timestamp {
        Timestamp(1)
    }

    fn obeyed(&self) -> Standing {
        Standing::default()
    }

    fn list(&mut self) -> Result<WorldReport, WorldFault> {
        Ok(WorldReport::default())
    }

    fn changes(&mut self) -> Result<Vec<WorldReport>, WorldFault> {
        let arranged = self.0.lock().unwrap().pop_front();
        if let Some((enter, released)) = arranged {
            enter.send(()).unwrap();
            let _ = released.recv();
        }
        Ok(Vec::new())
    }

    fn act(&mut self, _: Standing, _: &[Action]) -> Result<(), WorldFault> {
        Ok(())
    }

    fn next_change(&self) -> Option<Timestamp> {
        None
    }
}
