//! What history learns from events: finished jobs, receipts, GPU time, what jobs hold, and who pulled which lever. State
//! holds live things only.
//!
//! The matches over events are exhaustive: a new event does not compile until somebody has decided what history
//! keeps of it. Every row has the actor of its event.

mod allocation;
mod audit;
mod booking;
mod eviction;
mod finished;
mod receipt;
mod statement;
mod usage;

use serde::Serialize;
use wharf_engine::model::actor::Actor;
use wharf_engine::model::exit::{Exit, ExitDetail, Outcome};
use wharf_engine::model::placement::Placement;
use wharf_engine::model::policy::Amount;
use wharf_engine::state::State;
use wharf_engine::state::event::Event;
use wharf_engine::state::jobs::event::{JobsEvent, Next};
use wharf_engine::state::jobs::{Job, Phase};
use wharf_engine::state::ledger::event::{Asker, LedgerEvent};
use wharf_engine::units::{JobId, NodeId, Timestamp};

use crate::disk::{HistoryKind, HistoryRow, Index};

pub use allocation::{Change, Grant, Grants, Guarantee, Promised, carried, promised};
pub use audit::Audit;
pub use booking::BookingReceipt;
pub use eviction::{EvictionReceipt, Resource, Stood};
pub use finished::{ArrayOf, EndReason, FinishedJob};
pub use receipt::Receipt;
pub use statement::{Key, KeyValue, Statement, Sums, TooManyGroups, Whose, Window};
pub use usage::{Segment, Usage, gpu_ms, held_now};

/// Where in the journal an event stands, when, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    pub index: Index,
    pub now: Timestamp,
    pub actor: &'a Actor,
}

impl Moment<'_> {
    fn row(self, kind: HistoryKind, tenant: &str, name: &str, body: String) -> HistoryRow {
        let Self { index, now, actor } = self;
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        HistoryRow { index, kind, at: now.0, tenant, name, actor: Some(actor.clone()), body }
    }
}

/// What history learns from the events of one turn.
#[derive(Debug, Default)]
pub struct Projection {
    rows: Vec<HistoryRow>,
    /// Tasks of one job that end one after the other: a gang that ends is one row.
    stop: Option<(JobId, HistoryRow, Grants)>,
}

impl Projection {
    /// Learns from an event, seen from the state before it.
    pub fn hear(&mut self, state: &State, event: &Event, moment: Moment<'_>) {
        match event {
            Event::Jobs(event) => {
                self.rows.extend(of_jobs(state, event, moment));
                self.change(state, allocation::of_end(state, event, moment.now), moment);
            }
            Event::Ledger(event) => {
                self.rows.extend(of_ledger(state, event, moment));
                self.change(state, allocation::of_ledger(state, event), moment);
            }
            Event::Bookings(event) => self.rows.extend(booking::row(state, event, moment)),
            Event::Fleet(event) => self.audit(audit::of_fleet(state, event), moment),
            Event::Maintenance(event) => self.audit(audit::of_maintenance(state, event), moment),
            Event::Tenants(event) => {
                self.audit(audit::of_tenants(event), moment);
                for (tenant, change) in allocation::of_policy(event) {
                    self.rows.push(moment.row(HistoryKind::Guarantee, &tenant, "", json(&change)));
                }
            }
            Event::Earmarks(_)
            | Event::Demand(_)
            | Event::Reservations(_)
            | Event::Attained(_)
            | Event::Past(_)
            | Event::Owned(_) => {}
        }
    }

    fn audit(&mut self, lever: Option<(String, Audit)>, moment: Moment<'_>) {
        let row =
            |(subject, body): (String, Audit)| moment.row(HistoryKind::Audit, "", &subject, json(&body));
        self.rows.extend(lever.map(row));
    }

    /// The rows so far, which are the disk's from now on.
    pub fn take(&mut self) -> Vec<HistoryRow> {
        self.write_stop();
        std::mem::take(&mut self.rows)
    }

    fn change(&mut self, state: &State, change: Option<(JobId, Change)>, moment: Moment<'_>) {
        let Some((job, change)) = change else { return };
        let Change::Stop(grants) = change else {
            self.write_stop();
            self.rows.extend(Writer { state, job, moment }.row(HistoryKind::Allocation, &change));
            return;
        };
        if let Some((before, row, so_far)) = &mut self.stop
            && (*before, so_far.attempt, row.actor.as_ref()) == (job, grants.attempt, Some(moment.actor))
        {
            return so_far.join(grants);
        }
        self.write_stop();
        let row = Writer { state, job, moment }.row(HistoryKind::Allocation, &());
        self.stop = row.map(|row| (job, row, grants));
    }

