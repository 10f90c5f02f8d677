//! Bodies of requests: read whole before anything is done, within a time and a size, and all of them together within
//! a size too, so that clients cannot fill the memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wharf_api::v1::{Code, Problem};

use super::Refused;
use crate::desk::Closed;
use crate::rejection::closed;

/// The largest body that is read; a job file is a few hundred bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The most bytes of all bodies that are being read or decided.
const BODIES_BYTES_MAX: usize = 64 << 20;
/// The longest a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(20);

/// The room for bodies.
#[derive(Clone, Debug)]
pub(super) struct Intake(Arc<Semaphore>);

impl Intake {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(BODIES_BYTES_MAX)))
    }
}

/// Reads the body of a request, and keeps its room until the request is answered.
pub(super) async fn read(
    State(intake): State<Intake>,
    request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if announced.and_then(|length| length.parse::<u64>().ok()).is_some_and(is_too_long) {
        return Err(too_large().into());
    }
    let arrived = tokio::time::timeout(BODY_TIME_MAX, collect(body, &intake)).await;
    let (bytes, _room) = arrived.map_err(|_| late())??;
    Ok(next.run(Request::from_parts(parts, Body::from(bytes))).await)
}

fn is_too_long(length: u64) -> bool {
    usize::try_from(length).map_or(true, |length| length > BODY_BYTES_MAX)
}

async fn collect(mut body: Body, intake: &Intake) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Problem> {
    let mut bytes = Vec::new();
    let mut room: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| broken())?.into_data() else { continue };
        if bytes.len() + data.len() > BODY_BYTES_MAX {
            return Err(too_large());
        }
        let more = u32::try_from(data.len()).expect("a body has at most a MiB");
        let more = Arc::clone(&intake.0).try_acquire_many_owned(more).map_err(|_| closed(Closed::Busy))?;
        match &mut room {
            Some(room) => room.merge(more),
            None => room = Some(more),
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.into(), room))
}

fn too_large() -> Problem {
    Problem::new(Code::TooLarge, format!("the body of a request has at most {BODY_BYTES_MAX} bytes"))
        .hint("keep data elsewhere and name it in the job")
}

fn late() -> Problem {
    let what = format!(
        "the body of the request did not arrive within {} s; nothing was changed",
        BODY_TIME_MAX.as_secs()
    );
    Problem::new(Code::RequestTimeout, what).hint("send it again")
}

fn broken() -> Problem {
    Problem::new(
        Code::BadRequest,
        "the body of the request broke off, or a chunk of it is not as its transfer coding says",
    )
    .hint("send Content-Length and the whole body, or well-formed chunks: a length in hexadecimal, CRLF, so many bytes, CRLF")
}
