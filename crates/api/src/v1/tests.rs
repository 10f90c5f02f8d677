//! The wire's promises: stable words, honest nulls, readers that survive newer writers.

use serde_json::json;
use strum::VariantArray;

use super::*;

#[test]
fn every_code_has_its_own_word_and_an_exit_code_of_the_design() {
    let mut words: Vec<&str> = Code::ALL.iter().map(|code| code.word()).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), Code::ALL.len());
    for code in Code::ALL {
        assert!([1, 2, 3, 4, 5, 64, 69].contains(&code.exit_code()), "{code:?}");
        assert!((400..600).contains(&code.status()), "{code:?}");
        assert_eq!(serde_json::to_value(code).unwrap(), json!(code.word()));
    }
}

#[test]
fn a_problem_is_problem_json() {
    let problem = Problem::new(Code::QueueFull, "10000 jobs wait").hint("try later").retry_after_ms(1000);
    assert_eq!(
        serde_json::to_value(&problem).unwrap(),
        json!({
            "type": "urn:wharf:problem:queue_full",
            "title": "Too many jobs wait",
            "status": 429,
            "detail": "10000 jobs wait",
            "code": "queue_full",
            "hint": "try later",
            "retry_after_ms": 1000,
        })
    );
    assert_eq!(problem.to_string(), "10000 jobs wait (queue_full); try later");
}

#[test]
fn a_code_of_a_later_version_is_still_a_problem() {
    let text = r#"{"type": "x", "title": "t", "status": 418, "detail": "d", "code": "teapot", "new": 1}"#;
    let problem: Problem = serde_json::from_str(text).unwrap();
    assert_eq!((problem.code, problem.status), (Code::Unknown, 418));
}

#[test]
fn what_is_not_known_is_null() {
    let old = json!({"model": "h100", "gpus": 8, "healthy": 8, "allocated": 0.5, "used_sm": null});
    let pool: PoolView = serde_json::from_value(old).unwrap();
    let unknown = json!({
        "model": "h100",
        "gpus": 8,
        "healthy": 8,
        "allocated": 0.5,
        "used_sm": null,
        "modes": {"whole": 0, "mig": 0, "mps": 0, "time_slicing": 0},
        "slices": 0,
        "tax": null,
        "memory_used_mib": null,
        "memory_mib": null,
    });
    assert_eq!(serde_json::to_value(pool).unwrap(), unknown);
}

#[test]
fn gpus_are_shown_with_three_decimals() {
    let shown = |parts| json!(gpus(GpuUnits::from_parts(parts))).to_string();
    assert_eq!(shown(750), "0.25");
    assert_eq!(shown(1000), "0.333");
    assert_eq!(shown(2000), "0.667");
    assert_eq!(shown(300_000_000), "100000.0");
}

#[test]
fn words_of_states_are_those_of_the_wire() {
    for &state in JobState::VARIANTS {
        assert_eq!(json!(state), json!(state.into_str()));
    }
    assert_eq!(json!(VerdictWord::RunnableNow), json!("runnable_now"));
    for &kind in HistoryKind::VARIANTS {
        assert_eq!(json!(kind), json!(kind.into_str()));
    }
    for &rule in Rule::VARIANTS {
        assert_eq!(json!(rule), json!(rule.into_str()));
    }
}

#[test]
fn an_answer_names_its_form() {
    let policy = PolicyView {
        schema: schema_of::<PolicyView>(),
        version: 1,
        digest: "d".into(),
        error: None,
        warnings: Vec::new(),
    };
    let read: PolicyView = serde_json::from_value(serde_json::to_value(&policy).unwrap()).unwrap();
    assert_eq!(read, policy);
    assert_eq!(read.schema(), "wharf.v1.policy");
}

#[test]
fn gpu_seconds_are_exact_and_do_not_stop_at_four_million() {
    assert_eq!(gpu_seconds(0).to_string(), "0");
    assert_eq!(gpu_seconds(1_500).to_string(), "1.5");
    assert_eq!(gpu_seconds(18_432_000_000_250).to_string(), "18432000000.25");
}

#[test]
fn what_is_not_metered_is_the_word_unlimited() {
    let line = LineView {
        resource: "h100".into(),
        guaranteed: Some(8.0),
        limit: None,
        fair_share: 10.0,
        used: 9.0,
        borrowed: 1.0,
        lent: 0.0,
        demand: 9.0,
        past: None,
    };
    let wire = serde_json::to_value(&line).unwrap();
    assert_eq!((&wire["guaranteed"], &wire["limit"]), (&json!(8.0), &json!("unlimited")));
    assert_eq!(serde_json::from_value::<LineView>(wire.clone()).unwrap(), line);
    let mut wrong = wire;
    wrong["limit"] = json!("lots");
    assert!(serde_json::from_value::<LineView>(wrong).is_err());
}
