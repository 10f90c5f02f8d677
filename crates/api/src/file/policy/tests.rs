//! Policy directories, right and wrong.

use wharf_engine::model::policy::{Amount, GpuQuota, Quota, Tenant};

use super::super::fleet::{load_fleet, presets};
use super::lint::Inventory;
use super::*;

fn files(files: &[(&str, &str)]) -> Vec<PolicyFile> {
    let file = |(name, content): &(&str, &str)| PolicyFile {
        name: (*name).into(),
        content: content.as_bytes().into(),
    };
    files.iter().map(file).collect()
}

fn tenants(text: &str) -> Vec<Tenant> {
    compile("p", &files(&[("tenants.yaml", text)]))
        .unwrap_or_else(|errors| panic!("{errors:?}\n{text}"))
        .tenants
}

fn errors(given: &[(&str, &str)]) -> Vec<String> {
    let errors = compile("p", &files(given)).expect_err("wrong input is refused");
    errors.iter().map(ToString::to_string).collect()
}

fn tenant_errors(text: &str) -> Vec<String> {
    errors(&[("tenants.yaml", text)])
}

fn of(guaranteed: u64, limit: Option<u64>) -> Quota {
    let gpus = |count: u64| Amount::Of(count * 3000);
    Quota { guaranteed: gpus(guaranteed), limit: limit.map_or(Amount::Unlimited, gpus) }
}

#[test]
fn the_default_files_are_a_policy_for_32_gpus() {
    let policy = compile("p", &files(default_policy_files())).unwrap();
    let paths: Vec<&str> = policy.tenants.iter().map(|tenant| tenant.path.as_str()).collect();
    assert_eq!(paths, ["lab", "lab/nlp", "lab/vision", "lab/eval", "lab/serving"]);
    assert_eq!(policy.tenants[0].gpus, GpuQuota::Any(of(28, Some(32))));
    assert_eq!(policy.tenants[1].weight, 2);
    assert_eq!(policy.normal_of("a100"), 500);
    let built_in = Policy::default();
    assert_eq!(policy.queue_len_max, built_in.queue_len_max);
    assert_eq!(policy.retry_backoff_max, built_in.retry_backoff_max);
    assert_eq!(policy.history_keep, built_in.history_keep);
    assert_eq!((policy.preemption, policy.gangs), (built_in.preemption, built_in.gangs));
    let without: Vec<_> =
        default_policy_files().iter().copied().filter(|(name, _)| *name != "queue.yaml").collect();
    let without = compile("p", &files(&without)).unwrap();
    assert_eq!(
        (policy.reservations_max, without.reservations_max),
        (8, 8),
        "what the manual calls the default"
    );
}

#[test]
fn what_is_left_out_has_its_default() {
    let lab = &tenants("tenants: {lab: {}}")[0];
    assert_eq!(lab.gpus, GpuQuota::Any(Quota::NONE));
    assert_eq!((lab.cpu, lab.memory), (Quota::UNMETERED, Quota::UNMETERED));
    assert_eq!((lab.weight, lab.priority), (1, 0));
}

#[test]
fn amounts_are_exact_and_may_be_unlimited() {
    let text = "tenants:\n  a: {guaranteed: 0.5, limit: \"4/3\"}\n  b: {guaranteed: unlimited}\n  \
                c: {cpu: {limit: 64}, memory: {guaranteed: 1GiB}}\n";
    let read = tenants(text);
    let exact = Quota { guaranteed: Amount::Of(1500), limit: Amount::Of(4000) };
    assert_eq!(read[0].gpus, GpuQuota::Any(exact));
    assert_eq!(read[1].gpus, GpuQuota::Any(Quota::UNMETERED));
    assert_eq!(read[2].cpu, Quota { guaranteed: Amount::Of(0), limit: Amount::Of(64_000) });
    assert_eq!(read[2].memory, Quota { guaranteed: Amount::Of(1 << 30), limit: Amount::Unlimited });
}

#[test]
fn pools_are_counted_apart_where_maps_are_written() {
    let read = tenants("tenants: {a: {guaranteed: {h100: 8}, limit: {l4: 4}}, b: {}}");
    let pools = vec![("h100".to_owned(), of(8, None)), ("l4".to_owned(), of(0, Some(4)))];
    assert_eq!(read[0].gpus, GpuQuota::PerPool(pools));
    assert_eq!(read[1].gpus, GpuQuota::PerPool(vec![]));
}

