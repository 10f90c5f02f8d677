//! The past section: what each tenant borrowed on average, so that who used what was idle all week yields it first (rule 2).
//!
//! Worked example: a half-life of 16 hours, so that a step is an hour. A tenant without a guarantee holds 10 GPUs: after the
//! first step it borrowed 0.42 on average, after 16 steps 5, after 32 steps 7.5. Then it holds nothing: 16 steps later it is at 3.75
//! again. Only what is above the guarantee counts: nobody is worse off for using what it was promised.
//!
//! What is borrowed since the last step is counted apart, so that between two steps no fair share changes because of it. Steps are at
//! multiples of a sixteenth of the half-life on the world's clock. Counting begins with the first step after a policy that has
//! a half-life, and ends with a policy that has none. GPUs alone are counted; all numbers are integers.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::policy::Amount;
use crate::quota::meters::{Amounts, Meters};
use crate::quota::tree::{Meter, Tree};
use crate::state::event::Event;
use crate::units::{GpuUnits, Millis, PoolId, TenantId, Timestamp};

/// Steps in a half-life. One moves an average by four parts of a hundred: fine enough that no share leaps, and a journal
/// has sixteen events of it a half-life.
const STEPS: u64 = 16;
/// The past counts so many times what is divided now. Who borrowed nothing may then have up to five times its part: a gang
/// that is larger than the part of its tenant has its turn. With less, gangs wait for ever; with much more, shares leap from one
/// to the next at every step, and everybody evicts everybody.
const STRENGTH: u64 = 4;

/// What is left after one step, in 2^-64: 2^(-1/16).
const LEFT: u128 = 17_664_662_643_191_237_676;

/// What happens to the past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PastUseEvent {
    /// A step: what was borrowed since the last one goes into the averages. The first begins the count.
    Stepped { at: Timestamp },
    /// What was counted, in a snapshot.
    Carried { stepped_at: Timestamp, tenants: Vec<CarriedPastUse> },
}

/// What one tenant borrowed, in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedPastUse {
    pub tenant: TenantId,
    /// Counted until then.
    pub at: Timestamp,
    /// By what GPUs are counted in: those of a pool, or all.
    pub borrowed: Vec<(Option<PoolId>, BorrowedUse)>,
}

/// What was borrowed of one meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BorrowedUse {
    /// Since the last step, in milliseconds of 1/3000 of a GPU.
    pub since: u64,
    /// On average, the latest use counted most, in 1/3000 of a GPU.
    pub mean: u64,
}

/// What each tenant borrowed.
#[derive(Clone, Debug, Default)]
pub struct PastUse {
    counting: Option<UseCounter>,
}

#[derive(Clone, Debug)]
struct UseCounter {
    stepped_at: Timestamp,
    tree: Tree,
    /// What each tenant's own work holds, by meter.
    own: Amounts,
    /// The same with everyone below it.
    used: Amounts,
    counted: Vec<CountedUse>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CountedUse {
    /// Until then.
    at: Timestamp,
    /// By meter of GPUs; these come first in a tree.
    borrowed: Vec<BorrowedUse>,
}

impl PastUse {
    /// True when it is counted.
    pub fn is_counting(&self) -> bool {
        self.counting.is_some()
    }

    /// What a tenant borrowed on average, in units of the meter; nothing of what is not GPUs.
    pub fn borrowed(&self, tenant: TenantId, meter: Meter) -> u64 {
        let Some(counting) = &self.counting else { return 0 };
        let Some(at) = counting.tree.meters.iter().position(|&known| known == meter) else { return 0 };
        let counted = counting.counted.get(tenant.index()).and_then(|counted| counted.borrowed.get(at));
        counted.map_or(0, |borrowed| borrowed.mean.saturating_mul(fineness(meter)))
    }

    /// What of it counts when what is left is divided.
    pub fn counts(&self, tenant: TenantId, meter: Meter) -> u64 {
        self.borrowed(tenant, meter).saturating_mul(STRENGTH)
    }

    pub(crate) fn tree(&self) -> Option<&Tree> {
        Some(&self.counting.as_ref()?.tree)
    }

    /// What each tenant is taken to hold with everyone below it, by meter.
    pub fn used(&self) -> Option<&Amounts> {
        Some(&self.counting.as_ref()?.used)
    }

    /// What was counted, as far as it differs from nothing.
    pub fn carried(&self) -> Option<(Timestamp, Vec<CarriedPastUse>)> {
        let counting = self.counting.as_ref()?;
        let tenants = (0..counting.counted.len()).filter_map(|at| counting.carried(at));
        Some((counting.stepped_at, tenants.collect()))
    }

