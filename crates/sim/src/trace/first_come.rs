//! Plain replays to hold the engine against: first come, first served, on nodes of eight GPUs.
//!
//! Worked example, two nodes, each job for 10 s: `a` asks for one node at 0 s, `b` for both at 1 s, `c` for one GPU at 2 s.
//! Where the head of the queue blocks, `b` starts at 10 s and `c` behind it at 20 s. Where it is skipped, `c` starts at
//! once on the second node and `b` when `c` is gone, at 12 s.
//!
//! A job of at most eight GPUs goes on the one node where the least room is left that suffices; a larger one on empty
//! nodes. What ends at a moment is gone before what comes at that moment is looked at. Nothing is evicted. This shares
//! no code with the engine.

mod nodes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use strum::IntoStaticStr;

use wharf_engine::model::job::GpuAsk;

use crate::trace::replay::{JobRow, ReplayReport, TraceJob, secs};

use nodes::{Ask, Given, NODE_GPUS, Nodes};

/// Who is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Order {
    /// The oldest or nobody.
    Fifo,
    /// The oldest that fits.
    FifoSkip,
    /// Each tenant has nodes of its own; of its jobs the oldest that fits.
    Static,
}

impl Order {
    /// The word for it, the same everywhere.
    pub fn into_str(self) -> &'static str {
        self.into()
    }
}

/// What to replay on what.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Who is served.
    pub order: Order,
    /// Nodes of eight GPUs.
    pub nodes: usize,
    /// How many of the nodes are each tenant's own; only read where [`Order::Static`] is.
    pub own: BTreeMap<String, usize>,
}

/// Why a trace cannot be replayed here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Something else than whole GPUs of one node, or whole nodes.
    #[error("job {job} asks for neither one to eight whole GPUs nor whole nodes of eight")]
    Shape {
        /// Which job.
        job: String,
    },
    /// A tenant without nodes of its own.
    #[error("job {job} is of {tenant}, which has no node of its own")]
    NoNodes {
        /// Which job.
        job: String,
        /// Whose it is.
        tenant: String,
    },
}

impl Reference {
    /// Runs it. Rows are in the order of submission.
    pub fn run(&self, jobs: &mut [TraceJob]) -> Result<(ReplayReport, Vec<JobRow>), Unfit> {
        jobs.sort_by_key(|job| job.submit);
        let mut world = self.world();
        let asks = jobs.iter().map(ask).collect::<Result<Vec<Ask>, Unfit>>()?;
        let mut rows = jobs.iter().map(JobRow::of).collect::<Vec<JobRow>>();
        let mut refused = 0;
        let mut coming = (0..jobs.len()).peekable();
        loop {
            let next_submit = coming.peek().map(|&job| jobs[job].submit.0);
            let Some(now) = [next_submit, world.next_end()].into_iter().flatten().min() else { break };
            world.end(now);
            while let Some(job) = coming.next_if(|&job| jobs[job].submit.0 <= now) {
                refused += usize::from(!world.submit(job, asks[job], &jobs[job])?);
            }
            for started in world.start(self.order, now, jobs) {
                let run = secs(jobs[started].duration.0);
                let row = &mut rows[started];
                (row.first_start_s, row.run_s) = (Some(secs(now)), run);
                row.end_s = Some(secs(now + jobs[started].duration.0));
            }
        }
        let mut report = ReplayReport::of(self.order.into_str(), jobs, &rows, self.nodes * NODE_GPUS);
        if refused > 0 {
            report.refused.insert("NeverFits".to_owned(), refused);
        }
        Ok((report, rows))
    }

    fn world(&self) -> World {
        let part = |nodes: usize| Part { nodes: Nodes::new(nodes), queue: Queue::default() };
        let (parts, by_tenant) = match self.order {
            Order::Fifo | Order::FifoSkip => (vec![part(self.nodes)], None),
            Order::Static => {
                let parts = self.own.values().map(|&nodes| part(nodes)).collect();
                (parts, Some(self.own.keys().cloned().zip(0..).collect()))
            }
        };
        World { parts, by_tenant, running: BTreeMap::new(), touched: BTreeSet::new() }
    }
}

