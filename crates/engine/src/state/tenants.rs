//! The tenants section: who there is, and the policy in force.
//!
//! An id belongs to a path for ever. A tenant that the policy no longer names keeps its jobs and has no
//! promise and no limit of its own.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::model::policy::{Policy, Tenant};
use crate::state::event::Event;
use crate::units::{TenantId, TrustId};

/// Who there is, and by which policy they are served.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    paths: Vec<String>,
    parents: Vec<Option<TenantId>>,
    by_path: BTreeMap<String, TenantId>,
    trusts: Vec<String>,
    version: u32,
    policy: Policy,
}

impl Tenants {
    /// The index that does not say what the paths do.
    pub(crate) fn wrong_indexes(&self) -> Option<&'static str> {
        let by_path = self.ids().map(|tenant| (String::from(self.path(tenant)), tenant));
        (by_path.collect::<BTreeMap<_, _>>() != self.by_path).then_some("tenants by path")
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Its version; 0 before the first.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// How many tenants were ever named.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// True before the first policy.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Every tenant id.
    pub fn ids(&self) -> impl Iterator<Item = TenantId> + use<> {
        (0..u32::try_from(self.paths.len()).expect("fewer than 2^32 tenants")).map(TenantId)
    }

    /// The path of a tenant.
    pub fn path(&self, tenant: TenantId) -> &str {
        &self.paths[tenant.index()]
    }

    /// The tenant of that path.
    pub fn named(&self, path: &str) -> Option<TenantId> {
        self.by_path.get(path).copied()
    }

    /// The tenant above.
    pub fn parent(&self, tenant: TenantId) -> Option<TenantId> {
        self.parents[tenant.index()]
    }

    /// The tenant and everyone above it, nearest first.
    pub fn lineage(&self, tenant: TenantId) -> impl Iterator<Item = TenantId> {
        core::iter::successors(Some(tenant), |&below| self.parent(below))
    }

    /// What the policy in force says of that path.
    pub fn in_policy(&self, path: &str) -> Option<&Tenant> {
        self.policy.tenants.iter().find(|tenant| tenant.path == path)
    }

    /// Paths of the tenants right below, as the policy names them.
    pub fn children(&self, path: &str) -> Vec<String> {
        let below = |tenant: &&Tenant| tenant.path.rsplit_once('/').is_some_and(|(above, _)| above == path);
        self.policy.tenants.iter().filter(below).map(|tenant| tenant.path.clone()).collect()
    }

    /// The name of a trust domain.
    pub fn trust(&self, trust: TrustId) -> &str {
        &self.trusts[trust.index()]
    }

    pub(crate) fn trust_named(&self, name: &str) -> Option<TrustId> {
        (0u32..).zip(&self.trusts).find(|&(_, known)| known == name).map(|(at, _)| TrustId(at))
    }

    pub(crate) fn next_trust(&self) -> TrustId {
        TrustId(u32::try_from(self.trusts.len()).expect("fewer than 2^32 trust domains"))
    }

    pub(crate) fn apply(&mut self, event: &TenantsEvent) {
        match event {
            TenantsEvent::TenantNamed { tenant, path } => {
                assert!(tenant.index() == self.paths.len(), "tenant ids are dense");
                // Whoever is above was named before.
                self.parents.push(path.rsplit_once('/').and_then(|(above, _)| self.named(above)));
                self.paths.push(path.clone());
                self.by_path.insert(path.clone(), *tenant);
            }
            TenantsEvent::TrustNamed { trust, name } => {
                assert!(*trust == self.next_trust(), "trust ids are dense");
                self.trusts.push(name.clone());
            }
            TenantsEvent::PolicyApplied { version, policy } => {
                assert!(*version > self.version, "policy versions count up");
                self.version = *version;
                self.policy = policy.clone();
            }
        }
    }

    pub(crate) fn snapshot(&self, into: &mut Vec<Event>) {
        let mut push = |event| into.push(Event::Tenants(event));
        for (tenant, path) in self.ids().zip(&self.paths) {
            push(TenantsEvent::TenantNamed { tenant, path: path.clone() });
        }
        for (trust, name) in (0u32..).map(TrustId).zip(&self.trusts) {
            push(TenantsEvent::TrustNamed { trust, name: name.clone() });
        }
        if self.version > 0 {
            push(TenantsEvent::PolicyApplied { version: self.version, policy: self.policy.clone() });
        }
    }
}

/// What happens to tenants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "few are held at a time, and those that are large come seldom")]
pub enum TenantsEvent {
    /// A path was seen for the first time.
    TenantNamed { tenant: TenantId, path: String },
    /// A trust domain was seen for the first time.
    TrustNamed { trust: TrustId, name: String },
    /// Another policy is in force.
    PolicyApplied { version: u32, policy: Policy },
}