    fn write_stop(&mut self) {
        let stop = self.stop.take();
        self.rows
            .extend(stop.map(|(_, row, grants)| HistoryRow { body: json(&Change::Stop(grants)), ..row }));
    }
}

fn of_jobs(state: &State, event: &JobsEvent, moment: Moment<'_>) -> Vec<HistoryRow> {
    let (now, write) = (moment.now, |job: JobId| Writer { state, job, moment });
    match event {
        JobsEvent::Ended { job, outcome, at, by } => {
            let body = finished::finished(state, *job, *outcome, by.as_ref(), *at);
            let usage = usage::of_attempt(state, *job, Some(*outcome), now);
            let of_job = body.and_then(|body| write(*job).row(HistoryKind::Job, &body));
            write(*job).usage(usage).into_iter().chain(of_job).collect()
        }
        JobsEvent::Requeued { job, at, .. } => {
            let known = state.jobs.get(*job).map(|known| known.phase);
            let Some(Phase::Leaving(Next::Requeue(why))) = known else { return Vec::new() };
            let ran_ms = state.ledger.holding(*job).map_or(0, |holding| holding.ran(*at));
            let waits = write(*job).receipt(|uid| Receipt::Requeued { uid, why, ran_ms });
            let usage = usage::of_attempt(state, *job, None, now);
            write(*job).usage(usage).into_iter().chain(waits).collect()
        }
        JobsEvent::Leaving { job, next: Next::End(Outcome::Cancelled), by, .. } => {
            write(*job).receipt(|uid| Receipt::Cancelled { uid, by: by.clone() }).into_iter().collect()
        }
        JobsEvent::Extended { job, limit, .. } => {
            let before_ms = state.jobs.get(*job).and_then(Job::time_limit).map(|limit| limit.0);
            let extended = |uid| Receipt::Extended { uid, limit_ms: limit.0, before_ms };
            write(*job).receipt(extended).into_iter().collect()
        }
        JobsEvent::Scaled { job, tasks, .. } => {
            let before = state.jobs.get(*job).map_or(0, Job::wanted);
            let scaled = |uid| Receipt::Scaled { uid, replicas: *tasks, before };
            write(*job).receipt(scaled).into_iter().collect()
        }
        // What a replacement does to replicas is told replica by replica.
        JobsEvent::Rolled { .. }
        | JobsEvent::Changed { .. }
        | JobsEvent::Queued { .. }
        | JobsEvent::Leaving { .. }
        | JobsEvent::Stays { .. }
        | JobsEvent::ReplicaFailed { .. }
        | JobsEvent::StartRefused { .. }
        | JobsEvent::RefusalsForgotten { .. }
        | JobsEvent::Held { .. }
        | JobsEvent::Released { .. }
        | JobsEvent::Carried { .. }
        | JobsEvent::CarriedEnded { .. }
        | JobsEvent::CarriedJob { .. } => Vec::new(),
    }
}

