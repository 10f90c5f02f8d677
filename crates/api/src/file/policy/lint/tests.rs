//! Findings with their lines, and recoveries.

use super::super::default_policy_files;
use super::*;
use crate::file::fleet::{load_fleet, parse_fleet};

fn files(files: &[(&str, &str)]) -> Vec<PolicyFile> {
    let file =
        |&(name, text): &(&str, &str)| PolicyFile { name: name.to_owned(), content: text.as_bytes().into() };
    files.iter().map(file).collect()
}

fn linted(tenants: &str, fleet: Option<&str>) -> Lint {
    let fleet = fleet.map(|name| load_fleet(name).unwrap());
    lint("p", &files(&[("tenants.yaml", tenants)]), fleet.as_ref().map(Inventory::of).as_ref())
}

/// `severity file:line: what | why | fix`, without the file where it is the tenants'.
fn told(found: &Lint) -> Vec<String> {
    let one = |finding: &Finding| {
        let Finding { severity, file, line, column: _, what, why, fix } = finding;
        let file = if file == "p/tenants.yaml" { "" } else { file };
        let line = line.map_or_else(String::new, |line| line.to_string());
        format!("{} {file}:{line}: {what} | {why} | {fix}", severity.into_str())
    };
    found.findings.iter().map(one).collect()
}

const PARENT: &str = "a tenant hands its own guarantee on to its children and cannot hand on more";
const FLEET: &str = "a guarantee is always recoverable; all of them at once have to fit the healthy fleet";

#[test]
fn the_example_files_are_without_findings_on_the_fleet_they_are_made_for() {
    let lab = load_fleet("lab").unwrap();
    let clean = lint("p", &files(default_policy_files()), Some(&Inventory::of(&lab)));
    assert_eq!(told(&clean), [""; 0]);
    assert_eq!(clean.tenants.len(), 5);
    let nlp = &clean.tenants[1];
    assert_eq!((nlp.tenant.as_str(), nlp.guaranteed.as_str()), ("lab/nlp", "8 GPUs"));
    assert_eq!(nlp.recovery, Recovery::Within(Millis::from_secs(311)));
}

#[test]
fn children_that_are_promised_more_than_their_parent_come_with_both_ways_out() {
    let text = "\
tenants:
  lab:
    guaranteed: 8
    children:
      nlp: {guaranteed: 7}
      vision: {guaranteed: 5}
";
    let lint = linted(text, None);
    let fix = "raise lab's guarantee to 12 or lower lab/nlp's by 4";
    let what = "lab is promised 8 GPUs, its children 12 together";
    assert_eq!(told(&lint), [format!("error :3: {what} | {PARENT} | {fix}")]);
    assert_eq!(lint.findings[0].column, Some(5));
    assert_eq!(lint.tenants, [], "nothing is promised by a policy that is refused");

    let narrow = text.replace("guaranteed: 8", "guaranteed: {h100: 2}\n    limit: {h100: 8}");
    let narrow = narrow.replace("guaranteed: 7", "guaranteed: {h100: 7}").replace("5}", "{h100: 5}}");
    let fix = "raise lab's guarantee and limit to 12 or lower its children's by 10 together";
    let what = "lab is promised 2 h100 GPUs, its children 12 together";
    assert_eq!(told(&linted(&narrow, None)), [format!("error :3: {what} | {PARENT} | {fix}")]);
}

#[test]
fn cpu_and_memory_are_proven_too() {
    let text = "\
tenants:
  lab:
    guaranteed: 8
    cpu: {guaranteed: 64}
    memory:
      guaranteed: 1TiB
      limit: 1TiB
    children:
      nlp: {cpu: {guaranteed: 64500m}, memory: {guaranteed: 1536GiB}}
";
    let cpu = "lab is promised 64 cores, its children 64500m together";
    let memory = "lab is promised 1TiB of memory, its children 1536GiB together";
    assert_eq!(
        told(&linted(text, None)),
        [
            format!(
                "error :4: {cpu} | {PARENT} | raise lab's guarantee to 64500m or lower lab/nlp's by 500m"
            ),
            format!(
                "error :6: {memory} | {PARENT} | raise lab's guarantee and limit to 1536GiB or lower lab/nlp's by 512GiB"
            ),
        ]
    );
}

