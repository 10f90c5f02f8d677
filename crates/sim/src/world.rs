//! Simulated worlds: a fleet whose tasks take their true time, and the ways in which a controller reaches it.
//!
//! [`fleet`] is the fleet itself, [`behaviour`] what its jobs really do. A controller reaches it through a file with a
//! clock of its own ([`file`], for `wharf up`), through a faulty network ([`net`]) or directly ([`direct`]). Nothing here
//! knows what it is used for.

pub mod behaviour;
pub mod direct;
pub mod file;
pub mod fleet;
mod lost_calls;
pub mod net;

use wharf_engine::model::policy::Policy;
use wharf_engine::model::policy::trust::TrustClaim;

/// A policy with one more trust domain, which all of its tenants may claim.
#[must_use]
pub fn with_domain_of_all(mut policy: Policy, domain: &str) -> Policy {
    let tenants = policy.tenants.iter().map(|tenant| tenant.path.clone()).collect();
    policy.sharing.claims.push(TrustClaim { domain: domain.to_owned(), tenants });
    policy
}