#[test]
fn both_ways_of_counting_in_one_policy_are_refused_with_both_lines() {
    assert_eq!(
        tenant_errors("tenants:\n  a: {guaranteed: 8}\n  b:\n    limit: {h100: 8}\n"),
        [
            "p/tenants.yaml:4: GPUs are counted over all models in line 2 and per model in line 4; allowed here: one \
             way for all tenants: numbers, or maps such as {h100: 8}"
        ]
    );
}

#[test]
fn a_promise_above_the_limit_or_the_parent_is_refused() {
    assert_eq!(
        tenant_errors("tenants:\n  a:\n    guaranteed: 8\n    limit: 4\n"),
        [
            "p/tenants.yaml:4: a is promised 8 GPUs, more than its limit; allowed here: guaranteed of at most 4"
        ]
    );
    assert_eq!(
        tenant_errors(
            "tenants:\n  a:\n    guaranteed: 8\n    children: {b: {guaranteed: 6}, c: {guaranteed: 3}}\n"
        ),
        [
            "p/tenants.yaml:3: a is promised 8 GPUs, its children 9 together; allowed here: guaranteed of at least 9 or \
             unlimited"
        ]
    );
    assert_eq!(
        tenant_errors("tenants:\n  a: {children: {b: {guaranteed: {h100: 6}}}}\n"),
        [
            "p/tenants.yaml:2: a is promised 0 h100 GPUs, its children 6 together; allowed here: guaranteed of at least 6 \
             or unlimited"
        ]
    );
    // Not metered above: nothing to fit into.
    tenants("tenants: {a: {guaranteed: unlimited, children: {b: {guaranteed: 6, cpu: {guaranteed: 4}}}}}");
}

#[test]
fn a_tenant_that_is_not_metered_passes_the_promises_below_it_on() {
    let below = |lab: &str| {
        let a = "a: {guaranteed: unlimited, children: {x: {guaranteed: 12}}}";
        format!("tenants:\n  lab:\n    {lab}\n    children:\n      {a}\n")
    };
    assert_eq!(
        tenant_errors(&below("guaranteed: 8")),
        [
            "p/tenants.yaml:3: lab is promised 8 GPUs, its children 12 together; allowed here: guaranteed of at least 12 \
             or unlimited"
        ]
    );
    assert_eq!(
        tenant_errors(&below("guaranteed: unlimited\n    limit: 8")),
        [
            "p/tenants.yaml:4: children of lab are promised 12 GPUs, more than its limit; allowed here: guaranteed of at \
             most 8"
        ]
    );
}

/// The sum once passed 64 bits: sixteen times 2^60 bytes were nothing at all, and fitted anywhere.
#[test]
fn a_sum_of_promises_that_passes_64_bits_fits_nowhere() {
    let children: Vec<String> =
        (0..16).map(|i| format!("c{i}: {{memory: {{guaranteed: 1024PiB}}}}")).collect();
    let text = format!(
        "tenants:\n  a:\n    memory: {{guaranteed: 1TiB}}\n    children: {{{}}}\n",
        children.join(", ")
    );
    let shown = tenant_errors(&text);
    assert!(
        shown[0].starts_with("p/tenants.yaml:3: a is promised 1TiB of memory, its children "),
        "{shown:?}"
    );
}

