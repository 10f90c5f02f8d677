//! Files and directories on a real disk.

#![expect(clippy::unwrap_used, reason = "clippy does not see that the functions around tests are tests too")]

use std::fs;
use std::path::{Path, PathBuf};

use wharf_api::file::fleet::load_fleet;
use wharf_api::file::job::load_job;
use wharf_api::file::policy::{default_policy_files, load_policy};

/// An empty directory of that name.
fn directory(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn errors(dir: &Path) -> Vec<String> {
    let shown =
        |error: &wharf_api::file::FileError| error.to_string().replace(&format!("{}", dir.display()), "DIR");
    load_policy(dir).expect_err("wrong input is refused").iter().map(shown).collect()
}

#[test]
fn a_policy_directory_is_read_and_other_files_in_it_are_left_alone() {
    let dir = directory("policy-right");
    for (name, text) in default_policy_files() {
        fs::write(dir.join(name), text).unwrap();
    }
    let digest = load_policy(&dir).unwrap().digest;
    fs::write(dir.join("README.md"), "# Ours").unwrap();
    fs::write(dir.join(".tenants.yaml"), "left: by an editor").unwrap();
    assert_eq!(load_policy(&dir).unwrap().digest, digest);
    assert_eq!(digest.len(), 64);
    fs::write(dir.join("history.yaml"), "keep: 1d").unwrap();
    assert_ne!(load_policy(&dir).unwrap().digest, digest);
}

#[test]
fn all_errors_of_a_directory_are_reported_with_their_files() {
    let dir = directory("policy-wrong");
    fs::write(dir.join("tenants.yaml"), b"tenants:\n  a: \xff\n").unwrap();
    fs::write(dir.join("queue.yaml"), "max: many\n").unwrap();
    fs::write(dir.join("pools.yml"), "").unwrap();
    let shown = errors(&dir);
    assert_eq!(shown.len(), 3, "{shown:?}");
    let misspelt = "DIR/pools.yml: no file of a policy has this name; did you mean \"pools.yaml\"?";
    assert!(shown[0].starts_with(misspelt), "{shown:?}");
    assert!(shown[1].starts_with("DIR/queue.yaml:1: max is \"many\""), "{shown:?}");
    assert_eq!(shown[2], "DIR/tenants.yaml:2: a byte that is not UTF-8; allowed here: UTF-8 text");
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let dir = directory("policy-none").join("gone");
    let shown = errors(&dir);
    assert!(shown[0].starts_with("DIR: cannot be read as a policy directory: "), "{shown:?}");
    assert_eq!(shown.len(), 1);
}

#[test]
fn an_empty_directory_has_no_tenants() {
    let dir = directory("policy-empty");
    assert_eq!(
        errors(&dir),
        ["DIR: the file tenants.yaml is missing; allowed here: tenants: {lab: {guaranteed: 8}}"]
    );
}

#[test]
fn jobs_and_fleets_are_read_from_files() {
    let dir = directory("files");
    let path = dir.join("job.yaml");
    fs::write(&path, "name: a\ntenant: lab\n").unwrap();
    assert_eq!(load_job(&path).unwrap().name, "a");
    fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    let large = load_job(&path).unwrap_err().to_string();
    assert!(
        large.ends_with("job.yaml:1: the file is larger than 1 MiB; allowed here: at most 1 MiB of text"),
        "{large}"
    );
    let path = dir.join("fleet.yaml");
    fs::write(&path, "nodes: [{name: a, cpu: 1, memory: 1GiB}]").unwrap();
    assert_eq!(load_fleet(&path.display().to_string()).unwrap().nodes.len(), 1);
    let directory = load_fleet(&dir.display().to_string()).unwrap_err();
    assert!(directory.what.starts_with("cannot be "), "{directory}");
}
