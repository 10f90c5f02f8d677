//! Wrong lines are named with their place and with what is allowed there; right ones keep their comments.

use super::measure::{bytes, share, span, span_text};
use super::retell;
use wharf_engine::units::{GpuUnits, Millis};

/// The mistake in a scenario that is right up to `line`.
fn mistake(line: &str) -> String {
    let text = format!("# a story\nfleet n1 n2: 8 h100\nquota lab 16 {{ vision 8, nlp 8 }}\n{line}\nplan\n");
    retell("case.txt", &text).unwrap_err().to_string()
}

#[test]
fn a_wrong_word_is_answered_with_the_right_one() {
    let said = mistake("submitt b vision batch 8");
    assert!(
        said.starts_with("case.txt:4: a line does not begin with `submitt`; did you mean `submit`?"),
        "{said}"
    );
    assert!(said.contains("allowed: fleet, quota, policy, running, submit, plan, after"), "{said}");
}

#[test]
fn a_word_far_from_all_is_answered_with_the_list_alone() {
    let said = mistake("explode");
    assert!(said.starts_with("case.txt:4: a line does not begin with `explode`; allowed: fleet,"), "{said}");
}

#[test]
fn every_kind_of_name_is_looked_up() {
    let cases = [
        (
            "submit b visoin batch 8",
            "no tenant is called `visoin`; did you mean `lab/vision`? allowed: lab, lab/vision, lab/nlp",
        ),
        (
            "submit b vision batc 8",
            "there is no class `batc`; did you mean `batch`? allowed: inference, interactive, batch",
        ),
        ("cordon n3", "no node is called `n3`; allowed: n1, n2"),
        ("cancel b", "no job is called `b`; allowed: nothing yet"),
        (
            "node n1 fail",
            "a node `fail`; did you mean `fails`? allowed: fails, unreachable, hangs, refuses, returns",
        ),
        ("running a nlp batch 8 on m1", "no node is called `m1`; allowed: n1, n2"),
        ("lose data", "here comes no `data`; allowed: journal"),
    ];
    for (line, what) in cases {
        assert_eq!(mistake(line), format!("case.txt:4: {what}"), "{line}");
    }
}

#[test]
fn options_that_do_not_exist_are_answered_with_those_that_do() {
    for (line, what, allowed) in [
        ("submit b vision batch 8 gagn", "a job has no `gagn`", "gang, share 0.5"),
        ("fleet n3: 8 h100, purple", "nodes have no `purple`", "one island each, N islands"),
        ("quota lab 8 bound 3", "a tenant has no `bound`", "limit N, limit unlimited, weight N, priority N"),
        ("policy moves 0, mercy 3", "a policy has no `mercy`", "victims N, moves N, fixed may borrow"),
        ("policy within country", "nobody preempts within `country`", "project, team, org"),
    ] {
        let said = mistake(line);
        assert!(said.starts_with(&format!("case.txt:4: {what}")) && said.contains(allowed), "{line}: {said}");
    }
}

#[test]
fn numbers_and_endings_are_checked() {
    let cases = [
        ("submit b vision batch", "how many GPUs does a task need? write `8`, `0` or `share 0.5`"),
        ("submit b vision batch share 1.5", "`1.5` is no share; write a part of one GPU like 0.5 or 0.125"),
        ("submit b vision batch 1 memory 10", "`10` is no size; write it like 10GiB"),
        (
            "submit b vision batch 1 on n1",
            "`on n1` is for `running`; a job that is submitted says `on zone=a`",
        ),
        ("after five", "`five` is no span of time; write it like 30s, 10m or 1h30m"),
        ("after", "the line ends too early; next comes how long, like 5m"),
        ("plan twice", "`twice` is too much; the line ends before it"),
        ("fleet n1: 8 h100", "there are two nodes called `n1`"),
        ("fleet n3: 17 h100", "a node has 1 to 16 GPUs, or `no gpus`"),
        ("quota lab many", "`many` is no number; here comes how many GPUs it is guaranteed, or `unlimited`"),
        ("quota lab 8 cpu 2GiB", "`2GiB` is no amount; write `cpu 64` or `memory 512GiB`"),
        ("policy evictions 1 in 1h", "here comes no `in`; allowed: per"),
        ("quota lab 8 { vision 4", "the line ends too early; next comes `}`"),
        ("quota lab 8", "a second `quota` changes the policy; put `plan` or another step before it"),
        ("running a nlp batch 8", "work that runs is somewhere: add `on n1`"),
        ("running a nlp batch 8 x2 on n1", "n1 has no room for 8 more GPUs beside what runs on it"),
    ];
    for (line, what) in cases {
        assert_eq!(mistake(line), format!("case.txt:4: {what}"), "{line}");
    }
}

#[test]
fn how_things_are_is_told_before_the_story() {
    let said = mistake("plan\nrunning a nlp batch 8 on n1");
    assert!(said.starts_with("case.txt:5: `running` comes before the first step"), "{said}");
    let said = retell("case.txt", "fleet n1: 8 h100\n").unwrap_err().to_string();
    assert_eq!(said, "case.txt:1: the first line is a comment that tells the story: `# …`");
    let said = retell("case.txt", "# nothing\n").unwrap_err().to_string();
    assert_eq!(said, "case.txt:1: there is no `fleet` line");
}

#[test]
fn a_short_name_that_is_not_clear_is_refused() {
    let text = "# two\nfleet n1: 8 h100\nquota a 4 { x 4 }, b 4 { x 4 }\nsubmit j x batch 1\nplan\n";
    let said = retell("case.txt", text).unwrap_err().to_string();
    assert_eq!(said, "case.txt:4: `x` may be [\"a/x\", \"b/x\"]; write the whole path");
}

#[test]
fn expectations_are_rewritten_and_comments_stay() {
    let text = "# one job\nfleet n1: 8 h100\nquota lab 8\n\nsubmit b lab batch 8 # all of it\nplan\n\
                expect   b flies\nexpect b starts on n1 gpus 0-7 # at once\n# the end\n";
    let told = retell("case.txt", text).unwrap();
    let right = "# one job\nfleet n1: 8 h100\nquota lab 8\n\nsubmit b lab batch 8 # all of it\nplan\n\
                 expect b starts on n1 gpus 0-7 # at once\n# the end\n";
    assert_eq!(told.text, right);
    assert!(told.findings.is_empty(), "{:?}", told.findings);
    assert_eq!(retell("case.txt", right).unwrap().text, right, "a right text stays as it is");
}

#[test]
fn a_question_without_an_answer_is_a_finding() {
    let told =
        retell("case.txt", "# one job\nfleet n1: 8 h100\nquota lab 8\nsubmit b lab batch 8\n").unwrap();
    assert_eq!(told.findings, ["check: what the last lines ask for is never answered; add `plan`"]);
}

#[test]
fn measures_read_back_as_they_were_written() {
    for text in ["500ms", "30s", "10m", "1h30m", "2d", "1m5s500ms"] {
        assert_eq!(span_text(span(text).unwrap()), text);
    }
    assert_eq!(span_text(Millis(0)), "0s");
    assert_eq!((bytes("10GiB"), bytes("10"), bytes("GiB")), (Some(10 << 30), None, None));
    assert_eq!(share("0.5"), Ok(GpuUnits::from_parts(1500)));
    assert_eq!(share("0.125"), Ok(GpuUnits::from_parts(375)));
}
