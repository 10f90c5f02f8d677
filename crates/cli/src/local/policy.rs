//! `wharf policy lint`: what is wrong or doubtful in a policy directory, and how soon each guarantee is back.
//!
//! The findings are made by the crate that reads the files. Here they are printed, and become the exit code.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use wharf_api::file::fleet::load_fleet;
use wharf_api::file::policy::lint::{
    Finding, Inventory, Lint, Recovery, Severity, TenantRecovery, lint_policy,
};
use wharf_api::file::span_text;

use crate::args::{LintArgs, PolicyArgs, PolicyCommand};
use crate::render::next_line;
use crate::render::numbers::counted;
use crate::render::output::{self, Paint, Tone};
use crate::render::table::{Cell, Column, Look, Table};

/// What the exit code is where there are errors.
const EXIT_FOUND: u8 = 1;
/// The label of a finding, aligned at its colon with those below it.
const LABEL_WIDTH: usize = "warning:".len();

/// Runs it.
pub(crate) fn run(args: PolicyArgs) -> anyhow::Result<ExitCode> {
    let PolicyArgs { command: PolicyCommand::Lint(args) } = args;
    let LintArgs { dir, fleet, output } = args;
    let fleet = fleet.as_deref().map(load_fleet).transpose()?;
    let inventory = fleet.as_ref().map(Inventory::of);
    let lint = lint_policy(&dir, inventory.as_ref())?;
    let fleet = fleet.as_ref().map(|fleet| fleet.name.as_str());
    output::answer(output, &document(&dir, fleet, &lint), |paint| text(&dir, fleet, &lint, paint))?;
    let found = lint.count(Severity::Error) > 0;
    Ok(if found { ExitCode::from(EXIT_FOUND) } else { ExitCode::SUCCESS })
}

/// The answer for programs.
#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    dir: String,
    /// The fleet that has to keep the promises, if one was given.
    fleet: Option<&'a str>,
    /// Whether there is no error.
    ok: bool,
    findings: &'a [Finding],
    /// Empty where there is an error.
    tenants: Vec<TenantDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct TenantDocument<'a> {
    tenant: &'a str,
    recovery: &'static str,
    bound_s: Option<u64>,
}

fn document<'a>(dir: &Path, fleet: Option<&'a str>, lint: &'a Lint) -> Document<'a> {
    let tenant = |tenant: &'a TenantRecovery| {
        let (recovery, bound_s) = match tenant.recovery {
            Recovery::Within(bound) => ("bounded", Some(seconds(bound.0))),
            Recovery::NothingPromised => ("nothing_promised", None),
            Recovery::NotMetered => ("not_metered", None),
            Recovery::NoBound => ("no_bound", None),
        };
        TenantDocument { tenant: &tenant.tenant, recovery, bound_s }
    };
    Document {
        schema: "wharf.policy.lint.v1",
        dir: dir.display().to_string(),
        fleet,
        ok: lint.count(Severity::Error) == 0,
        findings: &lint.findings,
        tenants: lint.tenants.iter().map(tenant).collect(),
    }
}

/// Whole seconds, rounded up: a bound that is rounded down is broken.
fn seconds(millis: u64) -> u64 {
    millis.div_ceil(1000)
}

fn text(dir: &Path, fleet: Option<&str>, lint: &Lint, paint: Paint) -> String {
    let mut text = String::new();
    for finding in &lint.findings {
        text.push_str(&output::lines(&lines(finding, paint)));
    }
    if !lint.tenants.is_empty() {
        let look = Look { wide: false, headers: true, paint };
        text.push_str(&table(&lint.tenants).aligned(look));
        text.push('\n');
    }
    text.push_str(&output::lines(&end(dir, fleet, lint, paint)));
    text
}

/// One finding: where and what, why, what to change, and an empty line.
fn lines(finding: &Finding, paint: Paint) -> Vec<String> {
    let Finding { severity, file, line, column: _, what, why, fix } = finding;
    let place = line.map_or_else(|| file.clone(), |line| format!("{file}:{line}"));
    let label = |tone, word: &str| {
        let padding = " ".repeat(LABEL_WIDTH - 1 - word.len());
        format!("{padding}{}", paint.tone(tone, &format!("{word}:")))
    };
    vec![
        format!("{} {place}: {what}", label(tone(*severity), severity.into_str())),
        format!("{} {why}", label(Tone::Faint, "why")),
        format!("{} {fix}", label(Tone::Faint, "fix")),
        String::new(),
    ]
}

fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Error => Tone::Bad,
        Severity::Warning => Tone::Warn,
        Severity::Note => Tone::Accent,
    }
}

