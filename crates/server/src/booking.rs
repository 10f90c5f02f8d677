//! Booked windows, in the words of the API.

use wharf_api::file::moment::moment_text;
use wharf_api::v1::{BookingState, BookingView, Code, LostPlacesView, Problem, gpus};
use wharf_engine::model::rejection::{BookingFault, NotOfBooking, Rejection};
use wharf_engine::state::State;
use wharf_engine::state::bookings::{Booking, LostPlaces};
use wharf_engine::units::{BookingId, Timestamp};

use crate::reservation::holder;
use crate::text;
use crate::view::placement;

/// All of them, the earliest first.
pub(crate) fn all(state: &State, now: Timestamp) -> Vec<BookingView> {
    let mut views: Vec<BookingView> =
        state.bookings.iter().map(|(id, booking)| view(state, id, booking, now)).collect();
    views.sort_by(|a, b| (a.from_ms, &a.name).cmp(&(b.from_ms, &b.name)));
    views
}

/// The one of that name.
pub(crate) fn named(state: &State, name: &str, now: Timestamp) -> Option<BookingView> {
    let id = state.bookings.named(name)?;
    state.bookings.get(id).map(|booking| view(state, id, booking, now))
}

fn view(state: &State, id: BookingId, booking: &Booking, now: Timestamp) -> BookingView {
    let Booking { spec, by, from, until, at, places, placed_at, began, used, lost } = booking;
    let windows = state.tenants.policy().windows;
    let told = match (began, placed_at) {
        (true, _) => BookingState::Open,
        (false, Some(_)) => BookingState::Placed,
        (false, None) => BookingState::Booked,
    };
    let jobs = state.jobs_of_booking(id).filter_map(|job| state.jobs.get(job));
    let there = state.strangers_in(id, places).into_iter();
    let lost_view = |lost: &LostPlaces| LostPlacesView {
        tasks: lost.tasks,
        why: lost.why.into_str().to_owned(),
        at_ms: lost.at.0,
    };
    BookingView {
        name: spec.name.clone(),
        tenant: state.tenants.path(spec.tenant).to_owned(),
        by: by.into_str().to_owned(),
        state: told,
        tasks: spec.tasks,
        gpus_per_task: gpus(spec.shape.gpus.units()),
        from_ms: from.0,
        until_ms: until.0,
        booked_ms: at.0,
        places_ms: from.0.saturating_sub(windows.lead.0),
        places: places.iter().map(|place| placement(state, spec, place)).collect(),
        short: booking.short(),
        used: *used,
        no_show_ms: (!used).then(|| (*from + windows.no_show).0),
        jobs: jobs.map(|job| job.spec.name.clone()).collect(),
        in_the_way: there.filter_map(|job| holder(state, job, None, now)).collect(),
        lost: lost.iter().map(lost_view).collect(),
    }
}

/// A refusal that has to do with booking.
pub(crate) fn problem(state: &State, rejection: &Rejection) -> Problem {
    match rejection {
        Rejection::BookingRefused { fault, nearest } => {
            let refused = refused(state, *fault);
            let at = nearest.map(|at| at.0);
            let hint = match (nearest, &refused.hint) {
                (Some(at), _) => format!("the nearest possible begin is {}", moment_text(*at)),
                (None, Some(hint)) => hint.to_string(),
                (None, None) => "no other time would do either; ask for less".to_owned(),
            };
            refused.hint(hint).nearest_ms(at)
        }
        Rejection::BookingNameInUse { name } => {
            Problem::new(Code::BookingNameInUse, format!("another window is booked as {name:?}"))
                .hint(format!("choose another name, or give that one up: wharf cancel booking/{name}"))
        }
        Rejection::NoSuchBooking { name } => {
            Problem::new(Code::NoSuchBooking, format!("no window is booked as {name:?}"))
                .hint("wharf get bookings; what is over: wharf get history --kind receipt")
        }
        Rejection::NotOfBooking { name, why } => {
            let (what, next) = match why {
                NotOfBooking::OtherTenant => {
                    ("is another tenant's", "leave booking out, or name one of your own")
                }
                NotOfBooking::TooSmall => {
                    ("has less than the job's minimum", "ask for fewer or smaller tasks")
                }
                NotOfBooking::Groups => {
                    ("is of one shape, and the job has groups", "submit it without `booking`")
                }
                NotOfBooking::WholeGpusOnly => ("is for jobs that ask for whole GPUs", "ask for whole GPUs"),
            };
            Problem::new(Code::NotOfBooking, format!("booking/{name} {what}"))
                .hint(format!("{next}; see: wharf explain booking/{name}"))
        }
        _ => Problem::new(Code::Internal, "a refusal of another kind"),
    }
}

fn refused(state: &State, fault: BookingFault) -> Problem {
    let path = |tenant| state.tenants.path(tenant);
    match fault {
        BookingFault::OperatorsOnly => {
            Problem::new(Code::BookingDenied, "the policy lets only operators book windows")
                .hint("ask an operator, who adds --by operator (windows.yaml: tenants_may_book)")
        }
        BookingFault::NotAnOperator => {
            Problem::new(Code::BookingDenied, "only an operator books as one, and the caller is none")
                .hint("leave out `by: operator` to book within the tenant's guarantee")
        }
        BookingFault::WholeGpusOnly => {
            Problem::new(Code::BookingWholeGpus, "a window is booked in whole GPUs")
                .hint("ask for 1 to 16 GPUs a task")
        }
        BookingFault::TooLate { lead } => Problem::new(
            Code::BookingTooLate,
            format!("a window is booked at least {} before it begins", text::span(lead)),
        ),
        BookingFault::Span { max } => {
            Problem::new(Code::BookingTooLong, format!("a window lasts at most {}", text::span(max)))
                .hint("book less, or have span_max raised (windows.yaml)")
        }
        BookingFault::TooFarAhead { max } => Problem::new(
            Code::BookingTooFarAhead,
            format!("a window begins at most {} from now", text::span(max)),
        ),
        BookingFault::TooMany { max: 0 } => {
            Problem::new(Code::BookingsFull, "the policy lets tenants have no bookings")
                .hint("have bookings_max raised (windows.yaml)")
        }
        BookingFault::TooMany { max } => Problem::new(
            Code::BookingsFull,
            format!("the tenant has {max} bookings already, which is the most"),
        )
        .hint("give one up: wharf get bookings, wharf cancel booking/NAME"),
        BookingFault::BeyondGuarantee { tenant, need, have } => {
            let what = format!(
                "{} would have booked {} of that time and is guaranteed {have}",
                path(tenant),
                text::gpus(need)
            );
            Problem::new(Code::BookingBeyondGuarantee, what)
                .hint("ask for less, or ask an operator, who may book more with --by operator")
        }
        BookingFault::BeyondLimit { tenant } => Problem::new(
            Code::BookingBeyondLimit,
            format!("with the other bookings of that time {} would pass its limit", path(tenant)),
        )
        .hint("ask for less, or have the limit raised (tenants.yaml)"),
        BookingFault::TakesFromGuarantees { need, have } => Problem::new(
            Code::BookingTakesFromOthers,
            format!(
                "it takes {}, and guarantees and other bookings leave {have} of that time",
                text::gpus(need)
            ),
        )
        .hint("ask for less"),
        BookingFault::NoRoom => Problem::new(
            Code::BookingNoRoom,
            "the fleet has no such places beside the other bookings of that time, even healthy and empty",
        )
        .hint("ask for less, or for smaller tasks"),
    }
}
