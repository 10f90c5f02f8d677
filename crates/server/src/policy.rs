//! Hot reload of the policy directory.
//!
//! The directory is read once a second, compiled and held against the fleet as it is declared. A policy with an error,
//! or with a promise that the fleet cannot keep, changes nothing: the one in force stays, and the error is shown until
//! it is mended. What is only doubtful is shown too, and applied.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::{info, warn};
use wharf_api::file::FileError;
use wharf_api::file::policy::lint::{Finding, Inventory, Severity, Stock, review_policy};
use wharf_engine::decide::input::{Input, Request};
use wharf_engine::model::actor::{Actor, Source};
use wharf_engine::model::policy::Policy;
use wharf_engine::model::rejection::Rejection;
use wharf_engine::state::State;
use wharf_engine::state::fleet::Node;

use crate::desk::Desk;

/// How often the directory is read.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What there is to say about the policy directory now.
#[derive(Clone, Debug, Default)]
pub struct PolicyStatus(Arc<Mutex<Remarks>>);

/// What there is to say about a policy directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// Why it is not applied.
    pub error: Option<String>,
    /// What is doubtful in it.
    pub warnings: Vec<String>,
}

impl PolicyStatus {
    /// What is wrong.
    pub fn error(&self) -> Option<String> {
        self.remarks().error
    }

    /// All there is to say.
    pub fn remarks(&self) -> Remarks {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, remarks: Remarks) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *held == remarks {
            return;
        }
        match (&held.error, &remarks.error) {
            (_, Some(error)) => {
                warn!("the policy directory has an error, the policy in force stays: {error}");
            }
            (Some(_), None) => info!("the policy directory is in order again"),
            (None, None) => {}
        }
        for warning in remarks.warnings.iter().filter(|warning| !held.warnings.contains(warning)) {
            warn!("the policy directory: {warning}");
        }
        *held = remarks;
    }
}

/// A directory as it is read, on a fleet.
pub struct Reviewed {
    /// The policy, where it can be applied.
    pub policy: Option<Policy>,
    /// What there is to say about it.
    pub remarks: Remarks,
}

/// Reads a directory and holds it against a fleet. What is in force already is not refused: the fleet may have become
/// smaller since, and a promise that cannot be kept is then a warning.
pub fn review(dir: &Path, fleet: &Inventory, in_force: &str) -> Reviewed {
    let (policy, lint) = match review_policy(dir, fleet) {
        Ok(reviewed) => reviewed,
        Err(errors) => {
            let remarks = Remarks { error: Some(errors_text(&errors)), warnings: Vec::new() };
            return Reviewed { policy: None, remarks };
        }
    };
    let holds = policy.digest == in_force;
    let of = |severity| lint.findings.iter().filter(move |finding| finding.severity == severity);
    let text = |found: Vec<&Finding>| found.iter().map(ToString::to_string).collect::<Vec<_>>();
    let errors = text(of(Severity::Error).collect());
    let mut warnings = text(of(Severity::Warning).collect());
    if holds {
        warnings.splice(0..0, errors);
        return Reviewed { policy: Some(policy), remarks: Remarks { error: None, warnings } };
    }
    let error = (!errors.is_empty()).then(|| errors.join("\n"));
    Reviewed { policy: error.is_none().then_some(policy), remarks: Remarks { error, warnings } }
}

/// What the nodes of the fleet have as they are declared, whether they are up or not.
pub fn inventory(state: &State) -> Inventory {
    let nodes = state.fleet.nodes().map(|(_, Node { facts, .. })| Stock {
        model: state.fleet.model(facts.pool),
        gpus: facts.gpus.len(),
        others_gpus: facts.others_gpus,
        capacity: facts.capacity,
        others: facts.others,
    });
    Inventory::new("of this control plane", nodes)
}

/// Every error of a directory as one text.
pub fn errors_text(errors: &[FileError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Watches a directory for as long as the desk lives.
pub fn watch(dir: PathBuf, desk: Desk, status: PolicyStatus) {
    let look = move || {
        let mut last = String::new();
        while !desk.has_stopped() {
            std::thread::sleep(LOOK_EVERY);
            look_once(&dir, &desk, &status, &mut last);
        }
    };
    std::thread::Builder::new().name("policy".to_owned()).spawn(look).expect("a thread can be started");
}

/// `last` is the digest of what was seen before.
fn look_once(dir: &Path, desk: &Desk, status: &PolicyStatus, last: &mut String) {
    let (fleet, in_force) = {
        let replica = desk.latest();
        (inventory(&replica.state), replica.state.tenants.policy().digest.clone())
    };
    let Reviewed { policy, remarks } = review(dir, &fleet, &in_force);
    status.set(remarks);
    let Some(policy) = policy else { return };
    // Several files change one after the other: only what looks the same twice is taken for whole.
    let whole = std::mem::replace(last, policy.digest.clone()) == policy.digest;
    if policy.digest == in_force || !whole {
        return;
    }
    let digest = policy.digest.clone();
    // A desk that has no room now is given it again in a second.
    let request = Request { actor: Actor::of(Source::PolicyFile), input: Input::ApplyPolicy(policy) };
    let _ = desk.post(request, move |reply| match reply {
        Ok(_) => info!("policy {digest:.12} is in force"),
        Err(Rejection::NothingToDo) => {}
        Err(rejection) => warn!("policy {digest:.12} was refused: {rejection:?}"),
    });
}
