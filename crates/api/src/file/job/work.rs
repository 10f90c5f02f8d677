//! What the world runs, or pretends to run.

use serde::Serialize;
use wharf_engine::units::Millis;

use super::super::Fault;
use super::super::field::{Field, Map};
use super::asks::mebibytes;
use super::optional;

/// What the world runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Text for the world, perhaps none.
    Payload(String),
    /// What a simulated world should pretend.
    Simulate(Simulate),
}

/// What a simulated world should pretend; the planner never sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Simulate {
    /// How long the job really runs.
    #[serde(rename = "duration_ms", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Millis>,
    /// How busy its GPUs are, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_active_milli: Option<u32>,
    /// A task fails after so long.
    #[serde(rename = "fail_after_ms", skip_serializing_if = "Option::is_none")]
    pub fail_after: Option<Millis>,
    /// Whether it can save its work when asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Saves>,
    /// The memory of each GPU that it really uses, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
}

/// How a simulated job answers when it is asked to save its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Saves {
    /// It does.
    Ok,
    /// It cannot.
    Fail,
}

pub(super) fn work(keys: &Map<'_>) -> Result<Work, Fault> {
    let payload = keys.get("payload")?;
    let Some(simulate) = keys.get("simulate")? else {
        let payload = payload.map(|field| field.text()).transpose()?;
        return Ok(Work::Payload(payload.unwrap_or_default().to_owned()));
    };
    if let Some(payload) = payload {
        return Err(payload.fault("is given together with simulate").allowed("one of the two"));
    }
    let inner = simulate.shaped(
        &["duration", "sm_active", "fail_after", "checkpoint", "memory"],
        "simulate: {duration: {}}",
    )?;
    let busy =
        |field: Field<'_>| field.thousandths(0..=1000, "a number from 0 to 1 with at most three decimals");
    let saves = |field: Field<'_>| Ok([Saves::Ok, Saves::Fail][field.word(&["ok", "fail"])?]);
    Ok(Work::Simulate(Simulate {
        duration: optional(&inner, "duration", |field| field.duration(Millis(0)))?,
        sm_active_milli: optional(&inner, "sm_active", busy)?,
        fail_after: optional(&inner, "fail_after", |field| field.duration(Millis(0)))?,
        checkpoint: optional(&inner, "checkpoint", saves)?,
        memory_mib: optional(&inner, "memory", |field| mebibytes(&field))?,
    }))
}
