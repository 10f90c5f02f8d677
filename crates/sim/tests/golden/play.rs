//! The stage of a golden story: a leader over a few nodes, and what it wrote.

use std::collections::BTreeMap;

use wharf_controller::codec;
use wharf_controller::disk::Disk;
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Settings};
use wharf_engine::decide::input::{Input, Request};
use wharf_engine::state::event::Event;
use wharf_engine::units::{JobId, Timestamp};
use wharf_sim::world::direct::DirectWorld;
use wharf_sim::world::fleet::SimFleet;

use super::parts::node;

pub(crate) struct Play {
    pub(crate) world: DirectWorld,
    disk: MemoryDisk,
    leader: Controller<MemoryDisk, DirectWorld>,
    step_s: u64,
    events: Vec<Event>,
    from: u64,
}

impl Play {
    /// While time passes the leader looks every so many seconds; 0: once, at the end.
    pub(crate) fn on(seed: u64, nodes: &[&str], step_s: u64) -> Self {
        let nodes = nodes.iter().map(|name| node(name)).collect();
        let world = DirectWorld::new(SimFleet::new(seed, nodes, Timestamp(1_000_000)));
        let disk = MemoryDisk::new();
        let leader = Controller::open(disk.clone(), world.clone(), Settings::default()).unwrap();
        Self { world, disk, leader, step_s, events: Vec::new(), from: 0 }
    }

    /// Gives inputs and lets time pass; the live jobs by name.
    pub(crate) fn go(&mut self, inputs: &[Input], wait_s: u64) -> BTreeMap<String, JobId> {
        for reply in self.leader.turn(inputs).unwrap() {
            reply.unwrap();
        }
        let (looks, step_s) = match self.step_s {
            0 => (1, wait_s),
            step_s => (wait_s / step_s, step_s),
        };
        for _ in 0..looks {
            self.world.with(|fleet| fleet.advance(Timestamp(fleet.now().0 + step_s * 1000)));
            self.leader.turn(&[]).unwrap();
        }
        let live = self.leader.state().jobs.iter();
        live.map(|(id, job)| (job.spec.name.clone(), id)).collect()
    }

    /// The same with requests, each of somebody.
    pub(crate) fn ask(&mut self, requests: &[Request], wait_s: u64) -> BTreeMap<String, JobId> {
        for reply in self.leader.turn_of(requests).unwrap() {
            reply.unwrap();
        }
        self.go(&[], wait_s)
    }

    /// The bodies of all records.
    pub(crate) fn records(mut self) -> Vec<String> {
        let mut bodies = Vec::new();
        let read = self.disk.read(0, &mut |_, record| {
            bodies.push(String::from_utf8(record.body).unwrap());
            Ok(())
        });
        read.unwrap();
        bodies
    }

    /// A copy of the journal as it is now.
    pub(crate) fn backup(&self) -> MemoryDisk {
        self.disk.backup()
    }

    /// An older copy is put in place of the journal.
    pub(crate) fn restore(&mut self, copy: &MemoryDisk) {
        self.disk = copy.clone();
        self.leader = Controller::restore(copy.clone(), self.world.clone(), Settings::default()).unwrap();
    }

    /// The clock of the world.
    pub(crate) fn now(&self) -> Timestamp {
        self.world.with(|fleet| fleet.now())
    }

    /// What was written so far stands there as a snapshot.
    pub(crate) fn snapshot(&mut self) {
        self.events = self.leader.state().snapshot();
        self.from = self.leader.state().index();
    }

    /// The snapshot, if one was taken, and what was written since.
    pub(crate) fn written(mut self) -> Vec<Event> {
        let (from, mut events) = (self.from, self.events);
        self.disk
            .read(0, &mut |index, record| {
                if index >= from {
                    events.push(codec::decode(&record, "story")?);
                }
                Ok(())
            })
            .unwrap();
        events
    }
}
