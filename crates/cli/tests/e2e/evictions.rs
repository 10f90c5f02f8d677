//! What people see of the rules: who lends, who borrows, who had to leave for whom and why.

use std::path::Path;

use serde_json::{Value, json};

use crate::server::{Server, eventually};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Four jobs of `lab/nlp`, which is promised 8 GPUs, fill the 32 of the fleet.
fn filled(dir: &Path, further: &[&str], rest: &str) -> Server {
    let server = Server::start(&dir.join("data"), further);
    for number in 1..=4 {
        let file = dir.join("job.yaml");
        let job = format!(
            "name: fill-{number}\ntenant: lab/nlp\ngpus: 8\nsimulate: {{duration: 90h, checkpoint: fail}}\n{rest}"
        );
        std::fs::write(&file, job).unwrap();
        server.json(&["submit", file.to_str().unwrap()]);
    }
    eventually("all of them run", || {
        let jobs = server.json(&["get", "jobs", "--state", "running"]);
        (jobs["jobs"].as_array()?.len() == 4).then_some(())
    });
    server
}

/// They cannot save their work, so they stay for all of their grace: there is time to look.
const STUBBORN: &str = "checkpoint: {every: 10m, grace: 5m}\n";
const V1: [&str; 6] = ["--tenant", "lab/vision", "--gpus", "8", "--name", "v1"];

fn line(server: &Server, tenant: &str) -> Value {
    let tenants = server.json(&["get", "tenants"]);
    let mut all = tenants["tenants"].as_array().unwrap().iter();
    all.find(|known| known["path"] == tenant).unwrap()["lines"][0].clone()
}

#[test]
fn who_lends_and_who_borrows_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = filled(dir.path(), &[], STUBBORN);
    let nlp = line(&server, "lab/nlp");
    for (field, value) in [
        ("guaranteed", json!(8.0)),
        ("limit", json!("unlimited")),
        ("used", json!(32.0)),
        ("borrowed", json!(24.0)),
        ("lent", json!(0.0)),
        ("demand", json!(32.0)),
        ("fair_share", json!(32.0)),
    ] {
        assert_eq!(nlp[field], value, "{field} of {nlp}");
    }
    let vision = line(&server, "lab/vision");
    assert_eq!((&vision["lent"], &vision["borrowed"]), (&json!(8.0), &json!(0.0)), "{vision}");
    let wide = text(&server.run(&["get", "tenants", "-o", "wide"]).stdout);
    assert!(wide.contains("BORROWED  LENT") && wide.contains("unlimited"), "{wide}");
    assert!(!text(&server.run(&["get", "tenants"]).stdout).contains("BORROWED"));
    let explained = text(&server.run(&["explain", "tenant/lab/nlp"]).stdout);
    assert!(explained.contains("BORROWED"), "{explained}");
}

#[test]
fn a_plan_names_who_would_have_to_leave_and_touches_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let server = filled(dir.path(), &[], STUBBORN);
    let planned = server.run(&[&["plan"][..], &V1].concat());
    let said = text(&planned.stdout);
    assert_eq!(planned.status.code(), Some(1), "it has to wait for them: {said}");
    assert!(said.contains("WAITS  WaitingForVictims") && said.contains("lab/nlp/fill-4"), "{said}");
    assert!(said.contains("would have to leave") && said.contains("guarantee"), "{said}");
    let planned = server.run(&[&["plan"][..], &V1, &["-o", "json"]].concat());
    assert_eq!(planned.status.code(), Some(1));
    let plan: Value = serde_json::from_slice(&planned.stdout).unwrap();
    let victims = plan["would_preempt"].as_array().unwrap();
    assert_eq!(victims.len(), 1, "{plan}");
    let victim = &victims[0];
    assert_eq!((&victim["job"], &victim["tenant"]), (&json!("fill-4"), &json!("lab/nlp")), "{plan}");
    assert_eq!((&victim["rule"], &victim["whole"]), (&json!("guarantee"), &json!(true)), "{plan}");
    assert_eq!((&victim["tasks"], &victim["gain_gpu_s"]), (&json!([0]), &Value::Null), "{plan}");
    assert!(victim["cost_gpu_s"].as_f64() > victim["lost_gpu_s"].as_f64(), "{plan}");
    assert_eq!(plan["placements"][0]["node"], "n4", "{plan}");
    assert_eq!(server.json(&["get", "evictions"])["evictions"], json!([]), "a plan has no effect");
    let surplus = server.run(&["plan", "--tenant", "lab/nlp", "--gpus", "8", "--name", "more", "-o", "json"]);
    let plan: Value = serde_json::from_slice(&surplus.stdout).unwrap();
    assert_eq!((surplus.status.code(), &plan["would_preempt"]), (Some(1), &json!([])), "{plan}");
}

