//! Connections in: how many at once, how many of one client, and what those beyond get.
//!
//! A connection beyond the bounds is not left waiting: it is taken into a small reserve, in which `/healthz` and
//! `/readyz` are answered as always and everything else is refused at once. So nobody who holds connections open makes
//! a healthy control plane look dead.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::ServiceExt;

use super::origin::ArrivedAt;
use super::wire::{HEAD_BYTES_MAX, Wire};

/// The most connections at once.
const CONNECTIONS_MAX: usize = 1024;
/// The most of one client, by its address: half of all, since many may share the address of a proxy.
const CONNECTIONS_OF_ONE_MAX: usize = 512;
/// The most connections beyond these.
const RESERVE: usize = 128;
/// The longest a client may take to send its request's head.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// The same in the reserve, in which places are few.
const HEAD_TIME_MAX_IN_RESERVE: Duration = Duration::from_secs(1);
/// The pause after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What connections get.
#[derive(Clone)]
pub(super) struct Routers {
    /// All of the API.
    pub(super) all: Router,
    /// Whether we are alive, and nothing else.
    pub(super) reserve: Router,
}

/// Takes connections until it is told to stop.
pub(super) async fn accept(listener: TcpListener, routers: Routers, mut stopped: watch::Receiver<bool>) {
    let guests = Guests::default();
    let all = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let reserve = Arc::new(Semaphore::new(RESERVE));
    loop {
        let connection = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        // A connection that failed before we took it is the other side's business.
        let Ok((stream, peer)) = connection else {
            // When the system is out of handles, trying again at once would only burn the core.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let guest = guests.admit(peer).and_then(|guest| Some((guest, place(&all)?)));
        let stopping = stopped.clone();
        if let Some(guest) = guest {
            let router = routers.all.clone();
            tokio::spawn(async move {
                serve(stream, router, Manners { head_time: HEAD_TIME_MAX, keep_alive: true }, stopping).await;
                drop(guest);
            });
        } else if let Some(place) = place(&reserve) {
            let router = routers.reserve.clone();
            let manners = Manners { head_time: HEAD_TIME_MAX_IN_RESERVE, keep_alive: false };
            tokio::spawn(async move {
                serve(stream, router, manners, stopping).await;
                drop(place);
            });
        }
    }
}

fn place(room: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(room).try_acquire_owned().ok()
}

/// How a connection is treated.
struct Manners {
    head_time: Duration,
    keep_alive: bool,
}

async fn serve(stream: TcpStream, router: Router, manners: Manners, mut stopping: watch::Receiver<bool>) {
    let Ok(local) = stream.local_addr() else { return };
    let _ = stream.set_nodelay(true);
    let service = router.map_request(move |mut request: axum::http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ArrivedAt(local.ip()));
        request
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(manners.head_time)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(manners.keep_alive);
    let io = TokioIo::new(Wire::new(stream));
    let mut serving = std::pin::pin!(server.serve_connection(io, TowerToHyperService::new(service)));
    tokio::select! {
        _ = serving.as_mut() => {}
        _ = stopping.changed() => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
}

/// Connections by client.
#[derive(Clone, Debug, Default)]
struct Guests(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// One connection of a client, while it lasts.
#[derive(Debug)]
struct Guest {
    of: Guests,
    ip: IpAddr,
}

impl Guests {
    /// One more of this client, unless it has as many as it may have.
    fn admit(&self, peer: SocketAddr) -> Option<Guest> {
        let ip = peer.ip().to_canonical();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = known.entry(ip).or_insert(0);
        if *count >= CONNECTIONS_OF_ONE_MAX {
            return None;
        }
        *count += 1;
        Some(Guest { of: self.clone(), ip })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut known = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = known.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                known.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_no_more_than_its_part_and_gets_it_back() {
        let guests = Guests::default();
        let one: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:2".parse().unwrap();
        let mut held: Vec<Guest> = (0..CONNECTIONS_OF_ONE_MAX).map(|_| guests.admit(one).unwrap()).collect();
        assert!(guests.admit(mapped).is_none(), "the same client by another spelling");
        assert!(guests.admit("10.0.0.2:1".parse().unwrap()).is_some());
        held.pop();
        assert!(guests.admit(mapped).is_some());
        held.clear();
        assert!(guests.0.lock().unwrap().is_empty());
    }
}
