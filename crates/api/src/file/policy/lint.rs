//! What is wrong or doubtful in a policy directory, and how long each tenant waits for what it lent.
//!
//! Everything for which a policy is refused comes out here too, as a finding with a fix. On top of it come proofs
//! that need a fleet (`fleet`), and advice about what is allowed and probably not meant (`advice`). Those two look
//! at a directory only where all of it can be read: about half a tree they would be wrong.
//!
//! A finding is text: it is made for people, once, at the edge. Nothing here is asked by the engine.

mod advice;
mod fleet;
mod trust;

use std::fmt;
use std::path::Path;

use serde::Serialize;
use strum::IntoStaticStr;
use wharf_engine::model::policy::{Amount, Policy};
use wharf_engine::units::Millis;

use super::super::duration_text;
use super::super::{At, FileError};
use super::fit::{self, Meter, Misfit, Owed};
use super::quota::Book;
use super::{Draft, PolicyFile, draft, gather, no_tenants, shown, windows};

pub use fleet::{Inventory, Stock};

/// How bad a finding is. The worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// The policy is refused, or a promise of it cannot be kept.
    Error,
    /// Allowed, and probably not what was meant.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// The word for it, the same everywhere.
    pub fn into_str(self) -> &'static str {
        self.into()
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file, or the directory where a file is missing.
    pub file: String,
    /// The line, counted from 1; `None` where there is no text.
    pub line: Option<u64>,
    /// The column, counted from 1.
    pub column: Option<u64>,
    /// What is the matter.
    pub what: String,
    /// Why that matters.
    pub why: String,
    /// What to change.
    pub fix: String,
}

impl fmt::Display for Finding {
    /// `policy/tenants.yaml:3: a is promised 300 GPUs, the fleet pod has 128; lower a's guarantee to 128`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity: _, file, line, column: _, what, why: _, fix } = self;
        match line {
            Some(line) => write!(f, "{file}:{line}: {what}; {fix}"),
            None => write!(f, "{file}: {what}; {fix}"),
        }
    }
}

/// When a tenant has back what was lent of its guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// At the latest after this time.
    Within(Millis),
    /// It is promised nothing.
    NothingPromised,
    /// It is never above its line, and nothing is reclaimed for it.
    NotMetered,
    /// Nothing says when: work that may not be evicted may hold borrowed GPUs.
    NoBound,
}

/// The recovery of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRecovery {
    /// `org/team/project`.
    pub tenant: String,
    /// What it is promised, in words.
    pub guaranteed: String,
    /// When it has it back.
    pub recovery: Recovery,
}

/// All that was found in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lint {
    /// The worst first, then by file and line.
    pub findings: Vec<Finding>,
    /// Every tenant in the order of the file; empty where there is an error, because nothing is promised then.
    pub tenants: Vec<TenantRecovery>,
}

impl Lint {
    /// How many findings are that bad.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

/// Looks at a directory, and whether `fleet` can keep what it promises. Fails where there is no such directory.
pub fn lint_policy(dir: &Path, fleet: Option<&Inventory>) -> Result<Lint, FileError> {
    let (files, unread) = gather(dir)?;
    Ok(of_draft(&draft(&shown(dir), &files), unread, fleet))
}

/// A policy that can be read, with what there is to say about it on a fleet. Fails where it cannot be read.
pub fn review_policy(dir: &Path, fleet: &Inventory) -> Result<(Policy, Lint), Vec<FileError>> {
    let (files, mut errors) = gather(dir).map_err(|error| vec![error])?;
    let draft = draft(&shown(dir), &files);
    errors.extend(draft.errors());
    if !errors.is_empty() {
        return Err(errors);
    }
    let lint = of_draft(&draft, Vec::new(), Some(fleet));
    Ok((draft.policy, lint))
}

/// Looks at files that are already in memory; `dir` is for the names in findings only.
pub fn lint(dir: &str, files: &[PolicyFile], fleet: Option<&Inventory>) -> Lint {
    let missing = !files.iter().any(|file| file.name == super::TENANTS);
    of_draft(&draft(dir, files), missing.then(|| no_tenants(dir)).into_iter().collect(), fleet)
}

fn of_draft(draft: &Draft, unread: Vec<FileError>, fleet: Option<&Inventory>) -> Lint {
    let is_whole = unread.is_empty() && draft.unreadable.is_empty();
    let mut findings: Vec<Finding> =
        unread.into_iter().chain(draft.unreadable.iter().cloned()).map(of_error).collect();
    let page = Page { file: &draft.book_path, book: &draft.book };
    findings.extend(fit::misfits(page.book).into_iter().map(|misfit| page.misfit(misfit)));
    if is_whole {
        findings.extend(advice::findings(&page));
        findings.extend(short_lead(draft));
        findings.extend(trust::findings(draft));
        findings.extend(fleet.into_iter().flat_map(|fleet| fleet::findings(&page, fleet, &draft.policy)));
    }
    findings.sort_by(|one, other| {
        (one.severity, &one.file, one.line).cmp(&(other.severity, &other.file, other.line))
    });
    let is_kept = findings.iter().all(|finding| finding.severity != Severity::Error);
    let tenants = if is_kept { recoveries(page.book, &draft.policy) } else { Vec::new() };
    Lint { findings, tenants }
}

/// Who is in the places of a booked window when they are chosen may need longer to leave than there is.
fn short_lead(draft: &Draft) -> Option<Finding> {
    let (lead, bound) = windows::lead_too_short(&draft.policy)?;
    let (lead, bound) = (duration_text(lead.0), duration_text(bound.0));
    let dir = draft.book_path.trim_end_matches(super::TENANTS);
    Some(Finding {
        severity: Severity::Warning,
        file: format!("{dir}windows.yaml"),
        line: None,
        column: None,
        what: format!("lead is {lead}, and borrowers may need {bound} to leave"),
        why:
            "places of a window are chosen when its lead begins; jobs that are there then may leave too late"
                .to_owned(),
        fix: format!("raise lead to {bound} or more, or lower borrow_grace_max (preemption.yaml)"),
    })
}

/// What a finding says.
struct Words {
    what: String,
    why: String,
    fix: String,
}

/// The tenants as written, and where.
struct Page<'a> {
    file: &'a str,
    book: &'a Book,
}

