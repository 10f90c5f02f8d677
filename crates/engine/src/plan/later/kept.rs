//! Places that are kept for somebody from a moment on: a reserved start, a booked window, the nodes of a planned downtime.
//!
//! Serving a job, moving one and looking for a start ask the same of all three: from whom the places are kept, and what
//! is held there meanwhile. Until the moment has come, the places may be filled by work that is over or can be gone by then.
//! A window that has begun keeps its places clear for its own jobs; as soon as one of them has come, what they leave idle
//! is lent to work that can be told to leave at any moment.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{booked, reserve};
use crate::model::job::Class;
use crate::model::placement::Placement;
use crate::plan::cycle::Commitments;
use crate::plan::draft::Draft;
use crate::plan::lines::{self, Pass};
use crate::plan::place::Fit;
use crate::state::State;
use crate::state::bookings::Booking;
use crate::state::ends::latest_if_placed;
use crate::state::fleet::Whom;
use crate::state::jobs::KindKey;
use crate::state::ledger::Step;
use crate::state::maintenance::Downtime;
use crate::state::reservations::Reservation;
use crate::units::{BookingId, GpuMask, GpuUnits, JobId, Millis, Resources, Timestamp, TrustId};

/// A job that fills places has at least so long there: less is not worth a start.
const FILL_MIN: Millis = Millis::from_secs(60);

/// Places that are kept for a beneficiary from a moment on.
#[derive(Clone, Copy)]
pub(crate) enum KeptPlaces<'a> {
    Start(&'a Reservation),
    Window(BookingId, &'a Booking),
    /// Everything that its nodes have.
    Downtime(&'a Downtime),
}

/// A job that would like to fill places that are kept for others.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Filler<'k> {
    pub(in crate::plan) job: JobId,
    pub(in crate::plan) key: &'k KindKey,
    pub(in crate::plan) pass: Pass,
}

/// What of the kept places is withheld from a filler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) enum Withheld {
    /// Those that it could not leave in time.
    Overstayed,
    /// All of them: a job that is moved, or that takes what others leave, may stay for long.
    All,
}

impl<'a> KeptPlaces<'a> {
    /// Reserved starts whose places are not earmarked yet.
    pub(super) fn starts(state: &'a State) -> impl Iterator<Item = Self> {
        let reserved = state.reservations.iter().filter(|of| state.earmarks.of(of.job).is_none());
        reserved.map(Self::Start)
    }

    /// Windows whose places are chosen.
    fn windows(state: &'a State) -> impl Iterator<Item = Self> {
        let chosen = state.bookings.iter().filter(|(_, booking)| !booking.places.is_empty());
        chosen.map(|(id, booking)| Self::Window(id, booking))
    }

    /// Downtimes that are to come. While one lasts its nodes are closed, and nobody can be placed there.
    pub(super) fn downtimes(state: &'a State) -> impl Iterator<Item = Self> {
        let to_come = state.maintenance.iter().filter(|(_, downtime)| !downtime.began);
        to_come.map(|(_, downtime)| Self::Downtime(downtime))
    }

    /// Places that somebody ordered for a moment.
    pub(in crate::plan) fn ordered(state: &'a State) -> impl Iterator<Item = Self> {
        Self::windows(state).chain(Self::downtimes(state))
    }

    /// When they are needed.
    fn from(self) -> Timestamp {
        match self {
            Self::Start(reservation) => reservation.start,
            Self::Window(_, booking) => booking.from,
            Self::Downtime(downtime) => downtime.from,
        }
    }

    /// True when they are withheld from a job.
    pub(in crate::plan) fn bars(self, draft: &Draft<'_>, filler: Filler<'_>, withheld: Withheld) -> bool {
        // A downtime lets in all work that is gone in time.
        let all = withheld == Withheld::All && !matches!(self, Self::Downtime(_));
        self.binds(draft.state, filler) && (all || !self.lets_in(draft, filler.key))
    }

    /// True when they are kept from a job at all, however soon it leaves.
    pub(in crate::plan) fn binds(self, state: &State, filler: Filler<'_>) -> bool {
        match self {
            Self::Start(of) => {
                of.job != filler.job && reserve::is_bound(filler.key, filler.pass, of.spec(state))
            }
            Self::Window(id, _) => filler.key.booking != Some(id),
            Self::Downtime(_) => true,
        }
    }

