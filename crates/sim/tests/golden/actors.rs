//! A journal in which every source of an input has its say, and what it says of them.

use std::collections::BTreeMap;

use wharf_engine::decide::input::{DrainRequest, Input, Request};
use wharf_engine::model::actor::{Actor, Role, Source, Subject};
use wharf_engine::state::fleet::Whom;
use wharf_engine::units::Millis;

use super::parts::{FOREVER, cordon, rules_job, rules_policy};
use super::play::Play;
use super::{RECORD_VERSION, golden, recorded};

/// A policy file is applied, somebody submits and drains, somebody else cancels for a third, and the fleet reports.
pub(super) fn story() -> Vec<String> {
    let mut play = Play::on(87, &["n1", "n2"], 1);
    let policy = Input::ApplyPolicy(rules_policy());
    play.ask(&[Request { actor: Actor::of(Source::PolicyFile), input: policy }], 1);
    let ada = Actor { subject: Subject::Claimed("ada".into()), ..Actor::of(Source::Http) };
    let by_ada = |input| Request { actor: ada.clone(), input };
    let jobs = play.ask(&[by_ada(rules_job(1, "train", "org/a", (2, 2), FOREVER))], 20);
    let how = DrainRequest { within: Millis(0), reason: "fan".into(), whom: Whom::Everything };
    play.ask(&[by_ada(Input::Drain { nodes: vec!["n1".into()], how: Some(how) })], 20);
    play.ask(&[by_ada(cordon("n2", true))], 1);
    let bot = Actor {
        subject: Subject::Verified("bot".into()),
        roles: vec![Role::Operator],
        on_behalf_of: Some("eve".into()),
        ..Actor::of(Source::Http)
    };
    play.ask(&[Request { actor: bot, input: Input::Cancel { job: jobs["train"] } }], 20);
    play.go(&[rules_job(2, "own", "org/a", (1, 1), FOREVER)], 1);
    play.records()
}

#[test]
fn a_journal_says_who_did_what() {
    let text = std::fs::read_to_string(golden("journal-v2-actors.jsonl")).unwrap();
    let mut by: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let read = recorded(RECORD_VERSION, line);
        let actor = serde_json::to_string(&read.actor.unwrap()).unwrap();
        by.entry(actor).or_default().push(super::kinds::kind(&read.event).to_owned());
    }
    let did = |actor: &str, what: &str| by[actor].iter().any(|kind| kind == what);
    let ada = r#"{"source":"http","subject":{"claimed":"ada"}}"#;
    assert!(did(ada, "Queued") && did(ada, "Draining") && did(ada, "Cordoned"), "{by:?}");
    let bot = r#"{"source":"http","subject":{"verified":"bot"},"roles":["operator"],"on_behalf_of":"eve"}"#;
    assert!(did(bot, "Leaving") || did(bot, "Ended"), "{by:?}");
    assert!(did(r#"{"source":"policy_file"}"#, "PolicyApplied"), "{by:?}");
    assert!(did(r#"{"source":"world"}"#, "NodeSeen") && did(r#"{"source":"world"}"#, "Running"), "{by:?}");
    assert!(did(r#"{"source":"engine"}"#, "Started"), "{by:?}");
    assert!(did(r#"{"source":"embedded","roles":["operator"]}"#, "Queued"), "{by:?}");
}
