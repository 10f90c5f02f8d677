//! The timeline of booked windows: whether one more fits beside all others, and when the nearest one that does could begin.
//!
//! Worked example: 16 GPUs, of which `a` is guaranteed 8 and `b` 4. `a` may book 8 of its own for any time; the operator may
//! book the other 4 for anybody. If `a` has booked its 8 from 8 to 12 o'clock, 8 more from 10 on are refused, and the nearest
//! begin that passes the same check is 12 o'clock.
//!
//! What is booked of a moment changes only where a window begins or ends, so a window is checked where it begins
//! and where others begin in it. It is judged against the declared fleet, every node healthy and empty: what is in its way
//! when it comes is a matter of the day.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::model::job::Spec;
use crate::model::need::PoolOption;
use crate::model::placement::Placement;
use crate::model::policy::Amount;
use crate::model::rejection::{BookingFault, Rejection};
use crate::plan::draft::Draft;
use crate::plan::later::booked;
use crate::plan::later::kept::booked_steps;
use crate::plan::lines;
use crate::plan::place::{Ask, place};
use crate::quota::meters::Amounts;
use crate::quota::tree::{Meter, Tree};
use crate::state::State;
use crate::state::bookings::{Booker, Booking};
use crate::state::event::Event;
use crate::state::fleet::FleetEvent;
use crate::state::jobs::KindKey;
use crate::state::ways::ways;
use crate::units::{GpuMask, GpuUnits, Millis, Resources, TenantId, Timestamp};

/// A begin that is suggested can still be booked after so long.
const READ_WITHIN: Millis = Millis::from_secs(60);
/// The most moments that are tried for the nearest begin: each costs a placement of all that is booked then.
const TRIES_MAX: usize = 256;

/// A window that somebody wants.
#[derive(Clone, Copy)]
pub(super) struct WantedWindow<'a> {
    /// As of a job that takes all of it.
    pub(super) spec: &'a Spec,
    /// Its trust domain, by name: that of a first job comes before its id.
    pub(super) domain: &'a str,
    pub(super) by: Booker,
    pub(super) from: Timestamp,
    pub(super) span: Millis,
}

/// Whether a window may be booked; if not, why, and when it could begin.
pub(super) fn check(state: &State, wanted: WantedWindow<'_>, now: Timestamp) -> Result<(), Rejection> {
    let windows = state.tenants.policy().windows;
    let refused = |fault, nearest| Err(Rejection::BookingRefused { fault, nearest });
    if wanted.by == Booker::Tenant && !windows.tenants_may_book {
        return refused(BookingFault::OperatorsOnly, None);
    }
    if wanted.span == Millis(0) || wanted.span > windows.span_max {
        return refused(BookingFault::Span { max: windows.span_max }, None);
    }
    let own = state.bookings.iter().filter(|(_, booking)| booking.spec.tenant == wanted.spec.tenant);
    if own.count() >= usize::try_from(windows.bookings_max).unwrap_or(usize::MAX) {
        return refused(BookingFault::TooMany { max: windows.bookings_max }, None);
    }
    let (bare, policy) = (declared(state), state.tenants.policy());
    let (tree, shares, key) = (bare.tree(policy), Amounts::new(), KindKey::of(wanted.spec));
    let draft = Draft::on(&bare, policy, &tree, &shares, now);
    let mut timeline = Timeline { state, draft, wanted, key: &key };
    timeline.fault(wanted.from).map_or(Ok(()), |fault| refused(fault, timeline.nearest(wanted.from)))
}

/// The fleet as it is declared, with nobody on it.
fn declared(state: &State) -> State {
    let mut events = Vec::new();
    state.fleet.snapshot(&mut events);
    state.tenants.snapshot(&mut events);
    let mut bare = State::default();
    for event in &mut events {
        match event {
            Event::Fleet(FleetEvent::Cordoned { .. } | FleetEvent::Draining { .. }) => continue,
            Event::Fleet(FleetEvent::NodeSeen { facts, .. }) => {
                facts.up = true;
                facts.gpus.iter_mut().for_each(|gpu| gpu.healthy = true);
                (facts.others, facts.others_gpus) = (Resources::default(), GpuMask::default());
            }
            _ => {}
        }
        bare.apply(event);
    }
    bare
}

struct Timeline<'a> {
    state: &'a State,
    /// On the declared fleet.
    draft: Draft<'a>,
    wanted: WantedWindow<'a>,
    key: &'a KindKey,
}

