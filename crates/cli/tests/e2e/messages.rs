//! What wrong input is answered with, word for word: `messages.txt` has a command, what it says, and its exit code.
//!
//! `WHARF_BLESS=1` writes the file anew. Read every changed line: each should say what is wrong, why, and what to do next, without
//! the words of a library.

use std::fs;
use std::path::Path;

use crate::server::{Server, wharf};

/// Files that the commands hand in, each wrong in its own way.
const FILES: &[(&str, &str)] = &[
    (
        "train.sh",
        "#!/bin/bash\n#SBATCH --job-name=train\n#SBATCH --gres=gpu:4 -N 2\n#SBATCH -p gpu -t 12:00:00\nsrun x\n",
    ),
    ("script.sh", "#!/bin/sh\npython train.py\n"),
    (
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - image: x\n    resources: {limits: {nvidia.com/gpu: 2}}\n",
    ),
    ("image.yaml", "name: a\ntenant: lab/nlp\nimage: pytorch\n"),
    ("model.yaml", "name: a\ntenant: lab/nlp\ngpu: h100\n"),
    ("key.yaml", "name: a\ntenant: lab/nlp\ngpu_count: 8\n"),
    ("time.yaml", "name: a\ntenant: lab/nlp\ntime: 4h\n"),
    ("prefer.yaml", "name: a\ntenant: lab/nlp\ntopology: {prefer: rack}\n"),
    ("colon.yaml", "name: a\ntenant: lab: nlp\n"),
    ("quote.yaml", "name: \"a\ntenant: lab/nlp\n"),
    ("tab.yaml", "name: a\n\ttenant: lab/nlp\n"),
    ("bracket.yaml", "name: a\ntenant: lab/nlp\ngpu: {model: [h100\n"),
    ("twice.yaml", "name: a\nname: b\ntenant: lab/nlp\n"),
    ("empty.yaml", ""),
    ("list.yaml", "- a\n- b\n"),
];

/// Every command, in the order in which they are typed.
const COMMANDS: &[&str] = &[
    // Words that are none.
    "sumbit",
    "get",
    "get job s",
    "get nods",
    "get jobs -o xml",
    "get jobs --state asleep",
    "get jobs --tennant lab",
    "get nodes --tenant lab",
    "top --twice",
    "scale a many",
    "extend a",
    "extend a --limit 1h --by 1h",
    "submit",
    "submit a.yaml --gpus 1",
    "submit --gpus 1",
    "submit --name a --gpus 1",
    "cordon",
    "drain",
    "maintain n1",
    // Files.
    "submit nowhere.yaml",
    "submit train.sh",
    "submit script.sh",
    "submit pod.yaml",
    "submit image.yaml",
    "submit model.yaml",
    "submit key.yaml",
    "submit time.yaml",
    "submit prefer.yaml",
    "submit colon.yaml",
    "submit quote.yaml",
    "submit tab.yaml",
    "submit bracket.yaml",
    "submit twice.yaml",
    "submit empty.yaml",
    "submit list.yaml",
    // Values.
    "submit --name A_B --tenant lab/nlp --gpus 1",
    "submit --name a --tenant /lab --gpus 1",
    "submit --name a --tenant lab/nlp --gpus many",
    "submit --name a --tenant lab/nlp --gpus h100:8",
    "submit --name a --tenant lab/nlp --gpus 17",
    "submit --name a --tenant lab/nlp --tasks 0",
    "submit --name a --tenant lab/nlp --memory lots",
    "submit --name a --tenant lab/nlp --cpu two",
    "submit --name a --tenant lab/nlp --class bach",
    "submit --name a --tenant lab/nlp --priority high",
    "submit --name a --tenant lab/nlp --duration 5",
    "submit --name a --tenant lab/nlp --gpus -1",
    "submit --name a --tenant lab/nlp --array -1",
    "submit --name a --tenant lab/nlp --label team",
    "submit --name a --tenant lab/nlp --label =red",
    "submit --name a --tenant lab/nlp --label team=red --label team=blue",
    "usage --since -1h",
    "scale job/hello -1",
    "wait --for=done=256 job/hello",
    "sim-fault gpu/n1:1 --down",
    "sim-fault node/n1 --xid 79",
    // Things that are not there.
    "submit --name a --tenant lab/nlpp --gpus 1",
    "submit --name a --tenant nlp --gpus 1",
    "submit --name a --tenant lab --gpus 1",
    "submit --name a --tenant lab/nlp --gpus 1 --model h10",
    "submit --name a --tenant lab/nlp --gpus 1 --booking friday",
    "submit --name a --tenant lab/nlp --gpus 8 --tasks 9",
    "submit --name a --tenant lab/nlp --gpus 1 --cpu 1000",
    "submit --name a --tenant lab/nlp --gpus 0 --memory 60TiB",
    "plan --name a --tenant lab/nlp --gpus 8 --cpu 500",
    "get jobs --tenant lab/nlpp",
    "get tenants --tenant nope",
    "get gpus n9",
    "explain job/helo",
    "explain tenant/lab/visoin",
    "explain node/n11",
    "explain gpu/n1:99",
    "explain model/h10",
    "explain eviction/1",
    "cancel job/helo",
    "cancel job/helo booking/friday",
    "cancel booking/friday",
    "cancel maintenance/fans",
    "evict job/helo",
    "cordon n9",
    "cordon n1 n9",
    "drain n11",
    "drain n1 --within soon",
    "undrain n1",
    "maintain n1 --from tomorrow --for 4h",
    "maintain n9 --from +1h --for 4h",
    "book --tenant lab/nlp --gpus 8 --from +1m --for 1h",
    "book --tenant lab/nlp --gpus 8 --from later --for 1h",
    // What cannot be done to what is there.
    "scale job/hello 3",
    "extend job/hello --by 1h",
    "replace job/hello",
    "submit --name hello --tenant lab/nlp --gpus 1",
    "uncordon n2",
    "--server ftp://x get jobs",
    "--server http://127.0.0.1:1 get jobs",
    "policy lint nowhere",
    "policy lint . --fleet nofleet",
];