#[test]
fn wrong_values_name_line_and_what_is_allowed() {
    for (text, shown) in [
        (
            "tenants:\n  lab: {guarantee: 8}\n",
            "2: unknown key \"guarantee\" in tenants.lab; did you mean \"guaranteed\"? Allowed here: guaranteed, limit, \
             weight, priority, cpu, memory, children",
        ),
        (
            "tenants:\n  lab: {guaranteed: 0.0001}\n",
            "2: tenants.lab.guaranteed is \"0.0001\"; allowed here: GPUs such as 16, 0.5 or \"1/3\", or unlimited",
        ),
        (
            "tenants:\n  lab:\n    limit: [8]\n",
            "3: tenants.lab.limit is a list; allowed here: GPUs such as 16, 0.5 or \"1/3\", or unlimited",
        ),
        (
            "tenants:\n  Lab: {}\n",
            "2: tenants.Lab is no name; allowed here: names of lower-case letters, digits, '-' and '.', at most 63 \
             characters",
        ),
        ("tenants:\n  lab:\n", "2: tenants.lab has no value; allowed here: a value, or leave the key out"),
        ("tenants: {}\n", "1: tenants is empty; allowed here: at least one tenant"),
        ("tenants: 3\n", "1: tenants is \"3\"; allowed here: a map of keys and values"),
        ("tenant: {}\n", "1: unknown key \"tenant\"; did you mean \"tenants\"? Allowed here: tenants"),
        (
            "tenants:\n  lab: {weight: -1}\n",
            "2: tenants.lab.weight is \"-1\"; allowed here: a whole number from 0 to 1000000",
        ),
        (
            "tenants:\n  lab: {memory: {limit: much}}\n",
            "2: tenants.lab.memory.limit is \"much\"; allowed here: a size such as 512GiB, or unlimited",
        ),
    ] {
        assert_eq!(tenant_errors(text), [format!("p/tenants.yaml:{shown}")]);
    }
}

#[test]
fn a_tree_that_is_too_deep_is_refused() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let text =
        names.iter().rev().fold("{}".to_owned(), |inner, name| format!("{{children: {{{name}: {inner}}}}}"));
    let text = text.replacen("{children:", "{tenants:", 1);
    let shown = tenant_errors(&text);
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(shown[0].contains("is too deep; allowed here: at most 6 levels"), "{shown:?}");
}

#[test]
fn every_error_of_a_directory_is_reported() {
    let shown = errors(&[
        ("history.yaml", "keep: 30\n"),
        ("queue.yaml", "max: 0\n"),
        ("tenants.yaml", "tenants:\n  a: {wait: 1}\n  b: {limit: x}\n"),
    ]);
    let starts: Vec<&str> = shown.iter().map(|text| text.split(" is ").next().unwrap()).collect();
    assert_eq!(starts.len(), 4, "{shown:?}");
    assert!(starts[0].starts_with("p/history.yaml:1: keep"), "{shown:?}");
    assert!(starts[1].starts_with("p/queue.yaml:1: max"), "{shown:?}");
    assert!(starts[2].starts_with("p/tenants.yaml:2: unknown key \"wait\""), "{shown:?}");
    assert!(starts[3].starts_with("p/tenants.yaml:3: tenants.b.limit"), "{shown:?}");
}

#[test]
fn a_file_nobody_would_read_is_refused() {
    let tenants = ("tenants.yaml", "tenants: {a: {}}");
    let listed = "tenants.yaml, pools.yaml, queue.yaml, classes.yaml, preemption.yaml, gangs.yaml, trust.yaml, windows.yaml, history.yaml";
    assert_eq!(
        errors(&[tenants, ("pool.yaml", "")]),
        [format!(
            "p/pool.yaml: no file of a policy has this name; did you mean \"pools.yaml\"? Allowed here: {listed}"
        )]
    );
    assert_eq!(
        errors(&[tenants, ("idle.yaml", "")]),
        [format!("p/idle.yaml: not supported yet; allowed here: {listed}")]
    );
    assert_eq!(
        errors(&[("queue.yaml", "max: 5")]),
        ["p: the file tenants.yaml is missing; allowed here: tenants: {lab: {guaranteed: 8}}"]
    );
}

#[test]
fn pools_queue_and_history_are_read() {
    let policy = compile(
        "p",
        &files(&[
            ("tenants.yaml", "tenants: {a: {}}"),
            ("pools.yaml", "pools: {h100: {normal: 1.0}, l4: {normal: 0.125}, t4: {}}"),
            ("queue.yaml", "max: 5\nretry_backoff: 1s\nretry_backoff_max: 2s\nstop_grace: 0s"),
            ("history.yaml", "keep: 2d"),
        ]),
    )
    .unwrap();
    assert_eq!(policy.normal_milli, [("h100".to_owned(), 1000), ("l4".to_owned(), 125)]);
    assert_eq!((policy.queue_len_max, policy.stop_grace), (5, Millis(0)));
    assert_eq!((policy.retry_backoff, policy.retry_backoff_max), (Millis(1000), Millis(2000)));
    assert_eq!(policy.history_keep, Millis::from_secs(2 * 86_400));
}

