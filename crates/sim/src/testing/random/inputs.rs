//! What users and operators ask for, at random, and time that passes.

use rand::RngExt;
use wharf_engine::decide::input::{DowntimeRequest, DrainRequest, Input};
use wharf_engine::model::dependency::{After, ArrayMember, ArrayRequest, Condition};
use wharf_engine::model::submission::Submission;
use wharf_engine::state::fleet::Whom;
use wharf_engine::units::{JobId, Millis, Timestamp, Uid};

use super::{Run, generate};

impl Run {
    /// One of several, where there are any.
    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.rng.random_range(0..from.len())].clone())
    }

    pub(super) fn some_leaf(&mut self) -> String {
        let leaves = generate::leaves(self.leader().state().tenants.policy());
        self.pick(&leaves).expect("a policy has tenants")
    }

    pub(super) fn submit(&mut self) {
        let tenant = self.some_leaf();
        let mut job = generate::job(&mut self.rng, tenant, self.next_job);
        self.next_job += 1;
        job.booking = self.window_of(&job.tenant);
        self.hold_back(&mut job);
        let (uid, name) = (job.uid, job.spec.name.clone());
        let indexes = job.array.as_ref().map(|array| array.indexes.clone());
        if let Some(Ok(_)) = self.give(Input::Submit(Box::new(job))) {
            match indexes {
                None => self.acknowledged.push((uid, name)),
                Some(indexes) => self.acknowledged.extend(
                    indexes
                        .into_iter()
                        .map(|index| (ArrayMember::uid(uid, index), ArrayMember::member_name(&name, index))),
                ),
            }
        }
    }

    /// Some jobs wait for others, and some come as an array.
    fn hold_back(&mut self, job: &mut Submission) {
        if self.rng.random_ratio(1, 8) {
            let live: Vec<Uid> = self.leader().state().jobs.iter().map(|(_, job)| job.uid).collect();
            let when = if self.rng.random() { Condition::Ok } else { Condition::Any };
            job.after.extend(self.pick(&live).map(|uid| After { uid, when }));
        }
        if self.rng.random_ratio(1, 12) {
            let members = self.rng.random_range(1..6);
            let at_most = self.rng.random_range(1..=members);
            job.array = Some(ArrayRequest { indexes: (0..members).collect(), at_most });
        }
    }

    pub(super) fn book(&mut self) {
        let tenant = self.some_leaf();
        let now = self.leader().now();
        let request = generate::booking(&mut self.rng, tenant, self.next_job, now);
        self.next_job += 1;
        self.give(Input::Book(Box::new(request)));
    }

    pub(super) fn unbook(&mut self) {
        let state = self.leader().state();
        let names: Vec<String> =
            state.bookings.iter().map(|(_, booking)| booking.spec.name.clone()).collect();
        if let Some(name) = self.pick(&names) {
            self.give(Input::Unbook { name });
        }
    }

    /// Half of the jobs of a tenant that has booked something are for its first window.
    fn window_of(&mut self, tenant: &str) -> Option<String> {
        let state = self.leader().state();
        let own = |spec: &wharf_engine::model::job::Spec| state.tenants.path(spec.tenant) == tenant;
        let first = state.bookings.iter().find(|(_, booking)| own(&booking.spec));
        let name = first.map(|(_, booking)| booking.spec.name.clone())?;
        self.rng.random::<bool>().then_some(name)
    }

    pub(super) fn pass_time(&mut self) {
        let ahead = self.rng.random_range(0..120_000);
        let to = Timestamp(self.world.with(|fleet| fleet.now()).0 + ahead);
        self.world.advance(to);
        self.give(Input::Tick);
    }

    pub(super) fn on_a_job(&mut self, what: impl FnOnce(JobId) -> Input) {
        let jobs: Vec<JobId> = self.leader().state().jobs.iter().map(|(job, _)| job).collect();
        if let Some(job) = self.pick(&jobs) {
            self.give(what(job));
        }
    }

    pub(super) fn some_node(&mut self) -> String {
        let names = self.world.with(|fleet| fleet.node_names().map(str::to_owned).collect::<Vec<_>>());
        self.pick(&names).expect("the last node stays")
    }

    pub(super) fn cordon(&mut self) {
        let (node, on) = (self.some_node(), self.rng.random());
        self.give(Input::Cordon { node, on, reason: String::new() });
    }

    /// A node drains or drains no more; nodes are to be out of service, or that is called off.
    pub(super) fn drain_or_maintain(&mut self) {
        let node = self.some_node();
        let whom = if self.rng.random_bool(0.3) { Whom::Everything } else { Whom::Preemptible };
        let within = Millis::from_secs(self.rng.random_range(0..600));
        let reason = String::new();
        let input = match self.rng.random_range(0..6) {
            0..2 => Input::Drain { nodes: vec![node], how: Some(DrainRequest { within, reason, whom }) },
            2..4 => Input::Drain { nodes: vec![node], how: None },
            4 => {
                let names = self.leader().state().maintenance.iter().map(|(name, _)| name.to_owned());
                let Some(name) = names.last() else { return };
                Input::CallOff { name }
            }
            _ => {
                let (name, nodes) = (format!("downtime-{}", self.next_job), vec![node, self.some_node()]);
                let from = self.leader().now() + within;
                let span = Millis::from_secs(self.rng.random_range(1..900));
                Input::PlanDowntime(Box::new(DowntimeRequest { name, nodes, from, span, reason, whom }))
            }
        };
        self.give(input);
    }

    pub(super) fn change_policy(&mut self) {
        self.editions += 1;
        let policy = generate::policy(&mut self.rng, self.editions);
        while self.give(Input::ApplyPolicy(policy.clone())).is_none() {}
    }
}
