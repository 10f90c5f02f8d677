//! The listener: connections in, one router, limits on everything a stranger can send.
//!
//! A client that sends its head or body too slowly is cut off, a body over the limit is refused before it is
//! read, and the number of open connections is bounded. What is not HTTP gets a 400 from the parser.

mod bookings;
mod ended;
mod evictions;
mod faults;
mod fleet;
mod intake;
mod jobs;
mod listing;
mod params;
mod system;

pub(crate) use fleet::pools;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tower_http::catch_panic::CatchPanicLayer;
use wharf_api::v1::{Code, Problem};

use self::intake::Intake;
use crate::desk::Desk;
use crate::fleet_file::FleetStatus;
use crate::policy::PolicyStatus;

/// The longest a client may take to send its request's head.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// The pause after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// The most connections at once.
const CONNECTIONS_MAX: usize = 1024;

/// Rows of history that are given unless more are asked for.
const ROWS_DEFAULT: usize = 100;
/// The most rows of history in one answer.
const ROWS_MAX: usize = 10_000;

/// What handlers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) desk: Desk,
    pub(crate) policy: PolicyStatus,
    pub(crate) fleet: FleetStatus,
}

/// A server that listens.
pub struct Serving {
    /// Where.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    done: tokio::task::JoinHandle<()>,
}

impl Serving {
    /// Takes no more connections and lets open requests finish for a moment.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = tokio::time::timeout(Duration::from_secs(5), self.done).await;
    }
}

/// Serves the API on a listener.
pub fn serve(
    listener: TcpListener,
    desk: Desk,
    policy: PolicyStatus,
    fleet: FleetStatus,
) -> std::io::Result<Serving> {
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let router = router(Shared { desk, policy, fleet });
    let done = tokio::spawn(accept(listener, router, stopped));
    Ok(Serving { address, stop, done })
}

async fn accept(listener: TcpListener, router: Router, mut stopped: watch::Receiver<bool>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let connection = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        // A connection that failed before we took it is the other side's business.
        let Ok((connection, _)) = connection else {
            // When the system is out of handles, trying again at once would only burn the core.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let _ = connection.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let mut stopping = stopped.clone();
        tokio::spawn(async move {
            let _place = place;
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
            let mut serving = std::pin::pin!(server.serve_connection(TokioIo::new(connection), service));
            tokio::select! {
                _ = serving.as_mut() => {}
                _ = stopping.changed() => {
                    serving.as_mut().graceful_shutdown();
                    let _ = serving.await;
                }
            }
        });
    }
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/v1/jobs", get(listing::list).post(jobs::submit))
        .route("/v1/jobs/{job}", get(jobs::one).delete(jobs::cancel))
        .route("/v1/jobs/{job}/explain", get(jobs::explain))
        .route("/v1/jobs/{job}/evict", post(jobs::evict))
        .route("/v1/jobs/{job}/extend", post(jobs::extend))
        .route("/v1/jobs/{job}/scale", post(jobs::scale))
        .route("/v1/jobs/{job}/replace", post(jobs::replace))
        .route("/v1/plan", post(jobs::plan))
        .route("/v1/nodes", get(fleet::nodes))
        .route("/v1/nodes/{node}/cordon", post(fleet::cordon).delete(fleet::uncordon))
        .route("/v1/gpus", get(fleet::gpus))
        .route("/v1/sim/faults", post(faults::fault))
        .route("/v1/stranded", get(fleet::stranded))
        .route("/v1/reservations", get(fleet::reservations))
        .route("/v1/bookings", get(bookings::list).post(bookings::book))
        .route("/v1/bookings/{booking}", get(bookings::one).delete(bookings::cancel))
        .route("/v1/tenants", get(fleet::tenant_list))
        .route("/v1/summary", get(fleet::summary))
        .route("/v1/history", get(system::history))
        .route("/v1/ended", get(ended::list))
        .route("/v1/ended/{job}", get(ended::one))
        .route("/v1/evictions", get(evictions::list))
        .route("/v1/evictions/{eviction}", get(evictions::one))
        .route("/v1/policy", get(system::policy))
        .route("/metrics", get(system::metrics))
        .route("/healthz", get(system::healthz))
        .route("/readyz", get(system::readyz))
        .route_layer(from_fn_with_state(Intake::new(), intake::read))
        .route_layer(from_fn(params::check))
        .fallback(async || Refused(Problem::new(Code::NotFound, "there is nothing at this path")))
        .method_not_allowed_fallback(async || {
            Refused(Problem::new(Code::MethodNotAllowed, "this path does not take this method"))
        })
        .layer(CatchPanicLayer::custom(|_| {
            Refused(Problem::new(Code::Internal, "a bug of ours; the control plane goes on")).into_response()
        }))
        .layer(map_response(in_our_words))
        .with_state(shared)
}

/// What the router says of a path that is not UTF-8, as a problem like every other.
async fn in_our_words(response: Response) -> Response {
    if response.status() == StatusCode::BAD_REQUEST && !is_problem(&response) {
        let what = "the path of the URL is not UTF-8 when its %XX are read";
        return Refused(Problem::new(Code::BadRequest, what)).into_response();
    }
    response
}

fn is_problem(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes() == b"application/problem+json")
}

/// A problem as an answer.
pub(crate) struct Refused(pub(crate) Problem);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = self.0.retry_after_ms.map(|millis| millis.div_ceil(1000).max(1));
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
