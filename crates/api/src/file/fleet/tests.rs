//! Fleet files and presets, right and wrong.

use super::*;

fn parsed(text: &str) -> Fleet {
    parse_fleet("fleet.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn error(text: &str) -> String {
    parse_fleet("fleet.yaml", text).expect_err("wrong input is refused").to_string()
}

/// The error of an entry whose keys begin on line 2.
fn entry_error(keys: &str) -> String {
    error(&format!("nodes:\n  - {}\n", keys.replace('\n', "\n    ")))
}

#[test]
fn presets_are_what_they_say() {
    let described: Vec<String> = presets().map(|name| load_fleet(name).unwrap().description).collect();
    assert_eq!(
        described,
        [
            "4 nodes × 8 H100 (32 GPUs)",
            "4 nodes × 8 H100, 4 × 8 A100, 6 × 4 L4, 2 without GPUs (88 GPUs)",
            "32 nodes × 8 H100 (256 GPUs)",
            "12500 nodes × 8 H100 (100000 GPUs)",
        ]
    );
}

#[test]
fn levels_follow_the_position_in_the_file() {
    let pod = load_fleet("pod").unwrap();
    let leaf = |index: usize| pod.nodes[index].node.domains[0].clone();
    assert_eq!((leaf(7), leaf(8), leaf(31)), (("leaf".into(), 0), ("leaf".into(), 1), ("leaf".into(), 3)));
    let giant = load_fleet("giant").unwrap();
    assert_eq!(giant.nodes[1024].node.domains, [("leaf".into(), 32), ("spine".into(), 1)]);
    assert_eq!(
        (giant.nodes[0].node.name.as_str(), giant.nodes[12_499].node.name.as_str()),
        ("n00001", "n12500")
    );
}

#[test]
fn islands_are_unique_in_the_fleet_and_split_a_node_evenly() {
    let fleet = parsed(
        "nodes:\n  - {names: 'n{1..2}', gpus: 8, model: h100, islands: 2, cpu: 1, memory: 1GiB}\n  \
         - {name: x, gpus: 2, model: l4, cpu: 1, memory: 1GiB}\n",
    );
    let islands =
        |index: usize| fleet.nodes[index].node.gpus.iter().map(|gpu| gpu.island).collect::<Vec<_>>();
    assert_eq!(islands(0), [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(islands(1), [2, 2, 2, 2, 3, 3, 3, 3]);
    assert_eq!(islands(2), [4, 5]);
}

#[test]
fn gpus_know_their_socket_root_and_rail() {
    let gpus = &load_fleet("lab").unwrap().nodes[0].node.gpus;
    let attributes: Vec<(u8, u8, u8)> = gpus.iter().map(|gpu| (gpu.numa, gpu.pcie_root, gpu.rail)).collect();
    assert_eq!(attributes[3..5], [(0, 1, 3), (1, 2, 4)]);
    assert!(gpus.iter().all(|gpu| gpu.healthy));
}

#[test]
fn every_key_arrives() {
    let fleet = parsed(
        "nodes:\n  - name: big\n    gpus: 4\n    model: b200\n    cpu: 96\n    memory: 1TiB\n    storage: 2TB\n    \
         nics: 4\n    tasks: 50\n    labels: {zone: east}\n    taints: [{key: maintenance}, {key: team, value: nlp}]\n    \
         levels: {rack: 3}\n    others: {cpu: 2, memory: 1GiB, gpus: [0, 3]}\n",
    );
    let report = &fleet.nodes[0];
    assert_eq!(report.labels["wharf.dev/model"], "b200");
    assert_eq!(report.labels["zone"], "east");
    assert_eq!(report.taints[0], Taint { key: "maintenance".into(), value: String::new() });
    assert_eq!(
        report.node.capacity,
        Resources { cpu_milli: 96_000, memory: 1 << 40, storage: 2_000_000_000_000, pods: 50, nics: 4 }
    );
    assert_eq!(report.node.others, Resources { cpu_milli: 2000, memory: 1 << 30, ..Resources::default() });
    assert_eq!(report.node.others_gpus, GpuMask(0b1001));
    assert_eq!(report.node.domains, [("rack".into(), 3)]);
    assert!(report.node.up);
    assert_eq!(fleet.description, "1 node × 4 B200 (4 GPUs)");
}

#[test]
fn a_node_without_gpus_has_no_model() {
    let fleet = parsed("nodes: [{name: c1, cpu: 4, memory: 8GiB}]");
    assert_eq!(fleet.nodes[0].node.model, "");
    assert!(fleet.nodes[0].labels.is_empty());
    assert_eq!(fleet.description, "1 node without GPUs (0 GPUs)");
}

#[test]
fn wrong_entries_name_line_and_what_is_allowed() {
    for (keys, shown) in [
        ("name: a\ngpu: 8", "3: unknown key \"gpu\" in nodes[0]; did you mean \"gpus\"?"),
        (
            "cpu: 1\nmemory: 1GiB",
            "2: nodes[0] has no name; allowed here: name: n1, or names: n{1..4} for several",
        ),
        (
            "name: a\nnames: a{1..2}",
            "3: nodes[0].names is given together with name; allowed here: one of the two",
        ),
        ("name: a\nnames: ~", "3: nodes[0].names has no value; allowed here: a value, or leave the key out"),
        (
            "names: n{4..1}",
            "2: nodes[0].names is \"n{4..1}\"; allowed here: a pattern with one range such as n{1..32} or n{01..32}",
        ),
        (
            "names: node",
            "2: nodes[0].names is \"node\"; allowed here: a pattern with one range such as n{1..32} or n{01..32}",
        ),
        (
            "names: n{1..999999999}",
            "2: nodes[0].names is \"n{1..999999999}\"; allowed here: at most 100000 nodes",
        ),
        ("name: a\nmemory: 1GiB", "2: the key \"cpu\" is missing in nodes[0]; allowed here: cpu: 128"),
        ("name: a\ngpus: 17", "3: nodes[0].gpus is \"17\"; allowed here: a whole number from 0 to 16"),
        (
            "name: a\ngpus: 8\ncpu: 1",
            "2: the key \"model\" is missing in nodes[0]; allowed here: model: h100",
        ),
        (
            "name: a\nmodel: h100",
            "3: nodes[0].model is given, but the node has no GPUs; allowed here: model together with gpus: 1 to 16",
        ),
        (
            "{name: a, gpus: 8, model: h100, cpu: 1, memory: 1, islands: 3}",
            "2: nodes[0].islands is 3, which does not divide 8 GPUs evenly; allowed here: a divisor of gpus",
        ),
        (
            "{name: a, cpu: 1, memory: 1, others: {cpu: 2}}",
            "2: nodes[0].others use more than the node has; allowed here: cpu and memory of at most the node's own",
        ),
        (
            "{name: a, gpus: 2, model: l4, cpu: 1, memory: 1, others: {gpus: [2]}}",
            "2: nodes[0].others.gpus[0] is \"2\"; allowed here: a whole number from 0 to 1",
        ),
        (
            "{name: a, cpu: 1, memory: 1, levels: {leaf: {size: 0}}}",
            "2: nodes[0].levels.leaf.size is \"0\"; allowed here: a whole number from 1 to 1000000",
        ),
    ] {
        assert_eq!(entry_error(keys), format!("fleet.yaml:{shown}"));
    }
}

#[test]
fn two_nodes_of_one_name_are_refused() {
    assert_eq!(
        error("nodes:\n  - {name: n2, cpu: 1, memory: 1}\n  - {names: 'n{1..3}', cpu: 1, memory: 1}\n"),
        "fleet.yaml:3: nodes[1].names makes a second node \"n2\"; allowed here: every name once"
    );
}

#[test]
fn an_empty_fleet_is_refused() {
    assert!(error("nodes: []\n").starts_with("fleet.yaml:1: nodes is empty; allowed here: nodes: "));
    assert!(error("{}\n").starts_with("fleet.yaml:1: the key \"nodes\" is missing"));
}

#[test]
fn a_fleet_that_is_neither_file_nor_preset_is_explained() {
    assert_eq!(
        load_fleet("labb").unwrap_err().to_string(),
        "labb: neither a file nor a known fleet; did you mean \"lab\"? Allowed here: lab, mixed, pod, giant, or the path of \
         a fleet file"
    );
}
