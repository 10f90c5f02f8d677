//! Doors for fuzzers: bytes in, every promise about parsers asserted.
//!
//! `fuzz/` calls these with libFuzzer; the test below calls them with seeded mutations of good files, so that
//! the promises hold in every build without a special compiler.

use wharf_engine::units::{Timestamp, Uid};

use crate::file::FileError;
use crate::file::booking::parse_booking;
use crate::file::fleet::parse_fleet;
use crate::file::job::parse_job;
use crate::file::policy::lint::{Severity, lint};
use crate::file::policy::{PolicyFile, compile, default_policy_files};

/// A job file: it is read, and then survives the wire, or is refused with file and line.
pub fn job(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match parse_job("job.yaml", text) {
        Ok(job) => {
            let wire = serde_json::to_string(&job).expect("a job is always a document");
            assert_eq!(parse_job("wire", &wire).as_ref(), Ok(&job), "the wire keeps the job: {wire}");
            let spec = job.submission(Uid(1)).spec;
            assert!(spec.min >= 1, "a gang has a task");
            assert!(spec.min <= spec.tasks, "a gang is part of the job");
        }
        Err(error) => assert_located(&error, "job.yaml", text),
    }
}

/// A booking file: it is read, and then survives the wire, or is refused with file and line.
pub fn booking(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match parse_booking("booking.yaml", text) {
        Ok(booking) => {
            let wire = serde_json::to_string(&booking).expect("a booking is always a document");
            assert_eq!(
                parse_booking("wire", &wire).as_ref(),
                Ok(&booking),
                "the wire keeps the booking: {wire}"
            );
            let request = booking.request(Uid(1), Timestamp(0));
            assert!(!request.job.spec.name.is_empty(), "a booking has a name");
        }
        Err(error) => assert_located(&error, "booking.yaml", text),
    }
}

/// A policy directory of one file, whose name is chosen by the first byte.
pub fn policy(data: &[u8]) {
    let Some((choice, content)) = data.split_first() else {
        return;
    };
    let names = default_policy_files();
    let name = names[usize::from(*choice) % names.len()].0;
    let text = String::from_utf8_lossy(content);
    let mut files = vec![PolicyFile { name: name.to_owned(), content: content.to_vec() }];
    if name != "tenants.yaml" {
        files.push(PolicyFile { name: "tenants.yaml".to_owned(), content: b"tenants: {lab: {}}".to_vec() });
    }
    let compiled = compile("policy", &files);
    let found = lint("policy", &files, None).findings;
    let errors = found.iter().filter(|finding| finding.severity == Severity::Error).count();
    assert_eq!(
        errors,
        compiled.as_ref().err().map_or(0, Vec::len),
        "lint refuses what a load refuses: {found:?}"
    );
    match compiled {
        Ok(policy) => assert!(!policy.tenants.is_empty(), "a policy names somebody"),
        Err(errors) => {
            assert!(!errors.is_empty(), "a refusal says why");
            for error in &errors {
                assert_located(error, &format!("policy/{name}"), &text);
            }
        }
    }
}

/// A fleet file.
pub fn fleet(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match parse_fleet("fleet.yaml", text) {
        Ok(fleet) => assert!(!fleet.nodes.is_empty(), "a fleet has nodes"),
        Err(error) => assert_located(&error, "fleet.yaml", text),
    }
}

