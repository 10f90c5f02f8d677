//! A job as it comes in: names still stand where the state will have ids.

use crate::model::dependency::{After, ArrayRequest};
use crate::model::job::Spec;
use crate::units::Uid;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A job with its identity; names still stand where ids will.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    pub uid: Uid,
    /// Path of the tenant.
    pub tenant: String,
    /// Name of the trust domain; the team of the tenant where absent.
    pub trust: Option<String>,
    /// Source text of the node selector; empty for every node that is open to all.
    pub nodes: String,
    /// Source text of the device selector; empty for every device.
    pub devices: String,
    /// The same of each alternative, in order.
    #[serde(default)]
    pub any_of_devices: Vec<String>,
    /// The three above of each group, in order, where it has any.
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub groups: Vec<GroupSelectors>,
    pub gang_within: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<String>,
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub after: Vec<After>,
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub array: Option<ArrayRequest>,
    /// The rest, with ids that `decide` fills in.
    pub spec: Spec,
}

impl Submission {
    /// A job that may go anywhere.
    pub fn of(uid: Uid, tenant: impl Into<String>, spec: Spec) -> Self {
        Self { uid, tenant: tenant.into(), spec, ..Self::default() }
    }

    /// Bytes of everything in it whose length its owner chooses, with the selectors.
    pub fn bytes(&self) -> u64 {
        let own = [&self.nodes, &self.devices].into_iter().chain(&self.any_of_devices);
        let of_groups = self.groups.iter();
        let of_groups = of_groups
            .flat_map(|group| [&group.nodes, &group.devices].into_iter().chain(&group.any_of_devices));
        let selectors = own.chain(of_groups).map(String::len).sum::<usize>();
        self.spec.bytes().saturating_add(u64::try_from(selectors).unwrap_or(u64::MAX))
    }
}

/// Source texts of the selectors of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSelectors {
    pub nodes: String,
    pub devices: String,
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub any_of_devices: Vec<String>,
}
