//! Who trusts whom: the trust domain of a tenant, and which others it may claim.
//!
//! Worked example: jobs of `acme/vision/train` are in the domain `acme/vision` unless they say otherwise. They may name
//! `acme/vision/train` to share with nobody else of their team. `acme`, in which all teams of the organisation would share
//! GPUs, and every other name are theirs only where the policy lets them claim it.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A trust domain, and who may claim it beside those it belongs to by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustClaim {
    pub domain: String,
    /// Tenants, each with everybody below it.
    pub tenants: Vec<String>,
}

/// The trust domain of a tenant whose job names none: its team, the second level of the tree.
pub fn team_of(tenant: &str) -> &str {
    let end = tenant.match_indices('/').nth(1).map_or(tenant.len(), |(at, _)| at);
    &tenant[..end]
}

/// True when a path is another one or below it.
pub fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// True when a tenant may be in a trust domain: one of its own, or one that it may claim.
pub(crate) fn may_claim(claims: &[TrustClaim], tenant: &str, domain: &str) -> bool {
    let own = is_within(tenant, domain) && is_within(domain, team_of(tenant));
    own || claimed_by(claims, tenant).any(|claimed| claimed == domain)
}

pub(crate) fn claimed_by<'a>(claims: &'a [TrustClaim], tenant: &str) -> impl Iterator<Item = &'a str> {
    let covers = move |claim: &&TrustClaim| claim.tenants.iter().any(|above| is_within(tenant, above));
    claims.iter().filter(covers).map(|claim| claim.domain.as_str())
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_tenant_is_in_the_domain_of_its_team() {
        assert_eq!(team_of("lab"), "lab");
        assert_eq!(team_of("lab/nlp"), "lab/nlp");
        assert_eq!(team_of("lab/nlp/pretrain/x"), "lab/nlp");
    }

    #[test]
    fn narrower_domains_are_its_own_and_wider_ones_are_policy() {
        let none = |tenant, domain| may_claim(&[], tenant, domain);
        assert!(none("lab/nlp/pretrain", "lab/nlp") && none("lab/nlp/pretrain", "lab/nlp/pretrain"));
        assert!(none("lab", "lab"));
        for domain in ["lab", "lab/nl", "lab/nlp2", "lab/nlp/evals", "lab/vision", "acme", ""] {
            assert!(!none("lab/nlp/pretrain", domain), "{domain}");
        }
        let claims = [
            TrustClaim { domain: "lab".into(), tenants: vec!["lab".into()] },
            TrustClaim { domain: "joint".into(), tenants: vec!["lab/nlp".into(), "partner/eval".into()] },
        ];
        let may = |tenant, domain| may_claim(&claims, tenant, domain);
        assert!(may("lab/nlp/pretrain", "lab") && may("lab/vision", "lab") && !may("partner/eval", "lab"));
        assert!(may("lab/nlp", "joint") && may("partner/eval/x", "joint") && !may("lab/vision", "joint"));
        assert!(!may("partner/evaluation", "joint"));
    }
}
