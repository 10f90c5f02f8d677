//! What people see of promised starts: by when, where, for whom they wait, what became of earlier ones, and who is in the way
//! where none can be promised.

use std::path::Path;

use serde_json::{Value, json};

use crate::server::{Server, eventually};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Four jobs of `lab/nlp` fill the 32 GPUs of the fleet, a node each; `rest` is what else each says.
fn filled(dir: &Path, rest: &str) -> Server {
    let server = Server::start(&dir.join("data"), &[]);
    for number in 1..=4 {
        let file = dir.join("job.yaml");
        let job =
            format!("name: fill-{number}\ntenant: lab/nlp\ngpus: 8\nsimulate: {{duration: 90h}}\n{rest}");
        std::fs::write(&file, job).unwrap();
        server.json(&["submit", file.to_str().unwrap()]);
    }
    eventually("all of them run", || {
        let jobs = server.json(&["get", "jobs", "--state", "running"]);
        (jobs["jobs"].as_array()?.len() == 4).then_some(())
    });
    server
}

const GANG: [&str; 9] = ["submit", "--tenant", "lab/nlp", "--gpus", "8", "--tasks", "3", "--name", "gang"];

fn places(told: &Value) -> Vec<String> {
    let places = told["places"].as_array().unwrap().iter();
    places.map(|place| place["node"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_promised_start_is_told_with_what_it_waits_for_and_its_history() {
    let dir = tempfile::tempdir().unwrap();
    let server = filled(dir.path(), "time: {limit: 2h}\n");
    assert_eq!(server.json(&["get", "reservations"])["reservations"], json!([]), "nobody waits");
    let empty = text(&server.run(&["get", "reservations"]).stderr);
    assert!(empty.contains("no start is promised"), "{empty}");
    server.json(&GANG);

    let list = server.json(&["get", "reservations"]);
    assert_eq!(list["schema"], "wharf.v1.reservations");
    let promised = list["reservations"][0].clone();
    assert_eq!((&promised["job"], &promised["tenant"]), (&json!("gang"), &json!("lab/nlp")), "{promised}");
    assert_eq!((&promised["gpus"], &promised["missed"]), (&json!(24.0), &json!([])), "{promised}");
    let (start, since) = (promised["start_ms"].as_u64().unwrap(), promised["since_ms"].as_u64().unwrap());
    let (least, most) = (since + 7_000_000, since + 7_200_000 + 10_000);
    assert!((least..=most).contains(&start), "two hours at most, and the time to stop: {promised}");
    let nodes = places(&promised);
    assert_eq!(nodes.len(), 3, "{promised}");
    let waits_for = promised["waits_for"].as_array().unwrap();
    assert_eq!(waits_for.len(), 3, "{promised}");
    assert!(waits_for.iter().all(|holder| holder["ends_ms"].as_u64() <= Some(start)), "{promised}");
    assert!(waits_for.iter().all(|holder| holder["asked_ms"].is_null()), "they are over by then: {promised}");

    let table = text(&server.run(&["get", "reservations"]).stdout);
    let soon = |text: &str| text.contains("2h00m") || text.contains("1h59m");
    assert!(table.contains("STARTS IN") && soon(&table) && table.contains("fill-"), "{table}");
    let explained = server.json(&["explain", "job/gang"]);
    assert_eq!(explained["reservation"], promised, "{explained}");
    assert_eq!(explained["unpromised"], Value::Null, "{explained}");
    let said = text(&server.run(&["explain", "job/gang"]).stdout);
    assert!(said.contains("starts  within ") && soon(&said) && said.contains("; waits for fill-"), "{said}");

    // A node of it is cordoned: that start is given up by its name, and another one is promised.
    assert!(server.run(&["cordon", &nodes[0]]).status.success());
    let explained = eventually("another start is promised", || {
        let explained = server.json(&["explain", "job/gang"]);
        let elsewhere = !places(explained.get("reservation").filter(|of| !of.is_null())?).contains(&nodes[0]);
        elsewhere.then_some(explained)
    });
    let missed = &explained["missed"][0];
    assert_eq!((&missed["why"], &missed["start_ms"]), (&json!("place_gone"), &json!(start)), "{explained}");
    let said = text(&server.run(&["explain", "job/gang"]).stdout);
    assert!(said.contains("given up") && said.contains(": place gone"), "{said}");

    server.kill();
    let server = Server::start(&dir.path().join("data"), &[]);
    let again = server.json(&["explain", "job/gang"]);
    assert_eq!(again["reservation"]["start_ms"], explained["reservation"]["start_ms"], "{again}");
    assert_eq!(again["missed"], explained["missed"], "{again}");
}

#[test]
fn whoever_has_no_known_end_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = filled(dir.path(), "");
    server.json(&GANG);
    let explained = server.json(&["explain", "job/gang"]);
    assert_eq!((&explained["reservation"], &explained["missed"]), (&Value::Null, &json!([])), "{explained}");
    let unpromised = &explained["unpromised"];
    assert_eq!(unpromised["why"], "no_known_end", "{explained}");
    let holders = unpromised["holders"].as_array().unwrap();
    assert_eq!(holders.len(), 3, "a gang of three waits for three: {explained}");
    assert!(holders.iter().all(|holder| holder["ends_ms"].is_null()), "{explained}");
    let said = text(&server.run(&["explain", "job/gang"]).stdout);
    assert!(said.contains("no start is promised: no end is known of lab/nlp/fill-"), "{said}");
}
