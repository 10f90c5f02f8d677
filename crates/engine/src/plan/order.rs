//! Who is served next (rule 3).
//!
//! In each pass tenants are compared level by level, and inside a tenant kinds are. The best of every subtree is
//! remembered; when a tenant's use changes, only its own line of ancestors is looked at again.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

use crate::model::job::Class;
use crate::model::placement::Placement;
use crate::model::policy::Amount;
use crate::plan::draft::Draft;
use crate::plan::lines::{self, Line, Pass};
use crate::plan::place::Ask;
use crate::plan::rank::{self, Rank, RankGroup};
use crate::state::State;
use crate::state::holding::Holding;
use crate::state::jobs::{Job, Kind, KindKey, More};
use crate::units::{JobId, KindId, TenantId, Timestamp};

/// Which candidates have their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceTurn {
    /// How entitled they are, at least.
    pub pass: Pass,
    /// Of any class where it is not said.
    pub class: Option<Class>,
}

impl ServiceTurn {
    /// The turns of a plan, in order. Within a guarantee, class comes before everything else.
    pub(crate) const ALL: [Self; 5] = [
        Self { pass: Pass::WithinGuarantee, class: Some(Class::Inference) },
        Self { pass: Pass::WithinGuarantee, class: Some(Class::Interactive) },
        Self { pass: Pass::WithinGuarantee, class: Some(Class::Batch) },
        Self { pass: Pass::WithinFairShare, class: None },
        Self { pass: Pass::Surplus, class: None },
    ];
}

type CandidateJobs<'a> = Box<dyn Iterator<Item = (Timestamp, JobId)> + 'a>;

/// Jobs of one kind that want something.
pub(crate) struct Candidate<'a> {
    /// None for more tasks of a job that starts in this plan.
    pub kind: Option<KindId>,
    pub key: &'a KindKey,
    /// What they lack, where they run already.
    pub more: Option<More>,
    /// The one that is served first.
    pub first: (Timestamp, JobId),
    /// How all of them stand in the order of their class.
    pub group: rank::OrderGroup,
    /// When the first of them stands elsewhere, by time alone.
    pub changes_at: Option<Timestamp>,
    rest: CandidateJobs<'a>,
    choices: Vec<Choice<'a>>,
    exhausted: bool,
}

struct Choice<'a> {
    ask: Ask<'a>,
    refused: bool,
}

impl<'a> Candidate<'a> {
    fn of_kind(draft: &Draft<'a>, known: &'a Kind) -> Option<Self> {
        let (state, now) = (draft.state, draft.now);
        let may_start = move |job| state.jobs.get(job).is_some_and(|job| job.not_before <= now);
        let mut jobs = known.jobs.iter().copied().filter(move |&(_, job)| may_start(job));
        match known.more.filter(|more| more.of.is_some()) {
            Some(more) => Self::of_groups(draft, &known.key, more, jobs.next()?, &[]),
            None => Self::new(draft, &known.key, known.more, Box::new(jobs)),
        }
    }

    /// The jobs of a kind, as far as they may start now: one candidate for all who stand alike.
    pub(crate) fn all_of_kind(draft: &Draft<'a>, kind: KindId, known: &'a Kind) -> Vec<Self> {
        let kind = Some(kind);
        let Some(groups) = rank::alike(draft, known) else {
            return Self::of_kind(draft, known).map(|alone| Self { kind, ..alone }).into_iter().collect();
        };
        let candidate = |RankGroup { group, jobs, changes_at }| {
            let alike = Self::new(draft, &known.key, known.more, Box::new(jobs.into_iter()))?;
            Some(Self { kind, group, changes_at, ..alike })
        };
        groups.into_iter().filter_map(candidate).collect()
    }

    /// More tasks for a job that starts in this plan, or a job that has to leave in it.
    pub(crate) fn of_job(
        draft: &Draft<'a>,
        key: &'a KindKey,
        more: Option<More>,
        job: (Timestamp, JobId),
    ) -> Option<Self> {
        Self::new(draft, key, more, Box::new(core::iter::once(job)))
    }

