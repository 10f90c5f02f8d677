//! Hot reload of the policy directory.
//!
//! The directory is read once a second and compiled when its content has changed. A policy with an error changes
//! nothing: the one in force stays, and the error is shown until it is mended.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::{info, warn};
use wharf_api::file::FileError;
use wharf_api::file::policy::load_policy;
use wharf_engine::input::{Input, Rejection};

use crate::desk::Desk;

/// How often the directory is read.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is wrong with the policy directory now, if anything.
#[derive(Clone, Debug, Default)]
pub struct PolicyStatus(Arc<Mutex<Option<String>>>);

impl PolicyStatus {
    /// What is wrong.
    pub fn error(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, error: Option<String>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *held == error {
            return;
        }
        if let Some(error) = &error {
            warn!("the policy directory has an error, the policy in force stays: {error}");
        } else {
            info!("the policy directory is in order again");
        }
        *held = error;
    }
}

/// Every error of a directory as one text.
pub fn errors_text(errors: &[FileError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Watches a directory for as long as the desk lives.
pub fn watch(dir: PathBuf, desk: Desk, status: PolicyStatus) {
    let look = move || {
        let mut looked = Looked::default();
        while !desk.has_stopped() {
            std::thread::sleep(LOOK_EVERY);
            look_once(&dir, &desk, &status, &mut looked);
        }
    };
    std::thread::Builder::new().name("policy".to_owned()).spawn(look).expect("a thread can be started");
}

/// Digests of what was seen last and of what is in force.
#[derive(Default)]
struct Looked {
    last: String,
    applied: String,
}

fn look_once(dir: &Path, desk: &Desk, status: &PolicyStatus, looked: &mut Looked) {
    let policy = match load_policy(dir) {
        Ok(policy) => policy,
        Err(errors) => {
            status.set(Some(errors_text(&errors)));
            return;
        }
    };
    status.set(None);
    // Several files change one after the other: only what looks the same twice is taken for whole.
    let whole = std::mem::replace(&mut looked.last, policy.digest.clone()) == policy.digest;
    if policy.digest == looked.applied || !whole {
        return;
    }
    let digest = policy.digest.clone();
    let said = digest.clone();
    let posted = desk.post(Input::ApplyPolicy(policy), move |reply| match reply {
        Ok(_) => info!("policy {said:.12} is in force"),
        Err(Rejection::NothingToDo) => {}
        Err(rejection) => warn!("policy {said:.12} was refused: {rejection:?}"),
    });
    if posted.is_ok() {
        looked.applied = digest;
    }
}