fn of_ledger(state: &State, event: &LedgerEvent, moment: Moment<'_>) -> Vec<HistoryRow> {
    let write = |job: JobId| Writer { state, job, moment };
    let one = |job: JobId, receipt: &dyn Fn(String) -> Receipt| {
        write(job).receipt(receipt).into_iter().collect::<Vec<HistoryRow>>()
    };
    match event {
        LedgerEvent::Started { job, attempt, tasks, policy, .. } => one(*job, &|uid| {
            let (nodes, gpu_parts) = (nodes(state, tasks), parts(tasks));
            Receipt::Placed { uid, attempt: *attempt, nodes, policy: *policy, gpu_parts }
        }),
        LedgerEvent::Grown { job, tasks, .. } => {
            let numbers = tasks.iter().map(|place| place.task).collect();
            let (nodes, gpu_parts) = (nodes(state, tasks), parts(tasks));
            let grown = write(*job).receipt(|uid| Receipt::Grown { uid, tasks: numbers, nodes, gpu_parts });
            let replaced = usage::of_replaced(state, *job, moment.now);
            write(*job).usage(replaced).into_iter().chain(grown).collect()
        }
        LedgerEvent::Shed { job, task, at, exit, detail } => {
            let ended = ended(state, *job, *task, *exit, *detail);
            let ended = ended.and_then(|ended| write(*job).receipt(|_| ended));
            let sm_active_milli = detail.sm_active_milli;
            let end = usage::TaskEnd { task: *task, exit: *exit, sm_active_milli, at: *at };
            let usage = usage::of_task(state, *job, &end);
            write(*job).usage(usage).into_iter().chain(ended).collect()
        }
        LedgerEvent::Gone { job, task, exit, detail, .. } => match exit {
            Exit::Failed | Exit::Lost => {
                let ended = ended(state, *job, *task, Some(*exit), *detail);
                ended.and_then(|ended| write(*job).receipt(|_| ended)).into_iter().collect()
            }
            // Of those that end as they should, the row of the attempt tells.
            Exit::Succeeded | Exit::Stopped => Vec::new(),
        },
        LedgerEvent::Asked { job, tasks, by, deadline, .. } => one(*job, &|uid| Receipt::Asked {
            uid,
            by: asker(by),
            deadline: deadline.0,
            tasks: tasks.clone(),
        }),
        LedgerEvent::Acked { job, tasks, checkpoint_at } => {
            let saved_at = checkpoint_at.0;
            one(*job, &|uid| Receipt::Saved { uid, tasks: tasks.clone(), saved_at })
        }
        LedgerEvent::AskFailed { job, tasks } => {
            one(*job, &|uid| Receipt::SaveFailed { uid, tasks: tasks.clone() })
        }
        LedgerEvent::Withdrawn { job, tasks, .. } => {
            one(*job, &|uid| Receipt::Withdrawn { uid, tasks: tasks.clone() })
        }
        LedgerEvent::Broken { job, deadline, .. } => {
            one(*job, &|uid| Receipt::Broken { uid, deadline: deadline.0 })
        }
        LedgerEvent::Evicted { job, tasks, receipt, .. } => {
            let body = eviction::receipt(state, *job, tasks, receipt);
            let body = body.map(|body| Receipt::Evicted(Box::new(body)));
            body.and_then(|body| write(*job).row(HistoryKind::Eviction, &body)).into_iter().collect()
        }
        LedgerEvent::Running { .. }
        | LedgerEvent::Stopping { .. }
        | LedgerEvent::LeaveRefused { .. }
        | LedgerEvent::OrphanSeen { .. }
        | LedgerEvent::OrphanGone { .. }
        | LedgerEvent::Carried { .. } => Vec::new(),
    }
}

/// Writes rows about one job.
struct Writer<'a> {
    state: &'a State,
    job: JobId,
    moment: Moment<'a>,
}

impl Writer<'_> {
    fn row(&self, kind: HistoryKind, body: &impl Serialize) -> Option<HistoryRow> {
        let job = self.state.jobs.get(self.job)?;
        let tenant = self.state.tenants.path(job.spec.tenant);
        Some(self.moment.row(kind, tenant, &job.spec.name, json(body)))
    }

    fn receipt(&self, receipt: impl FnOnce(String) -> Receipt) -> Option<HistoryRow> {
        let uid = uid(self.state.jobs.get(self.job)?);
        self.row(HistoryKind::Receipt, &receipt(uid))
    }

    fn usage(&self, usage: Option<Usage>) -> Option<HistoryRow> {
        // Work without GPUs has no GPU time.
        let usage = usage.filter(|usage| !usage.segments.is_empty())?;
        self.row(HistoryKind::Usage, &usage)
    }
}

fn ended(state: &State, id: JobId, task: u32, exit: Option<Exit>, detail: ExitDetail) -> Option<Receipt> {
    let uid = uid(state.jobs.get(id)?);
    let held = state.ledger.holding(id).and_then(|holding| holding.task(task))?;
    let node = node_name(state, held.place.node);
    Some(Receipt::TaskEnded { uid, task, node, exit, detail })
}

fn asker(by: &Asker) -> String {
    match by {
        Asker::Lever { who } => who.clone(),
        Asker::Rules { why, .. } => why.into_str().to_owned(),
        Asker::Limit => "time_limit".to_owned(),
        Asker::Scale => "scale".to_owned(),
        Asker::Booking { .. } => "booking".to_owned(),
        Asker::Replace => "replace".to_owned(),
        Asker::Drain { .. } => "drain".to_owned(),
    }
}

/// What a guarantee promises; `None` where it is not metered.
fn promised_parts(guaranteed: Amount) -> Option<u64> {
    match guaranteed {
        Amount::Unlimited => None,
        Amount::Of(parts) => Some(parts),
    }
}

fn nodes(state: &State, tasks: &[Placement]) -> Vec<String> {
    tasks.iter().map(|task| node_name(state, task.node)).collect()
}

fn parts(tasks: &[Placement]) -> u64 {
    tasks.iter().map(usage::parts_of).sum()
}

fn node_name(state: &State, node: NodeId) -> String {
    state.fleet.node(node).map_or_else(|| "?".to_owned(), |node| node.facts.name.clone())
}

fn uid(job: &Job) -> String {
    format!("{:032x}", job.uid.0)
}

fn json(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("a struct of strings and numbers always encodes")
}
