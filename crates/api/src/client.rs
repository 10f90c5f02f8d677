//! A typed, blocking client of the API.
//!
//! Every call is one request and one answer, whose form is checked. Nothing is retried: a submission carries an
//! idempotency key, so that the caller may simply call again.

mod error;
mod filter;

use std::time::Duration;

use serde_json::Value as Json;
use ureq::http::{Response, Uri};
use ureq::typestate::{WithBody, WithoutBody};
use ureq::{Agent, Body, RequestBuilder};

use crate::file::booking::BookingFile;
use crate::file::job::JobFile;
use crate::v1::{
    Answer, ArrayReply, Booked, BookingList, BookingReply, ChangeList, CordonRequest, DowntimeBody,
    DowntimeList, DowntimeReply, DrainBody, EndedList, EndedReply, EndedState, EvictionList, EvictionReply,
    Explanation, ExtendRequest, FaultReply, FaultRequest, GpuList, HistoryKind, HistoryList, JobList,
    JobReply, JobState, NodeList, NodeReply, PlanView, PolicyView, ReplaceRequest, ReservationList, Resume,
    ScaleRequest, StrandedList, Submitted, Summary, TenantList, UsageReport,
};

pub use error::{ClientError, why_silent};
pub use filter::{EndedFilter, EvictionFilter, HistoryFilter, JobFilter, UsageFilter};

/// Names the user that sends a request.
const USER_HEADER: &str = "Wharf-User";
/// Where a control plane listens unless told otherwise.
pub const SERVER_DEFAULT: &str = "http://127.0.0.1:8470";
/// A machine that is there answers a connection in far less.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest a whole request may take; the longest list of a large fleet needs a few seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// The longest answer that is read: a list of a million GPUs.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// What every request that changes something has for a type: a browser would ask before it sends it to another site.
const JSON: &str = "application/json";

/// A connection to one control plane.
#[derive(Clone, Debug)]
pub struct Client {
    server: String,
    agent: Agent,
    user: Option<String>,
}

