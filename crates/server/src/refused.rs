//! What a world refused, as sentences.

use wharf_engine::model::outcome::{Denial, Message};
use wharf_engine::state::State;
use wharf_engine::state::jobs::Job;
use wharf_engine::units::{GpuMask, JobId, NodeId, Timestamp};

use crate::text::{cores, memory, passed};

/// Why a world did not do what it was told.
pub(crate) fn denial(why: &Denial) -> String {
    let says = |what: &str, message: &Message| match message.as_str() {
        "" => what.to_owned(),
        text => format!("{what}: {text}"),
    };
    match why {
        Denial::NodeUnknown => "the fleet has no such node".to_owned(),
        Denial::NodeNotReady => "the node is not ready".to_owned(),
        Denial::DevicesTaken { gpus } => format!("{} in use by another process", those(*gpus)),
        Denial::DevicesFailed { gpus } => format!("{} failed or gone", those(*gpus)),
        Denial::OutOfCpu { short_milli } => format!("{} too few are left there", cores(*short_milli)),
        Denial::OutOfMemory { short } => format!("{} too little is left there", memory(*short)),
        Denial::AdmissionDenied { message } => says("admission was denied", message),
        Denial::CannotStart { message } => says("its image or command cannot be started", message),
        Denial::NotPermitted { message } => says("Wharf is not permitted to do that", message),
        Denial::DisruptionBudget => "a disruption budget is used up".to_owned(),
        Denial::StaleTerm { obeyed } => format!("the fleet obeys a later leader, of term {obeyed}"),
        Denial::Unsupported => "the fleet cannot do that".to_owned(),
    }
}

fn those(gpus: GpuMask) -> String {
    let numbers: Vec<String> = gpus.indexes().map(|gpu| gpu.to_string()).collect();
    if numbers.len() == 1 {
        format!("GPU {} is", numbers.join(", "))
    } else {
        format!("GPUs {} are", numbers.join(", "))
    }
}

/// `n3 refused to start it: …; tried 2 times, next try in 40s`
pub(crate) fn start(state: &State, id: JobId, node: NodeId, retry_at: Timestamp, now: Timestamp) -> String {
    let Some(job) = state.jobs.get(id) else { return String::new() };
    format!("{}, next try in {}", last(state, job, node), passed(retry_at - now))
}

/// What keeps a job that runs from more tasks, where its nodes refused to start one and it pauses.
pub(crate) fn growth(state: &State, job: &Job, now: Timestamp) -> Option<String> {
    let refusal = job.past.refused.last().filter(|_| job.past.refused_tries > 0 && job.not_before > now)?;
    let told = last(state, job, refusal.node);
    Some(format!("{told}, next try in {}", passed(job.not_before - now)))
}

/// Why a job is held that its nodes refused too often.
pub(crate) fn held(state: &State, id: JobId) -> String {
    let Some(job) = state.jobs.get(id) else { return String::new() };
    let told = job.past.refused.last().map(|refusal| last(state, job, refusal.node));
    let told =
        told.unwrap_or_else(|| format!("its nodes refused to start it {}", times(job.past.refused_tries)));
    format!("it is held: {told}, and it is not tried again until it is released")
}

fn last(state: &State, job: &Job, node: NodeId) -> String {
    let name = state.fleet.node(node).map_or("a node that is gone", |node| &node.facts.name);
    let refusal = job.past.refused.iter().rev().find(|refusal| refusal.node == node);
    let why = refusal.map(|refusal| format!(": {}", denial(&refusal.why))).unwrap_or_default();
    format!("{name} refused to start it{why}; tried {}", times(job.past.refused_tries))
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// `; the fleet does not let it leave n1: …, for 40s`, where that is so.
pub(crate) fn leave(state: &State, id: JobId, now: Timestamp) -> Option<String> {
    let tasks = &state.ledger.holding(id)?.tasks;
    let (task, (why, since)) = tasks.iter().find_map(|task| Some((task, task.leave_refused.as_ref()?)))?;
    let node = state.fleet.node(task.place.node).map_or("its node", |node| &node.facts.name);
    let (why, since) = (denial(why), passed(now - *since));
    Some(format!("; the fleet does not let it leave {node}: {why}, for {since}; it is asked again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_with_its_numbers_and_the_words_of_whoever_refused() {
        let gpus = |mask| Denial::DevicesTaken { gpus: GpuMask(mask) };
        assert_eq!(denial(&gpus(0b100)), "GPU 2 is in use by another process");
        assert_eq!(denial(&gpus(0b101)), "GPUs 0, 2 are in use by another process");
        let message = Message::cut("no images from that registry");
        let told = denial(&Denial::AdmissionDenied { message });
        assert_eq!(told, "admission was denied: no images from that registry");
        assert_eq!(denial(&Denial::AdmissionDenied { message: Message::default() }), "admission was denied");
        assert_eq!(denial(&Denial::OutOfCpu { short_milli: 1500 }), "1.5 cores too few are left there");
    }
}