#[test]
fn a_promise_above_a_limit_is_found_also_through_tenants_that_are_not_metered() {
    let why = "a limit is never passed, so the promise cannot be kept";
    let own = linted("tenants:\n  a:\n    guaranteed: 8\n    limit: 4\n", None);
    let fix = "raise a's limit to 8 or lower its guarantee to 4";
    assert_eq!(
        told(&own),
        [format!("error :4: a is promised 8 GPUs, more than its limit of 4 | {why} | {fix}")]
    );
    let below =
        "tenants:\n  a:\n    guaranteed: unlimited\n    limit: 4\n    children: {b: {guaranteed: 6}}\n";
    let fix = "raise a's limit to 6 or lower its children's guarantees by 2 together";
    assert_eq!(
        told(&linted(below, None)),
        [format!("error :4: children of a are promised 6 GPUs, more than its limit of 4 | {why} | {fix}")]
    );
}

#[test]
fn promises_above_the_fleet_are_an_error_at_the_largest_of_them() {
    let one = linted("tenants:\n  lab:\n    guaranteed: 40\n", Some("lab"));
    let fix = "lower lab's guarantee to 32, or add 8 GPUs";
    assert_eq!(
        told(&one),
        [format!("error :3: lab is promised 40 GPUs, the fleet lab has 32 | {FLEET} | {fix}")]
    );
    assert_eq!(one.tenants, []);

    let text = "tenants:\n  a: {guaranteed: 16}\n  b: {guaranteed: 20, cpu: {guaranteed: 600}}\n";
    let fix = "lower guarantees by 4 together (the largest: b 20, a 16), or add 4 GPUs";
    assert_eq!(
        told(&linted(text, Some("lab"))),
        [
            format!(
                "error :3: tenants are promised 36 GPUs together, the fleet lab has 32 | {FLEET} | {fix}"
            ),
            format!(
                "error :3: b is promised 600 cores, the fleet lab has 512 | {FLEET} | lower b's guarantee to 512, or add 88 cores"
            ),
        ]
    );
    assert_eq!(told(&linted(text, None)), [""; 0], "without a fleet nothing is known about it");
}

#[test]
fn gpus_over_all_models_are_counted_by_their_worth() {
    let given = [
        ("pools.yaml", "pools: {a100: {normal: 0.5}, l4: {normal: 0.1}}"),
        ("tenants.yaml", "tenants: {lab: {guaranteed: 51}}"),
    ];
    let mixed = load_fleet("mixed").unwrap();
    let found = lint("p", &files(&given), Some(&Inventory::of(&mixed)));
    let why =
        format!("{FLEET}; by the worth in pools.yaml it has 32 a100 at 1/2, 32 h100 at 1, 24 l4 at 1/10");
    let fix = "lower lab's guarantee to 252/5, or add 3/5 GPUs";
    assert_eq!(
        told(&found),
        [format!("error :1: lab is promised 51 GPUs, the fleet mixed has 252/5 | {why} | {fix}")]
    );
    let fits = given.map(|(name, text)| (name, text.replace("51", "50.4")));
    let fits = fits.each_ref().map(|(name, text)| (*name, text.as_str()));
    assert_eq!(lint("p", &files(&fits), Some(&Inventory::of(&mixed))).count(Severity::Error), 0);
}

#[test]
fn a_promise_below_a_tenant_that_is_not_metered_counts_against_the_fleet() {
    let text =
        "tenants:\n  lab:\n    guaranteed: unlimited\n    children:\n      a:\n        guaranteed: 40\n";
    let fix = "lower lab/a's guarantee to 32, or add 8 GPUs";
    assert_eq!(
        told(&linted(text, Some("lab"))),
        [format!("error :6: lab/a is promised 40 GPUs, the fleet lab has 32 | {FLEET} | {fix}")]
    );
}

