//! Receipts of evictions as the API shows them, and what they say in sentences.

use wharf_api::v1::{BelowLineView, BeneficiaryView, EvictionView, Rule, VictimView, gpu_seconds, gpus};
use wharf_controller::disk::HistoryRow;
use wharf_controller::history::{EvictionReceipt, Receipt, Resource, Stood};
use wharf_engine::plan::EvictedJob;
use wharf_engine::quota::tree::Meter;
use wharf_engine::state::State;
use wharf_engine::state::ledger::event::Eviction;
use wharf_engine::units::GpuUnits;

use crate::tenants::{ANY_GPU, CPU, MEMORY, metered};
use crate::text::gpus as gpus_text;

/// In which order work of one tenant has to leave.
const ORDER: &str = "the lower class leaves first, then the lower priority, surplus before whole jobs, the cheaper, the newer";

/// A row of history about an eviction; `None` for any other.
pub(crate) fn view(row: HistoryRow) -> Option<EvictionView> {
    let receipt = EvictionReceipt::of(&row)?;
    let HistoryRow { index, at, tenant, name, actor, kind: _, body: _ } = row;
    let rule = Rule::from(receipt.why);
    let lost = |stood: &Stood| gpu_seconds(times(receipt.lost_ms, stood.gpu_parts));
    Some(EvictionView {
        id: index,
        at_ms: at,
        rule_text: rule_text(rule, &receipt, &tenant),
        victim_text: victim_text(rule, &receipt, &tenant),
        victim: VictimView {
            job: name,
            tenant,
            uid: receipt.uid.clone(),
            tasks: receipt.tasks.clone(),
            whole: receipt.whole,
            rule,
            lost_gpu_s: receipt.stood.as_ref().map(lost),
            cost_gpu_s: gpu_seconds(receipt.cost_gpu_ms),
            gain_gpu_s: receipt.gain_gpu_ms.map(gpu_seconds),
        },
        below_line: below_line(&receipt),
        booking: receipt.booking.clone(),
        node: receipt.node.clone(),
        drained_by: receipt.lever.as_ref().map(|lever| lever.by.clone()),
        actor: actor.map(Into::into),
        beneficiary: BeneficiaryView {
            job: receipt.beneficiary,
            tenant: receipt.beneficiary_tenant,
            uid: receipt.beneficiary_uid,
        },
        policy_version: receipt.policy,
    })
}

/// True when its victim may stay after all, as far as the victim's receipts since then tell; they are newest first.
pub(crate) fn is_withdrawn(eviction: &EvictionView, since: &[HistoryRow]) -> bool {
    let VictimView { uid: victim, tasks: asked, .. } = &eviction.victim;
    let later = since.iter().rev().filter(|row| row.index > eviction.id);
    let end =
        later.filter_map(|row| serde_json::from_str(&row.body).ok()).find_map(|receipt| match receipt {
            Receipt::Withdrawn { uid, tasks } if uid == *victim => {
                tasks.iter().any(|task| asked.contains(task)).then_some(true)
            }
            Receipt::TaskEnded { uid, task, .. } if uid == *victim => asked.contains(&task).then_some(false),
            Receipt::Requeued { uid, .. } if uid == *victim => Some(false),
            _ => None,
        });
    end.unwrap_or(false)
}

/// Somebody whom a plan would make leave.
pub(crate) fn victim(state: &State, evicted: &EvictedJob) -> Option<VictimView> {
    let EvictedJob { job, tasks, receipt } = evicted;
    let Eviction { why, whole, lost, cost, gain, .. } = receipt;
    let job = state.jobs.get(*job)?;
    let parts = tasks.iter().map(|&task| job.spec.shape_of(task).gpus.units().parts());
    let parts = parts.fold(0, u64::saturating_add);
    Some(VictimView {
        job: job.spec.name.clone(),
        tenant: state.tenants.path(job.spec.tenant).to_owned(),
        uid: format!("{:032x}", job.uid.0),
        tasks: tasks.clone(),
        whole: *whole,
        rule: Rule::from(*why),
        lost_gpu_s: Some(gpu_seconds(times(lost.0, parts))),
        cost_gpu_s: gpu_seconds(*cost),
        gain_gpu_s: gain.map(gpu_seconds),
    })
}

/// Milliseconds on so much of a GPU, as GPU-milliseconds.
fn times(millis: u64, parts: u64) -> u64 {
    let exact = u128::from(millis) * u128::from(parts) / u128::from(GpuUnits::WHOLE.parts());
    u64::try_from(exact).unwrap_or(u64::MAX)
}

