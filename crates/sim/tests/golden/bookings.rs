//! The story of the golden journal of booked windows.

use wharf_engine::decide::input::{BookingRequest, Input};
use wharf_engine::model::job::GpuAsk;
use wharf_engine::state::bookings::Booker;
use wharf_engine::state::event::Event;
use wharf_engine::units::{Millis, Timestamp};

use super::parts::{anywhere, cordon, rules_policy, rules_submission, submit};
use super::play::Play;

/// A window takes back what was lent, loses a node and is used; another is cancelled, one is given up. A snapshot in the middle.
pub(crate) fn story() -> Vec<Event> {
    let mut play = Play::on(81, &["n1", "n2", "n3"], 5);
    let forever = r#"{"duration_ms":360000000,"checkpoint_ms":2000}"#;
    let whole = |number: u128, name: &str, tenant: &str, booking: Option<&str>| {
        let mut job = rules_submission(number, name, tenant, (1, 1), forever);
        anywhere(&mut job);
        job.spec.shape.gpus = GpuAsk::Whole(4);
        job.booking = booking.map(str::to_owned);
        job
    };
    let book = |number: u128, name: &str, by: Booker, after_s: u64, span_s: u64| {
        let job = whole(number, name, "org/a", None);
        let (from, span) = (Timestamp(1_000_000 + after_s * 1000), Millis::from_secs(span_s));
        Input::Book(Box::new(BookingRequest { job, by, from, span }))
    };
    let mut policy = rules_policy();
    policy.digest = "golden bookings".into();
    policy.windows.lead = Millis::from_secs(300);
    policy.windows.no_show = Millis::from_secs(60);
    play.go(&[Input::ApplyPolicy(policy)], 5);
    let lent = [1, 2, 3].map(|number| submit(whole(number, &format!("lent{number}"), "org/b", None)));
    play.go(&lent, 60);
    play.go(
        &[
            book(10, "used", Booker::Operator, 500, 300),
            book(11, "unwanted", Booker::Operator, 5000, 60),
            book(12, "nobody", Booker::Operator, 1500, 300),
            submit(whole(4, "own", "org/a", Some("used"))),
        ],
        200,
    );
    play.go(&[Input::Unbook { name: "unwanted".into() }], 60);
    play.go(&["n1", "n2"].map(|node| cordon(node, true)), 5);
    play.go(&["n1", "n2"].map(|node| cordon(node, false)), 5);
    play.go(&[], 230);
    play.snapshot();
    play.go(&[cordon("n3", true)], 900);
    // The window that nobody comes to loses the node that it has.
    play.go(&["n1", "n2"].map(|node| cordon(node, true)), 600);
    play.written()
}
