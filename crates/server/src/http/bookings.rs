//! Booked windows: book, look, give up.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use wharf_api::file::booking::parse_booking;
use wharf_api::v1::{Booked, BookingList, BookingReply, BookingView, Problem, schema_of};
use wharf_engine::decide::input::{Input, Request};
use wharf_engine::model::rejection::Rejection;
use wharf_engine::units::BookingId;

use super::caller::Caller;
use super::jobs::{fresh_uid, utf8};
use super::{Refused, Shared};
use crate::booking;
use crate::desk::Decided;
use crate::rejection::{bad_file, closed, problem};
use crate::replica::Replica;

type Answer<T> = Result<Json<T>, Refused>;

pub(super) async fn book(
    State(shared): State<Shared>,
    Caller(actor): Caller,
    body: Bytes,
) -> Result<(StatusCode, Json<Booked>), Refused> {
    let file = parse_booking("request body", utf8(&body)?).map_err(|error| bad_file(&error))?;
    let uid = fresh_uid()?;
    // A span from now is counted on the world's clock.
    let (now, next) = {
        let replica = shared.desk.latest();
        (replica.now(), replica.state.bookings.next())
    };
    let request = file.request(uid, now);
    let name = request.job.spec.name.clone();
    let input = Input::Book(Box::new(request));
    let Decided { reply, replica, .. } =
        shared.desk.decide(Request { actor, input }).await.map_err(closed)?;
    reply.map_err(|rejection| problem(&replica.state, &rejection))?;
    let id: Option<BookingId> = replica.state.bookings.named(&name);
    let booking = named(&replica, name)?;
    let created = id >= Some(next);
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(Booked { schema: schema_of::<Booked>(), booking, created })))
}

pub(super) async fn list(State(shared): State<Shared>) -> Answer<BookingList> {
    let asked = shared.desk.read(|replica| booking::all(&replica.state, replica.now()));
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
    let decided = shared.desk.decide(Request { actor, input }).await.map_err(closed)?;
    decided.reply.map_err(|rejection| problem(&decided.replica.state, &rejection))?;
    Ok(Json(reply(before)))
}

async fn look(shared: &Shared, name: String) -> Result<BookingView, Refused> {
    Ok(shared.desk.read_first(move |replica| named(replica, name)).await.map_err(closed)??)
}

fn named(replica: &Replica, name: String) -> Result<BookingView, Problem> {
    let view = booking::named(&replica.state, &name, replica.now());
    view.ok_or_else(|| problem(&replica.state, &Rejection::NoSuchBooking { name }))
}

fn reply(booking: BookingView) -> BookingReply {
    BookingReply { schema: schema_of::<BookingReply>(), booking }
}