    /// True when the next step is due, or none was made yet.
    pub(crate) fn is_due(&self, half_life: Millis, now: Timestamp) -> bool {
        self.counting.as_ref().is_none_or(|counting| now >= next_after(counting.stepped_at, half_life))
    }

    /// When the next step changes something by itself: never while nobody borrows or has borrowed.
    pub(crate) fn next_step(&self, half_life: Millis) -> Option<Timestamp> {
        let counting = self.counting.as_ref()?;
        let matters = (0..counting.counted.len()).any(|at| counting.borrows(at));
        matters.then(|| next_after(counting.stepped_at, half_life))
    }

    /// `own` is what each tenant's own work holds, by meter of the tree.
    pub(crate) fn apply(&mut self, event: &PastUseEvent, half_life: Millis, tree: Tree, own: Amounts) {
        match (event, &mut self.counting) {
            (PastUseEvent::Stepped { at }, Some(counting)) => counting.step(half_life, *at),
            (PastUseEvent::Stepped { at }, None) => self.counting = Some(UseCounter::since(*at, tree, own)),
            (PastUseEvent::Carried { stepped_at, tenants }, _) => {
                self.counting = Some(UseCounter::resumed(*stepped_at, tree, own, tenants));
            }
        }
    }

    pub(crate) fn forget(&mut self) {
        self.counting = None;
    }

    /// Lines, pools or tenants are others. What was borrowed since a tenant's use last changed, a step ago at most, counts
    /// by the new lines: nobody says when a policy was applied.
    pub(crate) fn relined(&mut self, tree: Tree, own: Amounts) {
        let Some((stepped_at, carried)) = self.carried() else { return };
        self.counting = Some(UseCounter::resumed(stepped_at, tree, own, &carried));
    }

    /// A tenant's own work holds so much from now on, by meter.
    pub(crate) fn holds(&mut self, tenant: TenantId, own: &Meters, at: Timestamp) {
        let Some(counting) = &mut self.counting else { return };
        if counting.own[tenant.index()] == *own {
            return;
        }
        let before = core::mem::replace(&mut counting.own[tenant.index()], own.clone());
        let lineage: Vec<TenantId> = counting.tree.lineage(tenant).collect();
        for tenant in lineage.into_iter().map(TenantId::index) {
            counting.count(tenant, at);
            counting.used[tenant].add(own);
            counting.used[tenant].subtract(&before);
        }
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        if let Some((stepped_at, tenants)) = self.carried() {
            into.push(Event::Past(PastUseEvent::Carried { stepped_at, tenants }));
        }
    }
}

impl UseCounter {
    /// Nothing was counted before then.
    fn since(at: Timestamp, tree: Tree, own: Amounts) -> Self {
        let gpus = tree.meters.iter().filter(|meter| meter.per_gpu().is_some()).count();
        let nothing = CountedUse { at, borrowed: alloc::vec![BorrowedUse::default(); gpus] };
        let counted = alloc::vec![nothing; tree.lines.len()];
        Self { stepped_at: at, used: tree.subtree_use(&own), own, counted, tree }
    }

    fn resumed(stepped_at: Timestamp, tree: Tree, own: Amounts, carried: &[CarriedPastUse]) -> Self {
        let mut counting = Self::since(stepped_at, tree, own);
        for tenant in carried {
            counting.resume(tenant);
        }
        counting
    }

    /// What a tenant holds above its guarantee now, in 1/3000 of a GPU.
    fn above(&self, tenant: usize, meter: usize) -> u64 {
        let above = match self.tree.lines[tenant].quotas[meter].guaranteed {
            Amount::Unlimited => 0,
            Amount::Of(guaranteed) => self.used[tenant][meter].saturating_sub(guaranteed),
        };
        above / fineness(self.tree.meters[meter])
    }

    fn borrows(&self, tenant: usize) -> bool {
        let mut meters = self.counted[tenant].borrowed.iter().enumerate();
        meters.any(|(meter, counted)| *counted != BorrowedUse::default() || self.above(tenant, meter) > 0)
    }

    fn count(&mut self, tenant: usize, at: Timestamp) {
        let span = at - self.counted[tenant].at;
        for meter in 0..self.counted[tenant].borrowed.len() {
            let more = self.above(tenant, meter).saturating_mul(span.0);
            let since = &mut self.counted[tenant].borrowed[meter].since;
            *since = since.saturating_add(more);
        }
        self.counted[tenant].at = at;
    }

