//! Changes of what jobs hold: the rows that every GPU-millisecond of every tenant can be computed from.
//!
//! Worked example: a gang of two tasks on whole GPUs starts at 1000, one task ends at 3000 and the rest at 4000.
//!
//! ```text
//! start  gpus: h100 tasks 0-1, 6000 parts from 1000
//! stop   gpus: h100 task 0,    3000 parts from 1000 to 3000
//! stop   gpus: h100 task 1,    3000 parts from 1000 to 4000
//! ```
//!
//! A stop says all of its span, so that it counts without its start. A start that no later row stops is held until now;
//! where its row was dropped for its age, [`carried`] tells of it. What a tenant is promised is told when a policy is
//! applied, in rows of their own kind: what it holds beyond that is borrowed. Tasks without GPUs hold none and have no rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wharf_engine::model::policy::{GpuQuota, Policy};
use wharf_engine::state::State;
use wharf_engine::state::holding::{HeldTask, Holding};
use wharf_engine::state::jobs::event::JobsEvent;
use wharf_engine::state::ledger::event::LedgerEvent;
use wharf_engine::state::tenants::TenantsEvent;
use wharf_engine::units::{JobId, PoolId, Timestamp};

use super::usage::{bound_at, parts_of};
use super::{json, promised_parts, uid};
use crate::disk::{HistoryKind, HistoryRow};

/// The body of a row about what is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// A job got its places, or was adopted with them.
    Start(Grants),
    /// A job that runs got more places.
    Grow(Grants),
    /// A job goes on without tasks.
    Shrink(Grants),
    /// Tasks are over.
    Stop(Grants),
    /// Tasks are asked to save their work and leave.
    Ask(Grants),
    /// The rules take tasks for another job.
    Evict(Grants),
    /// Tasks that were asked may stay after all.
    Stay(Grants),
    /// A job holds this when old rows are dropped.
    Held(Grants),
    /// What the tenant is promised from now on.
    Guarantee(Guarantee),
}

/// What some tasks of a job hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants {
    pub uid: String,
    pub attempt: u32,
    /// The policy it was decided by, or that was in force; 0 where work was adopted.
    pub policy: u32,
    pub gpus: Vec<Grant>,
}

/// What tasks hold of one pool for the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub pool: String,
    pub tasks: Vec<u32>,
    /// What they hold together, in 1/3000 of a GPU.
    pub gpu_parts: u64,
    /// Since when; world time in milliseconds.
    pub from_ms: u64,
    /// Until when, where it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ms: Option<u64>,
}

/// What a tenant is promised, counted as its policy counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantee {
    pub policy: u32,
    pub promised: Promised,
}

/// How much a tenant is promised, in 1/3000 of a GPU; `None`: as much as there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promised {
    /// Model by model; of a model that is not named, nothing.
    PerPool(Vec<(String, Option<u64>)>),
    AnyGpu {
        gpu_parts: Option<u64>,
        /// What a GPU of each model counts, in thousandths; one that is not named counts 1000.
        worth_milli: Vec<(String, u32)>,
    },
}

/// What the end of an attempt changes of what a job holds: whatever has not ended by itself ends with it.
pub(super) fn of_end(state: &State, event: &JobsEvent, now: Timestamp) -> Option<(JobId, Change)> {
    let (JobsEvent::Ended { job, .. } | JobsEvent::Requeued { job, .. }) = event else { return None };
    Some((*job, Change::Stop(Held::of(state, *job)?.over(HeldTask::holds, now)?)))
}

/// What an event changes of what a job holds, seen from the state before it.
pub(super) fn of_ledger(state: &State, event: &LedgerEvent) -> Option<(JobId, Change)> {
    let among = |job: &JobId, tasks: &[u32], change: fn(Grants) -> Change| {
        let grants = Held::of(state, *job)?.open(|task| tasks.contains(&task.place.task))?;
        Some((*job, change(grants)))
    };
    match event {
        LedgerEvent::Started { job, attempt, tasks, policy, at, .. } => {
            let given = tasks.iter().map(|place| (place.pool, place.task, parts_of(place), *at, None));
            let uid = uid(state.jobs.get(*job)?);
            Some((*job, Change::Start(Grants::new(state, uid, (*attempt, *policy), given)?)))
        }
        LedgerEvent::Grown { job, tasks, policy, at, .. } => {
            let given = tasks.iter().map(|place| (place.pool, place.task, parts_of(place), *at, None));
            let Held { uid, holding, .. } = Held::of(state, *job)?;
            Some((*job, Change::Grow(Grants::new(state, uid, (holding.attempt, *policy), given)?)))
        }
        LedgerEvent::Shed { job, task, at, .. } => {
            let grants = Held::of(state, *job)?.over(|held| held.place.task == *task, *at)?;
            Some((*job, Change::Shrink(grants)))
        }
        LedgerEvent::Gone { job, task, at, .. } => {
            let grants = Held::of(state, *job)?.over(|held| held.place.task == *task, *at)?;
            Some((*job, Change::Stop(grants)))
        }
        LedgerEvent::Asked { job, tasks, .. } => among(job, tasks, Change::Ask),
        LedgerEvent::Evicted { job, tasks, .. } => among(job, tasks, Change::Evict),
        LedgerEvent::Withdrawn { job, tasks, .. } => among(job, tasks, Change::Stay),
        LedgerEvent::Running { .. }
        | LedgerEvent::Broken { .. }
        | LedgerEvent::Acked { .. }
        | LedgerEvent::AskFailed { .. }
        | LedgerEvent::Stopping { .. }
        | LedgerEvent::LeaveRefused { .. }
        | LedgerEvent::OrphanSeen { .. }
        | LedgerEvent::OrphanGone { .. }
        | LedgerEvent::Carried { .. } => None,
    }
}

