//! What strangers send: malformed HTTP, bodies without end, slow clients, full queues.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::server::{Server, eventually};

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.host()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

pub(crate) fn send(server: &Server, request: &[u8]) -> String {
    let mut stream = connect(server);
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A request with the server's own address as its host, JSON as its type, and further lines of a head.
pub(crate) fn request(server: &Server, line: &str, further: &str, body: &str) -> String {
    let (host, length) = (server.host(), body.len());
    let head =
        format!("{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n");
    send(server, format!("{head}{further}\r\n{body}").as_bytes())
}

pub(crate) fn get(server: &Server, path: &str) -> String {
    request(server, &format!("GET {path}"), "", "")
}

fn alive(server: &Server) -> bool {
    get(server, "/healthz").starts_with("HTTP/1.1 200")
}

fn post(server: &Server, body: &str) -> String {
    request(server, "POST /v1/jobs", "content-type: application/json\r\n", body)
}

/// What is refused, by whichever part of the server, says what it is.
#[test]
fn malformed_requests_get_a_problem_or_a_closed_door() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let host = server.host();
    let typed = format!("host: {host}\r\ncontent-type: application/json\r\n");
    let long = "a".repeat(70_000);
    let fields = (0..200).map(|number| format!("x-{number}: y\r\n")).collect::<Vec<_>>().concat();
    for (garbage, code) in [
        ("\u{16}\u{3}\u{1}\u{2}\0\r\n\r\n".to_owned(), "bad_request"),
        ("GET\r\n\r\n".to_owned(), "bad_request"),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), "bad_request"),
        (format!("POST /v1/jobs HTTP/1.1\r\n{typed}content-length: -1\r\n\r\n"), "bad_request"),
        (
            format!("POST /v1/jobs HTTP/1.1\r\n{typed}transfer-encoding: chunked\r\n\r\nzz\r\n"),
            "a chunk of it is not as its transfer coding says",
        ),
        (format!("GET /v1/jobs?state=confused HTTP/1.1\r\nhost: {host}\r\n\r\n"), "bad_request"),
        (format!("DELETE /v1/nodes HTTP/1.1\r\nhost: {host}\r\n\r\n"), "method_not_allowed"),
        (format!("GET /v1/jobs/%ff%fe HTTP/1.1\r\nhost: {host}\r\n\r\n"), "the path of the URL is not UTF-8"),
        (format!("GET /v1/evictions/-1 HTTP/1.1\r\nhost: {host}\r\n\r\n"), "bad_request"),
        (format!("GET /v1/evictions?limit=-1 HTTP/1.1\r\nhost: {host}\r\n\r\n"), "limit"),
        (format!("GET /nowhere HTTP/1.1\r\nhost: {host}\r\n\r\n"), "not_found"),
        (format!("GET /{long} HTTP/1.1\r\nhost: {host}\r\n\r\n"), "uri_too_long"),
        (format!("GET / HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n"), "head_too_large"),
        (format!("GET / HTTP/1.1\r\nhost: {host}\r\nx: {}\r\n\r\n", long.repeat(6)), "head_too_large"),
    ] {
        let garbage = garbage.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        let start: String = garbage.chars().take(60).collect();
        let answer = send(&server, garbage.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 4") && answer.contains(code), "{start:?} got {answer}");
        assert!(answer.contains("application/problem+json"), "{start:?} got {answer}");
        assert!(alive(&server));
    }
    let endless = format!("GET /{} HTTP/1.1\r\nhost: {host}\r\n\r\n", "a".repeat(1 << 20));
    assert!(!send(&server, endless.as_bytes()).starts_with("HTTP/1.1 2"));
    assert!(alive(&server));
}