#[test]
fn a_backoff_above_its_maximum_is_refused() {
    assert_eq!(
        errors(&[
            ("tenants.yaml", "tenants: {a: {}}"),
            ("queue.yaml", "retry_backoff: 2h\nretry_backoff_max: 1h\n")
        ]),
        [
            "p/queue.yaml:2: retry_backoff is longer than retry_backoff_max; allowed here: retry_backoff of at most 1h"
        ]
    );
}

#[test]
fn the_digest_follows_content_and_names_but_not_order() {
    let one = files(&[("tenants.yaml", "tenants: {a: {}}"), ("queue.yaml", "max: 5")]);
    let swapped: Vec<PolicyFile> = one.iter().rev().cloned().collect();
    let changed = files(&[("tenants.yaml", "tenants: {a: {}}"), ("queue.yaml", "max: 6")]);
    assert_eq!(digest(&one), digest(&swapped));
    assert_ne!(digest(&one), digest(&changed));
    let moved = |content: [&str; 2]| digest(&files(&[("a", content[0]), ("b", content[1])]));
    assert_ne!(moved(["xb", ""]), moved(["x", "b"]));
}

#[test]
fn the_example_fits_a_fleet_of_any_size() {
    for gpus in [1, 8, 32, 88, 256, 100_000] {
        let scaled = scaled_to(gpus);
        let files: Vec<PolicyFile> = scaled
            .into_iter()
            .map(|(name, text)| PolicyFile { name: name.to_owned(), content: text.into_bytes() })
            .collect();
        let policy = compile("p", &files).unwrap();
        let top = &policy.tenants[0];
        assert_eq!(
            top.gpus,
            GpuQuota::Any(Quota {
                guaranteed: Amount::Of(28 * gpus / 32 * 3000),
                limit: Amount::Of(gpus * 3000),
            }),
            "{gpus} GPUs"
        );
    }
}

#[test]
fn the_example_is_clean_on_every_fleet_that_is_built_in() {
    for name in presets() {
        let fleet = Inventory::of(&load_fleet(name).unwrap());
        let files: Vec<PolicyFile> = default_policy_for(&fleet)
            .into_iter()
            .map(|(name, text)| PolicyFile { name: name.to_owned(), content: text.into_bytes() })
            .collect();
        let found = lint::lint("p", &files, Some(&fleet)).findings;
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

/// Where a file or a key is left out, what the example says holds, so that the example can be read as the manual.
#[test]
fn what_the_example_says_is_what_holds_without_it() {
    let whole = compile("p", &files(default_policy_files())).unwrap();
    let bare: Vec<(&str, &str)> = default_policy_files()
        .iter()
        .map(|&(name, text)| (name, text))
        .filter(|(name, _)| ["tenants.yaml", "pools.yaml"].contains(name))
        .collect();
    let bare = compile("p", &files(&bare)).unwrap();
    assert_eq!(Policy { digest: String::new(), ..whole.clone() }, Policy { digest: String::new(), ..bare });
    assert_eq!(whole.half_life, Some(Millis::from_secs(86_400)), "yesterday counts");
    assert!(
        whole.estimates.learned && whole.reservations_max > 0 && !whole.no_backfill,
        "starts are promised"
    );
}

#[test]
fn bounds_on_text_are_read_and_have_an_order() {
    let with = |queue: &str| {
        compile("p", &files(&[("tenants.yaml", "tenants: {a: {}}"), ("queue.yaml", queue)]))
            .map(|policy| policy.bytes_max)
            .map_err(|errors| errors[0].to_string())
    };
    let read = with("bytes_max: {job: 4KiB, tenant: 1MiB}\n").unwrap();
    assert_eq!((read.job, read.tenant, read.all), (4096, 1 << 20, 256 << 20));
    for (wrong, said) in [
        ("bytes_max: {job: 2MiB}", "a size from 1KiB to 1MiB"),
        ("bytes_max: {all: 100}", "a size from 1KiB to 1GiB"),
        ("bytes_max: {tenant: 300MiB}", "job of at most tenant, tenant of at most all"),
        ("bytes_max: {tenants: 300MiB}", "did you mean \"tenant\"?"),
    ] {
        let error = with(wrong).unwrap_err();
        assert!(error.starts_with("p/queue.yaml:1: ") && error.contains(said), "{wrong}: {error}");
    }
}
