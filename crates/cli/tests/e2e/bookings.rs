//! A window is booked, refused with a nearest time, used and given up: over HTTP and by the command line.

use std::path::Path;

use wharf_api::client::{Client, ClientError};
use wharf_api::file::booking::parse_booking;
use wharf_api::v1::{BookingState, Code};

use crate::server::{Server, eventually};

/// A minute of lead, so that a window begins while the test looks.
const WINDOWS: &str = "{lead: 2m, no_show: 10m, bookings_max: 2}\n";

fn start(dir: &Path) -> Server {
    let policy = dir.join("policy");
    std::fs::create_dir_all(&policy).unwrap();
    std::fs::write(policy.join("tenants.yaml"), include_str!("../../../api/policy/tenants.yaml")).unwrap();
    std::fs::write(policy.join("windows.yaml"), WINDOWS).unwrap();
    let policy = policy.to_string_lossy().into_owned();
    let data = dir.join("data");
    Server::start(&data, &["--speed", "60", "--policy", &policy])
}

fn out(output: &std::process::Output) -> (Option<i32>, String) {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_window_is_booked_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let book =
        ["book", "--tenant", "lab/nlp", "--gpus", "8", "--from", "+4m", "--for", "2h", "--name", "demo"];
    let (code, said) = out(&server.run(&book));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("booking/demo is booked: 1 x 8 GPUs of lab/nlp"), "{said}");
    assert!(said.contains("undo: wharf cancel booking/demo"), "{said}");
    let (code, said) = out(&server.run(&[
        "submit",
        "--tenant",
        "lab/nlp",
        "--gpus",
        "8",
        "--name",
        "own",
        "--booking",
        "demo",
        "--duration",
        "24h",
    ]));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("WaitingForBooking"), "{said}");
    eventually("it begins, and the job with it", || {
        let jobs = server.json(&["get", "jobs"]);
        (jobs["jobs"][0]["state"] == "running").then_some(())
    });
    let bookings = server.json(&["get", "bookings"]);
    assert_eq!(bookings["schema"], "wharf.v1.bookings");
    let (state, used, jobs) = (&bookings["bookings"][0]["state"], &bookings["bookings"][0]["used"], 1);
    assert_eq!((state, used), (&"open".into(), &true.into()), "{bookings}");
    assert_eq!(bookings["bookings"][0]["jobs"].as_array().unwrap().len(), jobs);
    let (_, table) = out(&server.run(&["get", "bookings"]));
    assert!(table.contains("demo") && table.contains("open, "), "{table}");
    let (_, screen) = out(&server.run(&["explain", "booking/demo"]));
    assert!(screen.contains("It has begun and is over in") && screen.contains("own"), "{screen}");
    let (code, said) = out(&server.run(&["cancel", "booking/demo"]));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("its job goes on as every other: own"), "{said}");
    assert_eq!(server.json(&["get", "jobs"])["jobs"][0]["state"], "running");
    let (code, said) = out(&server.run(&["explain", "booking/demo"]));
    assert_eq!(code, Some(4), "{said}");
    let history = server.json(&["get", "history", "--kind", "receipt", "--name", "demo"]);
    let told = history.to_string();
    for change in ["booked", "placed", "began", "ended"] {
        assert!(told.contains(change), "{change} in {told}");
    }
}

#[test]
fn what_cannot_be_booked_names_the_nearest_time() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let client = Client::new(&server.address).unwrap();
    let file = |text: &str| parse_booking("test", text).unwrap();
    let first = client.book(&file("{name: first, tenant: lab/nlp, gpus: 8, from: +2h, for: 1h}")).unwrap();
    assert!(first.created);
    assert_eq!(first.booking.state, BookingState::Booked);
    let asked = format!("{{name: second, tenant: lab/nlp, gpus: 8, from: {}, for: 1h}}", "+2h");
    let Err(ClientError::Problem(problem)) = client.book(&file(&asked)) else { panic!("it is refused") };
    assert_eq!(problem.code, Code::BookingBeyondGuarantee);
    // The nearest begin is when the first ends, or so that it ends when the first begins.
    let nearest =
        problem.nearest_ms.as_deref().copied().expect("there is a time at which it could be booked");
    let next_to = |one: u64, other: u64| one.abs_diff(other) < 1000;
    let (from, until) = (first.booking.from_ms, first.booking.until_ms);
    assert!(next_to(nearest, until) || next_to(nearest + 3_600_000, from), "{problem:?}");
    let (code, said) =
        out(&server.run(&["book", "--tenant", "lab/nlp", "--gpus", "8", "--from", "+2h", "--for", "1h"]));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("next: the nearest possible begin is 20"), "{said}");
    let at = wharf_api::file::moment::moment_text(wharf_engine::units::Timestamp(nearest));
    let (code, said) = out(&server.run(&[
        "book", "--tenant", "lab/nlp", "--gpus", "8", "--from", &at, "--for", "1h", "--name", "second",
    ]));
    assert_eq!(code, Some(0), "{said}");
    let (code, said) =
        out(&server.run(&["book", "--tenant", "lab/nlp", "--gpus", "1", "--from", "+9h", "--for", "1h"]));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("bookings_full"), "{said}");
    let (code, said) =
        out(&server.run(&["book", "--tenant", "lab/nlp", "--gpus", "1", "--from", "soon", "--for", "1h"]));
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("2026-11-20T08:00Z"), "{said}");
    let gone = client.unbook("first").unwrap();
    assert_eq!(gone.booking.name, "first");
    assert_eq!(client.bookings().unwrap().bookings.len(), 1);
    let Err(ClientError::Problem(problem)) = client.unbook("first") else { panic!("it is gone") };
    assert_eq!((problem.code, problem.status), (Code::NoSuchBooking, 404));
}