impl Client {
    /// A client of the control plane at `server`, `http://HOST:PORT` or `HOST:PORT`.
    pub fn new(server: &str) -> Result<Self, ClientError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(REQUEST_TIMEOUT))
            // A control plane is asked directly: a proxy for the web knows nothing of it.
            .proxy(None)
            .max_redirects(0)
            .user_agent(concat!("wharf/", env!("CARGO_PKG_VERSION")));
        Ok(Self { server: address(server)?, agent: config.build().new_agent(), user: None })
    }

    /// As this user: a claim that goes with every request that changes something.
    #[must_use]
    pub fn as_user(self, user: Option<String>) -> Self {
        Self { user, ..self }
    }

    /// The address, with its scheme.
    pub fn server(&self) -> &str {
        &self.server
    }

    fn post(&self, url: String) -> RequestBuilder<WithBody> {
        self.signed(self.agent.post(url))
    }

    fn delete(&self, url: String) -> RequestBuilder<WithoutBody> {
        self.signed(self.agent.delete(url))
    }

    /// With who sends it.
    fn signed<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.user {
            Some(user) => request.header(USER_HEADER, user),
            None => request,
        }
    }

    /// Submits a job. The same key makes a repeated request the same request.
    pub fn submit(&self, job: &JobFile, idempotency_key: &str) -> Result<Submitted, ClientError> {
        let request = self.post(self.url("/v1/jobs")).header("Idempotency-Key", idempotency_key);
        self.read(request.content_type(JSON).send(body(job).as_str()))
    }

    /// What would happen to a job if it were submitted now.
    pub fn plan(&self, job: &JobFile) -> Result<PlanView, ClientError> {
        let request = self.post(self.url("/v1/plan"));
        self.read(request.content_type(JSON).send(body(job).as_str()))
    }

    /// Cancels a job, named as `tenant/path/name`, by its bare name, or by its uid.
    pub fn cancel(&self, job: &str) -> Result<JobReply, ClientError> {
        self.read(self.delete(self.job_url(job, "")).call())
    }

    /// Asks a job to save its work, leave and wait again.
    pub fn evict(&self, job: &str) -> Result<JobReply, ClientError> {
        self.read(self.post(self.job_url(job, "/evict")).content_type(JSON).send_empty())
    }

    /// Lets a held job wait for its start again.
    pub fn release(&self, job: &str) -> Result<JobReply, ClientError> {
        self.read(self.post(self.job_url(job, "/release")).content_type(JSON).send_empty())
    }

    /// Lets a job run longer.
    pub fn extend(&self, job: &str, request: &ExtendRequest) -> Result<JobReply, ClientError> {
        let body = serde_json::to_string(request).expect("two strings are always a document");
        let request = self.post(self.job_url(job, "/extend"));
        self.read(request.content_type(JSON).send(body.as_str()))
    }

    /// Wants another number of replicas of a service.
    pub fn scale(&self, job: &str, request: ScaleRequest) -> Result<JobReply, ClientError> {
        let body = serde_json::to_string(&request).expect("a number is always a document");
        let request = self.post(self.job_url(job, "/scale"));
        self.read(request.content_type(JSON).send(body.as_str()))
    }

    /// Wants every replica of a service replaced by a fresh one, or no longer.
    pub fn replace(&self, job: &str, request: ReplaceRequest) -> Result<JobReply, ClientError> {
        let body = serde_json::to_string(&request).expect("numbers are always a document");
        let request = self.post(self.job_url(job, "/replace"));
        self.read(request.content_type(JSON).send(body.as_str()))
    }

    /// Keeps new work off a node.
    pub fn cordon(&self, node: &str, request: &CordonRequest) -> Result<NodeReply, ClientError> {
        let body = serde_json::to_string(request).expect("a string is always a document");
        let request = self.post(self.node_url(node, "cordon"));
        self.read(request.content_type(JSON).send(body.as_str()))
    }

    /// Lets something happen to a simulated fleet.
    pub fn fault(&self, request: &FaultRequest) -> Result<FaultReply, ClientError> {
        let body = serde_json::to_string(request).expect("words and numbers are always a document");
        let request = self.post(self.url("/v1/sim/faults"));
        self.read(request.content_type(JSON).send(body.as_str()))
    }

    /// Lets new work come to a node again.
    pub fn uncordon(&self, node: &str) -> Result<NodeReply, ClientError> {
        self.read(self.delete(self.node_url(node, "cordon")).call())
    }

    /// Empties a node.
    pub fn drain(&self, node: &str, request: &DrainBody) -> Result<NodeReply, ClientError> {
        let body = serde_json::to_string(request).expect("strings are always a document");
        let request = self.post(self.node_url(node, "drain"));
        self.read(request.content_type(JSON).send(body.as_str()))
    }

    /// Empties several nodes, all of which close at once.
    pub fn drain_all(&self, request: &DrainBody) -> Result<NodeList, ClientError> {
        let body = serde_json::to_string(request).expect("strings are always a document");
        self.read(self.post(self.url("/v1/drain")).content_type(JSON).send(body.as_str()))
    }

    /// A node need not be empty any more.
    pub fn undrain(&self, node: &str) -> Result<NodeReply, ClientError> {
        self.read(self.delete(self.node_url(node, "drain")).call())
    }

    /// Plans a downtime.
    pub fn maintain(&self, request: &DowntimeBody) -> Result<DowntimeReply, ClientError> {
        let body = serde_json::to_string(request).expect("strings are always a document");
        let request = self.post(self.url("/v1/maintenance"));
        self.read(request.content_type(JSON).send(body.as_str()))
    }

    /// Downtimes that are to come or last.
    pub fn downtimes(&self) -> Result<DowntimeList, ClientError> {
        self.get("/v1/maintenance")
    }

    /// Calls a downtime off.
    pub fn call_off(&self, name: &str) -> Result<DowntimeReply, ClientError> {
        let url = self.url(&format!("/v1/maintenance/{}", encoded(name)));
        self.read(self.delete(url).call())
    }

    /// Live jobs, all of them: the pages of the list are followed to the end.
    pub fn jobs(&self, filter: &JobFilter) -> Result<JobList, ClientError> {
        let mut list = self.jobs_page(filter, None)?;
        while let Some(token) = list.next.take() {
            let JobList { schema: _, jobs, index: _, term: _, next } =
                self.jobs_page(filter, Some(&token))?;
            list.next = self.onward(&token, next)?;
            list.jobs.extend(jobs);
        }
        Ok(list)
    }

    /// One page of the live jobs: the first, or the one after a page that came with `token`.
    pub fn jobs_page(&self, filter: &JobFilter, token: Option<&str>) -> Result<JobList, ClientError> {
        let JobFilter { tenant, state, submitted_by, labels } = filter;
        let pairs = [
            ("tenant", tenant.as_deref()),
            ("state", state.map(JobState::into_str)),
            ("submitted_by", submitted_by.as_deref()),
            ("labels", labels.as_deref()),
            ("continue", token),
        ];
        self.get(&query("/v1/jobs", &pairs))
    }

    /// What changed from a journal index on, or from now on. Where nothing has, it waits for up to so many seconds.
    pub fn changes(&self, since: Option<Resume>, wait_seconds: u64) -> Result<ChangeList, ClientError> {
        let [index, term] = [since.map(|since| since.index), since.map(|since| since.term)];
        let [index, term] = [index, term].map(|number| number.map(|number| number.to_string()));
        let wait = wait_seconds.to_string();
        let pairs = [("since", index.as_deref()), ("term", term.as_deref()), ("wait", Some(wait.as_str()))];
        self.get(&query("/v1/events", &pairs))
    }

    /// One job.
    pub fn job(&self, job: &str) -> Result<JobReply, ClientError> {
        self.read(self.agent.get(self.job_url(job, "")).call())
    }

    /// An array with all of its members, those that are over too.
    pub fn array(&self, array: &str) -> Result<ArrayReply, ClientError> {
        self.get(&format!("/v1/arrays/{}", encoded(array)))
    }

    /// Why a job is where it is.
    pub fn explain(&self, job: &str) -> Result<Explanation, ClientError> {
        self.read(self.agent.get(self.job_url(job, "/explain")).call())
    }

    /// The nodes of the fleet, all of them.
    pub fn nodes(&self) -> Result<NodeList, ClientError> {
        let page = |token: Option<&str>| self.get(&query("/v1/nodes", &[("continue", token)]));
        let mut list: NodeList = page(None)?;
        while let Some(token) = list.next.take() {
            let NodeList { schema: _, nodes, index: _, term: _, next } = page(Some(&token))?;
            list.next = self.onward(&token, next)?;
            list.nodes.extend(nodes);
        }
        Ok(list)
    }

    /// The GPUs of the fleet, all of them.
    pub fn gpus(&self) -> Result<GpuList, ClientError> {
        let page = |token: Option<&str>| self.get(&query("/v1/gpus", &[("continue", token)]));
        let mut list: GpuList = page(None)?;
        while let Some(token) = list.next.take() {
            let GpuList { schema: _, gpus, index: _, term: _, next } = page(Some(&token))?;
            list.next = self.onward(&token, next)?;
            list.gpus.extend(gpus);
        }
        Ok(list)
    }

    /// The token of the page after next. One that leads back to where it came from would be followed for ever.
    fn onward(&self, token: &str, next: Option<String>) -> Result<Option<String>, ClientError> {
        if next.as_deref() == Some(token) {
            return Err(self.strange(format!("the list does not go on after {token:?}")));
        }
        Ok(next)
    }

    /// What is free and of no use to whoever waits or usually comes.
    pub fn stranded(&self) -> Result<StrandedList, ClientError> {
        self.get("/v1/stranded")
    }

    /// Starts that are promised to jobs that wait.
    pub fn reservations(&self) -> Result<ReservationList, ClientError> {
        self.get("/v1/reservations")
    }

    /// Books a window.
    pub fn book(&self, booking: &BookingFile) -> Result<Booked, ClientError> {
        let request = self.post(self.url("/v1/bookings"));
        let body = serde_json::to_string(booking).expect("a booking is always a document");
        self.read(request.content_type(JSON).send(body.as_str()))
    }

    /// Windows that are booked and not over.
    pub fn bookings(&self) -> Result<BookingList, ClientError> {
        self.get("/v1/bookings")
    }

    /// One booking.
    pub fn booking(&self, name: &str) -> Result<BookingReply, ClientError> {
        self.read(self.agent.get(self.booking_url(name)).call())
    }

    /// Gives a booking up.
    pub fn unbook(&self, name: &str) -> Result<BookingReply, ClientError> {
        self.read(self.delete(self.booking_url(name)).call())
    }

    /// The tenant tree.
    pub fn tenants(&self) -> Result<TenantList, ClientError> {
        self.get("/v1/tenants")
    }

    /// The whole fleet on one page.
    pub fn summary(&self) -> Result<Summary, ClientError> {
        self.get("/v1/summary")
    }

    /// What is over, newest first.
    pub fn history(&self, filter: &HistoryFilter) -> Result<HistoryList, ClientError> {
        let HistoryFilter { kind, tenant, name, limit } = filter;
        let limit = limit.map(|limit| limit.to_string());
        let pairs = [
            ("kind", kind.map(HistoryKind::into_str)),
            ("tenant", tenant.as_deref()),
            ("name", name.as_deref()),
            ("limit", limit.as_deref()),
        ];
        self.get(&query("/v1/history", &pairs))
    }

    /// Jobs that are over, newest first.
    pub fn ended(&self, filter: &EndedFilter) -> Result<EndedList, ClientError> {
        let EndedFilter { tenant, state, name, submitted_by, labels, limit, before } = filter;
        let (limit, before) = (limit.map(|limit| limit.to_string()), before.map(|before| before.to_string()));
        let pairs = [
            ("tenant", tenant.as_deref()),
            ("state", state.map(EndedState::into_str)),
            ("name", name.as_deref()),
            ("submitted_by", submitted_by.as_deref()),
            ("labels", labels.as_deref()),
            ("limit", limit.as_deref()),
            ("before", before.as_deref()),
        ];
        self.get(&query("/v1/ended", &pairs))
    }

    /// The life of the newest job of that name that is over; named as a live one is.
    pub fn ended_job(&self, job: &str) -> Result<EndedReply, ClientError> {
        self.get(&format!("/v1/ended/{}", encoded(job)))
    }

    /// GPU time of a window.
    pub fn usage(&self, filter: &UsageFilter) -> Result<UsageReport, ClientError> {
        let UsageFilter { since, until, by, tenant } = filter;
        let pairs = [
            ("since", since.as_deref()),
            ("until", until.as_deref()),
            ("by", by.as_deref()),
            ("tenant", tenant.as_deref()),
        ];
        self.get(&query("/v1/usage", &pairs))
    }

    /// Who had to leave for whom, newest first.
    pub fn evictions(&self, filter: &EvictionFilter) -> Result<EvictionList, ClientError> {
        let EvictionFilter { tenant, job, limit } = filter;
        let limit = limit.map(|limit| limit.to_string());
        let pairs = [("tenant", tenant.as_deref()), ("job", job.as_deref()), ("limit", limit.as_deref())];
        self.get(&query("/v1/evictions", &pairs))
    }

    /// Why somebody had to leave.
    pub fn eviction(&self, id: u64) -> Result<EvictionReply, ClientError> {
        self.get(&format!("/v1/evictions/{id}"))
    }

    /// The policy in force.
    pub fn policy(&self) -> Result<PolicyView, ClientError> {
        self.get("/v1/policy")
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server)
    }

    fn job_url(&self, job: &str, rest: &str) -> String {
        self.url(&format!("/v1/jobs/{}{rest}", encoded(job)))
    }

    fn node_url(&self, node: &str, lever: &str) -> String {
        self.url(&format!("/v1/nodes/{}/{lever}", encoded(node)))
    }

    fn booking_url(&self, name: &str) -> String {
        self.url(&format!("/v1/bookings/{}", encoded(name)))
    }

    fn get<A: Answer>(&self, path: &str) -> Result<A, ClientError> {
        self.read(self.agent.get(self.url(path)).call())
    }

    fn read<A: Answer>(&self, response: Result<Response<Body>, ureq::Error>) -> Result<A, ClientError> {
        let mut response = response.map_err(|error| self.no_answer(error))?;
        let status = response.status();
        let bytes = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let bytes = bytes.map_err(|error| self.no_answer(error))?;
        if !status.is_success() {
            return Err(match serde_json::from_slice(&bytes) {
                Ok(problem) => ClientError::Problem(Box::new(problem)),
                Err(_) => self.strange(format!("status {status}, without a problem that says why")),
            });
        }
        let json: Json =
            serde_json::from_slice(&bytes).map_err(|_| self.strange("the answer is not JSON".to_owned()))?;
        let form = json.get("schema").and_then(Json::as_str).unwrap_or("nothing at all").to_owned();
        if form != A::SCHEMA {
            return Err(self.strange(format!("it sent {form:?}, expected was {:?}", A::SCHEMA)));
        }
        serde_json::from_value(json)
            .map_err(|_| self.strange(format!("its {form} is not as this version knows it")))
    }

    /// The request did not come to an answer: because nobody is there, or because it is somebody else.
    fn no_answer(&self, error: ureq::Error) -> ClientError {
        match error {
            ureq::Error::Io(_)
            | ureq::Error::Timeout(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed => {
                ClientError::Unreachable { server: self.server.clone(), source: Box::new(error) }
            }
            ureq::Error::BodyExceedsLimit(_) => {
                self.strange("its answer is larger than any of ours".to_owned())
            }
            _ => self.strange("it does not speak HTTP as we know it".to_owned()),
        }
    }

    fn strange(&self, what: String) -> ClientError {
        ClientError::Protocol { server: self.server.clone(), what }
    }
}