impl<'a> Timeline<'a> {
    fn bookings(&self) -> impl Iterator<Item = &'a Booking> + use<'a> {
        self.state.bookings.iter().map(|(_, booking)| booking)
    }

    /// Why the window cannot begin then, if it cannot.
    fn fault(&mut self, from: Timestamp) -> Option<BookingFault> {
        let (windows, now) = (self.draft.policy.windows, self.draft.now);
        if from < now + windows.lead {
            return Some(BookingFault::TooLate { lead: windows.lead });
        }
        if from > now + windows.ahead_max {
            return Some(BookingFault::TooFarAhead { max: windows.ahead_max });
        }
        let until = from + self.wanted.span;
        let begins = self.bookings().map(|booking| booking.from).filter(|&at| from < at && at < until);
        let moments: BTreeSet<Timestamp> = begins.chain([from]).collect();
        moments.into_iter().find_map(|at| self.fault_at(at))
    }

    /// The begin nearest to what was asked for that passes the same check.
    fn nearest(&mut self, from: Timestamp) -> Option<Timestamp> {
        let (windows, now) = (self.draft.policy.windows, self.draft.now);
        // In whole seconds, as people write it: what is printed can be booked.
        let after = |at: Timestamp| Timestamp(at.0.div_ceil(1000).saturating_mul(1000));
        let before = |at: u64| Timestamp(at / 1000 * 1000);
        // A reader needs a moment to type it.
        let soonest = after(now + windows.lead + READ_WITHIN);
        let mut tries = alloc::vec![soonest, before((now + windows.ahead_max).0), after(from)];
        tries.extend(self.fixed().filter_map(|(_, _, over)| over).map(after));
        for booking in self.bookings() {
            tries.push(after(booking.until));
            tries.push(before(booking.from.0.saturating_sub(self.wanted.span.0)));
        }
        tries.sort_by_key(|&at| (at.0.abs_diff(from.0), at));
        tries.dedup();
        tries.into_iter().take(TRIES_MAX).find(|&at| self.fault(at).is_none())
    }

    /// Why the window does not fit beside all that is booked of one moment, if it does not.
    fn fault_at(&mut self, at: Timestamp) -> Option<BookingFault> {
        let beside: Vec<&Booking> =
            self.bookings().filter(|booking| booking.from <= at && at < booking.until).collect();
        let (fleet, policy) = (&self.draft.state.fleet, self.draft.policy);
        let WantedWindow { spec, domain, .. } = self.wanted;
        let mut first = None;
        for way in ways(fleet, policy, spec.class, domain, &spec.shape).filter_map(Result::ok) {
            let fault = self.beyond(at, way, &beside).or_else(|| self.no_room(way, &beside));
            first.get_or_insert(fault?);
        }
        first.or(Some(BookingFault::NoRoom))
    }