fn rule_text(rule: Rule, receipt: &EvictionReceipt, tenant: &str) -> String {
    let EvictionReceipt { beneficiary, beneficiary_tenant: winner, .. } = receipt;
    match rule {
        Rule::Guarantee => format!(
            "{winner} has {beneficiary} within its guarantee, and what others borrowed of a guarantee goes back"
        ),
        Rule::FairShare => format!(
            "{winner} has {beneficiary} within its fair share, and {tenant} or a tenant above it was beyond its own"
        ),
        Rule::Preempt => {
            let standing = receipt.stood.as_ref().map_or_else(String::new, |stood| {
                let Stood { class, priority, beneficiary_class, beneficiary_priority, .. } = stood;
                format!(
                    " ({beneficiary_class} with priority {beneficiary_priority}, before {class} with priority {priority})"
                )
            });
            format!("{beneficiary} of {winner} stands higher by class or priority{standing}")
        }
        Rule::Move => {
            format!(
                "{beneficiary} of {winner} needs room in one piece, and this job gets other places for it"
            )
        }
        Rule::Reservation => {
            format!("{beneficiary} of {winner} was promised these places before this job came")
        }
        Rule::Booking => {
            let booking = receipt.booking.as_deref().unwrap_or("?");
            if receipt.beneficiary_uid == receipt.uid {
                format!(
                    "the window booking/{booking} begins and these are its places, or it ends and the job ran in it"
                )
            } else {
                format!("{beneficiary} of {winner} came to its places in the window booking/{booking}")
            }
        }
        Rule::Drain => {
            let node = receipt.node.as_deref().unwrap_or("?");
            let who = receipt.lever.as_ref().map_or_else(
                || "maintenance of it is planned".to_owned(),
                |lever| match lever.reason.as_str() {
                    "" => format!("{} drains it", lever.by),
                    reason => format!("{} drains it: {reason}", lever.by),
                },
            );
            format!("node/{node} is to be empty; {who}")
        }
        Rule::Order => {
            format!(
                "{beneficiary} of {winner} waits and was served less, or is expected to be done with less"
            )
        }
    }
}

fn victim_text(rule: Rule, receipt: &EvictionReceipt, tenant: &str) -> String {
    let own = receipt.stood.as_ref().map_or_else(String::new, |stood| {
        format!(" (this job: {} with priority {})", stood.class, stood.priority)
    });
    match rule {
        Rule::Guarantee | Rule::FairShare => {
            format!("{}; of its work {ORDER}{own}", above_line(receipt, tenant))
        }
        Rule::Preempt => format!("of the work that gives way to {} {ORDER}{own}", receipt.beneficiary),
        Rule::Move => "of the jobs whose places would do, the fewest and smallest are moved".to_owned(),
        Rule::Reservation => "it filled promised places until they are needed".to_owned(),
        Rule::Booking => {
            "for a window, what is over in time, then what was borrowed, then batch work gives way; at its end, the \
             newest of its jobs that its tenant has no other right to"
                .to_owned()
        }
        Rule::Drain => {
            "everything on the node leaves that is not over in time; an elastic job and a service give up only what \
             they have there"
                .to_owned()
        }
        Rule::Order => format!(
            "of the tenant's own work that had its minimum run and stands behind {}, the cheapest, then the longest \
             served, leaves{own}",
            receipt.beneficiary
        ),
    }
}

fn above_line(receipt: &EvictionReceipt, tenant: &str) -> String {
    let numbers = receipt.stood.as_ref().and_then(|stood| {
        let guaranteed = stood.tenant_guaranteed_parts?;
        let more = stood.tenant_used_parts.checked_sub(guaranteed).filter(|&more| more > 0)?;
        let shown = |parts: u64| GpuUnits::from_parts(parts);
        Some(format!(
            "{tenant} held {}, {} more than its guarantee of {}",
            gpus_text(shown(stood.tenant_used_parts)),
            shown(more),
            shown(guaranteed)
        ))
    });
    numbers.unwrap_or_else(|| format!("{tenant}, or a tenant above it, was above its line"))
}

fn below_line(receipt: &EvictionReceipt) -> Option<BelowLineView> {
    let (tenant, short) = (receipt.below_line.clone()?, receipt.below_line_by?);
    let (resource, by) = match &receipt.below_line_in {
        None => (None, None),
        Some(Resource::AnyGpu) => (Some(ANY_GPU.to_owned()), Some(gpus(GpuUnits::from_parts(short)))),
        Some(Resource::Gpu(model)) => (Some(model.clone()), Some(gpus(GpuUnits::from_parts(short)))),
        Some(Resource::Cpu) => (Some(CPU.to_owned()), Some(metered(Meter::Cpu, short))),
        Some(Resource::Memory) => (Some(MEMORY.to_owned()), Some(metered(Meter::Memory, short))),
    };
    Some(BelowLineView { tenant, resource, by })
}
