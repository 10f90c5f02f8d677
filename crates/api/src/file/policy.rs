//! The policy directory: a few files under version control, compiled to one typed policy.
//!
//! All files are read and all their errors reported together, because a directory is edited as a whole. A file
//! that nobody would read is an error, so that a misspelt name does not silently mean "no limits".

pub mod lint;

mod classes;
mod fit;
mod history;
mod preemption;
mod quota;
mod trust;
mod windows;

use std::path::Path;

use wharf_engine::model::job::Class;
use wharf_engine::model::policy::{BytesMax, Estimates, Policy};
use wharf_engine::units::Millis;

use lint::Inventory;
use quota::Book;

use super::field::{Field, Map, NAME_MAX};
use super::tree::Node;
use super::{Fault, FileError, as_text, document, read_regular, text};

/// The one file that has to be there.
const TENANTS: &str = "tenants.yaml";
/// The files that are read today.
const FILES: &[&str] = &[
    TENANTS,
    "pools.yaml",
    "queue.yaml",
    "classes.yaml",
    "preemption.yaml",
    "gangs.yaml",
    "trust.yaml",
    "windows.yaml",
    "history.yaml",
];
/// Files of the design that have no content yet.
const PLANNED: &[&str] = &["idle.yaml", "levers.yaml", "prices.yaml", "slo.yaml", "gateway.yaml"];
/// The most YAML files of a directory that are read at all: it is no policy that has more.
const FILES_MAX: usize = 64;
/// Starts that are promised in a pool where queue.yaml says nothing.
const RESERVATIONS: u32 = 8;
/// How far back what was borrowed counts where history.yaml says nothing: who used what was idle yesterday yields first today.
const HALF_LIFE: Millis = Millis::from_secs(24 * 3600);
/// The most starts of one pool that may be promised: each is looked at by every plan.
const RESERVATIONS_MAX: u32 = 256;
/// The most jobs that may be allowed to wait: beyond it a queue is a leak.
const QUEUE_LEN_MAX: u32 = 1_000_000;
/// The least bound on the text of a job: a name and a few labels.
const JOB_BYTES_MIN: u64 = 1 << 10;
/// The largest: no request has a larger body.
const JOB_BYTES_MAX: u64 = 1 << 20;
/// The most text of all jobs: all of it is in memory, and is written with every snapshot.
const JOBS_BYTES_MAX: u64 = 1 << 30;
/// The most pools that may be given a worth.
const POOLS_MAX: usize = 1000;

/// One file of a policy: its name inside the directory and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    /// Without the directory.
    pub name: String,
    /// As it stands on the disk.
    pub content: Vec<u8>,
}

/// Files for a first start, with every key explained: four teams on 32 GPUs.
pub fn default_policy_files() -> &'static [(&'static str, &'static str)] {
    &[
        (TENANTS, include_str!("../../policy/tenants.yaml")),
        ("pools.yaml", include_str!("../../policy/pools.yaml")),
        ("queue.yaml", include_str!("../../policy/queue.yaml")),
        ("classes.yaml", include_str!("../../policy/classes.yaml")),
        ("preemption.yaml", include_str!("../../policy/preemption.yaml")),
        ("gangs.yaml", include_str!("../../policy/gangs.yaml")),
        ("trust.yaml", include_str!("../../policy/trust.yaml")),
        ("windows.yaml", include_str!("../../policy/windows.yaml")),
        ("history.yaml", include_str!("../../policy/history.yaml")),
    ]
}

/// The GPUs that the example files are written for.
const EXAMPLE_GPUS: u64 = 32;

/// The example files for a fleet: promises and limits in proportion to its GPUs, by what the example says they are worth.
pub fn default_policy_for(fleet: &Inventory) -> Vec<(&'static str, String)> {
    let example = |&(name, text): &(&str, &str)| PolicyFile { name: name.into(), content: text.into() };
    let files: Vec<PolicyFile> = default_policy_files().iter().map(example).collect();
    scaled_to(fleet.whole_gpus(&draft("example", &files).policy))
}

