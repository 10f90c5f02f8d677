//! Booked windows: book, look, give up.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use wharf_api::file::booking::parse_booking;
use wharf_api::v1::{Booked, BookingList, BookingReply, BookingView, Problem, schema_of};
use wharf_engine::decide::input::Input;
use wharf_engine::decide::rejection::Rejection;
use wharf_engine::model::actor::Request;
use wharf_engine::units::BookingId;

use super::caller::Caller;
use super::jobs::{fresh_uid, utf8};
use super::{Refused, Shared};
use crate::booking;
use crate::rejection::{bad_file, closed, problem};

type Answer<T> = Result<Json<T>, Refused>;

pub(super) async fn book(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    body: Bytes,
) -> Result<(StatusCode, Json<Booked>), Refused> {
    let file = parse_booking("request body", utf8(&body)?).map_err(|error| bad_file(&error))?;
    let uid = fresh_uid()?;
    // A span from now is counted on the world's clock.
    let asked = shared.desk.ask_first(|glance| (glance.now, glance.state.bookings.next()));
    let (now, next) = asked.await.map_err(closed)?;
    let request = file.request(uid, now);
    let name = request.job.spec.name.clone();
    let after = move |reply: Result<_, Rejection>, turned: crate::desk::Turned<'_>| {
        let glance = turned.glance;
        reply.map_err(|rejection| problem(glance.state, &rejection))?;
        let id: Option<BookingId> = glance.state.bookings.named(&name);
        let view = booking::named(glance.state, &name, glance.now);
        let gone = || problem(glance.state, &Rejection::NoSuchBooking { name: name.clone() });
        Ok::<_, Problem>((view.ok_or_else(gone)?, id >= Some(next)))
    };
    let input = Input::Book(Box::new(request));
    let answered: Result<(BookingView, bool), Problem> =
        shared.desk.give(Request { actor, input }, after).await.map_err(closed)?;
    let (booking, created) = answered?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(Booked { schema: schema_of::<Booked>(), booking, created })))
}

pub(super) async fn list(State(shared): State<Shared>) -> Answer<BookingList> {
    let asked = shared.desk.ask(|glance| booking::all(glance.state, glance.now));
    let bookings = asked.await.map_err(closed)?;
    Ok(Json(BookingList { schema: schema_of::<BookingList>(), bookings }))
}

pub(super) async fn one(State(shared): State<Shared>, Path(name): Path<String>) -> Answer<BookingReply> {
    Ok(Json(reply(look(&shared, name).await?)))
}

/// Answered with the booking as it was.
pub(super) async fn cancel(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    Path(name): Path<String>,
) -> Answer<BookingReply> {
    let before = look(&shared, name.clone()).await?;
    let input = Input::Unbook { name };
    let done = shared.desk.give(Request { actor, input }, |reply, turned| {
        reply.map_err(|rejection| problem(turned.glance.state, &rejection)).map(|_| ())
    });
    done.await.map_err(closed)??;
    Ok(Json(reply(before)))
}

async fn look(shared: &Shared, name: String) -> Result<BookingView, Refused> {
    let looked = shared.desk.ask_first(move |glance| {
        let view = booking::named(glance.state, &name, glance.now);
        view.ok_or_else(|| problem(glance.state, &Rejection::NoSuchBooking { name }))
    });
    Ok(looked.await.map_err(closed)??)
}

fn reply(booking: BookingView) -> BookingReply {
    BookingReply { schema: schema_of::<BookingReply>(), booking }
}
