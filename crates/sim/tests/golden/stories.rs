//! Stories of what came after the first rules: each plays on a small fleet, with a snapshot in the middle.

use std::collections::BTreeMap;

use wharf_controller::codec;
use wharf_controller::disk::Disk;
use wharf_controller::memory::MemoryDisk;
use wharf_controller::turn::{Controller, Settings};
use wharf_engine::event::Event;
use wharf_engine::input::{Input, Replacement};
use wharf_engine::job::{Class, Service};
use wharf_engine::units::{JobId, Millis, Timestamp};
use wharf_sim::direct::DirectWorld;
use wharf_sim::fleet::SimFleet;

use super::{node, rules_job, rules_policy};

/// A leader over two nodes, and what it wrote.
struct Play {
    world: DirectWorld,
    disk: MemoryDisk,
    leader: Controller<MemoryDisk, DirectWorld>,
    events: Vec<Event>,
    from: u64,
}

impl Play {
    fn new(seed: u64) -> Self {
        let world =
            DirectWorld::new(SimFleet::new(seed, ["n1", "n2"].map(node).into(), Timestamp(1_000_000)));
        let disk = MemoryDisk::new();
        let leader = Controller::open(disk.clone(), world.clone(), Settings::default()).unwrap();
        Self { world, disk, leader, events: Vec::new(), from: 0 }
    }

    fn go(&mut self, inputs: &[Input], wait_s: u64) -> BTreeMap<String, JobId> {
        for reply in self.leader.turn(inputs).unwrap() {
            reply.unwrap();
        }
        for _ in 0..wait_s {
            self.world.with(|fleet| fleet.advance(Timestamp(fleet.now().0 + 1000)));
            self.leader.turn(&[]).unwrap();
        }
        let live = self.leader.state().jobs.iter();
        live.map(|(id, job)| (job.spec.name.clone(), id)).collect()
    }

    /// What was written so far stands there as a snapshot.
    fn snapshot(&mut self) {
        self.events = self.leader.state().snapshot();
        self.from = self.leader.state().index();
    }

    fn written(mut self) -> Vec<Event> {
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

/// One borrows what another leaves idle, and gets less of it when the other comes.
pub(super) fn of_the_past() -> Vec<Event> {
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":5000}"#;
    let mut play = Play::new(82);
    let mut policy = rules_policy();
    policy.digest = "golden past".into();
    policy.half_life = Some(Millis::from_secs(160));
    for tenant in &mut policy.tenants {
        tenant.gpus = wharf_engine::policy::GpuQuota::Any(wharf_engine::policy::Quota::NONE);
    }
    play.go(&[Input::ApplyPolicy(policy)], 1);
    play.go(&[rules_job(1, "hog", "org/b", (8, 1), forever)], 180);
    play.snapshot();
    play.go(&[rules_job(2, "guest", "org/a", (8, 1), forever)], 200);
    play.written()
}

/// Replicas make way for fresh ones, with one more for the time; a snapshot in the middle.
pub(super) fn of_a_replacement() -> Vec<Event> {
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":5000}"#;
    let mut play = Play::new(83);
    let Input::Submit(mut service) = rules_job(1, "serves", "org/a", (3, 2), forever) else {
        unreachable!("a job is submitted")
    };
    service.spec.class = Class::Inference;
    service.spec.service = Some(Service { max: 4, replicas: 3 });
    play.go(&[Input::ApplyPolicy(rules_policy())], 1);
    let jobs = play.go(&[Input::Submit(service)], 10);
    let how = Some(Replacement { surge: 1, unavailable: 0 });
    play.go(&[Input::Replace { job: jobs["serves"], how }], 3);
    play.snapshot();
    play.go(&[Input::Scale { job: jobs["serves"], tasks: 2 }], 60);
    play.written()
}