fn scaled_to(gpus: u64) -> Vec<(&'static str, String)> {
    let scaled = |line: &str| {
        let (key, number) = line.split_once(": ")?;
        // A promise may come to nothing on a tiny fleet; a limit of nothing would keep its tenant out.
        let least = match key.trim_start() {
            "guaranteed" => 0,
            "limit" => 1,
            _ => return None,
        };
        let number: u64 = number.parse().ok()?;
        Some(format!("{key}: {}", (number * gpus / EXAMPLE_GPUS).max(least)))
    };
    let text = |text: &str| {
        let lines = text.lines().map(|line| scaled(line).unwrap_or_else(|| line.to_owned()));
        lines.map(|line| line + "\n").collect()
    };
    default_policy_files().iter().map(|&(name, example)| (name, text(example))).collect()
}

/// Reads and compiles a policy directory.
pub fn load_policy(dir: &Path) -> Result<Policy, Vec<FileError>> {
    let (files, mut errors) = gather(dir).map_err(|error| vec![error])?;
    let draft = draft(&shown(dir), &files);
    errors.extend(draft.errors());
    if errors.is_empty() { Ok(draft.policy) } else { Err(errors) }
}

/// The files of a directory, and what keeps it from being read whole.
fn gather(dir: &Path) -> Result<(Vec<PolicyFile>, Vec<FileError>), FileError> {
    let names = names(dir).map_err(|error| {
        Fault::new(None, format!("cannot be read as a policy directory: {error}")).in_file(&shown(dir))
    })?;
    let mut files = Vec::new();
    let mut errors = Vec::new();
    if !names.iter().any(|name| name == TENANTS) {
        errors.push(no_tenants(&shown(dir)));
    }
    if names.len() > FILES_MAX {
        let fault = Fault::new(None, format!("has {} YAML files", names.len()));
        return Err(fault.allowed(format!("{}, at most {FILES_MAX}", FILES.join(", "))).in_file(&shown(dir)));
    }
    for name in names {
        match read_regular(&dir.join(&name)) {
            Ok(content) => files.push(PolicyFile { name, content }),
            Err(error) => errors.push(error),
        }
    }
    Ok((files, errors))
}

