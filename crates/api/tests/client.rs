//! The client against a real listener on the loopback: right answers, refusals, garbage and silence.

#![expect(clippy::unwrap_used, reason = "clippy does not see that the functions around tests are tests too")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread::{self, JoinHandle};

use wharf_api::client::{Client, ClientError, HistoryFilter, JobFilter};
use wharf_api::file::job::{JobFile, parse_job};
use wharf_api::v1::{Code, CordonRequest, HistoryKind, JobState, Problem};

/// A server that takes one request, answers with `answer` and hands the request over.
fn server(answer: impl Into<Vec<u8>>) -> (Client, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let answer = answer.into();
    let handle = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut chunk = [0; 4096];
        while !complete(&request) {
            let count = stream.read(&mut chunk).unwrap();
            assert!(count > 0, "the client sends whole requests");
            request.extend_from_slice(&chunk[..count]);
        }
        // A client that has seen enough may hang up while garbage is still being sent.
        let _ = stream.write_all(&answer);
        let _ = stream.shutdown(Shutdown::Both);
        String::from_utf8(request).unwrap()
    });
    (client, handle)
}

/// True when head and body of a request are there.
fn complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn http(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn job() -> JobFile {
    parse_job("job.yaml", "name: a\ntenant: lab/nlp\ngpus: 0.25\n").unwrap()
}

const JOB: &str = r#"{"uid": "00", "name": "a", "tenant": "lab/nlp", "class": "batch", "priority": 0, "tasks": 1,
    "min": 1, "gpus_per_task": 0.25, "state": "waiting", "verdict": {"verdict": "waits", "reason": "no_gpu",
    "text": "t", "need": 1, "have": 0.5, "ahead": null, "policy_version": 1, "basis": 7}, "submitted_at_ms": 5,
    "first_start_ms": null, "running_tasks": 0, "placements": [], "attempts": 0, "evictions": 0, "failures": 0}"#;

#[test]
fn a_submission_carries_the_job_and_its_key() {
    let body = format!(r#"{{"schema": "wharf.v1.submitted", "job": {JOB}, "created": true, "later": 1}}"#);
    let (client, handle) = server(http("201 Created", &body));
    let submitted = client.submit(&job(), "key-1").unwrap();
    assert!(submitted.created);
    assert_eq!((submitted.job.state, submitted.job.verdict.have), (JobState::Waiting, Some(0.5)));
    let request = handle.join().unwrap();
    assert!(request.starts_with("POST /v1/jobs HTTP/1.1\r\n"), "{request}");
    assert!(request.to_ascii_lowercase().contains("idempotency-key: key-1\r\n"), "{request}");
    let sent = request.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(parse_job("sent", sent).unwrap(), job());
}

#[test]
fn every_call_has_its_method_and_path() {
    type Call = fn(&Client) -> Result<(), ClientError>;
    let calls: [(&str, Call); 15] = [
        ("POST /v1/plan", |client| client.plan(&job()).map(drop)),
        ("DELETE /v1/jobs/lab%2Fnlp%2Fa", |client| client.cancel("lab/nlp/a").map(drop)),
        ("POST /v1/jobs/a/evict", |client| client.evict("a").map(drop)),
        ("POST /v1/nodes/n1/cordon", |client| client.cordon("n1", &CordonRequest::default()).map(drop)),
        ("DELETE /v1/nodes/n1/cordon", |client| client.uncordon("n1").map(drop)),
        ("GET /v1/jobs?tenant=lab&state=running", |client| {
            let filter = JobFilter {
                tenant: Some("lab".into()),
                state: Some(JobState::Running),
                ..JobFilter::default()
            };
            client.jobs(&filter).map(drop)
        }),
        ("GET /v1/jobs/a", |client| client.job("a").map(drop)),
        ("GET /v1/jobs/a/explain", |client| client.explain("a").map(drop)),
        ("GET /v1/nodes", |client| client.nodes().map(drop)),
        ("GET /v1/gpus", |client| client.gpus().map(drop)),
        ("GET /v1/stranded", |client| client.stranded().map(drop)),
        ("GET /v1/tenants", |client| client.tenants().map(drop)),
        ("GET /v1/summary", |client| client.summary().map(drop)),
        ("GET /v1/history?kind=receipt&limit=5", |client| {
            let filter = HistoryFilter {
                kind: Some(HistoryKind::Receipt),
                limit: Some(5),
                ..HistoryFilter::default()
            };
            client.history(&filter).map(drop)
        }),
        ("GET /v1/policy", |client| client.policy().map(drop)),
    ];
    let refusal = serde_json::to_string(&Problem::new(Code::NotFound, "nothing here")).unwrap();
    for (line, call) in calls {
        let (client, handle) = server(http("404 Not Found", &refusal));
        let error = call(&client).expect_err(line);
        assert_eq!(error.exit_code(), 4, "{line}: {error}");
        let request = handle.join().unwrap();
        assert!(request.starts_with(&format!("{line} HTTP/1.1\r\n")), "{line}: {request}");
        let typed = request.to_ascii_lowercase().contains("content-type: application/json\r\n");
        assert_eq!(typed, line.starts_with("POST"), "{line}: {request}");
    }
}

#[test]
fn a_refusal_arrives_as_it_was_meant() {
    let problem = Problem::new(Code::QueueFull, "10000 jobs wait").retry_after_ms(1500);
    let (client, handle) = server(http("429 Too Many Requests", &serde_json::to_string(&problem).unwrap()));
    match client.submit(&job(), "k") {
        Err(ClientError::Problem(given)) => assert_eq!(*given, problem),
        other => panic!("{other:?}"),
    }
    handle.join().unwrap();
}

#[test]
fn garbage_is_not_taken_for_an_answer() {
    let many = "x".repeat(100_000);
    for answer in [
        "SSH-2.0-OpenSSH_9.6\r\n".to_owned(),
        many,
        http("200 OK", "<html>It works!</html>"),
        http("200 OK", ""),
        http("200 OK", "[]"),
        http("200 OK", r#"{"schema": "wharf.v2.nodes", "nodes": []}"#),
        http("200 OK", r#"{"schema": "wharf.v1.nodes", "nodes": [{"name": 3}]}"#),
        http("500 Internal Server Error", "oops"),
        http("404 Not Found", r#"{"error": "nope"}"#),
        http("302 Found", ""),
    ] {
        let (client, handle) = server(answer.clone());
        let error = client.nodes().expect_err(&answer);
        let start: String = answer.chars().take(60).collect();
        assert!(matches!(error, ClientError::Protocol { .. }), "{start:?} gave {error:?}");
        assert_eq!(error.exit_code(), 69, "{start:?}");
        assert!(error.to_string().starts_with(client.server()), "{error}");
        handle.join().unwrap();
    }
}

#[test]
fn an_answer_that_breaks_off_is_no_answer() {
    let whole = http("200 OK", r#"{"schema": "wharf.v1.nodes", "nodes": []}"#);
    for end in [0, 5, 20, whole.len() - 1] {
        let (client, handle) = server(&whole.as_bytes()[..end]);
        let error = client.nodes().expect_err("a broken answer");
        assert_eq!(error.exit_code(), 69, "cut at {end}: {error}");
        handle.join().unwrap();
    }
}

#[test]
fn nobody_there_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = Client::new(&address).unwrap().summary().expect_err("nobody listens");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
    assert_eq!(error.exit_code(), 69);
    assert!(error.to_string().contains("wharf up"), "{error}");
}
