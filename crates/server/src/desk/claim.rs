//! Who has an input: its caller, who may still withdraw it, or the desk, which decides it.
//!
//! Caller and desk race on one compare-and-swap, so that exactly one of them wins. A caller that wins knows that its
//! input does not take effect; a caller that loses knows that it does, or that the reason why not is on its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const OPEN: u8 = 0;
const TAKEN: u8 = 1;
const WITHDRAWN: u8 = 2;

/// The desk's end.
#[derive(Debug)]
pub(super) struct Claim(Arc<AtomicU8>);

/// The caller's end. A caller that goes away withdraws its input.
#[derive(Debug)]
pub(super) struct Caller(Arc<AtomicU8>);

/// Both ends of a new input.
pub(super) fn open() -> (Caller, Claim) {
    let state = Arc::new(AtomicU8::new(OPEN));
    (Caller(Arc::clone(&state)), Claim(state))
}

impl Claim {
    /// Of an input that nobody withdraws.
    pub(super) fn unshared() -> Self {
        Self(Arc::default())
    }

    /// The desk takes the input; false where its caller has withdrawn it.
    pub(super) fn take(&self) -> bool {
        win(&self.0, TAKEN)
    }
}

impl Caller {
    /// The caller withdraws the input; false where the desk has taken it.
    pub(super) fn withdraw(&self) -> bool {
        win(&self.0, WITHDRAWN)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.withdraw();
    }
}

fn win(state: &AtomicU8, outcome: u8) -> bool {
    state.compare_exchange(OPEN, outcome, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_two_wins() {
        let (caller, claim) = open();
        assert!(claim.take());
        assert!(!caller.withdraw());
        let (caller, claim) = open();
        assert!(caller.withdraw());
        assert!(!claim.take());
        let (caller, claim) = open();
        drop(caller);
        assert!(!claim.take(), "a caller that is gone has withdrawn");
    }
}
