//! Shapes are read, refused and built as the manual says.

use wharf_engine::plan::{Memory, plan};
use wharf_engine::state::jobs::Phase;

use super::*;

const SMALL: &str = r#"{
    "nodes": [{"count": 2, "gpus": 4, "labels": {"zone": "a"}}, {"gpus": 2, "model": "l4", "labels": {"zone": "b"}}],
    "tenants": [{"path": "lab"}, {"path": "lab/x", "guaranteed_gpus": 2.5, "limit_gpus": "unlimited"},
        {"path": "y", "guaranteed_gpus": 6}],
    "running": [
        {"count": 3, "tenant": "lab/x", "gpus": 0.5},
        {"tenant": "y", "class": "interactive", "gpus": 2, "tasks": 2, "min": 1},
        {"tenant": "y", "model": "l4", "priority": 3}
    ],
    "pending": [{"tenant": "y", "preemptible": false}, {"tenant": "lab/x", "labels": {"zone": "b"}}],
    "late": [{"tenant": "lab/x", "class": "inference", "cpu_milli": 500, "memory": 1000}]
}"#;

fn said(text: &str) -> String {
    Shape::parse(text).and_then(|shape| shape.build()).unwrap_err().to_string()
}

#[test]
fn everything_that_runs_holds_its_place_and_nothing_is_broken() {
    let shape = Shape::parse(SMALL).unwrap();
    let built = shape.build().unwrap();
    assert_eq!(built.state.check_deep(), []);
    let held: usize = built.state.ledger.holdings().map(|(_, holding)| holding.holding_tasks().len()).sum();
    assert_eq!(held, 3 + 2 + 1);
    let active = built.state.jobs.iter().filter(|(_, job)| job.phase == Phase::Active).count();
    assert_eq!((active, built.state.jobs.waiting_len()), (5, 2));
    assert!(built.state.ledger.orphans().is_empty());
}

#[test]
fn running_tasks_are_laid_on_the_first_node_and_device_with_room() {
    let built = Shape::parse(SMALL).unwrap().build().unwrap();
    let name = |node| built.state.fleet.node(node).unwrap().facts.name.as_str();
    let mut places = Vec::new();
    for (_, holding) in built.state.ledger.holdings() {
        let each = holding.tasks.iter().map(|task| (name(task.place.node), task.place.gpus.0));
        places.extend(each);
    }
    // Three halves on two GPUs of n1, a pair beside them, a pair that no longer fits there, one that wants an l4.
    let expected = [("n1", 0b1), ("n1", 0b1), ("n1", 0b10), ("n1", 0b1100), ("n2", 0b11), ("n3", 0b1)];
    assert_eq!(places, expected);
}

#[test]
fn what_is_late_comes_after_the_first_plan() {
    let shape = Shape::parse(SMALL).unwrap();
    let mut built = shape.build().unwrap();
    let made = plan(&built.state, built.state.tenants.policy(), &Memory::default(), built.now);
    assert_eq!(made.starts.len(), 2);
    built.state.apply_all(&made.events(&built.state, built.now));
    built.submit("late", &shape.late).unwrap();
    let made = plan(&built.state, built.state.tenants.policy(), &Memory::default(), built.now);
    assert_eq!(made.starts.len(), 1);
    built.state.apply_all(&made.events(&built.state, built.now));
    assert_eq!(built.state.check_deep(), []);
}

#[test]
fn two_builds_are_the_same_state() {
    let shape = Shape::parse(SMALL).unwrap();
    let hash = |built: &Built| wharf_controller::codec::state_hash(&built.state);
    assert_eq!(hash(&shape.build().unwrap()), hash(&shape.build().unwrap()));
}

#[test]
fn jobs_of_a_group_are_what_they_are_one_by_one() {
    let hash = |pending: &str| {
        let text = format!(
            r#"{{"nodes": [{{}}], "tenants": [{{"path": "t"}}, {{"path": "u"}}],
            "pending": [{pending}, {{"tenant": "u", "count": 0}}]}}"#
        );
        let built = Shape::parse(&text).unwrap().build().unwrap();
        assert_eq!(built.state.check_deep(), []);
        (built.now, built.state.index(), wharf_controller::codec::state_hash(&built.state))
    };
    let one = r#"{"tenant": "t", "model": "h100"}"#;
    let three = r#"{"tenant": "t", "model": "h100", "count": 3}"#;
    assert_eq!(hash(&format!("{one}, {one}, {one}")), hash(three));
}

