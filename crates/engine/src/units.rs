//! Units and identities: every number that is not a plain count has a type of its own.
//!
//! Nothing here knows a rule. Arithmetic that could go wrong returns `None`, because only the caller knows
//! whether that means a full device or a broken ledger.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A part of one GPU, or a sum over many, in 1/3000: thousandths, eighths and twelfths are all exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuUnits(u64);

impl GpuUnits {
    pub const ZERO: Self = Self(0);
    pub const WHOLE: Self = Self(3000);

    /// So many whole GPUs.
    pub fn whole(count: u32) -> Self {
        Self(u64::from(count) * Self::WHOLE.0)
    }

    /// A count of 1/3000 parts.
    pub const fn from_parts(parts: u64) -> Self {
        Self(parts)
    }

    /// The count of 1/3000 parts.
    pub const fn parts(self) -> u64 {
        self.0
    }

    /// `None` when `used` is larger.
    pub fn checked_sub(self, used: Self) -> Option<Self> {
        self.0.checked_sub(used.0).map(Self)
    }

    /// The same amount `times` over.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self(self.0 * u64::from(times))
    }
}

impl Add for GpuUnits {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for GpuUnits {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sum for GpuUnits {
    fn sum<I: Iterator<Item = Self>>(units: I) -> Self {
        units.fold(Self::ZERO, Self::add)
    }
}

impl fmt::Display for GpuUnits {
    /// GPUs with at most three decimals: `2`, `0.5`, `0.333`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / Self::WHOLE.0, self.0 % Self::WHOLE.0);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let mut thousandths = rest / 3;
        let mut width = 3;
        while thousandths.is_multiple_of(10) && width > 1 {
            thousandths /= 10;
            width -= 1;
        }
        write!(f, "{whole}.{thousandths:0width$}")
    }
}

/// A span of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// So many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1000)
    }
}

/// A moment on the world's clock, in milliseconds since that clock's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Add<Millis> for Timestamp {
    type Output = Self;
    fn add(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub for Timestamp {
    type Output = Millis;
    /// Zero when `earlier` is in fact later: clocks of two worlds may disagree.
    fn sub(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// What a node has beside its GPUs, and what a task asks for of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resources {
    pub cpu_milli: u64,
    /// Bytes.
    pub memory: u64,
    /// Bytes of node-local storage.
    #[serde(default)]
    pub storage: u64,
    /// How many tasks; a node of Kubernetes has a maximum.
    #[serde(default)]
    pub pods: u64,
    /// Network interfaces handed out whole.
    #[serde(default)]
    pub nics: u64,
}

impl Resources {
    fn each(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cpu_milli: of(self.cpu_milli, other.cpu_milli),
            memory: of(self.memory, other.memory),
            storage: of(self.storage, other.storage),
            pods: of(self.pods, other.pods),
            nics: of(self.nics, other.nics),
        }
    }

    /// `None` when any part of `used` is larger.
    pub fn checked_sub(self, used: Self) -> Option<Self> {
        self.covers(&used).then(|| self.saturating_sub(used))
    }

    /// What is left, part by part, never below zero: others may use more than we were told there is.
    #[must_use]
    pub fn saturating_sub(self, used: Self) -> Self {
        self.each(used, u64::saturating_sub)
    }

    /// True when every part of `asked` is there.
    pub fn covers(&self, asked: &Self) -> bool {
        asked.saturating_sub(*self) == Self::default()
    }

    /// The same amount `times` over.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        self.each(Self::default(), |part, _| part * u64::from(times))
    }
}

impl Add for Resources {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);
    )*};
}

ids! {
    /// A node, dense in the order in which nodes were first seen.
    NodeId(u32);
    /// GPUs of one model; nodes without GPUs are a pool too.
    PoolId(u16);
    /// A named partition of nodes above the node: rack, leaf, spine.
    LevelId(u8);
    /// A tenant, by its path; an id outlives the tenant's place in the policy.
    TenantId(u32);
    /// Tasks of one trust domain may share a GPU.
    TrustId(u32);
    /// A job, dense in journal order.
    JobId(u64);
    BookingId(u64);
    /// Jobs alike in everything the planner looks at.
    KindId(u32);
    /// An interned set of nodes; 0 is every node.
    NodeSetId(u32);
    /// An interned set of devices; 0 is every device.
    DeviceSetId(u32);
    /// A job's identity outside the engine, chosen at the edge: a world and a journal that meet for the
    /// first time still agree on it.
    Uid(u128);
}

macro_rules! dense {
    ($($name:ident)*) => {$(impl $name {
        /// Position in a vector indexed by it.
        pub fn index(self) -> usize {
            usize::try_from(self.0).expect("a u32 fits a usize on every platform we build for")
        }
    })*};
}

dense! { NodeId PoolId TenantId TrustId }

/// GPUs of one node, a bit each; a node has at most 16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuMask(pub u16);

impl GpuMask {
    pub const MAX: usize = 16;

    /// Adds the GPU at `index`.
    pub fn insert(&mut self, index: usize) {
        assert!(index < Self::MAX, "a node has at most {} GPUs, index {index} given", Self::MAX);
        self.0 |= 1 << index;
    }

    /// True when the GPU at `index` is in it.
    pub fn contains(self, index: usize) -> bool {
        index < Self::MAX && self.0 & (1 << index) != 0
    }

    /// True when a GPU is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The indexes, ascending.
    pub fn indexes(self) -> impl Iterator<Item = usize> {
        (0..Self::MAX).filter(move |&index| self.contains(index))
    }

    /// How many.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }
}

impl FromIterator<usize> for GpuMask {
    fn from_iter<I: IntoIterator<Item = usize>>(indexes: I) -> Self {
        let mut mask = Self::default();
        indexes.into_iter().for_each(|index| mask.insert(index));
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn thirds_eighths_and_twelfths_are_exact() {
        for parts in [3u64, 8, 12, 1000] {
            let part = GpuUnits::from_parts(GpuUnits::WHOLE.parts() / parts);
            assert_eq!(part.parts() * parts, GpuUnits::WHOLE.parts(), "1/{parts} of a GPU");
        }
    }

    #[test]
    fn units_read_as_gpus() {
        for (parts, text) in [(6000, "2"), (1500, "0.5"), (1000, "0.333"), (3030, "1.01")] {
            assert_eq!(GpuUnits::from_parts(parts).to_string(), text);
        }
    }

    #[test]
    fn a_part_that_is_missing_does_not_cover() {
        let node = Resources { cpu_milli: 1000, memory: 10, ..Resources::default() };
        assert!(node.covers(&Resources { cpu_milli: 1000, ..Resources::default() }));
        assert!(!node.covers(&Resources { nics: 1, ..Resources::default() }));
    }
}