    /// True when work of a kind may fill them for now.
    fn lets_in(self, draft: &Draft<'_>, key: &KindKey) -> bool {
        let interruptible = key.preemptible && key.class != Class::Inference;
        match self {
            Self::Window(_, booking) if draft.now >= booking.from => {
                let leaves_at_once = interruptible && !lines::is_fixed(&lines::work_group(key), draft.policy);
                booking.used && draft.policy.windows.fill && leaves_at_once
            }
            Self::Start(_) | Self::Window(..) => {
                !draft.policy.no_backfill && is_gone_by(draft, key, self.from(), interruptible)
            }
            Self::Downtime(downtime) => {
                is_gone_by(draft, key, downtime.from, key.preemptible || downtime.whom == Whom::Everything)
            }
        }
    }

    /// True when a place has something of them.
    pub(in crate::plan) fn meets(self, place: &Placement) -> bool {
        match self {
            Self::Start(of) => of.tasks.iter().any(|kept| kept.meets(place)),
            Self::Window(_, booking) => booking.meets(place),
            Self::Downtime(downtime) => downtime.nodes.contains(&place.node),
        }
    }

    /// The places as a task would take them.
    pub(in crate::plan) fn steps(self, draft: &Draft<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        match self {
            Self::Start(of) => {
                let spec = of.spec(draft.state);
                for &place in &of.tasks {
                    // All of a GPU of which a part is reserved: a slice cannot be cut where another one still is.
                    let whole = GpuUnits::WHOLE;
                    let place = Placement { units_each: whole, slice: None, time_sliced: false, ..place };
                    keep(draft, place, spec.resources_of(place.task), spec.trust, &mut steps);
                }
            }
            Self::Window(_, booking) => return booked_steps(draft, booking, &booking.places),
            Self::Downtime(downtime) => {
                for &node in &downtime.nodes {
                    let Some(room) = draft.room(node) else { continue };
                    let (gpus, units_each) = ((0..room.gpus.len()).collect(), GpuUnits::WHOLE);
                    let (task, pool, slice, time_sliced, tax) = (0, room.pool, None, false, 0);
                    let place = Placement { task, node, pool, gpus, units_each, slice, time_sliced, tax };
                    keep(draft, place, room.free(), TrustId::default(), &mut steps);
                }
            }
        }
        steps
    }
}

/// These places of a window as its tasks would take them.
pub(crate) fn booked_steps(draft: &Draft<'_>, booking: &Booking, places: &[Placement]) -> Vec<Step> {
    let mut steps = Vec::new();
    for &place in places {
        let Some(room) = draft.room(place.node) else { continue };
        let is_held = |at: usize| room.gpus.get(at).is_none_or(|gpu| gpu.holders > 0);
        // A job that fills a part of the place has its own cores and memory.
        let filled = place.gpus.indexes().any(is_held);
        let resources = if filled { Resources::default() } else { booking.spec.shape.resources };
        keep(draft, place, resources, booking.spec.trust, &mut steps);
    }
    steps
}

/// A place as a task would take it. GPUs that are held are taken too, or they would be free for others when their holder leaves on the
/// draft; they keep the trust domain of their holder. GPUs of one domain are one step: each costs the index of rooms an entry.
fn keep(draft: &Draft<'_>, place: Placement, resources: Resources, trust: TrustId, steps: &mut Vec<Step>) {
    let Some(room) = draft.room(place.node) else { return };
    let mut gpus_of: BTreeMap<TrustId, GpuMask> = BTreeMap::from([(trust, GpuMask::default())]);
    for at in place.gpus.indexes() {
        let Some(gpu) = room.gpus.get(at) else { continue };
        let holder = gpu.trust.filter(|_| gpu.holders > 0);
        gpus_of.entry(holder.unwrap_or(trust)).or_default().insert(at);
    }
    steps.extend(gpus_of.into_iter().map(|(domain, gpus)| {
        let resources = if domain == trust { resources } else { Resources::default() };
        Step { place: Placement { gpus, ..place }, resources, trust: Some(domain) }
    }));
}