/// The address with scheme and without a slash at its end.
fn address(server: &str) -> Result<String, ClientError> {
    let wrong = |what: &'static str| ClientError::Address { server: server.to_owned(), what };
    let given = server.trim();
    let full = if given.contains("://") { given.to_owned() } else { format!("http://{given}") };
    let uri: Uri = full.parse().map_err(|_| wrong("it cannot be read"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err(wrong("encrypted connections are not supported yet")),
        Some(_) | None => return Err(wrong("the scheme is not http")),
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Err(wrong("there is more than host and port"));
    }
    let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
        return Err(wrong("the host is missing"));
    };
    let (_, after_host) = authority.as_str().rsplit_once(authority.host()).unwrap_or_default();
    if !after_host.is_empty() && authority.port_u16().is_none() {
        return Err(wrong("the port is not a number up to 65535"));
    }
    Ok(format!("http://{authority}"))
}

fn body(job: &JobFile) -> String {
    serde_json::to_string(job).expect("a job is always a document")
}

fn query(path: &str, pairs: &[(&str, Option<&str>)]) -> String {
    let given = pairs.iter().filter_map(|(key, value)| Some(format!("{key}={}", encoded((*value)?))));
    let given: Vec<String> = given.collect();
    if given.is_empty() { path.to_owned() } else { format!("{path}?{}", given.join("&")) }
}

