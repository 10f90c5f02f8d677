//! What a web page of another site can make a browser on this machine send: none of it does anything.

use crate::abuse::{request, send};
use crate::server::Server;

const JOB: &str = r#"{"name":"x","tenant":"lab/nlp","gpus":1}"#;
const JSON: &str = "content-type: application/json\r\n";

fn live_jobs(server: &Server) -> usize {
    server.json(&["get", "jobs"])["jobs"].as_array().unwrap().len()
}

fn refused(answer: &str, status: u16, code: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    assert!(answer.contains("application/problem+json"), "{answer}");
    assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{answer}");
}

#[test]
fn a_body_that_a_page_may_send_without_asking_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    for kind in [
        "",
        "content-type: text/plain\r\n",
        "content-type: text/plain; application/json\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
        "content-type: multipart/form-data; boundary=application/json\r\n",
        "content-type: application/jsonp\r\n",
    ] {
        refused(&request(&server, "POST /v1/jobs", kind, JOB), 415, "unsupported_media_type");
        refused(&request(&server, "POST /v1/nodes/n1/cordon", kind, ""), 415, "unsupported_media_type");
    }
    assert_eq!(live_jobs(&server), 0);
    for kind in ["application/json; charset=utf-8", "application/yaml", "Application/X-YAML"] {
        let name = kind.len();
        let job = format!("{{name: job-{name}, tenant: lab/nlp, gpus: 1}}");
        let answer = request(&server, "POST /v1/jobs", &format!("content-type: {kind}\r\n"), &job);
        assert!(answer.starts_with("HTTP/1.1 201"), "{kind} got {answer}");
    }
}

#[test]
fn a_page_of_another_site_is_refused_whatever_it_asks() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let own = format!("origin: http://{}\r\n", server.host());
    for foreign in [
        "origin: http://evil.example\r\n",
        "origin: null\r\n",
        "origin: http://localhost:3000\r\n",
        "sec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-site\r\n",
        &format!("{own}sec-fetch-site: cross-site\r\n"),
    ] {
        for line in ["POST /v1/jobs", "GET /v1/jobs", "DELETE /v1/jobs/x", "GET /metrics"] {
            let body = if line.starts_with("POST") { JOB } else { "" };
            let answer = request(&server, line, &format!("{JSON}{foreign}"), body);
            refused(&answer, 403, "foreign_origin");
            assert!(!answer.to_lowercase().contains("access-control-allow"), "{answer}");
        }
    }
    assert_eq!(live_jobs(&server), 0);
    let ours = request(&server, "POST /v1/jobs", &format!("{JSON}{own}sec-fetch-site: same-origin\r\n"), JOB);
    assert!(ours.starts_with("HTTP/1.1 201"), "a page of our own may: {ours}");
    let preflight = request(&server, "OPTIONS /v1/jobs", "origin: http://evil.example\r\n", "");
    assert!(!preflight.starts_with("HTTP/1.1 2"), "{preflight}");
}

#[test]
fn a_name_that_was_bent_to_our_address_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--allow-host", "gpus.example.org"]);
    let port = server.host().rsplit_once(':').unwrap().1.to_owned();
    let ask = |host: &str, line: &str| {
        let head = format!("{line} HTTP/1.1\r\n{host}connection: close\r\n{JSON}content-length: 0\r\n\r\n");
        send(&server, head.as_bytes())
    };
    for foreign in ["evil.example", "0.0.0.0", "127.0.0.1.evil.example", "10.9.8.7"] {
        for line in ["GET /v1/jobs", "DELETE /v1/jobs/x", "POST /v1/nodes/n1/cordon", "GET /healthz"] {
            let answer = ask(&format!("host: {foreign}:{port}\r\n"), line);
            refused(&answer, 421, "foreign_host");
            assert!(answer.contains(&format!("--allow-host {foreign}")), "{answer}");
        }
        refused(&ask("host: localhost\r\n", &format!("GET http://{foreign}/v1/jobs")), 421, "foreign_host");
    }
    for own in ["127.0.0.1", "localhost", "LocalHost", "gpus.example.org", "[::1]"] {
        let answer = ask(&format!("host: {own}:{port}\r\n"), "GET /v1/jobs");
        assert!(answer.starts_with("HTTP/1.1 200"), "{own} got {answer}");
    }
    refused(&ask("", "GET /v1/jobs"), 400, "bad_request");
    refused(&ask("host: localhost\r\nhost: evil.example\r\n", "GET /v1/jobs"), 400, "bad_request");
    let old = send(&server, b"GET /healthz HTTP/1.0\r\n\r\n");
    assert!(old.starts_with("HTTP/1.") && old.contains(" 200 OK"), "a probe without a name: {old}");
}

#[test]
fn an_open_door_is_announced() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--listen", "0.0.0.0:0"]);
    assert!(
        server.address.starts_with("http://127.0.0.1:"),
        "an address that clients can use: {}",
        server.address
    );
    assert!(server.run(&["get", "nodes"]).status.success());
    let said = server.stop_and_hear();
    assert!(said.contains("there is no authentication yet"), "{said}");
    let wrong = crate::server::wharf().args(["up", "--allow-host", "http://x:1"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("without scheme and port"));
}
