//! A simulated fleet behind a network that delays, reorders and repeats what is sent over it, and loses calls.

use std::cell::RefCell;
use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wharf_controller::disk::Standing;
use wharf_controller::world::{World, WorldFault, WorldReport};
use wharf_engine::model::action::Action;
use wharf_engine::units::Timestamp;

use crate::world::fleet::SimFleet;
use crate::world::lost_calls::LostCalls;

/// The longest a message takes, in milliseconds of world time.
const DELAY_MAX_MS: u64 = 20_000;

/// A handle: a new leader and a stale one talk to the same world.
#[derive(Clone)]
pub struct NetWorld(Rc<RefCell<Net>>);

struct Net {
    fleet: SimFleet,
    faulty: bool,
    rng: ChaCha8Rng,
    calls: LostCalls,
    to_world: Vec<(Timestamp, Standing, Action)>,
    to_leader: Vec<(Timestamp, WorldReport)>,
    faults: u64,
}

impl NetWorld {
    /// A network before a fleet.
    pub fn new(fleet: SimFleet, mut rng: ChaCha8Rng, faulty: bool) -> Self {
        let (to_world, to_leader) = (Vec::new(), Vec::new());
        let calls = LostCalls::new(ChaCha8Rng::seed_from_u64(rng.random()), faulty);
        Self(Rc::new(RefCell::new(Net { fleet, faulty, rng, calls, to_world, to_leader, faults: 0 })))
    }

    /// Looks at or changes the fleet itself.
    pub fn with<T>(&self, how: impl FnOnce(&mut SimFleet) -> T) -> T {
        how(&mut self.0.borrow_mut().fleet)
    }

    /// From now on messages arrive once, at once and in order, and calls are answered.
    pub fn repair(&self) {
        let mut net = self.0.borrow_mut();
        net.faulty = false;
        net.calls.repair();
    }

    /// How many messages were delayed or repeated, and calls lost.
    pub fn faults(&self) -> u64 {
        let net = self.0.borrow();
        net.faults + net.calls.faults()
    }

    /// Lets time pass, message by message.
    pub fn advance(&self, to: Timestamp) {
        self.0.borrow_mut().advance(to);
    }
}

impl Net {
    fn advance(&mut self, to: Timestamp) {
        while let Some(at) = self.next_arrival().filter(|&at| at <= to) {
            self.fleet.advance(at);
            self.deliver(at);
        }
        self.fleet.advance(to);
        self.deliver(to);
    }

    fn next_arrival(&self) -> Option<Timestamp> {
        self.to_world.iter().map(|&(at, _, _)| at).min()
    }

    fn deliver(&mut self, now: Timestamp) {
        let (mut arrived, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.to_world).into_iter().partition(|&(at, _, _)| at <= now);
        self.to_world = waiting;
        arrived.sort_by_key(|&(at, _, _)| at);
        for (_, by, action) in arrived {
            self.fleet.act(by, &action);
        }
        if let Some(report) = self.fleet.changes() {
            for at in self.arrivals(now) {
                self.to_leader.push((at, report.clone()));
            }
        }
    }

    /// When a message arrives: once at once, or late, or twice.
    fn arrivals(&mut self, now: Timestamp) -> Vec<Timestamp> {
        if !self.faulty {
            return vec![now];
        }
        let late = |rng: &mut ChaCha8Rng| Timestamp(now.0 + rng.random_range(1..DELAY_MAX_MS));
        match self.rng.random_range(0..10) {
            0..7 => vec![now],
            7..9 => {
                self.faults += 1;
                vec![late(&mut self.rng)]
            }
            _ => {
                self.faults += 1;
                vec![now, late(&mut self.rng)]
            }
        }
    }
}

impl World for NetWorld {
    fn now(&self) -> Timestamp {
        self.0.borrow().fleet.now()
    }

    fn obeyed(&self) -> Standing {
        self.0.borrow().fleet.obeyed()
    }

    fn list(&mut self) -> Result<WorldReport, WorldFault> {
        let Net { fleet, calls, .. } = &mut *self.0.borrow_mut();
        calls.call("listing the fleet", || fleet.list())
    }

    fn recall(&mut self) -> Result<WorldReport, WorldFault> {
        Ok(self.0.borrow_mut().fleet.recall())
    }

    fn changes(&mut self) -> Result<Vec<WorldReport>, WorldFault> {
        let mut net = self.0.borrow_mut();
        let now = net.fleet.now();
        net.deliver(now);
        let Net { to_leader, calls, .. } = &mut *net;
        calls.call("looking at the fleet", || {
            let (mut arrived, waiting): (Vec<_>, Vec<_>) =
                std::mem::take(to_leader).into_iter().partition(|&(at, _)| at <= now);
            *to_leader = waiting;
            arrived.sort_by_key(|&(at, _)| at);
            arrived.into_iter().map(|(_, report)| report).collect()
        })
    }

    fn act(&mut self, by: Standing, actions: &[Action]) -> Result<(), WorldFault> {
        let mut net = self.0.borrow_mut();
        let now = net.fleet.now();
        let mut arrived = Vec::new();
        let sent = net.calls.send(actions, |action| arrived.push(action.clone()));
        for action in arrived {
            for at in net.arrivals(now) {
                net.to_world.push((at, by, action.clone()));
            }
        }
        net.deliver(now);
        sent
    }

    fn next_change(&self) -> Option<Timestamp> {
        let net = self.0.borrow();
        let coming = net.to_leader.iter().map(|&(at, _)| at).min();
        [net.fleet.next_change(), net.next_arrival(), coming].into_iter().flatten().min()
    }
}