    /// Whose work no guarantee could get back, where, and when it is known to be over. A job that was asked to leave may stay.
    fn fixed(&self) -> impl Iterator<Item = (TenantId, Vec<Placement>, Option<Timestamp>)> + use<'a> {
        let (state, policy, now) = (self.state, self.draft.policy, self.draft.now);
        state.jobs.iter().filter_map(move |(id, job)| {
            let holding = state.ledger.holding(id).into_iter().flat_map(|holding| &holding.tasks);
            let held = holding.filter(|task| task.holds()).map(|task| task.place);
            let earmarked = state.earmarks.of(id).into_iter().flat_map(|earmark| &earmark.tasks);
            let places: Vec<Placement> = held.chain(earmarked.copied()).collect();
            let fixed = lines::is_fixed(&lines::work_group(&job.key()), policy);
            let counts = fixed && job.spec.booking.is_none() && !places.is_empty();
            counts.then(|| (job.spec.tenant, places, state.end_of(id, policy, now).before_window()))
        })
    }

    /// Whose guarantee or limit it would pass.
    fn beyond(&self, at: Timestamp, way: PoolOption, beside: &[&Booking]) -> Option<BookingFault> {
        let WantedWindow { spec, by, .. } = self.wanted;
        let tree = self.draft.tree;
        let charge = Ask::new(tree, self.key, way, self.key.tasks).total();
        let (mut all, mut by_tenants) = (tree.zero_each(), tree.zero_each());
        let booked =
            |booking: &&Booking| (booking.spec.tenant, booking.by, booked::charge(&self.draft, booking));
        for (tenant, by, amount) in beside.iter().map(booked).chain([(spec.tenant, by, charge.clone())]) {
            all[tenant.index()].add(&amount);
            if by == Booker::Tenant {
                by_tenants[tenant.index()].add(&amount);
            }
        }
        let with_children = tree.subtree_use(&all);
        for (tenant, places, _) in self.fixed().filter(|(.., over)| over.is_none_or(|over| over > at)) {
            let amount = tree.charge_of(|_| Resources::default(), places.iter());
            all[tenant.index()].add(&amount);
            by_tenants[tenant.index()].add(&amount);
        }
        (0..charge.len()).filter(|&meter| charge[meter] > 0).find_map(|meter| {
            let line = |tenant: TenantId| tree.lines[tenant.index()].quotas[meter];
            let own = by_tenants[spec.tenant.index()][meter];
            let within = line(spec.tenant).guaranteed.cap(own);
            if by == Booker::Tenant && within < own {
                let (need, have) = (units(tree, meter, own), units(tree, meter, within));
                return Some(BookingFault::BeyondGuarantee { tenant: spec.tenant, need, have });
            }
            let over = |tenant: &TenantId| {
                let booked = with_children[tenant.index()][meter];
                line(*tenant).limit.cap(booked) < booked
            };
            if let Some(tenant) = tree.lineage(spec.tenant).find(over) {
                return Some(BookingFault::BeyondLimit { tenant });
            }
            let kept: u64 = tree.roots.iter().map(|&root| kept(tree, root, meter, &all)).sum();
            let capacity = self.draft.state.capacity(tree)[meter];
            let without = kept.saturating_sub(charge[meter]);
            let have = units(tree, meter, capacity.saturating_sub(without));
            let need = spec.shape.gpus.units().times(spec.tasks);
            (kept > capacity).then_some(BookingFault::TakesFromGuarantees { need, have })
        })
    }

    /// A fault if the fleet has no such places beside the other windows.
    fn no_room(&mut self, way: PoolOption, beside: &[&Booking]) -> Option<BookingFault> {
        let size = |spec: &Spec| Reverse((spec.shape.gpus.units(), spec.tasks));
        let mut beside = beside.to_vec();
        beside.sort_by_key(|booking| (booking.places.is_empty(), size(&booking.spec), booking.from));
        // Those that have no places yet are placed the largest first, and so is this one among them.
        let later = beside.partition_point(|booking| {
            !booking.places.is_empty() || size(&booking.spec) <= size(self.wanted.spec)
        });
        let (before, after) = beside.split_at(later);
        let mark = self.draft.mark();
        for booking in before {
            self.fits(booking);
        }
        // Whatever was booked before still has a place.
        let ask = Ask::new(self.draft.tree, self.key, way, self.key.tasks);
        let all = place(&mut self.draft, &ask).is_some() && after.iter().all(|booking| self.fits(booking));
        self.draft.roll_back(mark);
        (!all).then_some(BookingFault::NoRoom)
    }

    /// True when a window has its places, or finds some, which it takes. What it lost is chosen again when the day comes.
    fn fits(&mut self, booking: &Booking) -> bool {
        let draft = &mut self.draft;
        draft.occupy_all(&booked_steps(draft, booking, &booking.places));
        let key = KindKey::of(&booking.spec);
        let mut ways = booked::ways_of_window(draft, &booking.places, &key).into_iter();
        !booking.places.is_empty()
            || ways.any(|way| place(draft, &Ask::new(draft.tree, &key, way, key.tasks)).is_some())
    }
}

/// What a branch of the tree must be able to have: its guarantee, or what is booked in it where that is more.
fn kept(tree: &Tree, tenant: TenantId, meter: usize, booked: &Amounts) -> u64 {
    let line = &tree.lines[tenant.index()];
    let below: u64 = line.children.iter().map(|&child| kept(tree, child, meter, booked)).sum();
    let booked = below.saturating_add(booked[tenant.index()][meter]);
    match line.quotas[meter].guaranteed {
        Amount::Of(guaranteed) => guaranteed.max(booked),
        Amount::Unlimited => booked,
    }
}

/// An amount of a meter in GPUs; normalised ones are counted a thousand times finer.
fn units(tree: &Tree, meter: usize, amount: u64) -> GpuUnits {
    match tree.meters[meter] {
        Meter::AnyGpu => GpuUnits::from_parts(amount / 1000),
        Meter::Gpu(_) => GpuUnits::from_parts(amount),
        Meter::Cpu | Meter::Memory => GpuUnits::ZERO,
    }
}
