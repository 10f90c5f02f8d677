//! What goes wrong, at random: nodes, GPUs, the disk, and leaders that do not know they are over.

use rand::RngExt;
use wharf_controller::disk::DiskFault;
use wharf_controller::memory::CrashPoint;
use wharf_controller::turn::Fault;
use wharf_engine::decide::input::Input;
use wharf_engine::device::catalogue::xid::XIDS;

use super::{Run, generate};

impl Run {
    pub(super) fn node_fault(&mut self) {
        self.report.faults += 1;
        let node = self.some_node();
        let joining = generate::node(&mut self.rng, self.nodes_made);
        let last = self.world.with(|fleet| fleet.node_names().count()) == 1;
        let gpus = self.world.with(|fleet| fleet.gpus_of(&node)).max(1);
        let (gpu, error) = (self.rng.random_range(0..gpus), &XIDS[self.rng.random_range(0..XIDS.len())]);
        self.world.with(|fleet| match self.rng.random_range(0..11) {
            0 => fleet.fail_node(&node, true),
            1 => fleet.fail_node(&node, false),
            2..4 => fleet.heal_node(&node),
            4 => fleet.change_node(&node, |known| {
                known.labels.insert("zone".into(), "north".into());
                known.taints.clear();
            }),
            5 => fleet.change_node(&node, |known| {
                known.node.gpus.iter_mut().take(1).for_each(|gpu| gpu.healthy = !gpu.healthy);
            }),
            6 => fleet.change_node(&node, |known| {
                known.node.gpus.pop();
            }),
            7 if !last => fleet.remove_node(&node),
            8..10 => {
                fleet.gpu_error(&node, gpu, error);
            }
            _ => {
                self.nodes_made += 1;
                fleet.add_node(joining);
            }
        });
        self.give(Input::Tick);
    }

    pub(super) fn arm_crash(&mut self) {
        let point = if self.rng.random() { CrashPoint::Before } else { CrashPoint::After };
        self.disk.crash_after(self.rng.random_range(1..=4), point);
    }

    /// A second leader takes over while the first still thinks that it leads.
    pub(super) fn stale_leader(&mut self) {
        self.leader();
        let mut old = self.leader.take().expect("there is a leader");
        self.leader();
        self.report.faults += 1;
        let policy = old.state().tenants.policy().clone();
        let job = generate::job(&mut self.rng, generate::leaves(&policy)[0].clone(), self.next_job);
        self.next_job += 1;
        match old.turn(&[Input::Submit(Box::new(job))]) {
            Err(Fault::Disk(DiskFault::Fenced { .. } | DiskFault::Io { .. })) => {}
            Err(fault) => self.find(format!("a stale leader failed in another way: {fault}")),
            Ok(replies) if replies[0].is_err() => {}
            Ok(_) => self.find("a stale leader acknowledged a job"),
        }
    }
}
