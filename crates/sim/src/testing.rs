//! The engine on simulated worlds, judged by what was written down or by what must always hold.
//!
//! [`scenario`] is a text of a few lines with its expectation, [`cases`] are collected cases of other schedulers, and
//! [`random`] is whatever a seed brings, with faults. Prices in all of them come from [`pricing`].

pub mod cases;
pub mod pricing;
pub mod random;
pub mod scenario;

use wharf_engine::model::policy::Policy;
use wharf_engine::model::policy::trust::TrustClaim;

/// A policy with one more trust domain, which all of its tenants may claim.
#[must_use]
pub fn with_domain_of_all(mut policy: Policy, domain: &str) -> Policy {
    let tenants = policy.tenants.iter().map(|tenant| tenant.path.clone()).collect();
    policy.sharing.claims.push(TrustClaim { domain: domain.to_owned(), tenants });
    policy
}