impl Page<'_> {
    fn finding(&self, severity: Severity, at: Option<At>, words: Words) -> Finding {
        let Words { what, why, fix } = words;
        let (line, column) = (at.map(|at| at.line), at.map(|at| at.column));
        Finding { severity, file: self.file.to_owned(), line, column, what, why, fix }
    }

    fn misfit(&self, misfit: Misfit<'_>) -> Finding {
        let what = misfit.what(self.book);
        let words = match misfit {
            Misfit::AboveLimit { tenant, meter, owed, limit } => Words {
                what: format!("{what} of {}", meter.number(limit)),
                why: "a limit is never passed, so the promise cannot be kept".to_owned(),
                fix: self.limit_fix(tenant, meter, owed, limit),
            },
            Misfit::AboveParent { tenant, meter, owed, has } => Words {
                what,
                why: "a tenant hands its own guarantee on to its children and cannot hand on more".to_owned(),
                fix: self.parent_fix(tenant, meter, owed, has),
            },
        };
        self.finding(Severity::Error, misfit.at(self.book), words)
    }

    fn limit_fix(&self, tenant: usize, meter: Meter<'_>, owed: u64, limit: u64) -> String {
        let line = &self.book.lines[tenant];
        let (owed, over, most) = (meter.number(owed), meter.number(owed - limit), meter.number(limit));
        let lower = match meter.quota(line).guaranteed {
            Amount::Of(_) => format!("its guarantee to {most}"),
            Amount::Unlimited => format!("its children's guarantees by {over} together"),
        };
        format!("raise {}'s limit to {owed} or lower {lower}", line.path)
    }

    fn parent_fix(&self, tenant: usize, meter: Meter<'_>, owed: u64, has: u64) -> String {
        let line = &self.book.lines[tenant];
        let over = owed - has;
        let lower = match self.largest_child(tenant, meter).filter(|&(_, promised)| promised >= over) {
            Some((child, _)) => format!("{}'s by {}", self.book.lines[child].path, meter.number(over)),
            None => format!("its children's by {} together", meter.number(over)),
        };
        let raise = match meter.quota(line).limit {
            Amount::Of(limit) if limit < owed => "guarantee and limit",
            Amount::Of(_) | Amount::Unlimited => "guarantee",
        };
        format!("raise {}'s {raise} to {} or lower {lower}", line.path, meter.number(owed))
    }

    /// The child with the largest promise of its own; the first of equals.
    fn largest_child(&self, parent: usize, meter: Meter<'_>) -> Option<(usize, u64)> {
        let children = self.book.lines.iter().enumerate().filter(|(_, line)| line.parent == Some(parent));
        let promised = children.filter_map(|(index, line)| match meter.quota(line).guaranteed {
            Amount::Of(promised) => Some((index, promised)),
            Amount::Unlimited => None,
        });
        promised.rev().max_by_key(|&(_, promised)| promised)
    }
}

/// An error of a file as a finding.
fn of_error(error: FileError) -> Finding {
    let FileError { file, line, column, what, near, allowed, instead } = error;
    let fix = match (near, allowed) {
        (Some(near), Some(allowed)) => format!("perhaps {near:?} was meant; allowed here: {allowed}"),
        (Some(near), None) => format!("perhaps {near:?} was meant"),
        (None, Some(allowed)) => format!("allowed here: {allowed}"),
        (None, None) => "correct it, or take it out of the directory".to_owned(),
    };
    let fix = instead.map_or(fix, |instead| format!("write {instead}"));
    let why = "a policy with an error in one file is refused whole: the one in force stays".to_owned();
    Finding { severity: Severity::Error, file, line, column, what: what.into(), why, fix }
}

fn recoveries(book: &Book, policy: &Policy) -> Vec<TenantRecovery> {
    let of_line = |line| {
        let meters = Meter::all(book).into_iter();
        let promised = meters.filter_map(|meter| match meter.quota(line).guaranteed {
            Amount::Of(0) | Amount::Unlimited => None,
            Amount::Of(promised) => Some(meter.amount(promised)),
        });
        let promised: Vec<String> = promised.collect();
        let is_unlimited = |meter: &Meter<'_>| meter.quota(line).guaranteed == Amount::Unlimited;
        let (guaranteed, recovery) = if !promised.is_empty() {
            (promised.join(", "), recovery(policy))
        } else if Meter::gpus(book).iter().any(is_unlimited) {
            ("unlimited".to_owned(), Recovery::NotMetered)
        } else {
            ("nothing".to_owned(), Recovery::NothingPromised)
        };
        TenantRecovery { tenant: line.path.clone(), guaranteed, recovery }
    };
    book.lines.iter().map(of_line).collect()
}

fn recovery(policy: &Policy) -> Recovery {
    if policy.preemption.fixed_may_borrow {
        return Recovery::NoBound;
    }
    Recovery::Within(policy.recovery_bound())
}

#[cfg(test)]
mod tests;
