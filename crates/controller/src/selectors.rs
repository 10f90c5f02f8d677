//! Where strings stop: label selectors, tolerations and model lists become sets of nodes and devices.
//!
//! A selector's canonical text is its identity. The engine keeps that text with the set it was compiled to,
//! so that after a restart, or when nodes change, every set in use can be compiled again from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wharf_engine::decide::input::{SetDefinition, SetMembers};
use wharf_engine::device::catalogue;

use crate::world::{NodeReport, Taint};

/// Which nodes a task may run on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSelector {
    /// Every key has one of these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Vec<String>>,
    /// Taints it tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// A taint that does not keep the task away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toleration {
    pub key: String,
    /// Its value; any where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Which devices a task may run on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSelector {
    /// One of these models; any where empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// At least so much memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb_min: Option<u32>,
}

impl NodeSelector {
    /// The canonical text.
    pub fn source(&self) -> String {
        let mut sorted = self.clone();
        sorted.tolerations.sort();
        sorted.labels.values_mut().for_each(|values| values.sort());
        format!("nodes{}", json(&sorted))
    }

    fn matches(&self, report: &NodeReport) -> bool {
        let labelled = self
            .labels
            .iter()
            .all(|(key, values)| report.labels.get(key).is_some_and(|value| values.contains(value)));
        labelled && report.taints.iter().all(|taint| self.tolerates(taint))
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| {
            toleration.key == taint.key && toleration.value.as_ref().is_none_or(|value| *value == taint.value)
        })
    }
}

impl DeviceSelector {
    /// The canonical text.
    pub fn source(&self) -> String {
        let mut sorted = self.clone();
        sorted.models.sort();
        format!("devices{}", json(&sorted))
    }

    fn matches(&self, model: &str) -> bool {
        let named = self.models.is_empty() || self.models.iter().any(|name| name == model);
        // A model that the catalogue does not know has unknown memory: it is never assumed to be enough.
        let large = self
            .memory_gb_min
            .is_none_or(|least| catalogue::model(model).is_some_and(|known| known.memory_gb >= least));
        named && large
    }
}

fn json(selector: &impl Serialize) -> String {
    serde_json::to_string(selector).expect("a struct of strings and numbers always encodes")
}

/// What is known of the nodes' strings. A copy shares what is said of each node.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    nodes: BTreeMap<String, Arc<NodeReport>>,
}

impl Strings {
    /// Learns a node; true when something that a selector could see has changed.
    pub fn learn(&mut self, report: NodeReport) -> bool {
        let known = self.nodes.get(&report.node.name);
        let same = known.is_some_and(|known| {
            known.labels == report.labels
                && known.taints == report.taints
                && known.node.model == report.node.model
        });
        self.nodes.insert(report.node.name.clone(), Arc::new(report));
        !same
    }

    /// Forgets a node; true when it was known.
    pub fn forget(&mut self, name: &str) -> bool {
        self.nodes.remove(name).is_some()
    }

    /// Forgets every node that is not in `names`; true when there was one.
    pub fn keep(&mut self, names: &std::collections::BTreeSet<String>) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|name, _| names.contains(name));
        self.nodes.len() != before
    }

    /// The labels of a node.
    pub fn labels(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.nodes.get(name).map(|report| &report.labels)
    }

    /// What a canonical text matches now; `None` for a text that is none.
    pub fn compile(&self, source: &str) -> Option<SetDefinition> {
        let members = if let Some(text) = source.strip_prefix("nodes") {
            let selector: NodeSelector = serde_json::from_str(text).ok()?;
            let matching = self.nodes.values().filter(|report| selector.matches(report));
            SetMembers::Nodes(matching.map(|report| report.node.name.clone()).collect())
        } else {
            let selector: DeviceSelector = serde_json::from_str(source.strip_prefix("devices")?).ok()?;
            let mut models: Vec<_> = self.nodes.values().map(|report| report.node.model.clone()).collect();
            models.sort();
            models.dedup();
            SetMembers::Models(models.into_iter().filter(|model| selector.matches(model)).collect())
        };
        Some(SetDefinition { source: source.to_owned(), members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wharf_engine::model::observed::ObservedNode;

    fn node(name: &str, model: &str, label: Option<(&str, &str)>, taint: Option<&str>) -> NodeReport {
        NodeReport {
            node: ObservedNode { name: name.into(), model: model.into(), ..ObservedNode::default() },
            labels: label.map(|(key, value)| (key.into(), value.into())).into_iter().collect(),
            taints: taint.map(|key| Taint { key: key.into(), value: "yes".into() }).into_iter().collect(),
        }
    }

    fn fleet() -> Strings {
        let mut strings = Strings::default();
        strings.learn(node("a", "h100", Some(("zone", "east")), None));
        strings.learn(node("b", "l4", Some(("zone", "west")), None));
        strings.learn(node("c", "h100", None, Some("maintenance")));
        strings
    }

    fn nodes(selector: &NodeSelector) -> Vec<String> {
        match fleet().compile(&selector.source()).unwrap().members {
            SetMembers::Nodes(names) => names,
            SetMembers::Models(models) => panic!("a node selector gave models {models:?}"),
        }
    }

    #[test]
    fn a_tainted_node_is_left_out_unless_tolerated() {
        assert_eq!(nodes(&NodeSelector::default()), ["a", "b"]);
        let tolerant = NodeSelector {
            tolerations: vec![Toleration { key: "maintenance".into(), value: None }],
            ..NodeSelector::default()
        };
        assert_eq!(nodes(&tolerant), ["a", "b", "c"]);
    }

    #[test]
    fn a_label_selects() {
        let east = NodeSelector {
            labels: [("zone".to_owned(), vec!["east".to_owned()])].into(),
            ..NodeSelector::default()
        };
        assert_eq!(nodes(&east), ["a"]);
    }

    #[test]
    fn models_and_memory_select_devices() {
        let compiled = |selector: DeviceSelector| fleet().compile(&selector.source()).unwrap().members;
        let large = DeviceSelector { memory_gb_min: Some(40), ..DeviceSelector::default() };
        assert_eq!(compiled(large), SetMembers::Models(vec!["h100".into()]));
        let named = DeviceSelector { models: vec!["l4".into(), "b200".into()], ..DeviceSelector::default() };
        assert_eq!(compiled(named), SetMembers::Models(vec!["l4".into()]));
    }

    #[test]
    fn order_of_writing_does_not_make_another_set() {
        let one = DeviceSelector { models: vec!["l4".into(), "h100".into()], memory_gb_min: None };
        let two = DeviceSelector { models: vec!["h100".into(), "l4".into()], memory_gb_min: None };
        assert_eq!(one.source(), two.source());
    }
}