fn wrong_files(dir: &Path) {
    for (name, text) in FILES {
        fs::write(dir.join(name), text).unwrap();
    }
}

/// Moments that are not in what was typed depend on the day.
fn without_moments(text: &str) -> String {
    let line = |line: &str| match line.split_once("begin is ") {
        Some((before, _)) => format!("{before}begin is MOMENT\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn wrong_input_is_answered_word_for_word() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    wrong_files(dir.path());
    let hello = server.run(&["submit", "--tenant", "lab/nlp", "--gpus", "1", "--name", "hello"]);
    assert!(hello.status.success());
    let mut said = String::new();
    for command in COMMANDS {
        let mut run = wharf();
        run.env("WHARF_SERVER", &server.address).current_dir(dir.path()).args(command.split(' '));
        let output = run.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&server.address, "http://SERVER");
        let (out, err) = (text(&output.stdout), without_moments(&text(&output.stderr)));
        let code = output.status.code().unwrap();
        said += &[&format!("$ wharf {command}\n"), &out, &err, &format!("exit {code}\n\n")]
            .map(String::as_str)
            .concat();
    }
    for word in ["serde", "saphyr", "clap", "hyper", "ureq", "os error", "at line", "(internal)", "panicked"]
    {
        assert!(!said.contains(word), "{word:?} is no word for users:\n{said}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/messages.txt");
    if std::env::var_os("WHARF_BLESS").is_some_and(|value| value == "1") {
        return fs::write(path, said).unwrap();
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(said, expected, "WHARF_BLESS=1 accepts");
}

#[test]
fn an_address_that_is_taken_is_told_with_a_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("first"), &[]);
    let taken = server.address.strip_prefix("http://").unwrap();
    let data = dir.path().join("second");
    let output = wharf().args(["up", "--listen", taken, "--data"]).arg(&data).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("cannot listen on {taken}: another process listens there")), "{said}");
    assert!(
        said.contains("(cannot_start)") && said.contains(" next: stop that process, or choose"),
        "{said}"
    );
}