#[test]
fn a_receipt_says_who_left_for_whom_and_by_which_rule() {
    let dir = tempfile::tempdir().unwrap();
    let server = filled(dir.path(), &[], STUBBORN);
    let submitted = server.json(&[&["submit"][..], &V1].concat());
    assert_eq!(submitted["job"]["verdict"]["reason"], "WaitingForVictims", "{submitted}");
    let waits = server.json(&["explain", "job/v1"]);
    let leaving = &waits["earmark"]["leaving"][0];
    assert_eq!((&leaving["job"], &leaving["step"]), (&json!("fill-4"), &json!("asked")), "{waits}");
    assert_eq!(waits["earmark"]["places"][0]["node"], "n4", "{waits}");
    assert!(leaving["deadline_ms"].as_u64() > waits["earmark"]["since_ms"].as_u64(), "{waits}");
    let id = leaving["eviction"].as_u64().expect("the ask has a receipt").to_string();
    let said = text(&server.run(&["explain", "job/v1"]).stdout);
    assert!(said.contains("leaves  job/lab/nlp/fill-4 task 0 on n4"), "{said}");
    assert!(said.contains("at the latest") && said.contains(&format!("(eviction/{id})")), "{said}");
    let jobs = text(&server.run(&["get", "jobs"]).stdout);
    assert!(jobs.contains("WaitingForVictims") && jobs.contains("leaving"), "{jobs}");

    let reply = server.json(&["explain", &format!("eviction/{id}")]);
    let eviction = &reply["eviction"];
    assert_eq!(reply["schema"], "wharf.v1.eviction");
    assert_eq!(eviction["id"].to_string(), id);
    assert_eq!((&eviction["job"], &eviction["whole"]), (&json!("fill-4"), &json!(true)), "{eviction}");
    assert_eq!(eviction["beneficiary"]["tenant"], "lab/vision", "{eviction}");
    assert_eq!(
        (&eviction["rule"], &eviction["below_line"]),
        (&json!("guarantee"), &Value::Null),
        "{eviction}"
    );
    assert!(
        eviction["victim_text"].as_str().unwrap().contains("32 GPUs, 24 more than its guarantee of 8"),
        "{eviction}"
    );
    let said = text(&server.run(&["explain", &format!("eviction/{id}")]).stdout);
    assert!(said.contains("job/lab/nlp/fill-4 had to leave for job/lab/vision/v1"), "{said}");

    let list = |args: &[&str]| {
        let output = server.run(&[&["get", "evictions", "-o", "name"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let name = format!("eviction/{id}\n");
    for args in [&[][..], &["--tenant", "lab"], &["--job", "fill-4"], &["--job", "job/lab/nlp/fill-4"]] {
        assert_eq!(list(args), name, "{args:?}");
    }
    for args in
        [&["--tenant", "lab/vision"][..], &["--job", "v1"], &["--job", "lab/eval/fill-4"], &["--limit", "0"]]
    {
        assert_eq!(list(args), "", "{args:?}");
    }
    let csv = text(&server.run(&["get", "evictions", "-o", "csv", "--no-headers"]).stdout);
    assert!(csv.starts_with(&format!("{id},")) && csv.contains(",guarantee,lab/vision/v1,"), "{csv}");

    // Nobody needs the place any more: the victim may stay, and the receipt stays too.
    server.json(&["cancel", "job/v1"]);
    eventually("it stays", || {
        let job = server.json(&["explain", "job/fill-4"]);
        (job["job"]["state"] == "running").then(|| assert_eq!(job["evictions"][0].to_string(), id))
    });
}

#[test]
fn an_indivisible_victim_that_falls_below_its_line_has_that_in_its_receipt() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let gang = ["--tenant", "lab/nlp", "--gpus", "8", "--tasks", "4", "--name", "gang", "--duration", "90h"];
    server.json(&[&["submit"][..], &gang].concat());
    server.json(&[&["submit"][..], &V1].concat());
    let eviction = server.json(&["get", "evictions", "--job", "gang"])["evictions"][0].clone();
    assert_eq!(eviction["tasks"], json!([0, 1, 2, 3]), "{eviction}");
    let below = &eviction["below_line"];
    assert_eq!((&below["tenant"], &below["resource"]), (&json!("lab/nlp"), &json!("gpus")), "{eviction}");
    assert!(below["by"].as_f64() >= Some(8.0), "all that it was promised, at least: {eviction}");
    let said = text(&server.run(&["explain", &format!("eviction/{}", eviction["id"])]).stdout);
    assert!(said.contains("lab/nlp fell ") && said.contains(" gpus below its line"), "{said}");
}

#[test]
fn a_victim_that_left_names_its_evictions_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = filled(dir.path(), &["--speed", "20"], "");
    let fresh = server.json(&[&["submit"][..], &V1, &["--duration", "90h"]].concat());
    assert_eq!(fresh["job"]["state"], "waiting", "{fresh}");
    eventually("it lands", || {
        (server.json(&["explain", "job/v1"])["job"]["state"] == "running").then_some(())
    });
    let victim = server.json(&["explain", "job/fill-4"]);
    assert_eq!((&victim["job"]["state"], &victim["earmark"]), (&json!("waiting"), &Value::Null), "{victim}");
    let id = victim["evictions"][0].to_string();
    server.kill();
    let server = Server::start(&dir.path().join("data"), &["--speed", "20"]);
    let victim = text(&server.run(&["explain", "job/fill-4"]).stdout);
    assert!(victim.contains(&format!("eviction {id}\n")), "{victim}");
    assert!(victim.contains(&format!("next: wharf explain eviction/{id}")), "{victim}");
    assert_eq!(server.json(&["explain", &format!("eviction/{id}")])["eviction"]["job"], "fill-4");
}

#[test]
fn an_eviction_that_is_not_there_says_what_next() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    for (args, code, said) in [
        (&["explain", "eviction/7"][..], 4, "wharf get evictions"),
        (&["explain", "eviction/18446744073709551615"], 4, "no_such_eviction"),
        (&["explain", "eviction/18446744073709551616"], 64, "wharf get evictions"),
        (&["explain", "eviction/seven"], 64, "its id is a number"),
        (&["explain", "eviction/"], 64, "eviction/ID"),
        (&["get", "evictions", "--state", "running"], 64, "--tenant, --job, --limit"),
        (&["get", "evictions", "--limit", "many"], 64, "--limit"),
    ] {
        let output = server.run(args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(said), "{args:?}: {error}");
    }
    let problem = server.run(&["explain", "eviction/7", "-o", "json"]);
    let problem: Value = serde_json::from_slice(&problem.stderr).unwrap();
    assert_eq!(
        (&problem["code"], &problem["status"]),
        (&json!("no_such_eviction"), &json!(404)),
        "{problem}"
    );
    assert!(server.run(&["get", "evictions"]).stdout.is_empty());
}