#[test]
fn a_key_that_is_unknown_is_named_with_its_line_and_what_is_allowed() {
    let wrong = Shape::parse("{\"nodes\": [\n{\"gpu\": 8}], \"tenants\": []}").unwrap_err();
    assert_eq!((wrong.line, wrong.what.as_str()), (Some(2), "unknown field `gpu`"));
    assert!(wrong.next.starts_with("expected one of `count`, `gpus`"), "{}", wrong.next);
    for (text, said) in [
        (r#"{"nodes": [], "tenants": [], "jobs": []}"#, "unknown field `jobs`"),
        (r#"{"nodes": [], "tenants": [{"path": "t", "quota": 1}]}"#, "unknown field `quota`"),
        (r#"{"nodes": [], "tenants": [], "late": [{"gang": 1}]}"#, "unknown field `gang`"),
        (r#"{"nodes": [], "tenants": [{"guaranteed_gpus": "all"}]}"#, "a number or \"unlimited\""),
        (r#"{"tenants": []}"#, "missing field `nodes`"),
        ("[", "EOF"),
    ] {
        let error = Shape::parse(text).unwrap_err().to_string();
        assert!(error.contains(said), "{text} said {error}");
    }
}

#[test]
fn a_shape_that_makes_no_sense_says_where_and_what_to_write_instead() {
    let with = |list: &str, job: &str| {
        let tenants = r#"[{"path": "t"}, {"path": "o/u"}, {"path": "o"}]"#;
        said(&format!(r#"{{"nodes": [{{}}], "tenants": {tenants}, "{list}": [{job}]}}"#))
    };
    for (list, job, said) in [
        (
            "pending",
            r#"{"tenant": "x"}"#,
            "pending[0]: tenant \"x\" is not listed; name one of tenants: t, o/u, o",
        ),
        (
            "late",
            r#"{"tenant": "o"}"#,
            "late[0]: tenant \"o\" has children; jobs go to the leaves, for example o/u",
        ),
        (
            "pending",
            r#"{"tenant": "t", "gpus": 1.5}"#,
            "pending[0]: gpus 1.5 of one task; write a whole number up to 16",
        ),
        ("pending", r#"{"tenant": "t", "gpus": -1}"#, "pending[0]: gpus -1 of one task"),
        ("pending", r#"{"tenant": "t", "gpus": 0}"#, "pending[0]: it asks for nothing"),
        ("pending", r#"{"tenant": "t", "tasks": 0}"#, "pending[0]: tasks 0; write 1 to"),
        ("pending", r#"{"tenant": "t", "tasks": 2, "min": 3}"#, "pending[0]: min 3 of 2 tasks"),
        (
            "pending",
            r#"{"tenant": "t", "tasks": 2, "gpus": 8}"#,
            "pending[0]: it could never run on this fleet",
        ),
        ("running", r#"{"tenant": "t", "count": 9}"#, "running[0]: no node has room for task 0 of job 9"),
        ("late", r#"{"tenant": "t", "count": 4000000}"#, "all jobs together have 4000000 tasks"),
    ] {
        let error = with(list, job);
        assert!(error.starts_with(said), "{job} said {error}");
    }
}

#[test]
fn nodes_and_tenants_are_judged_too() {
    for (text, expected) in [
        (r#"{"nodes": [], "tenants": []}"#, "nodes: there are 0; a shape has 1 to"),
        (r#"{"nodes": [{"gpus": 17}], "tenants": []}"#, "nodes[0]: gpus 17 is too many"),
        (r#"{"nodes": [{"model": ""}], "tenants": []}"#, "nodes[0]: model is empty"),
        (r#"{"nodes": [{}], "tenants": [{}]}"#, "tenants[0]: path \"\" is no path"),
        (
            r#"{"nodes": [{}], "tenants": [{"path": "t"}, {"path": "t"}]}"#,
            "tenants[1]: path \"t\" stands twice",
        ),
        (
            r#"{"nodes": [{}], "tenants": [{"path": "t", "weight": -1}]}"#,
            "tenants[0]: weight -1 is no weight",
        ),
        (r#"{"nodes": [{}], "tenants": [{"path": "t", "limit_gpus": -1}]}"#, "tenants[0]: -1 is no amount"),
    ] {
        let error = said(text);
        assert!(error.starts_with(expected), "{text} said {error}");
    }
}