    /// What a job with groups that runs, or starts in this plan, lacks beside what it was given on the draft.
    pub(crate) fn of_groups(
        draft: &Draft<'a>,
        key: &'a KindKey,
        more: More,
        job: (Timestamp, JobId),
        given: &[Placement],
    ) -> Option<Self> {
        let spec = &draft.state.jobs.get(job.1)?.spec;
        let holding = draft.state.ledger.holding(job.1);
        let held =
            holding.into_iter().flat_map(|holding| holding.alive().filter_map(|task| holding.task(task)));
        let alive: Vec<Placement> = held.map(|task| task.place).chain(given.iter().copied()).collect();
        // An attempt that has not begun has used no number yet.
        let used = holding.map(Holding::next_task);
        let next = used.map(|next| given.last().map_or(next, |last| next.max(last.task + 1)));
        let (asks, repair) = draft.asks().lacking(key, spec, &alive, next.unwrap_or(0));
        // All groups are to be in the domain where the rest of the job is.
        let asks = asks.into_iter().map(|ask| Ask { domain: more.domain, ..ask }).collect();
        let more = Some(More { repair, ..more });
        Self::with(key, more, Box::new(core::iter::once(job)), asks)
    }

    fn new(draft: &Draft<'a>, key: &'a KindKey, more: Option<More>, rest: CandidateJobs<'a>) -> Option<Self> {
        let asks = draft.asks();
        Self::with(key, more, rest, more.map_or_else(|| asks.minimum(key), |more| asks.more(key, more)))
    }

    fn with(
        key: &'a KindKey,
        more: Option<More>,
        mut rest: CandidateJobs<'a>,
        asks: Vec<Ask<'a>>,
    ) -> Option<Self> {
        let choices: Vec<Choice<'a>> = asks.into_iter().map(|ask| Choice { ask, refused: false }).collect();
        let first = rest.next().filter(|_| !choices.is_empty())?;
        let (group, changes_at) = (rank::OrderGroup::default(), None);
        Some(Self { kind: None, key, more, first, group, changes_at, rest, choices, exhausted: false })
    }

    /// True when it asks for more than a minimum.
    pub(crate) fn is_surplus(&self) -> bool {
        self.more.is_some_and(|more| !more.repair) && !self.key.service
    }

    /// What it asks for in each pool that is still worth a try in this pass, with the pass it is in there.
    pub(crate) fn asks(&self, draft: &mut Draft<'_>, pass: Pass) -> impl Iterator<Item = (&Ask<'a>, Pass)> {
        let below = lines::lower_work(draft, &lines::work_group(self.key));
        let draft = &*draft;
        let open = self.choices.iter().filter(|choice| !choice.refused).map(|choice| &choice.ask);
        let judged = open.map(move |ask| (ask, lines::pass(draft, ask, &below)));
        judged.filter(move |&(_, own)| own <= pass)
    }

    fn rank(&self) -> CandidateRank {
        CandidateRank {
            class: self.key.class,
            priority: Reverse(self.key.priority),
            surplus: self.is_surplus(),
            order: self.group.rank,
            age: self.first,
        }
    }
}

/// Where a candidate stands inside its tenant, fields in the order in which they decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CandidateRank {
    class: Class,
    priority: Reverse<i32>,
    surplus: bool,
    order: Rank,
    age: (Timestamp, JobId),
}

impl CandidateRank {
    pub(crate) fn of_job(state: &State, id: JobId, job: &Job, now: Timestamp) -> Self {
        let order = rank::rank(state, state.tenants.policy(), id, job, now);
        let (class, priority) = (job.spec.class, Reverse(job.spec.priority));
        Self { class, priority, surplus: false, order, age: (job.submitted_at, id) }
    }
}

/// Where a tenant stands among its siblings, fields in the order in which they decide.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TenantRank {
    priority: Reverse<i32>,
    neediness: Ratio,
    class: Option<Class>,
    larger_line: Reverse<u64>,
    oldest: (Timestamp, JobId),
    path: u32,
}

/// What is used of a line; the smaller the needier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    pub used: u64,
    pub line: u64,
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        // A tenant without a line is least needy; among those, the one with less is needier.
        match (self.line, other.line) {
            (0, 0) => self.used.cmp(&other.used),
            (0, _) => Ordering::Greater,
            (_, 0) => Ordering::Less,
            _ => {
                let ours = u128::from(self.used) * u128::from(other.line);
                ours.cmp(&(u128::from(other.used) * u128::from(self.line)))
            }
        }
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}

