//! Many who read a long list, and the few who want something done meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use wharf_api::client::{Client, JobFilter};
use wharf_api::file::job::{JobFile, JobFlags};
use wharf_api::v1::JobState;

use crate::abuse::get;
use crate::server::Server;

/// Waiting jobs of one tenant. Before, one list of so many took half a second of the thread that decides.
const JOBS: usize = 3000;
const READERS: usize = 8;
const ROUNDS: usize = 5;

fn policy(dir: &Path) -> String {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("tenants.yaml"), "tenants: {lab: {guaranteed: 32}}\n").unwrap();
    std::fs::write(dir.join("classes.yaml"), "batch: {order: attained}\n").unwrap();
    dir.to_str().unwrap().to_owned()
}

fn job(name: String) -> JobFile {
    let flags = JobFlags {
        name: Some(name),
        tenant: Some("lab".into()),
        gpus: Some("8".into()),
        tasks: Some("4".into()),
        ..JobFlags::default()
    };
    flags.job().unwrap()
}

/// One job runs, the others wait behind it.
fn fill(server: &Server) {
    std::thread::scope(|scope| {
        for part in 0..8 {
            scope.spawn(move || {
                let client = Client::new(&server.address).unwrap();
                for number in (part..=JOBS).step_by(8) {
                    let name = format!("j{number}");
                    client.submit(&job(name.clone()), &name).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_long_queue_is_read_in_pages_and_its_readers_hold_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let policy = policy(&dir.path().join("policy"));
    let server = Server::start(&dir.path().join("data"), &["--policy", &policy]);
    fill(&server);
    pages_are_the_list(&server);
    readers_hold_up_nobody(&server);
}

fn readers_hold_up_nobody(server: &Server) {
    let (done, read) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let client = Client::new(&server.address).unwrap();
                while !done.load(Ordering::Acquire) {
                    // One that is told to come back later is no failure.
                    let page = client.jobs_page(&JobFilter::default(), None);
                    read.fetch_add(u32::from(page.is_ok()), Ordering::AcqRel);
                }
            });
        }
        let client = Client::new(&server.address).unwrap();
        let slowest = (0..ROUNDS).map(|round| {
            let begin = Instant::now();
            let ready = get(server, "/readyz");
            let submitted = client.submit(&job(format!("late{round}")), &format!("late{round}"));
            (begin.elapsed(), ready, submitted)
        });
        let slowest: Vec<_> = slowest.collect();
        done.store(true, Ordering::Release);
        for (took, ready, submitted) in slowest {
            assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
            assert!(submitted.is_ok(), "{submitted:?}");
            assert!(took < Duration::from_secs(2), "both took {took:?}");
        }
    });
    assert!(read.load(Ordering::Acquire) > 0, "somebody has read something meanwhile");
}

fn pages_are_the_list(server: &Server) {
    let client = Client::new(&server.address).unwrap();
    let waiting = JobFilter { state: Some(JobState::Waiting), ..JobFilter::default() };
    let first = client.jobs_page(&waiting, None).unwrap();
    assert_eq!((first.jobs.len(), first.next.is_some()), (500, true));
    let all = client.jobs(&waiting).unwrap();
    assert_eq!((all.jobs.len(), all.next), (JOBS, None));
    let places: Vec<u32> = all.jobs.iter().filter_map(|job| job.verdict.ahead).collect();
    assert_eq!(
        places,
        (0..u32::try_from(JOBS).unwrap()).collect::<Vec<_>>(),
        "each stands behind those before"
    );
    assert_eq!(server.json(&["get", "jobs"])["jobs"].as_array().unwrap().len(), JOBS + 1);

    for (query, said) in [
        ("jobs?limit=0", "limit: \\\"0\\\" is not a number from 1 to 1000"),
        ("jobs?limit=1001", "from 1 to 1000"),
        ("jobs?continue=zz", "continue: \\\"zz\\\" is no token of this list"),
        (
            "jobs?stat=waiting",
            "did you mean state? Allowed here: tenant, state, submitted_by, labels, limit, continue",
        ),
        ("jobs?state=runing", "did you mean running? Allowed here: waiting, starting, running, leaving"),
        ("jobs?state=waiting&state=running", "state is given more than once"),
        ("jobs?tenant=nope", "unknown_tenant"),
        ("jobs/j0?verbose=1", "allowed here: this takes none"),
        ("history?kind=jobs", "did you mean job? Allowed here: job, receipt, eviction"),
        ("evictions?tenants=lab", "did you mean tenant?"),
        ("ended?state=don", "did you mean done? Allowed here: done, failed, cancelled"),
        ("ended?before=last", "before: \\\"last\\\" is not a whole number"),
        ("usage?by=tem", "did you mean team?"),
        ("usage?since=7", "since: \\\"7\\\" is neither a span of time nor a moment"),
        ("usage?since=1d&until=2d", "is not before until 2d"),
        ("summary?x=%ff", "there is no query parameter"),
    ] {
        let answer = get(server, &format!("/v1/{query}"));
        assert!(answer.starts_with("HTTP/1.1 4") && answer.contains(said), "{query} got {answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
    assert!(get(server, "/v1/jobs?limit=2&tenant=lab").starts_with("HTTP/1.1 200"));
}