    fn step(&mut self, half_life: Millis, at: Timestamp) {
        let (span, length) = (at - self.stepped_at, step(half_life));
        let left = left_after(at.0 / length - self.stepped_at.0 / length);
        for tenant in 0..self.counted.len() {
            self.count(tenant, at);
            for borrowed in &mut self.counted[tenant].borrowed {
                let lately = core::mem::take(&mut borrowed.since).checked_div(span.0).unwrap_or_default();
                borrowed.mean = mixed(borrowed.mean, lately, left);
            }
        }
        self.stepped_at = at;
    }

    fn carried(&self, tenant: usize) -> Option<CarriedPastUse> {
        let counted = self.counted.get(tenant).filter(|_| self.borrows(tenant))?;
        let id = TenantId(u32::try_from(tenant).expect("fewer than 2^32 tenants"));
        let pool = |meter: &Meter| match meter {
            Meter::Gpu(pool) => Some(*pool),
            Meter::AnyGpu | Meter::Cpu | Meter::Memory => None,
        };
        let borrowed = self.tree.meters.iter().map(pool).zip(counted.borrowed.iter().copied()).collect();
        Some(CarriedPastUse { tenant: id, at: counted.at, borrowed })
    }

    /// What is counted in another way now begins anew.
    fn resume(&mut self, carried: &CarriedPastUse) {
        let Some(counted) = self.counted.get_mut(carried.tenant.index()) else { return };
        counted.at = carried.at;
        for (pool, borrowed) in &carried.borrowed {
            let meter = pool.map_or(Meter::AnyGpu, Meter::Gpu);
            let at = self.tree.meters.iter().position(|&known| known == meter);
            if let Some(known) = at.and_then(|at| counted.borrowed.get_mut(at)) {
                *known = *borrowed;
            }
        }
    }
}

/// How many units of a meter are 1/3000 of a GPU.
fn fineness(meter: Meter) -> u64 {
    meter.per_gpu().map_or(1, |units| units / GpuUnits::WHOLE.parts())
}

fn step(half_life: Millis) -> u64 {
    (half_life.0 / STEPS).max(1)
}

fn next_after(at: Timestamp, half_life: Millis) -> Timestamp {
    let length = step(half_life);
    Timestamp((at.0 / length + 1).saturating_mul(length))
}

/// What is left of an average after so many steps, in 2^-32.
fn left_after(steps: u64) -> u64 {
    let halvings = u32::try_from(steps / STEPS).unwrap_or(u32::MAX);
    let part = (0..steps % STEPS).fold(1 << 64, |left, _| (left * LEFT) >> 64);
    let rounded = u64::try_from((part + (1 << 31)) >> 32).expect("no more than all is left");
    rounded.checked_shr(halvings).unwrap_or_default()
}

/// So much of the average, in 2^-32, and of what came lately the rest.
fn mixed(mean: u64, lately: u64, left: u64) -> u64 {
    let sum = u128::from(mean) * u128::from(left) + u128::from(lately) * u128::from((1 << 32) - left);
    u64::try_from(sum >> 32).expect("an average is no more than the larger of two")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_halves_in_sixteen_steps() {
        for step in 0..16 {
            // left^16 = 2^(-step) of one, as far as 2^-32 go.
            let mut power = u128::from(left_after(step));
            for _ in 0..4 {
                power = (power * power) >> 32;
            }
            let exact = 1u128 << (32 - step);
            assert!(power.abs_diff(exact) <= 16 * 16, "step {step}: {power} is not {exact}");
        }
        assert_eq!([16, 16 * 40, u64::MAX].map(left_after), [1 << 31, 0, 0]);
    }

    #[test]
    fn the_example_above_comes_out() {
        let ten = 10 * 3000;
        let mut mean = 0;
        let mut after = Vec::new();
        for step in 1..=48 {
            mean = mixed(mean, if step > 32 { 0 } else { ten }, left_after(1));
            after.push(mean);
        }
        for (at, exact) in [(0, 1272), (15, 15_000), (31, 22_500), (47, 11_250)] {
            assert!(exact - after[at] <= 24, "{} is not {exact}", after[at]);
        }
    }

    #[test]
    fn an_average_comes_to_nothing() {
        assert_eq!((0..300).fold(8 * 3000, |mean, _| mixed(mean, 0, left_after(1))), 0);
    }

    #[test]
    fn steps_are_at_multiples_of_a_sixteenth() {
        let day = Millis::from_secs(86_400);
        let next = [0, 5_399_999, 5_400_000].map(|at| next_after(Timestamp(at), day).0);
        assert_eq!(next, [5_400_000, 5_400_000, 10_800_000]);
    }
}
