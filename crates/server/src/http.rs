//! The API: one router, with limits on everything that a stranger can send.
//!
//! [`listener`] bounds connections, [`wire`] cuts off clients that do not read, [`origin`] refuses what a web page of
//! another site makes a browser send, [`params`] and [`intake`] read the query and the body, [`outflow`] lets long
//! answers go. Whatever is refused on the way is a problem like every other.

mod after;
mod arrays;
mod bookings;
mod caller;
mod ended;
mod events;
mod evictions;
mod faults;
mod fleet;
mod intake;
mod jobs;
mod listener;
mod listing;
mod nodes;
mod origin;
mod outflow;
mod params;
mod system;
mod usage;
mod wire;

pub(crate) use fleet::pools;
pub use origin::Hosts;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower_http::catch_panic::CatchPanicLayer;
use wharf_api::v1::{Code, Problem};

use self::intake::Intake;
use self::listener::Routers;
use self::outflow::Outflow;
use crate::desk::Desk;
use crate::fleet_file::FleetStatus;
use crate::policy::PolicyStatus;

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

/// Serves the API on a listener, to whoever calls it by an address of ours or by one of `hosts`.
pub fn serve(
    listener: TcpListener,
    desk: Desk,
    policy: PolicyStatus,
    fleet: FleetStatus,
    hosts: Hosts,
) -> std::io::Result<Serving> {
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let shared = Shared { desk, policy, fleet };
    let routers = Routers { all: router(shared.clone(), hosts.clone()), reserve: reserve(shared, hosts) };
    let done = tokio::spawn(listener::accept(listener, routers, stopped));
    Ok(Serving { address, stop, done })
}

/// What is answered where there are too many connections for more.
fn reserve(shared: Shared, hosts: Hosts) -> Router {
    Router::new()
        .route("/healthz", get(system::healthz))
        .route("/readyz", get(system::readyz))
        .fallback(async || {
            let what = "the control plane has as many connections as it takes, or this client has";
            Refused(
                Problem::new(Code::TooManyConnections, what)
                    .retry_after_ms(1000)
                    .hint("close connections that are not used, and try again after Retry-After"),
            )
        })
        .layer(from_fn_with_state(hosts, origin::check))
        .with_state(shared)
}

/// Which handler answers which path. A handler that changes something goes on with [`Desk::decide`], one that reads with
/// [`Desk::read`]. Layers are passed from the last to the first.
fn router(shared: Shared, hosts: Hosts) -> Router {
    Router::new()
        .route("/v1/jobs", get(listing::list).post(jobs::submit))
        .route("/v1/jobs/{job}", get(jobs::one).delete(jobs::cancel))
        .route("/v1/jobs/{job}/explain", get(jobs::explain))
        .route("/v1/jobs/{job}/evict", post(jobs::evict))
        .route("/v1/jobs/{job}/release", post(jobs::release))
        .route("/v1/jobs/{job}/extend", post(jobs::extend))
        .route("/v1/jobs/{job}/scale", post(jobs::scale))
        .route("/v1/jobs/{job}/replace", post(jobs::replace))
        .route("/v1/arrays/{array}", get(arrays::one))
        .route("/v1/plan", post(jobs::plan))
        .route("/v1/nodes", get(fleet::nodes))
        .route("/v1/nodes/{node}/cordon", post(nodes::cordon).delete(nodes::uncordon))
        .route("/v1/nodes/{node}/drain", post(nodes::drain).delete(nodes::undrain))
        .route("/v1/drain", post(nodes::drain_all))
        .route("/v1/maintenance", get(nodes::downtimes).post(nodes::maintain))
        .route("/v1/maintenance/{name}", axum::routing::delete(nodes::call_off))
        .route("/v1/gpus", get(fleet::gpus))
        .route("/v1/sim/faults", post(faults::fault))
        .route("/v1/stranded", get(fleet::stranded))
        .route("/v1/reservations", get(fleet::reservations))
        .route("/v1/bookings", get(bookings::list).post(bookings::book))
        .route("/v1/bookings/{booking}", get(bookings::one).delete(bookings::cancel))
        .route("/v1/tenants", get(fleet::tenant_list))
        .route("/v1/summary", get(fleet::summary))
        .route("/v1/history", get(system::history))
        .route("/v1/events", get(events::changes))
        .route("/v1/ended", get(ended::list))
        .route("/v1/ended/{job}", get(ended::one))
        .route("/v1/usage", get(usage::report))
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
        .layer(from_fn_with_state(Outflow::new(), outflow::pace))
        .layer(from_fn_with_state(hosts, origin::check))
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