/// Nodes with a queue of their own.
struct Part {
    nodes: Nodes,
    queue: Queue,
}

struct World {
    parts: Vec<Part>,
    /// Which part is whose; `None` where there is one for all.
    by_tenant: Option<BTreeMap<String, usize>>,
    /// What runs, by end and number, with its part.
    running: BTreeMap<(u64, usize), (usize, Given)>,
    /// Parts in which something came or went.
    touched: BTreeSet<usize>,
}

impl World {
    fn next_end(&self) -> Option<u64> {
        self.running.first_key_value().map(|(&(end, _), _)| end)
    }

    fn end(&mut self, now: u64) {
        while let Some(entry) = self.running.first_entry().filter(|entry| entry.key().0 <= now) {
            let (part, given) = entry.remove();
            self.parts[part].nodes.give_back(&given);
            self.touched.insert(part);
        }
    }

    /// False where it could never run.
    fn submit(&mut self, number: usize, ask: Ask, job: &TraceJob) -> Result<bool, Unfit> {
        let part = match &self.by_tenant {
            None => 0,
            Some(parts) => *parts
                .get(&job.tenant)
                .ok_or_else(|| Unfit::NoNodes { job: job.id.clone(), tenant: job.tenant.clone() })?,
        };
        let fits = self.parts[part].nodes.could_ever(ask);
        if fits {
            self.parts[part].queue.push(number, ask);
            self.touched.insert(part);
        }
        Ok(fits)
    }

    fn start(&mut self, order: Order, now: u64, jobs: &[TraceJob]) -> Vec<usize> {
        let mut started = Vec::new();
        for part in std::mem::take(&mut self.touched) {
            let Part { nodes, queue } = &mut self.parts[part];
            for (job, given) in queue.serve(nodes, order) {
                self.running.insert((now + jobs[job].duration.0, job), (part, given));
                started.push(job);
            }
        }
        started
    }
}

/// Who waits, oldest first, by what they ask for: what one of them cannot have, none that asks alike can.
#[derive(Default)]
struct Queue {
    by_ask: BTreeMap<Ask, VecDeque<usize>>,
}

impl Queue {
    fn push(&mut self, job: usize, ask: Ask) {
        self.by_ask.entry(ask).or_default().push_back(job);
    }

    fn serve(&mut self, nodes: &mut Nodes, order: Order) -> Vec<(usize, Given)> {
        let mut served = Vec::new();
        let mut hopeless = BTreeSet::new();
        loop {
            let heads = self.by_ask.iter().filter(|(ask, _)| !hopeless.contains(*ask));
            let oldest = heads.filter_map(|(&ask, jobs)| Some((*jobs.front()?, ask))).min();
            let Some((job, ask)) = oldest else { return served };
            match nodes.take(ask) {
                Some(given) => {
                    self.by_ask.get_mut(&ask).and_then(VecDeque::pop_front);
                    served.push((job, given));
                }
                None if order == Order::Fifo => return served,
                None => {
                    hopeless.insert(ask);
                }
            }
        }
    }
}

fn ask(job: &TraceJob) -> Result<Ask, Unfit> {
    let unfit = || Unfit::Shape { job: job.id.clone() };
    let GpuAsk::Whole(gpus) = job.gpus else { return Err(unfit()) };
    let whole = |number: u32| usize::try_from(number).map_err(|_| unfit());
    let (gpus, tasks) = (whole(gpus)?, whole(job.tasks)?);
    match (gpus, tasks) {
        (1..=NODE_GPUS, 1) => Ok(Ask::Part(gpus)),
        (NODE_GPUS, 2..) => Ok(Ask::Nodes(tasks)),
        _ => Err(unfit()),
    }
}
