//! What changed, for those who watch: pages that may be waited for, and a stream.
//!
//! A stream is made of the same pages. It takes the next page when the one before is on its way to the client, so a
//! slow client holds one page and is told when it has fallen behind what is kept.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, timeout, timeout_at};
use wharf_api::v1::{Change, ChangeList, Code, Problem, schema_of};
use wharf_controller::disk::Term;

use super::params::{PAGE_DEFAULT, PAGE_MAX, Params};
use super::{Refused, Shared};
use crate::desk::Closed;
use crate::feed::{Feed, Forgotten, Page};
use crate::rejection::closed;

/// The longest that a request waits for something to change: well within what clients and proxies wait.
const WAIT_SECONDS_MAX: u64 = 30;
/// What is sent on a stream where nothing changes for this long, so that both ends know that the other is there.
const PULSE_EVERY: Duration = Duration::from_secs(10);
/// A stream ends after this long; its client goes on with another, from where it was.
const STREAM_TIME_MAX: Duration = Duration::from_mins(10);
pub(super) const STREAM: &str = "text/event-stream";

pub(super) async fn changes(
    State(shared): State<Shared>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Refused> {
    let feed = shared.desk.feed();
    let limit = params.limit(PAGE_DEFAULT, 1..=PAGE_MAX)?;
    let wait = params.number("wait")?.unwrap_or(0);
    if wait > WAIT_SECONDS_MAX {
        let what = format!("wait: {wait} is not a number of seconds from 0 to {WAIT_SECONDS_MAX}");
        return Err(Problem::new(Code::BadRequest, what).hint("ask again when the time is up").into());
    }
    let since = match (last_read(&headers)?, params.number("since")?) {
        (Some((term, last)), _) => Some((term, last.saturating_add(1))),
        (None, Some(since)) => Some((params.number("term")?, since)),
        (None, None) => None,
    };
    if let Some((term, index)) = since.filter(|(term, _)| !feed.origin.has(*term)) {
        return Err(of_another_term(index, term).into());
    }
    let since = since.map_or_else(|| feed.head(), |(_, index)| index);
    // What is committed and not told yet comes at once; what is further ahead is of another journal.
    let committed = shared.desk.latest().progress.committed();
    if since > committed {
        return Err(ahead(since, committed).into());
    }
    if is_stream(&headers) {
        feed.page(since, 0).map_err(|forgotten| gone(since, forgotten))?;
        return Ok(stream(feed, since));
    }
    let until = Instant::now() + Duration::from_secs(wait);
    let Page { changes, next } = page(feed.clone(), since, limit, until).await?;
    let changes = changes.iter().map(|change| Change::clone(change)).collect();
    let term = feed.origin.term;
    Ok(Json(ChangeList { schema: schema_of::<ChangeList>(), changes, index: next, term }).into_response())
}

/// The first page that has something, or an empty one when the time is up.
async fn page(mut feed: Feed, mut since: u64, limit: usize, until: Instant) -> Result<Page, Problem> {
    loop {
        let page = feed.page(since, limit).map_err(|forgotten| gone(since, forgotten))?;
        if !page.changes.is_empty() {
            return Ok(page);
        }
        since = page.next;
        // The journal may have grown by what is not told.
        match timeout_at(until, feed.told(since)).await {
            Ok(true) => {}
            // Nothing will ever be told again.
            Ok(false) => return Err(closed(Closed::Stopped)),
            Err(_) => return Ok(page),
        }
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|accepted| accepted.split(',').any(|kind| kind.trim().starts_with(STREAM)))
}

/// The term and the index up to which a client of a stream that was interrupted has read.
fn last_read(headers: &HeaderMap) -> Result<Option<(Option<Term>, u64)>, Problem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let read = |given: &str| match given.split_once('-') {
        Some((term, index)) => Some((Some(term.parse().ok()?), index.parse().ok()?)),
        None => Some((None, given.parse().ok()?)),
    };
    let last = given.to_str().ok().and_then(read);
    let wrong = || {
        Problem::new(Code::BadRequest, "Last-Event-ID is no index of this feed")
            .hint("give the id of the last event, or leave it out")
    };
    last.map(Some).ok_or_else(wrong)
}

fn gone(since: u64, forgotten: Forgotten) -> Problem {
    let first = forgotten.first;
    Problem::new(
        Code::Gone,
        format!("changes since index {since} are no longer kept, those since {first} are"),
    )
    .hint("list again, then go on from the `index` of the list")
}

fn ahead(since: u64, committed: u64) -> Problem {
    Problem::new(Code::Gone, format!("the journal has come to index {committed} and not to {since}"))
        .hint("it is another journal than before: list again, then go on from the `index` of the list")
}

/// The index may be that of something else by now: a restore gives indexes out again.
fn of_another_term(index: u64, term: Option<Term>) -> Problem {
    let what = match term {
        Some(term) => format!("index {index} is of term {term}, which is over"),
        None => format!(
            "the journal was restored, and index {index} without its term may be of what was before that"
        ),
    };
    Problem::new(Code::Gone, what)
        .hint("list again, then go on from the `index` of the list, with its `term`")
}

fn stream(feed: Feed, since: u64) -> Response {
    // One page at a time: the next is made when this one is taken.
    let (pieces, taken) = channel(1);
    tokio::spawn(async move {
        let _ = timeout(STREAM_TIME_MAX, tell(feed, since, pieces)).await;
    });
    ([(header::CONTENT_TYPE, STREAM), (header::CACHE_CONTROL, "no-store")], Body::new(Pieces(taken)))
        .into_response()
}

async fn tell(feed: Feed, mut since: u64, pieces: Sender<Bytes>) {
    loop {
        let piece = match page(feed.clone(), since, PAGE_DEFAULT, Instant::now() + PULSE_EVERY).await {
            Ok(Page { changes, next }) => {
                since = next;
                written(&changes, feed.origin.term)
            }
            Err(problem) if problem.code != Code::Gone => return,
            Err(problem) => {
                let last = format!("event: gone\ndata: {}\n\n", json(&problem));
                let _ = pieces.send(last.into()).await;
                return;
            }
        };
        if pieces.send(piece.into()).await.is_err() {
            return;
        }
    }
}

/// The changes as a stream has them; a comment where there are none.
fn written(changes: &[Arc<Change>], term: Term) -> String {
    let event = |change: &Arc<Change>| {
        format!("id: {term}-{}\nevent: change\ndata: {}\n\n", change.index, json(&**change))
    };
    if changes.is_empty() { ":\n\n".to_owned() } else { changes.iter().map(event).collect() }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("strings and numbers always encode")
}

/// A body that is written piece by piece for as long as there is somebody to read it.
struct Pieces(Receiver<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
