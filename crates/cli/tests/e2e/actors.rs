//! Who did it: from the command line and from a bare request, through the journal and a crash, to receipts and history.

use crate::drains::text;
use crate::server::{Server, eventually};

/// A request with these further lines of a head.
fn request(server: &Server, line: &str, further: &str, body: &str) -> String {
    let further = format!("content-type: application/json\r\n{further}");
    crate::abuse::request(server, line, &further, body)
}

fn rows(server: &Server, kind: &str, name: &str) -> Vec<serde_json::Value> {
    let answer = server.json(&["get", "history", "--kind", kind, "--name", name]);
    answer["rows"].as_array().unwrap().clone()
}

#[test]
fn who_pulled_a_lever_is_told_by_receipts_and_history_and_survives_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--speed", "100"]);
    text(&server, &["submit", "--name", "train", "--tenant", "lab/nlp", "--gpus", "8"]);
    eventually("it runs", || (server.json(&["get", "jobs"])["jobs"][0]["running_tasks"] == 1).then_some(()));
    let told = text(&server, &["cordon", "n2", "--reason", "fans"]);
    assert!(told.contains("\nby: tester (unverified)\nundo: wharf uncordon n2\n"), "{told}");
    let explained = text(&server, &["explain", "node/n2"]);
    assert!(explained.contains("cordon  by tester: fans"), "{explained}");
    let told = text(&server, &["cancel", "train"]);
    assert!(told.ends_with("\nby: tester (unverified)\n"), "{told}");
    server.kill();
    let server = Server::start(&data, &["--speed", "100"]);
    let audit = text(&server, &["get", "history", "--kind", "audit", "--name", "node/n2"]);
    assert!(audit.contains("tester (unverified)") && audit.contains("cordoned reason=fans"), "{audit}");
    let policy = &rows(&server, "audit", "policy")[0];
    assert_eq!(policy["actor"]["source"], "policy_file", "{policy}");
    let changes = eventually("what it held is told", || {
        let rows = rows(&server, "allocation", "train");
        (rows.len() == 2).then_some(rows)
    });
    let told: Vec<(&str, &str)> = changes
        .iter()
        .map(|row| (row["body"]["change"].as_str().unwrap(), row["actor"]["source"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("stop", "world"), ("start", "engine")]);
    assert_eq!(changes[1]["body"]["gpus"][0]["gpu_parts"], 24_000);
}

#[test]
fn a_request_that_names_nobody_is_anonymous_and_a_body_names_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let drain = "POST /v1/nodes/n1/drain";
    let answer = request(&server, drain, "", r#"{"by": "eve"}"#);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("by"), "{answer}");
    let answer = request(&server, drain, "", "{}");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#""by":"anonymous""#), "{answer}");
    let both = "Wharf-User: bot\r\nWharf-On-Behalf-Of: ada\r\n";
    let answer = request(&server, "DELETE /v1/nodes/n1/drain", both, "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let row = &rows(&server, "audit", "node/n1")[0];
    assert_eq!(row["body"]["what"], "undrained");
    let actor = &row["actor"];
    assert_eq!((&actor["name"], &actor["on_behalf_of"]), (&"bot".into(), &"ada".into()), "{row}");
    assert_eq!(actor["verified"], false);
    let answer = request(&server, drain, "Wharf-User: a b\r\n", "{}");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("wharf-user has 1 to 64"), "{answer}");
}