#[test]
fn problems_are_problem_json_with_a_code() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    for (body, status, code) in [
        ("{", 400, "bad_request"),
        ("", 400, "bad_request"),
        (r#"{"name":"x","tenant":"lab/nlp","gpus":-1}"#, 400, "bad_request"),
        (r#"{"name":"x","tenant":"lab/nope","gpus":1}"#, 404, "unknown_tenant"),
        (r#"{"name":"x","tenant":"lab/nlp","gpus":16}"#, 422, "never"),
    ] {
        let answer = post(&server, body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{body} got {answer}");
        assert!(answer.contains("application/problem+json") && answer.contains(code), "{body} got {answer}");
    }
}

#[test]
fn a_body_without_end_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let typed = format!("host: {}\r\ncontent-type: application/json\r\n", server.host());
    let head = format!("POST /v1/jobs HTTP/1.1\r\n{typed}content-length: 99999999999\r\n\r\n");
    assert!(send(&server, head.as_bytes()).starts_with("HTTP/1.1 413"));
    let big = post(&server, &format!("name: {}", "x".repeat(2 << 20)));
    assert!(big.is_empty() || big.starts_with("HTTP/1.1 413"), "{big}");
    assert!(alive(&server));
}

#[test]
fn slow_clients_are_cut_off_and_hold_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let mut slow: Vec<TcpStream> = (0..50).map(|_| connect(&server)).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /v1/jobs HT").unwrap();
    }
    let begin = Instant::now();
    assert!(alive(&server));
    assert!(begin.elapsed() < Duration::from_secs(2), "others are served at once");
    let mut rest = Vec::new();
    let _ = slow[0].read_to_end(&mut rest);
    assert!(begin.elapsed() < Duration::from_secs(20), "the slow one is cut off");
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("policy");
    std::fs::create_dir_all(&policy).unwrap();
    std::fs::write(policy.join("tenants.yaml"), "tenants: {lab: {guaranteed: 32}}\n").unwrap();
    std::fs::write(policy.join("queue.yaml"), "max: 3\n").unwrap();
    let server = Server::start(&dir.path().join("data"), &["--policy", policy.to_str().unwrap()]);
    let job = |number: u32| format!("{{\"name\":\"j{number}\",\"tenant\":\"lab\",\"gpus\":8,\"tasks\":4}}");
    for number in 0..4 {
        assert!(post(&server, &job(number)).starts_with("HTTP/1.1 201"), "one runs and three wait");
    }
    let full = post(&server, &job(4));
    assert!(full.starts_with("HTTP/1.1 429"), "{full}");
    assert!(full.to_lowercase().contains("retry-after: 5"), "{full}");
    assert!(full.contains("queue_full"), "{full}");
}

#[test]
fn the_same_key_is_the_same_job() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--speed", "100"]);
    let job = ["submit", "--tenant", "lab/nlp", "--gpus", "1", "--name", "once", "--idempotency-key", "k"];
    let first = server.json(&job);
    let again = server.json(&job);
    assert_eq!((&first["created"], &again["created"]), (&true.into(), &false.into()));
    assert_eq!(first["job"]["uid"], again["job"]["uid"]);
    let other = ["submit", "--tenant", "lab/nlp", "--gpus", "2", "--name", "twice", "--idempotency-key", "k"];
    assert_eq!(server.run(&other).status.code(), Some(5), "another job under the same key");
}

#[test]
fn numbers_without_bounds_stop_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--speed", "100000"]);
    let payload = r#"{\"duration_ms\":18446744073709551615,\"checkpoint_ms\":18446744073709551615}"#;
    let job = format!(r#"{{"name":"endless","tenant":"lab/nlp","gpus":1,"payload":"{payload}"}}"#);
    assert!(post(&server, &job).starts_with("HTTP/1.1 201"));
    for number in 0..600 {
        let job = format!(
            r#"{{"name":"m{number}","tenant":"lab/nlp","gpus":0,"tasks":16384,"min":1,"memory":"2TiB"}}"#
        );
        assert!(
            post(&server, &job).starts_with("HTTP/1.1 201"),
            "demand adds up to more than 64 bits of bytes"
        );
    }
    assert!(alive(&server));
    assert!(server.run(&["get", "tenants"]).status.success());
    let metrics = get(&server, "/metrics");
    assert!(metrics.contains("wharf_plan_panics_total 0"), "{metrics}");
    server.kill();
    assert!(alive(&Server::start(dir.path(), &[])));
}