fn table(tenants: &[TenantRecovery]) -> Table {
    let columns = [
        Column::text("TENANT", "tenant"),
        Column::text("GUARANTEED", "guaranteed"),
        Column::text("BACK WITHIN", "recovery"),
    ];
    let mut table = Table::new(&columns);
    for TenantRecovery { tenant, guaranteed, recovery } in tenants {
        let back = match recovery {
            Recovery::Within(bound) => Cell::new(span_text(bound.0)),
            Recovery::NothingPromised => Cell::new("nothing promised").tone(Tone::Faint),
            Recovery::NotMetered => Cell::new("not metered").tone(Tone::Faint),
            Recovery::NoBound => {
                let why = "fixed_may_borrow lets work that may not be evicted hold borrowed GPUs";
                Cell::new(format!("no bound: {why}")).tone(Tone::Warn)
            }
        };
        table.row(vec![Cell::new(tenant.clone()), Cell::new(guaranteed.clone()), back]);
    }
    table
}

/// What came of it, and what to type next.
fn end(dir: &Path, fleet: Option<&str>, lint: &Lint, paint: Paint) -> Vec<String> {
    let dir = dir.display();
    let kinds = [Severity::Error, Severity::Warning, Severity::Note].map(|severity| {
        let count = u64::try_from(lint.count(severity)).unwrap_or(u64::MAX);
        (count > 0).then(|| counted(count, severity.into_str()))
    });
    let kinds: Vec<String> = kinds.into_iter().flatten().collect();
    let found = if kinds.is_empty() { "nothing found".to_owned() } else { kinds.join(", ") };
    let bounds =
        if lint.tenants.is_empty() { "; no guarantee is promised while there are errors" } else { "" };
    let mut lines = vec![format!("{dir}: {found}{bounds}")];
    if fleet.is_none() {
        let command = format!("wharf policy lint {dir} --fleet NAME|FILE");
        lines.push(next_line(paint, "can a fleet keep it?", &command));
    }
    lines
}

#[cfg(test)]
mod tests {
    use wharf_api::file::policy::PolicyFile;
    use wharf_api::file::policy::lint::lint;

    use super::*;

    fn linted(files: &[(&str, &str)]) -> Lint {
        let file = |&(name, text): &(&str, &str)| PolicyFile { name: name.into(), content: text.into() };
        lint("p", &files.iter().map(file).collect::<Vec<_>>(), None)
    }

    #[test]
    fn findings_come_first_with_their_labels_aligned() {
        let found = linted(&[("tenants.yaml", "tenants: {a: {limit: 4, children: {b: {limit: 8}}}}")]);
        let expected = "\
warning: p/tenants.yaml:1: a/b has a limit of 8 GPUs, a above it one of 4
    why: a limit counts for everyone below it too, so a/b stops at 4
    fix: lower a/b's limit to 4 or raise a's to 8

TENANT  GUARANTEED  BACK WITHIN
a       nothing     nothing promised
a/b     nothing     nothing promised

p: 1 warning
";
        assert_eq!(text(Path::new("p"), Some("lab"), &found, Paint::OFF), expected);
    }

    #[test]
    fn a_bound_is_in_whole_seconds_and_never_rounded_down() {
        let tenants = ("tenants.yaml", "tenants: {a: {guaranteed: 8}, b: {guaranteed: unlimited}}");
        let found = linted(&[tenants, ("queue.yaml", "stop_grace: 10s1ms")]);
        let shown = text(Path::new("p"), None, &found, Paint::OFF);
        assert!(shown.contains("\na       8 GPUs      5m12s\nb       unlimited   not metered\n"), "{shown}");
        assert!(shown.ends_with("can a fleet keep it? wharf policy lint p --fleet NAME|FILE\n"), "{shown}");
        let json = serde_json::to_value(document(Path::new("p"), None, &found)).unwrap();
        assert_eq!(json["tenants"][0]["bound_s"], 312);
        assert_eq!(json["tenants"][1]["recovery"], "not_metered");
        assert_eq!(json["tenants"][1]["bound_s"], serde_json::Value::Null);
    }

    #[test]
    fn where_fixed_work_may_borrow_there_is_no_bound() {
        let tenants = ("tenants.yaml", "tenants: {a: {guaranteed: 8}}");
        let found = linted(&[tenants, ("preemption.yaml", "fixed_may_borrow: true")]);
        let shown = text(Path::new("p"), None, &found, Paint::OFF);
        let row = "a       8 GPUs      no bound: fixed_may_borrow lets work that may not be evicted hold borrowed GPUs\n";
        assert!(shown.contains(row), "{shown}");
    }
}
