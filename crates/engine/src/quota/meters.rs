//! An amount of everything that quota is counted in, with its arithmetic.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// An amount by meter, in the order of the meters of one tenant tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Meters(Vec<u64>);

/// An amount per tenant, by meter.
pub type Amounts = Vec<Meters>;

impl Meters {
    /// Nothing of anything.
    pub fn zero(meters: usize) -> Self {
        Self(alloc::vec![0; meters])
    }

    /// Adds another amount. What cannot be counted is as good as endless.
    pub fn add(&mut self, more: &[u64]) {
        for (total, &part) in self.0.iter_mut().zip(more) {
            *total = total.saturating_add(part);
        }
    }

    pub(crate) fn subtract(&mut self, less: &[u64]) {
        for (total, &part) in self.0.iter_mut().zip(less) {
            *total -= part;
        }
    }

    pub(crate) fn count(&mut self, part: &[u64], more: bool) {
        if more {
            self.add(part);
        } else {
            self.subtract(part);
        }
    }
}

impl Deref for Meters {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl DerefMut for Meters {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

impl FromIterator<u64> for Meters {
    fn from_iter<I: IntoIterator<Item = u64>>(amounts: I) -> Self {
        Self(amounts.into_iter().collect())
    }
}