fn assert_located(error: &FileError, file: &str, text: &str) {
    assert_eq!(error.file, file, "an error names its file: {error}");
    assert!(error.line.is_some() || text.is_empty(), "an error names its line: {error}");
    // A byte order mark or an odd line end may be counted differently, but never beyond all of them.
    let ends = text.chars().filter(|c| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')).count();
    let last = u64::try_from(ends).unwrap_or(u64::MAX).saturating_add(2);
    assert!(error.line.is_none_or(|line| (1..=last).contains(&line)), "the line exists: {error}");
    assert_eq!(error.to_string().lines().count(), 1, "an error is one line: {error}");
}

#[cfg(test)]
mod tests {
    use crate::file::policy::default_policy_files;

    /// Pieces that parsers trip over.
    const PIECES: &[&[u8]] = &[
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b": ",
        b"\n",
        b"  ",
        b"\t",
        b"- ",
        b"*a",
        b"&a ",
        b"<<: *a",
        b"\"",
        b"'",
        b"#",
        b"|\n",
        b">-\n",
        b"~",
        b"null",
        b"-1",
        b"0",
        b"99999999999999999999",
        b"1e999",
        b".inf",
        b"1/0",
        b"{1..9}",
        b"---\n",
        b"...",
        b"!!int ",
        b"!x ",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\0",
        b"? ",
        b"%YAML 9\n",
        b"unlimited",
        b"\r",
        "é".as_bytes(),
        "\u{2028}".as_bytes(),
    ];

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        fn below(&mut self, end: usize) -> usize {
            usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
        }
    }

    /// One to four small changes.
    fn mutated(random: &mut Random, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() + 1);
            let end = (at + random.below(12)).min(bytes.len());
            match random.below(5) {
                0 => drop(bytes.drain(at..end)),
                1 => drop(bytes.splice(at..at, PIECES[random.below(PIECES.len())].iter().copied())),
                2 => drop(bytes.splice(at..end, PIECES[random.below(PIECES.len())].iter().copied())),
                3 => bytes.truncate(at),
                _ => {
                    let copy = bytes[at..end].to_vec();
                    let to = random.below(bytes.len() + 1);
                    drop(bytes.splice(to..to, copy));
                }
            }
        }
        bytes
    }

    fn run(seeds: &[Vec<u8>], rounds: usize, target: fn(&[u8])) {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for seed in seeds {
            target(seed);
        }
        for round in 0..rounds {
            target(&mutated(&mut random, &seeds[round % seeds.len()]));
        }
    }

    #[test]
    fn no_mutation_of_a_job_file_breaks_a_promise() {
        let job = b"name: a\ntenant: lab/nlp\nclass: batch\ntasks: 4\nmin: 2\ngpus: 0.25\ngpu: {model: [h100], memory: \
                    40GiB}\ncpu: 500m\nmemory: 4GiB\nnodes: {labels: {zone: [a, b]}, tolerations: [{key: k}]}\ntopology: \
                    {gang: leaf}\ntime: {limit: 48h, estimate: 20h}\ncheckpoint: {every: 30m, grace: 5m}\nlabels: {a: b}\n\
                    simulate: {duration: 1m, sm_active: 0.5, checkpoint: fail}\n";
        let json = br#"{"name": "a", "tenant": "lab", "gpus": "1/3", "payload": "x\ny"}"#;
        run(&[job.to_vec(), json.to_vec()], 8000, super::job);
    }

    #[test]
    fn no_mutation_of_a_booking_file_breaks_a_promise() {
        let file = b"name: friday\ntenant: lab/nlp\ntasks: 4\ngpus: 8\ngpu: {model: [h100]}\ntopology: {gang: leaf}\nfrom: \
                     2026-11-20T08:00+01:00\nfor: 8h\nby: operator\n";
        let json = br#"{"tenant": "lab", "gpus": 1, "from": "+2h30m", "for": "90m"}"#;
        run(&[file.to_vec(), json.to_vec()], 8000, super::booking);
    }

    #[test]
    fn no_mutation_of_a_policy_file_breaks_a_promise() {
        let seeds: Vec<Vec<u8>> = default_policy_files()
            .iter()
            .zip(0u8..)
            .map(|((_, text), choice)| [&[choice], text.as_bytes()].concat())
            .collect();
        run(&seeds, 6000, super::policy);
    }

    #[test]
    fn no_mutation_of_a_fleet_file_breaks_a_promise() {
        let seed = b"nodes:\n  - names: n{1..4}\n    gpus: 8\n    model: h100\n    cpu: 128\n    memory: 2TiB\n    islands: 2\n    \
                     labels: {a: b}\n    taints: [{key: k, value: v}]\n    levels: {leaf: {size: 2}, rack: 3}\n    others: {cpu: \
                     1, memory: 1GiB, gpus: [0, 1]}\n  - {name: c1, cpu: 4, memory: 8GiB}\n";
        run(&[seed.to_vec()], 6000, super::fleet);
    }
}
