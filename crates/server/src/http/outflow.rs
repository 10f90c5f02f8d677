//! Long answers on their way out. The HTTP implementation takes a piece of an answer when the one before is written;
//! what is left waits here and is counted, so that clients that do not read cannot fill the memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Refused;
use super::events::STREAM;
use crate::desk::Closed;
use crate::rejection::closed;

/// The most bytes of all answers that wait to be written.
const BYTES_MAX: usize = 128 << 20;
/// Pieces in which an answer goes out. Shorter answers are not counted.
const PIECE: usize = 64 << 10;

/// The room for long answers.
#[derive(Clone, Debug)]
pub(super) struct Outflow(Arc<Semaphore>);

impl Outflow {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(BYTES_MAX)))
    }
}

/// Lets a long answer go out in pieces, or refuses it where too many others wait to be written.
pub(super) async fn pace(
    State(Outflow(room)): State<Outflow>,
    request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes() == STREAM.as_bytes()) {
        // A stream holds a page at most, and goes out as it is made.
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    // Answers are made whole: this does not wait.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    if bytes.len() <= PIECE {
        return Ok(Response::from_parts(parts, Body::from(bytes)));
    }
    let place = u32::try_from(bytes.len()).ok().and_then(|length| room.try_acquire_many_owned(length).ok());
    let place = place.ok_or_else(|| closed(Closed::Busy))?;
    Ok(Response::from_parts(parts, Body::new(Paced { bytes, _place: place })))
}

/// The rest of an answer.
struct Paced {
    bytes: Bytes,
    _place: OwnedSemaphorePermit,
}

impl hyper::body::Body for Paced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let rest = &mut self.get_mut().bytes;
        if rest.is_empty() {
            return Poll::Ready(None);
        }
        let piece = rest.split_to(rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len().try_into().unwrap_or(u64::MAX))
    }
}