/// Seen before: clients that do not read held every connection and two gigabytes for as long as they liked.
#[test]
fn clients_that_do_not_read_leave_room_for_the_question_whether_we_live() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--fleet", "giant"]);
    let host = server.host();
    // A list of 100,000 GPUs is far longer than what the system buffers.
    let ask = format!("GET /v1/gpus HTTP/1.1\r\nhost: {host}\r\n\r\n");
    let stalled: Vec<TcpStream> = (0..600)
        .map(|_| {
            let mut stream = connect(&server);
            let _ = stream.write_all(ask.as_bytes());
            stream
        })
        .collect();
    for _ in 0..5 {
        let begin = Instant::now();
        assert!(alive(&server));
        assert!(get(&server, "/readyz").starts_with("HTTP/1.1 200"));
        assert!(begin.elapsed() < Duration::from_secs(2), "took {:?}", begin.elapsed());
    }
    let refused = get(&server, "/v1/summary");
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("too_many_connections"), "{refused}");
    assert!(refused.to_lowercase().contains("retry-after: 1"), "{refused}");
    drop(stalled);
    eventually("a client that comes after them is served", || {
        get(&server, "/v1/policy").starts_with("HTTP/1.1 200").then_some(())
    });
}

/// Seen before: 1,050 jobs with a payload of a megabyte made 1.2 GB of memory, and a control plane that did not start again.
#[test]
fn the_text_of_jobs_is_bounded_one_by_one_and_together() {
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("policy");
    std::fs::create_dir_all(&policy).unwrap();
    std::fs::write(policy.join("tenants.yaml"), "tenants: {a: {guaranteed: 8}, b: {guaranteed: 8}}\n")
        .unwrap();
    std::fs::write(policy.join("queue.yaml"), "bytes_max: {job: 100KiB, tenant: 250KiB, all: 350KiB}\n")
        .unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--policy", policy.to_str().unwrap()]);
    let job = |tenant: &str, name: &str, bytes: usize| {
        let payload = "x".repeat(bytes);
        format!(
            "{{\"name\":\"{name}\",\"tenant\":\"{tenant}\",\"gpus\":8,\"tasks\":4,\"payload\":\"{payload}\"}}"
        )
    };
    let large = post(&server, &job("a", "large", 110 << 10));
    assert!(large.starts_with("HTTP/1.1 413") && large.contains("at most 102400"), "{large}");
    for number in 0..3 {
        let fits = post(&server, &job("a", &format!("j{number}"), 80 << 10));
        assert!(fits.starts_with("HTTP/1.1 201"), "{fits}");
    }
    let full = post(&server, &job("a", "j3", 80 << 10));
    assert!(full.starts_with("HTTP/1.1 429") && full.contains("queue_bytes_full"), "{full}");
    assert!(
        full.contains("the live jobs of a have 245766 bytes") && full.contains("the 256000 that"),
        "{full}"
    );
    assert!(full.to_lowercase().contains("retry-after: 5"), "{full}");
    assert!(
        post(&server, &job("b", "k0", 80 << 10)).starts_with("HTTP/1.1 201"),
        "the other has room of its own"
    );
    let all = post(&server, &job("b", "k1", 80 << 10));
    assert!(all.starts_with("HTTP/1.1 429") && all.contains("all tenants"), "{all}");
    // What is counted survives a restart, and is given back.
    server.kill();
    let server = Server::start(&data, &["--policy", policy.to_str().unwrap()]);
    assert!(post(&server, &job("a", "j3", 80 << 10)).starts_with("HTTP/1.1 429"));
    assert!(server.run(&["cancel", "j2"]).status.success());
    assert!(post(&server, &job("a", "j3", 80 << 10)).starts_with("HTTP/1.1 201"));
}
