//! Many instances by one seed: the planner's choice held against everything the rules allow.

use serde::Serialize;

use super::facts::{Facts, Reclaim, Set};
use super::judgement::Judgement;
use super::planner::Choice;
use super::{Instance, Node, Pending, Running, Tenant, generate};

/// The most that the planner's choice may cost in 99 of 100 instances, over the cheapest set that competes with it.
const RATIO_P99_BAR: f64 = 1.5;

/// What to compare.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Everything follows from it.
    pub seed: u64,
    /// How many instances.
    pub count: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// `wharf.bench.victims.v1`.
    pub schema: &'static str,
    /// The seed.
    pub seed: u64,
    /// Instances made.
    pub instances: u64,
    /// Of these, the job that waits is within its tenant's guarantee; in the others, within its fair share.
    pub guarantee: u64,
    /// Instances in which some set of victims is allowed for certain.
    pub with_allowed_set: u64,
    /// Of these, the planner found one.
    pub found: u64,
    /// The same of a hundred.
    pub found_pct: f64,
    /// Instances in which the planner took a set that is not allowed.
    pub not_allowed: u64,
    /// Instances in which one of the planner's victims could have been spared alone.
    pub not_minimal: u64,
    /// Instances in which rule 8 makes room in order, without a straddle.
    pub in_order: u64,
    /// Of these, the planner's set is none that rule 8 could end with.
    pub out_of_order: u64,
    /// Instances in which the planner's set carries somebody below their line.
    pub straddled: u64,
    /// Instances whose only sets depend on how the rules are read: nothing is asked of the planner there.
    pub undecided: u64,
    /// Cost of the planner's set over that of the cheapest that competes: the median.
    pub cost_ratio_p50: Option<f64>,
    /// Not exceeded by 90 of 100.
    pub cost_ratio_p90: Option<f64>,
    /// Not exceeded by 99 of 100.
    pub cost_ratio_p99: Option<f64>,
    /// The largest.
    pub cost_ratio_max: Option<f64>,
    /// The bar of the 99th.
    pub cost_ratio_p99_bar: f64,
    /// Whether everything is found, allowed, minimal and in order, the median is 1, and the 99th within its bar.
    pub ok: bool,
}

/// One instance, the planner's choice and the best there is: all that is needed to recompute them.
#[derive(Clone, Debug, Serialize)]
pub struct Line<'a> {
    schema: &'static str,
    seed: u64,
    number: u64,
    reclaim: Reclaim,
    restart_s: u64,
    borrow_grace_max_s: u64,
    nodes: &'a [Node],
    tenants: Vec<TenantLine<'a>>,
    running: Vec<RunningLine<'a>>,
    pending: &'a Pending,
    allowed_sets: usize,
    in_order: Option<Victims<'a>>,
    ours: Option<Ours<'a>>,
    competing: usize,
    optimum: Option<Victims<'a>>,
    cost_ratio: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct TenantLine<'a> {
    #[serde(flatten)]
    tenant: &'a Tenant,
    used_gpus: u64,
    fair_share_gpus: u64,
}

#[derive(Clone, Debug, Serialize)]
struct RunningLine<'a> {
    #[serde(flatten)]
    job: &'a Running,
    cost_gpu_s: u64,
}

/// Who leaves, at what price.
#[derive(Clone, Debug, Serialize)]
struct Victims<'a> {
    victims: Vec<Victim<'a>>,
    cost_gpu_s: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Victim<'a> {
    job: &'a str,
    tasks: Vec<usize>,
}

/// The planner's choice.
#[derive(Clone, Debug, Serialize)]
struct Ours<'a> {
    #[serde(flatten)]
    victims: Victims<'a>,
    allowed: bool,
    minimal: bool,
    straddles: bool,
}

impl Run {
    /// Makes the instances one by one, and shows each with what came of it.
    pub fn run<E>(self, mut show: impl FnMut(&Line<'_>) -> Result<(), E>) -> Result<Report, E> {
        let mut report = Report { schema: "wharf.bench.victims.v1", seed: self.seed, ..Report::default() };
        let mut ratios = Vec::new();
        for number in 0..self.count {
            let instance = generate::instance(self.seed, number);
            let compared = Compared::of(&instance);
            report.count(&compared);
            ratios.extend(compared.ratio());
            show(&compared.line(self.seed, number))?;
        }
        ratios.sort_by(f64::total_cmp);
        report.finish(&ratios);
        Ok(report)
    }
}

/// An instance, judged, with the planner's choice.
struct Compared<'a> {
    instance: &'a Instance,
    judgement: Judgement<'a>,
    choice: Choice,
    /// The choice as a set; `None` where nothing was found, or somebody leaves who may not.
    set: Option<Set>,
}

impl<'a> Compared<'a> {
    fn of(instance: &'a Instance) -> Self {
        let judgement = Judgement::of(Facts::of(instance)).expect("the job of an instance has a right");
        let choice = Choice::of(instance).expect("an instance is a state that can be");
        let set = choice.set(&judgement.facts).filter(|_| choice.found);
        if let Some(set) = set {
            assert_eq!(judgement.facts.cost(set), choice.cost, "receipts say what victims cost");
        }
        Self { instance, judgement, choice, set }
    }

