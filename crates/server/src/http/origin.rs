//! Where a request comes from. A control plane on the loopback trusts whoever reaches it, and a browser on the same
//! machine reaches it on behalf of every page that it shows. Three things tell such a request apart:
//!
//! - its `Host`, which under DNS rebinding is the page's own name and not an address of ours;
//! - its `Origin` and `Sec-Fetch-Site`, which a page cannot choose;
//! - its `Content-Type`: a page may send text and forms anywhere without asking first, but not JSON or YAML.
//!
//! This is no authentication: what is not a browser can send whatever it likes.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use wharf_api::v1::{Code, Problem};

use super::Refused;

/// Types that a browser sends to another site only if that site agrees, which we never do.
const TYPES: [&str; 3] = ["application/json", "application/yaml", "application/x-yaml"];

/// Names by which others may call this control plane, beside its addresses and those of the loopback.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Arc<[String]>);

impl Hosts {
    /// These names. Letter case does not matter.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// True for a name that means this control plane, where the request arrived at `local`.
    fn have(&self, host: &str, local: IpAddr) -> bool {
        let host = host.to_ascii_lowercase();
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&host);
        let is_ours = |ip: IpAddr| ip.is_loopback() || ip.to_canonical() == local.to_canonical();
        bare.parse().is_ok_and(is_ours) || host == "localhost" || self.0.contains(&host)
    }
}

/// The address at which a connection arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivedAt(pub(super) IpAddr);

/// Refuses what a page of another site may have made a browser send.
pub(super) async fn check(
    State(hosts): State<Hosts>,
    Extension(ArrivedAt(local)): Extension<ArrivedAt>,
    request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let host = host_of(&request)?;
    if let Some(host) = &host {
        check_host(host, &hosts, local)?;
    }
    check_site(request.headers(), host.as_deref())?;
    check_type(&request)?;
    Ok(next.run(request).await)
}

/// What the request calls us, with the port. Only HTTP/1.0 may leave it out, which no browser speaks.
fn host_of(request: &Request) -> Result<Option<String>, Problem> {
    let bad =
        |what: &str| Problem::new(Code::BadRequest, what).hint("send one Host header: HOST or HOST:PORT");
    let mut given = request.headers().get_all(header::HOST).iter();
    let (first, second) = (given.next(), given.next());
    if second.is_some() {
        return Err(bad("the request has more than one Host header"));
    }
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.as_str().to_owned()));
    }
    match first {
        Some(host) => {
            let host = host.to_str().map_err(|_| bad("the Host header of the request cannot be read"))?;
            Ok(Some(host.to_owned()))
        }
        None if request.version() <= Version::HTTP_10 => Ok(None),
        None => Err(bad("the request has no Host header")),
    }
}

fn check_host(host: &str, hosts: &Hosts, local: IpAddr) -> Result<(), Problem> {
    let name = without_port(host);
    if hosts.have(name, local) {
        return Ok(());
    }
    Err(Problem::new(Code::ForeignHost, format!("this control plane does not answer to the host {name:?}"))
        .hint(format!("use its address, or let it answer to that name: wharf up --allow-host {name}")))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // The colons of an IPv6 address without a port stand inside brackets.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

fn check_site(headers: &HeaderMap, host: Option<&str>) -> Result<(), Problem> {
    let foreign = |what: String| {
        Problem::new(Code::ForeignOrigin, what).hint(
            "a web page of another site may not use this API; use `wharf` or a client that is no browser",
        )
    };
    if let Some(origin) = headers.get(header::ORIGIN) {
        let ours = host.map(|host| format!("http://{host}"));
        let is_ours = ours.is_some_and(|ours| origin.as_bytes().eq_ignore_ascii_case(ours.as_bytes()));
        if !is_ours {
            let origin = String::from_utf8_lossy(origin.as_bytes()).into_owned();
            return Err(foreign(format!("the request comes from a page of {origin:?}")));
        }
    }
    match headers.get("sec-fetch-site").map(axum::http::HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(foreign("a browser sent the request for a page of another site".to_owned())),
    }
}

/// A browser asks first before it sends `DELETE` to another site; with `POST` it depends on the type.
fn check_type(request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    let has_body = headers.get(header::CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0")
        || headers.contains_key(header::TRANSFER_ENCODING);
    let asks_first = matches!(*request.method(), Method::GET | Method::HEAD | Method::DELETE | Method::PUT);
    if asks_first && !has_body {
        return Ok(());
    }
    let given = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let essence = given.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if TYPES.iter().any(|known| essence.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    let what = match given {
        Some(given) => format!("the Content-Type {given:?} is not one that this API takes"),
        None => "the request has no Content-Type".to_owned(),
    };
    Err(Problem::new(Code::UnsupportedMediaType, what)
        .hint("send Content-Type: application/json, or application/yaml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_addresses_and_names_are_ours_and_a_name_that_was_bent_is_not() {
        let hosts = Hosts::new(["Gpu-Head.example".to_owned()]);
        let local: IpAddr = "10.1.2.3".parse().unwrap();
        for ours in
            ["127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST", "[::1]", "10.1.2.3", "gpu-head.example"]
        {
            assert!(hosts.have(ours, local), "{ours}");
        }
        for foreign in
            ["", "10.1.2.4", "evil.example", "localhost.evil.example", "0.0.0.0", "[::2]", "localhost."]
        {
            assert!(!hosts.have(foreign, local), "{foreign}");
        }
        assert!(
            hosts.have("10.1.2.3", "::ffff:10.1.2.3".parse().unwrap()),
            "an IPv4 client of an IPv6 listener"
        );
    }

    #[test]
    fn a_port_is_no_part_of_the_name() {
        let names = ["h:80", "h", "[::1]:80", "[::1]", "1.2.3.4:5"].map(without_port);
        assert_eq!(names, ["h", "h", "[::1]", "[::1]", "1.2.3.4"]);
    }
}
