//! A world for tests of what is around a controller.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use wharf_controller::disk::Standing;
use wharf_controller::world::{NodeReport, World, WorldFault, WorldReport};
use wharf_engine::model::action::Action;
use wharf_engine::model::observed::{ObservedGpu, ObservedNode};
use wharf_engine::units::{Resources, Timestamp};

/// A world in which nothing happens and nothing is, or one node. What is asked of it is held up as was arranged.
#[derive(Clone, Default)]
pub(crate) struct Nowhere {
    /// How turns are held up when they begin.
    turns: Arranged,
    /// How they are held up when the world is to act.
    acts: Arranged,
    node: bool,
}

type Arranged = Arc<Mutex<VecDeque<Arrangement>>>;

/// The world's end of a [`Hold`].
type Arrangement = (Sender<()>, Receiver<()>);

/// Something that is to be held up, the next time that is not arranged for yet.
pub(crate) struct Hold {
    pub(crate) entered: Receiver<()>,
    _release: Sender<()>,
}

impl Nowhere {
    /// With a node of one GPU.
    pub(crate) fn with_a_node() -> Self {
        Self { node: true, ..Self::default() }
    }

    /// Holds a turn up before anything is decided.
    pub(crate) fn arrange(&self) -> Hold {
        arrange(&self.turns)
    }

    /// Holds a turn up when it has been committed and has something to be done.
    pub(crate) fn arrange_act(&self) -> Hold {
        arrange(&self.acts)
    }
}

fn arrange(queue: &Arranged) -> Hold {
    let ((enter, entered), (release, released)) = (channel(), channel());
    queue.lock().unwrap().push_back((enter, released));
    Hold { entered, _release: release }
}

fn hold_up(queue: &Arranged) {
    let arranged = queue.lock().unwrap().pop_front();
    if let Some((enter, released)) = arranged {
        enter.send(()).unwrap();
        let _ = released.recv();
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
        let node = ObservedNode {
            name: "n1".into(),
            up: true,
            model: "h100".into(),
            gpus: vec![ObservedGpu { healthy: true, ..ObservedGpu::default() }],
            capacity: Resources { cpu_milli: 64_000, memory: 1 << 40, pods: 100, ..Resources::default() },
            ..ObservedNode::default()
        };
        let node = NodeReport { node, labels: BTreeMap::new(), taints: Vec::new() };
        let nodes = Some(node).filter(|_| self.node).into_iter().collect();
        Ok(WorldReport { nodes, ..WorldReport::default() })
    }

    fn changes(&mut self) -> Result<Vec<WorldReport>, WorldFault> {
        hold_up(&self.turns);
        Ok(Vec::new())
    }

    fn act(&mut self, _: Standing, _: &[Action]) -> Result<(), WorldFault> {
        hold_up(&self.acts);
        Ok(())
    }

    fn next_change(&self) -> Option<Timestamp> {
        None
    }
}