    fn is_allowed(&self) -> bool {
        self.set.is_some_and(|set| self.judgement.allows(set))
    }

    fn is_minimal(&self) -> bool {
        self.set.is_some_and(|set| self.judgement.sparable(set).is_none())
    }

    /// Compared is what is allowed where something is allowed for certain.
    fn comparable(&self) -> Option<Set> {
        self.set.filter(|_| self.is_allowed() && !self.judgement.allowed.is_empty())
    }

    fn ratio(&self) -> Option<f64> {
        let set = self.comparable()?;
        let optimum = self.judgement.optimum(set).set;
        Some(number(self.judgement.facts.cost(set)) / number(self.judgement.facts.cost(optimum)))
    }

    fn straddles(&self) -> bool {
        self.set.is_some_and(|set| self.judgement.straddles(set))
    }

    fn line(&self, seed: u64, number: u64) -> Line<'_> {
        let Self { instance, judgement, choice, .. } = self;
        let facts = &judgement.facts;
        let optimum = self.comparable().map(|set| judgement.optimum(set));
        let tenants = instance.tenants.iter().enumerate().map(|(at, tenant)| TenantLine {
            tenant,
            used_gpus: facts.used[at],
            fair_share_gpus: facts.shares[at],
        });
        let running = instance.running.iter().map(|job| {
            let tasks = super::facts::gpus_of(job.tasks.len());
            RunningLine { job, cost_gpu_s: tasks * job.task_cost(instance.restart_s) }
        });
        Line {
            schema: "wharf.bench.victims.instance.v1",
            seed,
            number,
            reclaim: judgement.reclaim,
            restart_s: instance.restart_s,
            borrow_grace_max_s: instance.borrow_grace_max_s,
            nodes: &instance.nodes,
            tenants: tenants.collect(),
            running: running.collect(),
            pending: &instance.pending,
            allowed_sets: judgement.allowed.len(),
            in_order: judgement.in_order.map(|set| self.victims_of(set)),
            ours: choice.found.then(|| Ours {
                victims: self.victims(&choice.victims, choice.cost),
                allowed: self.is_allowed(),
                minimal: self.is_minimal(),
                straddles: self.straddles(),
            }),
            competing: optimum.map_or(0, |optimum| optimum.competing),
            optimum: optimum.map(|optimum| self.victims_of(optimum.set)),
            cost_ratio: self.ratio(),
        }
    }

    fn victims_of(&self, set: Set) -> Victims<'_> {
        self.victims(&self.judgement.facts.victims(set), self.judgement.facts.cost(set))
    }

    fn victims(&self, victims: &[(usize, Vec<usize>)], cost_gpu_s: u64) -> Victims<'_> {
        let victim = |(job, tasks): &(usize, Vec<usize>)| Victim {
            job: &self.instance.running[*job].name,
            tasks: tasks.clone(),
        };
        Victims { victims: victims.iter().map(victim).collect(), cost_gpu_s }
    }
}

impl Report {
    fn count(&mut self, compared: &Compared<'_>) {
        let Compared { judgement, choice, set, .. } = compared;
        let some = !judgement.allowed.is_empty();
        self.instances += 1;
        self.guarantee += u64::from(judgement.reclaim == Reclaim::Guarantee);
        self.with_allowed_set += u64::from(some);
        self.found += u64::from(some && choice.found);
        self.not_allowed += u64::from(choice.found && !compared.is_allowed());
        self.not_minimal += u64::from(set.is_some() && !compared.is_minimal());
        self.in_order += u64::from(judgement.in_order.is_some());
        self.out_of_order += u64::from(set.is_some_and(|set| judgement.is_out_of_order(set)));
        self.straddled += u64::from(compared.straddles());
        self.undecided += u64::from(!some && !judgement.open.is_empty());
    }

    fn finish(&mut self, ratios: &[f64]) {
        let found =
            if self.with_allowed_set == 0 { 1.0 } else { number(self.found) / number(self.with_allowed_set) };
        // Rounded down: 100 means all.
        self.found_pct = (found * 100_000.0).floor() / 1000.0;
        self.cost_ratio_p50 = percentile(ratios, 50);
        self.cost_ratio_p90 = percentile(ratios, 90);
        self.cost_ratio_p99 = percentile(ratios, 99);
        self.cost_ratio_max = percentile(ratios, 100);
        self.cost_ratio_p99_bar = RATIO_P99_BAR;
        let cheap = self.cost_ratio_p50.is_none_or(|ratio| ratio <= 1.0)
            && self.cost_ratio_p99.is_none_or(|ratio| ratio <= RATIO_P99_BAR);
        let lawful = self.not_allowed == 0 && self.not_minimal == 0 && self.out_of_order == 0;
        self.ok = self.found == self.with_allowed_set && lawful && cheap;
    }
}

/// The value that at least so many percent of sorted values do not exceed, to three decimals.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).map(|ratio| (ratio * 1000.0).round() / 1000.0)
}

/// Counts and costs of small instances are small.
fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).expect("a count of small instances fits"))
}
