//! Trust domains that name somebody who is not there, and those that no job can be in.

use wharf_engine::model::policy::trust::is_within;

use super::super::Draft;
use super::{Finding, Severity};

/// What there is to say about `trust.yaml`.
pub(super) fn findings(draft: &Draft) -> Vec<Finding> {
    let (sharing, lines) = (&draft.policy.sharing, &draft.book.lines);
    let mut findings = Vec::new();
    for claim in &sharing.claims {
        let domain = &claim.domain;
        for tenant in claim.tenants.iter().filter(|tenant| lines.iter().all(|line| line.path != **tenant)) {
            findings.push(warning(
                draft,
                format!("domains.{domain}.tenants names {tenant}, and there is no such tenant"),
                format!("jobs that were meant to claim {domain} are refused"),
                format!("write the path as it stands in tenants.yaml, or take {tenant} out"),
            ));
        }
    }
    for (domain, _) in &sharing.domains {
        let claimed = sharing.claims.iter().any(|claim| is_within(&claim.domain, domain));
        if !claimed && lines.iter().all(|line| !is_within(&line.path, domain)) {
            findings.push(warning(
                draft,
                format!("domains.{domain}.modes is about a domain that no job can be in"),
                format!("{domain} is not a tenant, and no tenant may claim it"),
                format!("say which tenants may: domains.{domain}.tenants, or take {domain} out"),
            ));
        }
    }
    findings
}

fn warning(draft: &Draft, what: String, why: String, fix: String) -> Finding {
    let file = format!("{}trust.yaml", draft.book_path.trim_end_matches(super::super::TENANTS));
    Finding { severity: Severity::Warning, file, line: None, column: None, what, why, fix }
}