/// One segment of a path or value of a query: everything but letters, digits and `-._~` becomes `%XX`.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_named_by_its_path_is_one_segment() {
        let client = Client::new("localhost:8470/").unwrap();
        assert_eq!(
            client.job_url("lab/nlp/a b", "/evict"),
            "http://localhost:8470/v1/jobs/lab%2Fnlp%2Fa%20b/evict"
        );
        assert_eq!(encoded("é?#&=%"), "%C3%A9%3F%23%26%3D%25");
    }

    #[test]
    fn a_filter_becomes_a_query_only_where_it_says_something() {
        assert_eq!(query("/v1/jobs", &[("tenant", None), ("state", None)]), "/v1/jobs");
        assert_eq!(
            query("/v1/jobs", &[("tenant", Some("a/b")), ("state", Some("x"))]),
            "/v1/jobs?tenant=a%2Fb&state=x"
        );
    }

    #[test]
    fn an_address_that_makes_no_sense_is_a_usage_error() {
        for wrong in [
            "",
            "https://host:1",
            "ftp://host",
            "http://host/path",
            "http://ho st",
            "http://",
            "host:99999999",
        ] {
            let error = Client::new(wrong).expect_err(wrong);
            assert_eq!(error.exit_code(), 64, "{wrong:?}: {error}");
            assert!(error.to_string().contains(SERVER_DEFAULT), "{error}");
        }
        assert_eq!(Client::new(SERVER_DEFAULT).unwrap().server(), SERVER_DEFAULT);
    }
}
