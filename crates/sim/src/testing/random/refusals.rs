//! What a world refuses, and what it does with jobs of its own, at random.

use rand::RngExt;
use wharf_engine::decide::input::Input;
use wharf_engine::model::outcome::{Denial, Message};
use wharf_engine::model::submission::Submission;
use wharf_engine::state::jobs::event::HeldWhy;
use wharf_engine::units::{GpuMask, JobId, Millis, Uid};

use super::{Run, generate};

/// Every sort of answer, with numbers that mean nothing.
fn denial(which: u32) -> Denial {
    let message = || Message::cut("the simulator says so");
    match which {
        0 => Denial::NodeNotReady,
        1 => Denial::DevicesTaken { gpus: GpuMask(1) },
        2 => Denial::OutOfCpu { short_milli: 500 },
        3 => Denial::OutOfMemory { short: 1 << 30 },
        4 => Denial::AdmissionDenied { message: message() },
        5 => Denial::CannotStart { message: message() },
        6 => Denial::NotPermitted { message: message() },
        _ => Denial::Unsupported,
    }
}

impl Run {
    /// A node refuses to start anything, or to let anything go, for a while.
    pub(super) fn refuse(&mut self) {
        self.report.faults += 1;
        let (node, why) = (self.some_node(), denial(self.rng.random_range(0..8)));
        let span = Millis::from_secs(self.rng.random_range(1..900));
        let starts = self.rng.random_bool(0.7);
        self.world.with(|fleet| {
            let until = Some(fleet.now() + span);
            if starts {
                fleet.refuse_starts(&node, why, until);
            } else {
                fleet.refuse_stops(&node, Denial::DisruptionBudget, until);
            }
        });
        self.give(Input::Tick);
    }

    /// A job of the world's appears there, changes, is named again or is deleted.
    pub(super) fn world_job(&mut self) {
        let owned: Vec<Submission> = self.world.with(|fleet| fleet.owned().cloned().collect());
        let some = self.pick(&owned);
        match (self.rng.random_range(0..8), some) {
            (0..2, Some(job)) => self.world.with(|fleet| fleet.disown(job.uid)),
            (2..4, Some(mut job)) => {
                job.spec.priority += 1;
                self.world.with(|fleet| fleet.own(job));
            }
            (4, Some(job)) => self.world.with(|fleet| fleet.own(job)),
            _ => {
                let job = self.new_world_job();
                self.world.with(|fleet| fleet.own(job));
            }
        }
        self.give(Input::Tick);
    }

    /// One in six could not be submitted.
    fn new_world_job(&mut self) -> Submission {
        let mut tenant = self.some_leaf();
        if self.rng.random_ratio(1, 6) {
            tenant.push_str("/nobody");
        }
        let job = generate::job(&mut self.rng, tenant, self.next_job);
        self.next_job += 1;
        job
    }

    /// Somebody looks after what was refused too often.
    pub(super) fn release_refused(&mut self) {
        let held: Vec<JobId> = {
            let jobs = self.leader().state().jobs.iter();
            let by_refusals = jobs.filter(|(_, job)| matches!(job.held, Some((HeldWhy::StartRefused, _))));
            by_refusals.map(|(id, _)| id).collect()
        };
        for job in held {
            // A crash that was armed and not used up strikes here once.
            if self.give(Input::Release { job }).is_none() {
                self.give(Input::Release { job });
            }
        }
    }

    /// No job was given a place on a node that had refused it, while it avoids that node.
    pub(super) fn check_avoided(&mut self) {
        let state = self.leader().state();
        let mut wrong = Vec::new();
        for (id, job) in state.jobs.refused() {
            let Some(holding) = state.ledger.holding(id) else { continue };
            for task in &holding.tasks {
                let given_at = if task.bound_at.0 == 0 { holding.at } else { task.bound_at };
                let by = job.past.refused.iter().find(|refusal| refusal.node == task.place.node);
                if by.is_some_and(|refusal| refusal.at < given_at) {
                    wrong.push(format!(
                        "{id:?} was given a place on {:?}, which had refused it",
                        task.place.node
                    ));
                }
            }
        }
        for what in wrong {
            self.find(what);
        }
    }

    /// The world and the control plane agree on the jobs that the world owns: each is live here, or its owner was told why not.
    pub(super) fn check_owned(&mut self) {
        let owned: Vec<Uid> = self.world.with(|fleet| fleet.owned().map(|job| job.uid).collect());
        for &uid in &owned {
            let told = self.world.with(|fleet| fleet.rejected(uid).is_some());
            let state = self.leader().state();
            let told = told && state.owned.notice(uid).is_some();
            let live =
                state.jobs.with_uid(uid).and_then(|job| state.jobs.get(job)).is_some_and(|job| job.owned);
            if !live && !told {
                self.find(format!("the world owns {uid:?}, and nobody has it or says why"));
            }
        }
        let live: Vec<Uid> = self.leader().state().jobs.owned().map(|(_, uid)| uid).collect();
        for uid in live.into_iter().filter(|uid| !owned.contains(uid)) {
            self.find(format!("{uid:?} is gone from the world and lives on"));
        }
        let ended = self.leader().state().owned.notices().filter(|(uid, ..)| !owned.contains(uid)).count();
        if ended > 0 {
            self.find(format!("{ended} owners are to be told of jobs that nobody has"));
        }
    }
}
