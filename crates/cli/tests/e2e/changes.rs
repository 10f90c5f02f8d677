//! What changed, over HTTP: a list and the feed leave no gap, and whoever wrote something reads it.

use std::collections::BTreeMap;

use wharf_api::client::{Client, ClientError, JobFilter};
use wharf_api::file::job::JobFlags;
use wharf_api::v1::{Change, ChangeKind, Code, Resume};

use crate::abuse::get;
use crate::server::Server;

const JOBS: usize = 40;

#[test]
fn whoever_writes_reads_what_it_wrote_and_the_feed_tells_of_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--speed", "60"]);
    let client = Client::new(&server.address).unwrap();
    let list = client.jobs(&JobFilter::default()).unwrap();
    let uids: Vec<String> = (0..JOBS).map(|number| submit_and_look(&client, number)).collect();
    for uid in &uids {
        client.cancel(uid).unwrap();
    }
    let changes = until_all_ended(&client, list.resume());
    let mut by_job: BTreeMap<String, Vec<ChangeKind>> = BTreeMap::new();
    for change in &changes {
        by_job.entry(change.uid.clone().unwrap_or_default()).or_default().push(change.kind);
    }
    for uid in &uids {
        let kinds = &by_job[uid];
        assert_eq!(kinds.first(), Some(&ChangeKind::JobQueued), "{kinds:?}");
        assert_eq!(kinds.last(), Some(&ChangeKind::JobEnded), "{kinds:?}");
        assert_eq!(kinds.iter().filter(|kind| **kind == ChangeKind::JobQueued).count(), 1);
    }
    assert!(changes.windows(2).all(|pair| pair[0].index < pair[1].index), "in order, and nothing twice");
    an_index_of_another_journal_is_gone(&client, &server);
}

fn submit_and_look(client: &Client, number: usize) -> String {
    let name = format!("j{number}");
    let flags = JobFlags {
        name: Some(name.clone()),
        tenant: Some("lab/nlp".into()),
        gpus: Some("1".into()),
        ..JobFlags::default()
    };
    let submitted = client.submit(&flags.job().unwrap(), &name).unwrap().job;
    let seen = client.job(&submitted.uid).unwrap().job;
    assert_eq!(seen.name, name, "it is there as soon as it was answered");
    assert!(seen.verdict.basis >= submitted.verdict.basis, "a later read sees no less");
    submitted.uid
}

/// Follows the feed until it has told the end of every job.
fn until_all_ended(client: &Client, mut since: Resume) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    while all.iter().filter(|change| change.kind == ChangeKind::JobEnded).count() < JOBS {
        let page = client.changes(Some(since), 20).unwrap();
        assert!(page.index >= since.index);
        since = page.resume();
        all.extend(page.changes);
    }
    all
}

fn an_index_of_another_journal_is_gone(client: &Client, server: &Server) {
    let Resume { index, term } = client.changes(None, 0).unwrap().resume();
    for since in [(0, term), (u64::MAX, term), (index, term + 1), (index, 0)] {
        let (index, term) = since;
        let refused = client.changes(Some(Resume { index, term }), 0).unwrap_err();
        let ClientError::Problem(problem) = refused else { panic!("{refused:?}") };
        assert_eq!(problem.code, Code::Gone, "{problem}");
    }
    let refused = get(server, "/v1/events?wait=31");
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
}

#[test]
fn nodes_and_gpus_come_in_pages_that_make_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let client = Client::new(&server.address).unwrap();
    for what in ["nodes", "gpus"] {
        let (mut token, mut rows) = (String::new(), Vec::new());
        loop {
            let answer = get(&server, &format!("/v1/{what}?limit=3{token}"));
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            let page: serde_json::Value = serde_json::from_str(body.trim()).unwrap();
            let of_page = page[what].as_array().unwrap().clone();
            assert!((1..=3).contains(&of_page.len()));
            rows.extend(of_page);
            let Some(next) = page["continue"].as_str() else { break };
            token = format!("&continue={next}");
        }
        let whole = if what == "nodes" {
            client.nodes().unwrap().nodes.into_iter().map(|node| node.name).collect::<Vec<_>>()
        } else {
            let gpus = client.gpus().unwrap().gpus;
            gpus.into_iter().map(|gpu| format!("{}:{}", gpu.node, gpu.index)).collect()
        };
        let told = rows.iter().map(|row| match what {
            "nodes" => row["name"].as_str().unwrap().to_owned(),
            _ => format!("{}:{}", row["node"].as_str().unwrap(), row["index"]),
        });
        assert_eq!(told.collect::<Vec<_>>(), whole);
    }
}