/// All places that are kept: of these starts, of windows, and of downtimes that are near.
pub(in crate::plan) fn all_steps<'a>(
    draft: &Draft<'a>,
    starts: impl Iterator<Item = &'a Reservation>,
) -> Vec<Step> {
    let soon = draft.now + draft.policy.windows.lead;
    let near = |kept: &KeptPlaces<'_>| !matches!(kept, KeptPlaces::Downtime(_)) || kept.from() <= soon;
    let ordered = KeptPlaces::ordered(draft.state).filter(near);
    starts.map(KeptPlaces::Start).chain(ordered).flat_map(|kept| kept.steps(draft)).collect()
}

/// Takes them, of starts that are neither kept on this draft nor on their way.
pub(in crate::plan) fn withhold_all<'a>(
    draft: &mut Draft<'a>,
    starts: &[&'a Reservation],
    commitments: &Commitments,
) -> Vec<Step> {
    let waiting = starts.iter().copied().filter(|of| commitments.awaits(draft, of));
    let steps = all_steps(draft, waiting);
    draft.occupy_all(&steps);
    steps
}

/// True when one of these keeps work of a kind from one of the places.
pub(super) fn bar_any<'a>(
    mut kept: impl Iterator<Item = KeptPlaces<'a>>,
    draft: &Draft<'_>,
    key: &KindKey,
    tasks: &[Placement],
) -> bool {
    kept.any(|kept| tasks.iter().any(|place| kept.meets(place)) && !kept.lets_in(draft, key))
}

/// True when work of a kind that starts now is over by then whatever happens or, where it may be asked to leave, can be gone.
pub(super) fn is_gone_by(draft: &Draft<'_>, key: &KindKey, at: Timestamp, may_be_asked: bool) -> bool {
    let (policy, now) = (draft.policy, draft.now);
    // Its time begins when it runs, which may be late.
    let over = key.ends_within.is_some_and(|within| latest_if_placed(policy, within, now) <= at);
    let leave = Millis(key.grace.0.saturating_add(policy.stop_grace.0));
    over || (may_be_asked && now + FILL_MIN + leave <= at)
}

/// What keeps a job from places that are free, if something does: a reserved start, else a window, else a downtime. Each is
/// judged beside those before it.
pub(crate) fn held_back<'a>(draft: &mut Draft<'a>, job: JobId) -> Option<KeptPlaces<'a>> {
    let state = draft.state;
    let key = state.jobs.get(job)?.key();
    let mut downtimes: Vec<_> = KeptPlaces::downtimes(state).collect();
    downtimes.sort_by_key(|downtime| downtime.from());
    let kinds = [KeptPlaces::starts(state).collect(), KeptPlaces::windows(state).collect(), downtimes];
    let mut kept: Vec<KeptPlaces<'a>> = Vec::new();
    let mut windows_count = false;
    for kind in kinds {
        let Some(first) = kind.first().copied() else { continue };
        let is_window = matches!(first, KeptPlaces::Window(..));
        if is_window {
            booked::count_idle(draft);
            windows_count = true;
        }
        kept.extend(&kind);
        let below = lines::lower_work(draft, &lines::work_group(&key));
        let mut barring = None;
        let fits = draft.asks().minimum(&key).iter().any(|ask| {
            let filler = Filler { job, key: &key, pass: lines::pass(draft, ask, &below) };
            let bars = |kept: &&KeptPlaces<'a>| kept.bars(draft, filler, Withheld::Overstayed);
            barring = barring.or(kind.iter().find(bars).copied());
            let held: Vec<Step> = kept.iter().filter(bars).flat_map(|kept| kept.steps(draft)).collect();
            let mark = draft.mark();
            draft.occupy_all(&held);
            let fits = Fit::of(draft, ask).is_enough(draft, ask);
            let beyond = windows_count && lines::barred_by(draft, ask).is_some();
            draft.roll_back(mark);
            fits && !beyond
        });
        // What windows keep for jobs that are not there counts towards limits, too.
        let found = barring.or(is_window.then_some(first)).filter(|_| !fits);
        if found.is_some() {
            return found;
        }
    }
    None
}
