//! Why no start is promised to a job: work without a known end is in its way, or others come first.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::ReservationReview;
use super::horizon::{HeldPlace, Horizon};
use super::promise::StartPromiser;
use crate::model::policy::Policy;
use crate::plan::cycle::Commitments;
use crate::plan::draft::Draft;
use crate::state::State;
use crate::state::jobs::Job;
use crate::units::{JobId, Timestamp};

/// Why no start is promised to a job that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreserved {
    /// No end is known of these, in job order, and they are in the way.
    NoKnownEnd { holders: Vec<JobId> },
    /// Its tenant would be above its fair share.
    AboveShare,
    /// The policy promises no starts.
    Off,
    /// As many starts are promised in its pools as the policy allows, or on the places that it needs.
    OthersFirst,
}

impl State {
    /// Why no start is promised to a job that waits; `None` where one is, or none ever is.
    pub fn unpromised(&self, id: JobId, policy: &Policy, now: Timestamp) -> Option<Unreserved> {
        let open = |job: &&Job| job.waits_for_places() && job.spec.booking.is_none();
        let job = self.jobs.get(id).filter(open)?;
        if self.reservations.of(id).is_some() || self.earmarks.of(id).is_some() {
            return None;
        }
        if policy.reservations_max == 0 {
            return Some(Unreserved::Off);
        }
        Draft::trial(self, policy, now, |mut draft| {
            let mut horizon = Horizon::default();
            let review = ReservationReview::of(&mut draft, &mut horizon);
            let commitments = Commitments::default();
            let mut promiser = StartPromiser::new(&mut draft, &mut horizon, &review.kept, &commitments);
            promiser.withhold_all();
            promiser.why_not(id, job)
        })
    }
}

impl StartPromiser<'_, '_> {
    fn why_not(&mut self, id: JobId, job: &Job) -> Option<Unreserved> {
        let key = job.key();
        let mut unknown: BTreeSet<JobId> = BTreeSet::new();
        let mut why = None;
        for ask in self.draft.asks().minimum(&key) {
            let slots = self.slots(&ask);
            if let Some((start, _)) = self.first_fit(&ask, &slots, &|held| held.end) {
                let entitled = self.is_entitled(&ask, id, start, []);
                return Some(if entitled { Unreserved::OthersFirst } else { Unreserved::AboveShare });
            }
            let at_last = |held: &HeldPlace| Some(held.end.unwrap_or(Timestamp(u64::MAX)));
            let slots = self.slots_if(&ask, &at_last);
            match self.first_fit(&ask, &slots, &at_last) {
                Some((_, nodes)) => {
                    for node in nodes {
                        let held = self.horizon.held_on(self.draft, node).iter();
                        unknown.extend(held.filter(|held| held.end.is_none()).map(|held| held.job));
                    }
                }
                // What is left of the fleet may be too little for it; the verdict says so.
                None if self.kept.is_empty() => {}
                None if self.is_entitled_at_last(&ask) => why = Some(Unreserved::OthersFirst),
                None => why = why.or(Some(Unreserved::AboveShare)),
            }
        }
        if unknown.is_empty() {
            return why;
        }
        Some(Unreserved::NoKnownEnd { holders: unknown.into_iter().collect() })
    }
}
