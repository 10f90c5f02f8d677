//! The answer about each of many jobs. What jobs have in common is worked out once: the funnel of their kind, the lines
//! of the tenants, and the order in which a tenant's jobs are served. Of 10,000 jobs of one kind the first counts the fleet and
//! sorts the queue, and the others look up their places in it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::OnceCell;

use super::{Funnel, Reason, Verdict};
use crate::model::need::SharingRefusal;
use crate::plan::draft::Draft;
use crate::plan::later::booked;
use crate::plan::later::kept::{self, KeptPlaces};
use crate::plan::lines;
use crate::plan::order::CandidateRank;
use crate::plan::place::asks::Asks;
use crate::plan::rank;
use crate::quota::meters::Amounts;
use crate::quota::tree::Tree;
use crate::state::State;
use crate::state::holding::TaskPhase;
use crate::state::jobs::{Job, KindKey, Phase};
use crate::units::{BookingId, JobId, TenantId, Timestamp};

/// What answers about one state at one moment have in common: a memory, without which an answer takes longer and is the same.
#[derive(Debug, Default)]
pub struct Answers {
    /// The journal index and the moment that the rest is about.
    basis: Option<(u64, Timestamp)>,
    kinds: BTreeMap<KindKey, OfKind>,
    queues: BTreeMap<TenantId, Vec<CandidateRank>>,
    lines: Option<(Tree, Amounts)>,
}

#[derive(Clone, Debug)]
struct OfKind {
    funnel: Funnel,
    /// Whose guarantee keeps it waiting.
    fixed: Option<TenantId>,
    refused: Option<SharingRefusal>,
    /// What keeps it from what is free, once that was asked.
    kept_away: OnceCell<Option<Reason>>,
}

impl Answers {
    fn of_kind(&mut self, state: &State, key: &KindKey) -> &mut OfKind {
        // Looked up twice, because the key is copied only where it is new.
        if !self.kinds.contains_key(key) {
            let domain = state.tenants.trust(key.trust);
            let known = OfKind {
                funnel: state.funnel(key),
                fixed: state.beyond_guarantee(key),
                refused: state.sharing_refused(key, domain),
                kept_away: OnceCell::new(),
            };
            self.kinds.insert(key.clone(), known);
        }
        self.kinds.get_mut(key).expect("it was just worked out")
    }

    fn draft<'a>(&'a mut self, state: &'a State, now: Timestamp) -> Draft<'a> {
        let policy = state.tenants.policy();
        let (tree, shares) = self.lines.get_or_insert_with(|| {
            let tree = state.tree(policy);
            let shares = state.fair_shares(&tree);
            (tree, shares)
        });
        Draft::on(state, policy, tree, shares, now)
    }

    fn ahead(&mut self, state: &State, id: JobId, job: &Job, now: Timestamp) -> u32 {
        let queue = self.queues.entry(job.spec.tenant).or_insert_with(|| queue(state, job.spec.tenant, now));
        let own = CandidateRank::of_job(state, id, job, now);
        u32::try_from(queue.partition_point(|rank| *rank < own)).unwrap_or(u32::MAX)
    }

    /// What keeps a job from what is free, where nothing else keeps it from starting.
    fn kept_away(&mut self, state: &State, id: JobId, key: &KindKey) -> Option<Reason> {
        // A reservation of the job itself does not hold it back; all others of its kind are held back alike.
        let alike = state.reservations.of(id).is_none();
        let known = self.kinds.get(key).and_then(|kind| kind.kept_away.get().copied()).filter(|_| alike);
        known.unwrap_or_else(|| {
            let found = self.find_kept_away(state, id);
            if let Some(kind) = self.kinds.get(key).filter(|_| alike) {
                kind.kept_away.set(found).expect("it was not known");
            }
            found
        })
    }

    fn find_kept_away(&mut self, state: &State, id: JobId) -> Option<Reason> {
        let (_, now) = self.basis?;
        if state.reservations.is_empty() && state.bookings.is_empty() && state.maintenance.is_empty() {
            return None;
        }
        kept::held_back(&mut self.draft(state, now), id).map(|kept| match kept {
            KeptPlaces::Start(of) => Reason::Reserved { job: of.job, start: of.start },
            KeptPlaces::Window(booking, window) => Reason::Booked { booking, from: window.from },
            KeptPlaces::Downtime(downtime) => Reason::Downtime { from: downtime.from },
        })
    }
}

fn queue(state: &State, tenant: TenantId, now: Timestamp) -> Vec<CandidateRank> {
    let kinds = state.jobs.waiting().values().filter(|kind| kind.key.tenant == tenant);
    let jobs = kinds.flat_map(|kind| &kind.jobs);
    let ranks = jobs.filter_map(|&(_, id)| Some(CandidateRank::of_job(state, id, state.jobs.get(id)?, now)));
    let mut queue: Vec<CandidateRank> = ranks.collect();
    queue.sort_unstable();
    queue
}

impl State {
    /// The answer for a live job.
    pub fn verdict(&self, id: JobId, now: Timestamp) -> Option<Verdict> {
        self.verdict_among(id, now, &mut Answers::default())
    }