#[test]
fn what_others_use_is_not_there_to_be_promised() {
    let fleet =
        "nodes: [{name: n1, gpus: 8, model: h100, cpu: 8, memory: 8GiB, others: {gpus: [0], memory: 1GiB}}]";
    let fleet = parse_fleet("f.yaml", fleet).unwrap();
    let text = "tenants: {a: {guaranteed: {h100: 8}, memory: {guaranteed: 7GiB}}}";
    let found = lint("p", &files(&[("tenants.yaml", text)]), Some(&Inventory::of(&fleet)));
    let why = format!("{FLEET}; what others use of it is not counted");
    let fix = "lower a's guarantee to 7, or add 1 h100 GPU";
    assert_eq!(
        told(&found),
        [format!("error :1: a is promised 8 h100 GPUs, the fleet f.yaml has 7 | {why} | {fix}")]
    );
}

#[test]
fn a_model_that_the_fleet_does_not_have_is_named_with_what_was_perhaps_meant() {
    let text = "\
tenants:
  lab:
    guaranteed: {h10: 8}
    limit:
      h10: 16
  guests: {guaranteed: {tpu: 0}, limit: {tpu: 4}}
";
    let promise = "a guarantee is always recoverable; one in a model that is not there never is";
    let limit = "a limit in a model that the fleet does not have has no effect";
    assert_eq!(
        told(&linted(text, Some("lab"))),
        [
            format!(
                "error :3: lab is promised 8 h10 GPUs, the fleet lab has none | {promise} | write h100 for h10 in the guarantee of lab"
            ),
            format!(
                "warning :5: lab has a limit in h10, the fleet lab has none | {limit} | write h100 for h10 in the limit of lab"
            ),
            format!(
                "warning :6: guests has a limit in tpu, the fleet lab has none | {limit} | take tpu out of the limit of guests; the fleet \
                 has h100"
            ),
        ]
    );
}

#[test]
fn a_limit_that_another_one_hides_is_a_warning() {
    let text = "\
tenants:
  lab:
    limit: 8
    children:
      a:
        children:
          b:
            limit: 16
          c: {limit: 8}
";
    let warning = "lab/a/b has a limit of 16 GPUs, lab above it one of 8";
    let why = "a limit counts for everyone below it too, so lab/a/b stops at 8";
    let fix = "lower lab/a/b's limit to 8 or raise lab's to 16";
    let lint = linted(text, None);
    assert_eq!(told(&lint), [format!("warning :8: {warning} | {why} | {fix}")]);
    assert_eq!(lint.tenants.len(), 4, "a warning takes no promise back");
}

#[test]
fn weights_that_claim_nothing_are_a_warning_where_something_is_left() {
    let text = "\
tenants:
  lab:
    guaranteed: 8
    limit: 16
    children:
      a: {guaranteed: 4, weight: 0}
      b:
        weight: 0
";
    let lint = linted(text, None);
    assert_eq!(lint.findings.len(), 1, "{:?}", told(&lint));
    let finding = &lint.findings[0];
    assert_eq!((finding.severity, finding.line), (Severity::Warning, Some(6)));
    assert_eq!(finding.what, "all children of lab have weight 0");
    let top = linted("tenants: {a: {weight: 0}}", None);
    assert_eq!(top.findings[0].what, "all tenants at the top have weight 0");
    for quiet in [
        // One of them has a claim.
        text.replace("b:\n        weight: 0", "b: {}"),
        // Nothing is left.
        text.replace("limit: 16", "limit: 8").replace("guaranteed: 4", "guaranteed: 8"),
        // Nobody may have more.
        text.replace("guaranteed: 4,", "guaranteed: 4, limit: 4,")
            .replace("b:\n        weight: 0", "b: {weight: 0, limit: 0}"),
    ] {
        assert_eq!(told(&linted(&quiet, None)), [""; 0], "{quiet}");
    }
}

