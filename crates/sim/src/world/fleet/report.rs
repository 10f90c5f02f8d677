//! What the fleet says: changes with a generation, or everything there is.

use wharf_controller::world::{NodeReport, WorldReport};
use wharf_engine::model::observed::{ObservedTask, Report, Scope, TaskRef};
use wharf_engine::model::policy::Mode;
use wharf_engine::units::Uid;

use super::{Changes, SimFleet};

impl SimFleet {
    /// What changed since the last report; `None` when nothing did.
    pub fn changes(&mut self) -> Option<WorldReport> {
        if self.unreported.is_empty() && !self.answers.is_urgent() {
            return None;
        }
        let since = self.generation;
        let changed = std::mem::take(&mut self.unreported);
        self.generation += 1;
        let nodes = changed.nodes.iter().filter_map(|name| self.nodes.get(name).cloned()).collect();
        let tasks = changed.tasks.iter().filter_map(|task| self.observe(*task, false)).collect();
        let mut report = self.report(Some(since), nodes, tasks);
        report.report.answers = self.answers.tell(false, self.generation);
        let gone = changed.nodes.into_iter().filter(|name| !self.nodes.contains_key(name));
        report.report.nodes_gone = gone.collect();
        let (here, jobs_gone) = changed.jobs.into_iter().partition(|&uid| self.owned_job(uid).is_some());
        let here: Vec<Uid> = here;
        report.jobs = here.into_iter().filter_map(|uid| self.owned_job(uid).cloned()).collect();
        report.jobs_gone = jobs_gone;
        Some(report)
    }

    /// Everything there is.
    pub fn list(&mut self) -> WorldReport {
        self.unreported = Changes::default();
        self.generation += 1;
        let nodes = self.nodes.values().cloned().collect();
        let all: Vec<TaskRef> = self.tasks.keys().copied().collect();
        let tasks = all.into_iter().filter_map(|task| self.observe(task, true)).collect();
        let mut report = self.report(None, nodes, tasks);
        report.report.answers = self.answers.tell(true, self.generation);
        report.jobs = self.owned().cloned().collect();
        report
    }

    fn report(&self, since: Option<u64>, nodes: Vec<NodeReport>, tasks: Vec<ObservedTask>) -> WorldReport {
        let (world, generation) = (self.id, self.generation);
        let report = Report { scope: Scope::All, world, since, generation, tasks, ..Report::default() };
        WorldReport { report, nodes, ..WorldReport::default() }
    }

    /// A task as it can be seen: one on a node that is down cannot.
    fn observe(&mut self, task: TaskRef, with_job: bool) -> Option<ObservedTask> {
        let known = self.tasks.get_mut(&task)?;
        let hidden = !known.is_over() && self.nodes.get(&known.node).is_some_and(|node| !node.node.up);
        if hidden {
            return None;
        }
        known.reported_in = self.generation;
        self.unsaved.tasks.insert(task);
        Some(ObservedTask {
            task,
            node: known.node.clone(),
            gpus: known.gpus,
            units_each: known.units_each,
            slice: known.slice,
            time_sliced: known.enforced == Mode::TimeSlicing,
            since: known.since,
            status: known.status,
            job: known.job.clone().filter(|_| with_job && !known.is_over()),
        })
    }
}