    /// The same where many are asked for: what they have in common is worked out once.
    pub fn verdict_among(&self, id: JobId, now: Timestamp, answers: &mut Answers) -> Option<Verdict> {
        let basis = Some((self.index(), now));
        if answers.basis != basis {
            *answers = Answers { basis, ..Answers::default() };
        }
        let job = self.jobs.get(id)?;
        if let Some((why, since)) = job.held {
            return Some(self.judged(Reason::Held { why, since }, None, 0));
        }
        let (reason, funnel) = match job.phase {
            Phase::Active => (self.active_reason(id), None),
            Phase::Leaving(_) => (Reason::Leaving, None),
            Phase::Waiting if !job.spec.after.is_empty() => (Reason::Dependency, None),
            Phase::Waiting if job.throttled => {
                let at_most = job.spec.array.as_ref().map_or(0, |array| array.at_most);
                (Reason::ArrayTurn { at_most }, None)
            }
            Phase::Waiting if self.earmarks.of(id).is_some() => (Reason::Earmarked, None),
            Phase::Waiting => {
                let key = job.key();
                let kind = answers.of_kind(self, &key).clone();
                let reason = match job.spec.booking {
                    Some(booking) => self.window_reason(id, job, booking, answers),
                    None => self.waiting_reason(id, job, &key, &kind, answers),
                };
                (reason, Some(kind.funnel))
            }
        };
        let ahead = if job.waits_for_places() { answers.ahead(self, id, job, now) } else { 0 };
        Some(self.judged(reason, funnel, ahead))
    }

    fn judged(&self, reason: Reason, funnel: Option<Funnel>, ahead: u32) -> Verdict {
        Verdict { reason, funnel, ahead, policy: self.tenants.version(), basis: self.index() }
    }

    /// A job of a window waits for that, and for nothing else.
    fn window_reason(&self, id: JobId, job: &Job, booking: BookingId, answers: &mut Answers) -> Reason {
        let window = self.bookings.get(booking).expect("a job names a window that is to come or lasts");
        let (_, now) = answers.basis.expect("answers are about a moment");
        pauses(job, now).unwrap_or_else(|| {
            let may_start = booked::may_start_in(&mut answers.draft(self, now), id, window);
            if may_start { Reason::Startable } else { Reason::Window { booking, from: window.from } }
        })
    }

    fn active_reason(&self, job: JobId) -> Reason {
        let holding = self.ledger.holding(job).expect("an active job holds something");
        let starting = holding.tasks.iter().any(|task| task.phase == TaskPhase::Bound);
        if holding.repair_by.is_some() {
            Reason::Repairing
        } else if starting {
            Reason::Starting
        } else {
            Reason::Running
        }
    }

    /// Whose guarantee keeps work that may not borrow from starting, if one does in every pool it may use.
    fn beyond_guarantee(&self, key: &KindKey) -> Option<TenantId> {
        let policy = self.tenants.policy();
        if !lines::is_fixed(&lines::work_group(key), policy) {
            return None;
        }
        let tree = self.tree(policy);
        let asks = Asks::new(self, policy, &tree).minimum(key);
        let beyond = asks.iter().map(|ask| self.fixed_beyond(&tree, ask));
        let beyond: Option<Vec<TenantId>> = beyond.collect();
        beyond?.first().copied()
    }

    /// A job that was refused and pauses, or that would fit if it did not avoid the nodes that refused it.
    fn refused_reason(&self, job: &Job, key: &KindKey, of: &OfKind, answers: &mut Answers) -> Option<Reason> {
        let (_, now) = answers.basis.expect("answers are about a moment");
        let last = job.past.refused.last()?;
        if let Some(reason) = pauses(job, now) {
            return Some(reason);
        }
        let anywhere = KindKey { avoids: Vec::new(), ..key.clone() };
        let keeps =
            of.funnel.shortfall().is_some() && answers.of_kind(self, &anywhere).funnel.shortfall().is_none();
        let until = job.past.refused.iter().map(|refusal| refusal.until).min()?;
        let (tries, node) = (job.past.refused_tries, last.node);
        keeps.then_some(Reason::StartRefused { tries, node, retry_at: until })
    }

    fn waiting_reason(
        &self,
        id: JobId,
        job: &Job,
        key: &KindKey,
        kind: &OfKind,
        answers: &mut Answers,
    ) -> Reason {
        let (_, now) = answers.basis.expect("answers are about a moment");
        let sharing = kind.refused.map(Reason::Sharing);
        let fixed = || kind.fixed.map(|tenant| Reason::Fixed { tenant });
        let short = || kind.funnel.shortfall().map(Reason::Short);
        let landing =
            || rank::kept_for_newcomers(self, id, job, now).map(|kept| Reason::LandingRoom { kept });
        let reason = sharing.or_else(fixed).or_else(|| self.refused_reason(job, key, kind, answers));
        let reason = reason.or_else(short).or_else(|| pauses(job, now)).or_else(landing);
        reason.or_else(|| answers.kept_away(self, id, key)).unwrap_or(Reason::Startable)
    }
}

/// Why a job pauses before its next try, if it does.
fn pauses(job: &Job, now: Timestamp) -> Option<Reason> {
    let until = Some(job.not_before).filter(|&until| until > now)?;
    let refused = job.past.refused.last().filter(|_| job.past.refused_tries > 0);
    let tries = job.past.refused_tries;
    Some(refused.map_or(Reason::BackingOff { until }, |last| Reason::StartRefused {
        tries,
        node: last.node,
        retry_at: until,
    }))
}
