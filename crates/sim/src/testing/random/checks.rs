//! What must hold after every step, and in the end, when faults have stopped.

use wharf_controller::disk::{Disk, HistoryKind, HistoryQuery};
use wharf_engine::answer::verdict::Reason;
use wharf_engine::decide::input::Input;
use wharf_engine::plan::{Memory, plan};
use wharf_engine::state::jobs::Phase;
use wharf_engine::state::ledger::event::EvictionRule;
use wharf_engine::units::BookingId;

use super::Run;

/// Steps between two deep checks, which copy everything.
const DEEP_EVERY: u64 = 16;
/// World time given to the end of a run; the longest job takes a quarter of an hour a try.
const SETTLE_ROUNDS: u32 = 2_000;

impl Run {
    pub(super) fn check(&mut self) {
        let deep = self.report.steps.is_multiple_of(DEEP_EVERY);
        let used = self.leader().state().bookings.iter().filter(|(_, booking)| booking.used);
        let used: Vec<BookingId> = used.map(|(id, _)| id).collect();
        self.windows.extend(used);
        self.report.windows = self.windows.len();
        let state = self.leader().state();
        let findings = if deep { state.check_deep() } else { state.check() };
        let panics = self.leader().figures().plan_panics;
        for finding in findings {
            self.find(format!("{finding:?}"));
        }
        if panics > 0 {
            self.find("a plan panicked");
        }
        self.check_memory();
        self.check_world();
        self.check_avoided();
    }

    /// After a turn, a plan that remembers no refusal finds nothing that the turn's plan has missed.
    fn check_memory(&mut self) {
        let leader = self.leader();
        let (state, now) = (leader.state(), leader.now());
        let missed = plan(state, state.tenants.policy(), &Memory::default(), now);
        if let Some(start) = missed.starts.first() {
            let (evictions, promises) = (&missed.evictions, &missed.earmarks);
            let what = format!("a refusal was remembered too long; {evictions:?} {promises:?}");
            self.find(format!("{:?} could have started; {what}", start.job));
        } else if let Some(left) =
            missed.evictions.iter().find(|left| left.receipt.why == EvictionRule::Order)
        {
            let what = "could have been made to leave by order; a refusal was remembered too long";
            self.find(format!("{:?} {what}: {:?}", left.job, left.receipt));
        }
    }

    /// The world's own view: no device does more than one device can.
    fn check_world(&mut self) {
        let mut held = std::collections::BTreeMap::new();
        self.world.with(|fleet| {
            for (_, node, gpus, units) in fleet.running() {
                for gpu in gpus.indexes() {
                    *held.entry((node.to_owned(), gpu)).or_insert(0) += units.parts();
                }
            }
        });
        for ((node, gpu), parts) in held.into_iter().filter(|&(_, parts)| parts > 3000) {
            self.find(format!("the world runs {parts} parts on gpu {gpu} of {node}"));
        }
    }

    /// Faults off: everything that can run must run, and nothing flaps afterwards.
    pub(super) fn settle(&mut self) {
        self.faults_on = false;
        self.world.repair();
        let nodes = self.world.with(|fleet| fleet.node_names().map(str::to_owned).collect::<Vec<_>>());
        for node in nodes {
            self.world.with(|fleet| {
                fleet.heal_node(&node);
                fleet.change_node(&node, |known| {
                    known.node.gpus.iter_mut().for_each(|gpu| (gpu.healthy, gpu.xid) = (true, None));
                });
            });
            self.give(Input::Cordon { node: node.clone(), on: false, reason: String::new() });
            self.give(Input::Drain { nodes: vec![node], how: None });
        }
        self.release_refused();
        // Services do not end by themselves.
        for job in self.leader().state().jobs.services().clone() {
            // A crash that was armed and not used up strikes here once.
            if self.give(Input::Cancel { job }).is_none() {
                self.give(Input::Cancel { job });
            }
        }
        for _ in 0..SETTLE_ROUNDS {
            let Some(wake) = self.leader().next_wake() else { break };
            self.world.advance(wake.max(self.world.with(|fleet| fleet.now())));
            self.give(Input::Tick);
            self.check();
            if !self.report.findings.is_empty() {
                return;
            }
        }
        self.check_owned();
        self.check_everything_ran();
        self.check_nothing_flaps();
    }

    /// Every job of a run but services, which were cancelled, ends by itself, so in the end nothing holds anything, and what still waits does not fit the
    /// empty fleet.
    fn check_everything_ran(&mut self) {
        let leader = self.leader();
        let (state, now) = (leader.state(), leader.now());
        let mut stuck: Vec<String> =
            state.ledger.holdings().map(|(job, _)| format!("{job:?} holds its places for ever")).collect();
        for (id, job) in state.jobs.iter() {
            let verdict = state.verdict(id, now).expect("a live job has a verdict");
            let moving = matches!(job.phase, Phase::Leaving(_)) || verdict.reason == Reason::Starting;
            if moving
                || matches!(
                    verdict.reason,
                    Reason::Startable | Reason::BackingOff { .. } | Reason::StartRefused { .. }
                )
            {
                let tenant = state.tenants.path(job.spec.tenant);
                stuck.push(format!("{tenant}: {:?} is {} for ever", job.spec, verdict.reason.token()));
            }
        }
        for what in stuck {
            self.find(what);
        }
    }

    fn check_nothing_flaps(&mut self) {
        let before = self.leader().state().index();
        for _ in 0..5 {
            self.give(Input::Tick);
        }
        let after = self.leader().state().index();
        if after != before {
            self.find(format!("{} events happened after everything had settled", after - before));
        }
    }

    /// What was acknowledged is live or has ended; it is never forgotten.
    pub(super) fn check_acknowledged(&mut self) {
        for (uid, name) in std::mem::take(&mut self.acknowledged) {
            let live = self.leader().state().jobs.with_uid(uid).is_some();
            let query = HistoryQuery {
                kind: Some(HistoryKind::Job),
                name: Some(name.clone()),
                limit: 1,
                ..HistoryQuery::default()
            };
            // A crash that was armed and not used up strikes here once.
            let rows = self.disk.history(&query).or_else(|_| self.disk.history(&query));
            let ended = !rows.expect("memory fails only when it was told to").is_empty();
            if !live && !ended {
                self.find(format!("{name} was acknowledged and is nowhere"));
            }
        }
    }
}