/// The candidates of a plan, by their numbers, in the order of rule 3.
pub(crate) struct Queue<'a> {
    candidates: Vec<Candidate<'a>>,
    open: BTreeMap<TenantId, BTreeSet<(CandidateRank, usize)>>,
    /// Of all that waits, also what is not tried again: a memory must not change who is served first.
    oldest: BTreeMap<TenantId, (Timestamp, JobId)>,
    best: BTreeMap<TenantId, usize>,
    turn: ServiceTurn,
    removed: BTreeSet<JobId>,
}

impl<'a> Queue<'a> {
    /// An empty queue that knows the oldest job of each tenant.
    pub(crate) fn new(state: &State) -> Self {
        let mut queue = Self {
            candidates: Vec::new(),
            open: BTreeMap::new(),
            oldest: BTreeMap::new(),
            best: BTreeMap::new(),
            turn: ServiceTurn::ALL[0],
            removed: BTreeSet::new(),
        };
        for kind in state.jobs.waiting().values().chain(state.jobs.growing().values()) {
            let Some(&first) = kind.jobs.first() else { continue };
            queue.note_oldest(state, kind.key.tenant, first);
        }
        queue
    }

    fn note_oldest(&mut self, state: &State, tenant: TenantId, job: (Timestamp, JobId)) {
        for tenant in state.tenants.lineage(tenant) {
            let oldest = self.oldest.entry(tenant).or_insert(job);
            *oldest = job.min(*oldest);
        }
    }

    pub(crate) fn add(&mut self, state: &State, candidate: Candidate<'a>) {
        let tenant = candidate.key.tenant;
        if !self.oldest.contains_key(&tenant) {
            self.note_oldest(state, tenant, candidate.first);
        }
        let at = self.candidates.len();
        let removed = self.removed.contains(&candidate.first.1);
        self.candidates.push(candidate);
        if removed {
            self.advance(at);
        } else {
            self.reopen(at);
        }
    }

    /// A job that has to leave wants nothing more: neither growth nor repair.
    pub(crate) fn remove_job(&mut self, job: JobId) {
        self.removed.insert(job);
        for at in 0..self.candidates.len() {
            if self.candidates[at].first.1 == job && !self.candidates[at].exhausted {
                self.served(at);
            }
        }
    }