/// The names that matter, sorted, so that the digest does not depend on the file system.
fn names(dir: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let path = Path::new(&name);
        let is_yaml = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
        // Editors leave hidden copies; a README is welcome.
        if is_yaml && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn shown(dir: &Path) -> String {
    dir.display().to_string()
}

/// Compiles files that are already in memory; `dir` is for error messages only.
pub fn compile(dir: &str, files: &[PolicyFile]) -> Result<Policy, Vec<FileError>> {
    let draft = draft(dir, files);
    let missing = !files.iter().any(|file| file.name == TENANTS);
    let errors: Vec<FileError> = missing.then(|| no_tenants(dir)).into_iter().chain(draft.errors()).collect();
    if errors.is_empty() { Ok(draft.policy) } else { Err(errors) }
}

fn no_tenants(dir: &str) -> FileError {
    let fault = Fault::new(None, "the file tenants.yaml is missing");
    fault.allowed("tenants: {lab: {guaranteed: 8}}").in_file(dir)
}

/// A policy as far as its files can be read.
struct Draft {
    policy: Policy,
    /// What cannot be read.
    unreadable: Vec<FileError>,
    /// The tenants as written, and the file they are written in.
    book: Book,
    book_path: String,
}

impl Draft {
    /// Everything for which the policy is refused.
    fn errors(&self) -> impl Iterator<Item = FileError> {
        let misfits = fit::misfits(&self.book).into_iter();
        let misfits = misfits.map(|misfit| misfit.fault(&self.book).in_file(&self.book_path));
        self.unreadable.iter().cloned().chain(misfits)
    }
}

fn draft(dir: &str, files: &[PolicyFile]) -> Draft {
    let path = |name: &str| format!("{}/{name}", dir.trim_end_matches('/'));
    let mut draft = Draft {
        policy: Policy { digest: digest(files), ..fair_by_default() },
        unreadable: Vec::new(),
        book: Book::default(),
        book_path: path(TENANTS),
    };
    for file in files {
        let path = path(&file.name);
        if let Err(errors) = read_file(&path, file, &mut draft) {
            draft.unreadable.extend(errors);
        }
    }
    draft
}

/// What holds where the files say nothing: as the example files say it.
fn fair_by_default() -> Policy {
    Policy {
        reservations_max: RESERVATIONS,
        half_life: Some(HALF_LIFE),
        estimates: Estimates { learned: true, label: None },
        ..Policy::default()
    }
}

fn digest(files: &[PolicyFile]) -> String {
    let mut sorted: Vec<&PolicyFile> = files.iter().collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    let mut hasher = blake3::Hasher::new();
    for part in sorted.iter().flat_map(|file| [file.name.as_bytes(), &file.content]) {
        // With its length, so that no text can pass from the end of one part to the start of the next.
        hasher.update(&u64::try_from(part.len()).expect("a length fits 64 bits").to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().to_hex().to_string()
}

fn read_file(path: &str, file: &PolicyFile, draft: &mut Draft) -> Result<(), Vec<FileError>> {
    let text = as_text(path, file.content.clone()).map_err(|error| vec![error])?;
    let reader: fn(&Node, &mut Policy) -> Result<(), Fault> = match file.name.as_str() {
        TENANTS => return read_tenants(path, &text, draft),
        "pools.yaml" => pools,
        "queue.yaml" => queue,
        "classes.yaml" => |root, policy| classes::classes(root).map(|read| policy.orders = read),
        "preemption.yaml" => |root, policy| preemption::preemption(root).map(|read| policy.preemption = read),
        "gangs.yaml" => |root, policy| preemption::gangs(root).map(|read| policy.gangs = read),
        "trust.yaml" => |root, policy| trust::trust(root).map(|read| policy.sharing = read),
        "windows.yaml" => |root, policy| windows::windows(root).map(|read| policy.windows = read),
        "history.yaml" => history::history,
        other => return Err(vec![unknown_file(other).in_file(path)]),
    };
    document(path, &text, |root| reader(root, &mut draft.policy)).map_err(|error| vec![error])
}

fn read_tenants(path: &str, text: &str, draft: &mut Draft) -> Result<(), Vec<FileError>> {
    let (book, faults) = quota::read(text);
    draft.policy.tenants = book.tenants();
    draft.book = book;
    if faults.is_empty() {
        return Ok(());
    }
    Err(faults.into_iter().map(|fault| fault.in_file(path)).collect())
}

fn unknown_file(name: &str) -> Fault {
    if PLANNED.contains(&name) {
        return Fault::new(None, "not supported yet").allowed(FILES.join(", "));
    }
    let known: Vec<&str> = FILES.iter().chain(PLANNED).copied().collect();
    let fault = Fault::new(None, "no file of a policy has this name").one_of(name, &known);
    fault.allowed(FILES.join(", "))
}

fn pools(root: &Node, policy: &mut Policy) -> Result<(), Fault> {
    let keys = Map::root(root, &["pools"])?;
    let field = keys.need("pools", "pools: {h100: {normal: 1}}")?;
    let named = field.named()?;
    if named.len() > POOLS_MAX {
        return Err(field.fault("has too many entries").allowed(format!("at most {POOLS_MAX}")));
    }
    for (model, pool) in named {
        check_name(model, &pool)?;
        if let Some(normal) = pool.map(&["normal"])?.get("normal")? {
            let allowed = "a number from 0.001 to 1000 with at most three decimals";
            policy.normal_milli.push((model.to_owned(), normal.thousandths(1..=1_000_000, allowed)?));
        }
    }
    Ok(())
}

/// Refuses a key that is no name by our rules.
fn check_name(key: &str, field: &Field<'_>) -> Result<(), Fault> {
    if text::is_name(key, NAME_MAX) {
        return Ok(());
    }
    let allowed = "names of lower-case letters, digits, '-' and '.', at most 63 characters";
    Err(field.fault("is no name").allowed(allowed))
}

fn queue(root: &Node, policy: &mut Policy) -> Result<(), Fault> {
    let known = [
        "max",
        "bytes_max",
        "limit_max",
        "limit_default",
        "retry_backoff",
        "retry_backoff_max",
        "stop_grace",
        "reservations",
        "backfill",
    ];
    let keys = Map::root(root, &known)?;
    if let Some(field) = keys.get("max")? {
        policy.queue_len_max = field.whole(1..=QUEUE_LEN_MAX)?;
    }
    if let Some(field) = keys.get("bytes_max")? {
        policy.bytes_max = bytes_max(&field)?;
    }
    limits(&keys, policy)?;
    if let Some(field) = keys.get("retry_backoff")? {
        policy.retry_backoff = field.duration(Millis(0))?;
    }
    if let Some(field) = keys.get("retry_backoff_max")? {
        policy.retry_backoff_max = field.duration(Millis(0))?;
    }
    if let Some(field) = keys.get("stop_grace")? {
        policy.stop_grace = field.duration(Millis(0))?;
    }
    if let Some(field) = keys.get("reservations")? {
        policy.reservations_max = field.whole(0..=RESERVATIONS_MAX)?;
    }
    if let Some(field) = keys.get("backfill")? {
        policy.no_backfill = !field.truth()?;
    }
    if policy.retry_backoff > policy.retry_backoff_max {
        let field = keys.get("retry_backoff_max")?.or(keys.get("retry_backoff")?);
        let at = field.and_then(|field| field.at());
        let what = "retry_backoff is longer than retry_backoff_max";
        let longest = text::duration_text(policy.retry_backoff_max.0);
        return Err(Fault::new(at, what).allowed(format!("retry_backoff of at most {longest}")));
    }
    Ok(())
}

/// How much text jobs may have.
fn bytes_max(field: &Field<'_>) -> Result<BytesMax, Fault> {
    let keys = field.map(&["job", "tenant", "all"])?;
    let BytesMax { mut job, mut tenant, mut all } = BytesMax::default();
    for (key, value, most) in [
        ("job", &mut job, JOB_BYTES_MAX),
        ("tenant", &mut tenant, JOBS_BYTES_MAX),
        ("all", &mut all, JOBS_BYTES_MAX),
    ] {
        if let Some(field) = keys.get(key)? {
            let given = field.bytes()?;
            if !(JOB_BYTES_MIN..=most).contains(&given) {
                let most = if most == JOB_BYTES_MAX { "1MiB" } else { "1GiB" };
                return Err(field.wrong(format!("a size from 1KiB to {most}")));
            }
            *value = given;
        }
    }
    if job > tenant || tenant > all {
        return Err(field
            .fault("lets one job have more than a tenant, or a tenant more than all")
            .allowed("job of at most tenant, tenant of at most all"));
    }
    Ok(BytesMax { job, tenant, all })
}

/// How long jobs may run, by class.
fn limits(keys: &Map<'_>, policy: &mut Policy) -> Result<(), Fault> {
    let longest = keys.get("limit_max")?;
    if let Some(field) = &longest {
        policy.limits.max = by_class(field)?;
    }
    let Some(field) = keys.get("limit_default")? else { return Ok(()) };
    policy.limits.default = by_class(&field)?;
    for class in Class::ALL {
        let (default, max) = (policy.limits.default[class.index()], policy.limits.max_of(class));
        if let Some(max) = max.filter(|&max| default.is_some_and(|default| default > max)) {
            let what = format!("has a limit for {} that is above limit_max", class.into_str());
            return Err(field.fault(&what).allowed(format!("at most {}", text::duration_text(max.0))));
        }
    }
    Ok(())
}

fn by_class(field: &Field<'_>) -> Result<[Option<Millis>; 3], Fault> {
    let keys = field.map(&Class::ALL.map(Into::into))?;
    let mut read = [None; 3];
    for class in Class::ALL {
        if let Some(field) = keys.get(class.into_str())? {
            read[class.index()] = Some(field.duration(Millis::from_secs(1))?);
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests;