/// What each tenant is promised by a policy that an event applies.
pub(super) fn of_policy(event: &TenantsEvent) -> Vec<(String, Change)> {
    let TenantsEvent::PolicyApplied { version, policy } = event else { return Vec::new() };
    guarantees(*version, policy)
}

/// What every job holds now, for rows that are dropped.
pub fn carried(state: &State, now: Timestamp) -> Vec<HistoryRow> {
    let held = state.ledger.holdings().filter_map(|(job, _)| {
        let spec = &state.jobs.get(job)?.spec;
        let change = Change::Held(Held::of(state, job)?.open(HeldTask::holds)?);
        let tenant = state.tenants.path(spec.tenant);
        Some(standing(state, HistoryKind::Carried, (tenant, &spec.name), &change, now))
    });
    held.collect()
}

/// What every tenant is promised now, where no row tells of it.
pub fn promised(state: &State, now: Timestamp) -> Vec<HistoryRow> {
    let guarantees = guarantees(state.tenants.version(), state.tenants.policy());
    let row = |(tenant, change): &(String, Change)| {
        standing(state, HistoryKind::Guarantee, (tenant, ""), change, now)
    };
    guarantees.iter().map(row).collect()
}

/// A row that follows from no event.
fn standing(
    state: &State,
    kind: HistoryKind,
    (tenant, name): (&str, &str),
    change: &Change,
    now: Timestamp,
) -> HistoryRow {
    HistoryRow {
        index: state.index(),
        kind,
        at: now.0,
        tenant: tenant.to_owned(),
        name: name.to_owned(),
        actor: None,
        body: json(change),
    }
}

fn guarantees(version: u32, policy: &Policy) -> Vec<(String, Change)> {
    let tenants = policy.tenants.iter().map(|tenant| {
        let promised = match &tenant.gpus {
            GpuQuota::PerPool(quotas) => Promised::PerPool(
                quotas.iter().map(|(pool, quota)| (pool.clone(), promised_parts(quota.guaranteed))).collect(),
            ),
            GpuQuota::Any(quota) => Promised::AnyGpu {
                gpu_parts: promised_parts(quota.guaranteed),
                worth_milli: policy.normal_milli.clone(),
            },
        };
        (tenant.path.clone(), Change::Guarantee(Guarantee { policy: version, promised }))
    });
    tenants.collect()
}

/// A job with what it holds.
struct Held<'a> {
    state: &'a State,
    uid: String,
    holding: &'a Holding,
}

impl<'a> Held<'a> {
    fn of(state: &'a State, job: JobId) -> Option<Self> {
        Some(Self { state, uid: uid(state.jobs.get(job)?), holding: state.ledger.holding(job)? })
    }

    /// Tasks that go on.
    fn open(self, is_meant: impl Fn(&HeldTask) -> bool) -> Option<Grants> {
        self.grants(is_meant, None)
    }

    /// Tasks that end at a moment, which is not before they were given their place.
    fn over(self, is_meant: impl Fn(&HeldTask) -> bool, at: Timestamp) -> Option<Grants> {
        self.grants(is_meant, Some(at))
    }

    fn grants(self, is_meant: impl Fn(&HeldTask) -> bool, end: Option<Timestamp>) -> Option<Grants> {
        let Self { state, uid, holding } = self;
        let held = holding.tasks.iter().filter(|task| task.holds() && is_meant(task)).map(|task| {
            let from = bound_at(holding, task);
            (task.place.pool, task.place.task, parts_of(&task.place), from, end.map(|end| end.max(from)))
        });
        Grants::new(state, uid, (holding.attempt, state.tenants.version()), held)
    }
}

/// Pool, task, parts of a GPU, since when and until when.
type Piece = (PoolId, u32, u64, Timestamp, Option<Timestamp>);

impl Grants {
    /// `None` where no GPU is held.
    fn new(
        state: &State,
        uid: String,
        (attempt, policy): (u32, u32),
        pieces: impl Iterator<Item = Piece>,
    ) -> Option<Self> {
        let mut alike: BTreeMap<_, (Vec<u32>, u64)> = BTreeMap::new();
        for (pool, task, parts, from, to) in pieces.filter(|(_, _, parts, _, _)| *parts > 0) {
            let (tasks, sum) = alike.entry((pool, from, to)).or_default();
            tasks.push(task);
            *sum += parts;
        }
        let grant =
            |((pool, from, to), (tasks, gpu_parts)): ((PoolId, Timestamp, Option<Timestamp>), _)| Grant {
                pool: state.fleet.model(pool).to_owned(),
                tasks,
                gpu_parts,
                from_ms: from.0,
                to_ms: to.map(|to| to.0),
            };
        let gpus: Vec<Grant> = alike.into_iter().map(grant).collect();
        (!gpus.is_empty()).then_some(Self { uid, attempt, policy, gpus })
    }

    /// Takes in tasks of the same job that end beside these.
    pub(super) fn join(&mut self, other: Self) {
        for grant in other.gpus {
            let alike = |known: &&mut Grant| {
                (&known.pool, known.from_ms, known.to_ms) == (&grant.pool, grant.from_ms, grant.to_ms)
            };
            match self.gpus.iter_mut().find(alike) {
                Some(known) => {
                    known.gpu_parts += grant.gpu_parts;
                    known.tasks.extend(grant.tasks);
                }
                None => self.gpus.push(grant),
            }
        }
    }
}