    pub(crate) fn get(&self, at: usize) -> &Candidate<'a> {
        &self.candidates[at]
    }

    /// A candidate whose first job this is, though others of its kind may come before it.
    pub(crate) fn bring_first(&mut self, draft: &Draft<'a>, key: &'a KindKey, job: JobId) -> Option<usize> {
        let first = |candidate: &Candidate<'a>| candidate.first.1 == job && candidate.more.is_none();
        let at = self.candidates.iter().position(|candidate| first(candidate) && !candidate.exhausted);
        if at.is_some() {
            return at;
        }
        let submitted_at = draft.state.jobs.get(job).filter(|job| job.not_before <= draft.now)?.submitted_at;
        let candidate = Candidate::of_job(draft, key, None, (submitted_at, job))?;
        self.add(draft.state, candidate);
        // Its own candidate is the one that serves it.
        self.removed.insert(job);
        Some(self.candidates.len() - 1)
    }

    pub(crate) fn begin(&mut self, draft: &mut Draft<'_>, turn: ServiceTurn) {
        self.turn = turn;
        self.best.clear();
        for &root in &draft.tree.roots {
            self.rank_below(draft, root);
        }
    }

    fn rank_below(&mut self, draft: &mut Draft<'_>, tenant: TenantId) {
        if !self.oldest.contains_key(&tenant) {
            return;
        }
        for &child in &draft.tree.lines[tenant.index()].children {
            self.rank_below(draft, child);
        }
        self.rank_tenant(draft, tenant);
    }

    /// The use of a tenant changed, or its candidates did.
    pub(crate) fn touch(&mut self, draft: &mut Draft<'_>, tenant: TenantId) {
        for tenant in draft.tree.lineage(tenant) {
            self.rank_tenant(draft, tenant);
        }
    }

    fn rank_tenant(&mut self, draft: &mut Draft<'_>, tenant: TenantId) {
        let own = self.own_best(draft, tenant);
        let best = own.or_else(|| self.best_of(draft, &draft.tree.lines[tenant.index()].children));
        match best {
            Some(best) => self.best.insert(tenant, best),
            None => self.best.remove(&tenant),
        };
    }

    fn own_best(&self, draft: &mut Draft<'_>, tenant: TenantId) -> Option<usize> {
        let turn = self.turn;
        let open = self.open.get(&tenant)?.iter();
        let mut of_class = open.filter(|(inside, _)| turn.class.is_none_or(|class| inside.class == class));
        of_class
            .find(|&&(_, at)| self.candidates[at].asks(draft, turn.pass).next().is_some())
            .map(|&(_, at)| at)
    }

    fn best_of(&self, draft: &Draft<'_>, siblings: &[TenantId]) -> Option<usize> {
        let with_best = siblings.iter().filter_map(|tenant| Some((*tenant, *self.best.get(tenant)?)));
        with_best.min_by_key(|&(tenant, at)| self.among(draft, tenant, at)).map(|(_, at)| at)
    }

    pub(crate) fn next(&self, draft: &Draft<'_>) -> Option<usize> {
        self.best_of(draft, &draft.tree.roots)
    }

    /// Its first job has what it asked for.
    pub(crate) fn served(&mut self, at: usize) {
        self.close(at);
        self.advance(at);
    }

    fn advance(&mut self, at: usize) {
        let candidate = &mut self.candidates[at];
        match candidate.rest.find(|(_, job)| !self.removed.contains(job)) {
            Some(next) => {
                candidate.first = next;
                self.reopen(at);
            }
            None => candidate.exhausted = true,
        }
    }

    /// None of its jobs is met by any of these.
    pub(crate) fn refused(&mut self, at: usize, asks: &[Ask<'a>]) {
        let choices = &mut self.candidates[at].choices;
        choices
            .iter_mut()
            .filter(|choice| asks.iter().any(|ask| ask.same_as(&choice.ask)))
            .for_each(|choice| choice.refused = true);
        if choices.iter().all(|choice| choice.refused) {
            self.close(at);
        }
    }

    /// What was refused is tried again: somebody left.
    pub(crate) fn reopen_all(&mut self) {
        for at in 0..self.candidates.len() {
            let candidate = &self.candidates[at];
            if !candidate.exhausted && candidate.choices.iter().any(|choice| choice.refused) {
                self.candidates[at].choices.iter_mut().for_each(|choice| choice.refused = false);
                self.reopen(at);
            }
        }
    }

    fn reopen(&mut self, at: usize) {
        let candidate = &self.candidates[at];
        self.open.entry(candidate.key.tenant).or_default().insert((candidate.rank(), at));
    }

    fn close(&mut self, at: usize) {
        let candidate = &self.candidates[at];
        if let Some(open) = self.open.get_mut(&candidate.key.tenant) {
            open.remove(&(candidate.rank(), at));
        }
    }

    fn among(&self, draft: &Draft<'_>, tenant: TenantId, at: usize) -> TenantRank {
        let candidate = &self.candidates[at];
        let line = &draft.tree.lines[tenant.index()];
        let at = match self.turn.pass {
            Pass::WithinGuarantee => Line::Guarantee,
            Pass::WithinFairShare | Pass::Surplus => Line::FairShare,
        };
        let open = candidate.choices.iter().find(|choice| !choice.refused);
        let charge = &open.unwrap_or(&candidate.choices[0]).ask.charge;
        let neediness = neediness(draft, tenant, charge, at);
        TenantRank {
            priority: Reverse(line.priority),
            neediness,
            class: (self.turn.pass == Pass::WithinFairShare).then_some(candidate.key.class),
            larger_line: Reverse(neediness.line),
            oldest: self.oldest[&tenant],
            path: line.path_rank,
        }
    }
}

/// What is used of a tenant's line, the largest over what is asked for.
pub(crate) fn neediness(draft: &Draft<'_>, tenant: TenantId, charge: &[u64], at: Line) -> Ratio {
    let asked = (0..charge.len()).filter(|&meter| charge[meter] > 0);
    let ratios = asked.map(|meter| match lines::line(draft, tenant, meter, at) {
        Amount::Unlimited => Ratio { used: 0, line: u64::MAX },
        Amount::Of(line) => Ratio { used: draft.used(tenant)[meter], line },
    });
    ratios.max().unwrap_or(Ratio { used: 0, line: 0 })
}