#[test]
fn a_fleet_that_is_promised_whole_is_worth_a_note() {
    let lint =
        linted("tenants:\n  a: {guaranteed: {h100: 12}}\n  b: {guaranteed: {h100: 20}}\n", Some("lab"));
    assert_eq!(lint.findings.len(), 1);
    let finding = &lint.findings[0];
    assert_eq!((finding.severity, finding.line), (Severity::Note, Some(3)));
    assert_eq!(finding.what, "all 32 h100 GPUs of the fleet lab are promised");
    assert_eq!(lint.tenants.len(), 2);
}

#[test]
fn what_cannot_be_read_is_a_finding_and_stops_the_proofs_that_need_all_of_it() {
    let given = [
        ("queue.yaml", "max: 0\n"),
        ("pool.yaml", ""),
        ("tenants.yaml", "tenants:\n  lab: {guarantee: 8}\n  a: {guaranteed: 99, weight: 0}\n"),
    ];
    let fleet = load_fleet("lab").unwrap();
    let lint = lint("p", &files(&given), Some(&Inventory::of(&fleet)));
    let why = "a policy with an error in one file is refused whole: the one in force stays";
    assert_eq!(
        told(&lint),
        [
            format!(
                "error p/pool.yaml:: no file of a policy has this name | {why} | perhaps \"pools.yaml\" was meant; allowed \
                 here: tenants.yaml, pools.yaml, queue.yaml, classes.yaml, preemption.yaml, gangs.yaml, trust.yaml, windows.yaml, history.yaml"
            ),
            format!(
                "error p/queue.yaml:1: max is \"0\" | {why} | allowed here: a whole number from 1 to 1000000"
            ),
            format!(
                "error :2: unknown key \"guarantee\" in tenants.lab | {why} | perhaps \"guaranteed\" was meant; allowed \
                 here: guaranteed, limit, weight, priority, cpu, memory, children"
            ),
        ]
    );
    let none = super::lint("p", &[], None);
    assert_eq!(none.findings[0].what, "the file tenants.yaml is missing");
    assert_eq!((none.findings[0].file.as_str(), none.findings[0].line), ("p", None));
}

#[test]
fn every_tenant_has_its_recovery() {
    let text = "tenants: {a: {guaranteed: 8}, b: {}, c: {guaranteed: unlimited}, d: {cpu: {guaranteed: 4}}}";
    let bounds = [
        ("preemption.yaml", "borrow_grace_max: 1m"),
        ("queue.yaml", "stop_grace: 4s500ms"),
        ("tenants.yaml", text),
    ];
    let recoveries = |given: &[(&str, &str)]| -> Vec<Recovery> {
        lint("p", &files(given), None).tenants.iter().map(|tenant| tenant.recovery).collect()
    };
    let within = Recovery::Within(Millis(65_500));
    assert_eq!(recoveries(&bounds), [within, Recovery::NothingPromised, Recovery::NotMetered, within]);
    let fixed = [("preemption.yaml", "fixed_may_borrow: true"), ("tenants.yaml", text)];
    assert_eq!(recoveries(&fixed)[..2], [Recovery::NoBound, Recovery::NothingPromised]);
}

#[test]
fn trust_domains_of_nobody_are_named() {
    let trust =
        "domains: {joint: {tenants: [lab/nlp, lab/npl]}, vendor: {modes: [mig]}, lab: {modes: [mig]}}\n";
    let tenants = "tenants: {lab: {children: {nlp: {}}}}\n";
    let found = lint("p", &files(&[("tenants.yaml", tenants), ("trust.yaml", trust)]), None);
    let told = told(&found);
    let what = "warning p/trust.yaml:: domains.joint.tenants names lab/npl, and there is no such tenant";
    assert!(told.iter().any(|finding| finding.starts_with(what)), "{told:?}");
    let what = "warning p/trust.yaml:: domains.vendor.modes is about a domain that no job can be in";
    assert!(told.iter().any(|finding| finding.starts_with(what)), "{told:?}");
    assert_eq!(told.iter().filter(|finding| finding.contains("trust.yaml")).count(), 2, "{told:?}");
}
