//! From a file to what the engine takes.

use wharf_engine::model::job::{Service, Spec, Topology};
use wharf_engine::model::submission::Submission;
use wharf_engine::units::{TenantId, TrustId, Uid};

use super::{GroupFile, JobFile, Work};

impl JobFile {
    /// The job with its identity, as the engine takes it: names stand where `decide` fills in ids.
    pub fn submission(&self, uid: Uid) -> Submission {
        Submission {
            uid,
            tenant: self.tenant.clone(),
            trust: self.trust.clone(),
            nodes: self.nodes.source(),
            devices: self.asks.devices.source(),
            any_of_devices: self.asks.any_of.iter().map(|other| other.devices.source()).collect(),
            groups: self.groups.iter().map(|group| group.selectors(&self.nodes)).collect(),
            gang_within: self.gang_within.clone(),
            booking: self.booking.clone(),
            // Names become identities where jobs are known.
            after: Vec::new(),
            array: self.array.clone(),
            spec: self.spec(),
        }
    }

    fn spec(&self) -> Spec {
        let mut spec = Spec {
            name: self.name.clone(),
            tenant: TenantId::default(),
            class: self.class,
            priority: self.priority,
            tasks: self.tasks,
            min: self.min,
            shape: self.asks.shape(),
            groups: self.groups.iter().map(GroupFile::group).collect(),
            topology: Topology { task_on_island: self.task_on_island, gang_within: None },
            preemptible: self.preemptible,
            trust: TrustId::default(),
            time_limit: self.time_limit,
            estimate: self.estimate,
            service: self.service_max.map(|max| Service { max, replicas: self.tasks }),
            checkpoint: self.checkpoint,
            booking: None,
            retries: self.retries,
            labels: self.labels.clone().into_iter().collect(),
            payload: match &self.work {
                Work::Payload(text) => text.clone(),
                Work::Simulate(wish) => {
                    serde_json::to_string(wish).expect("a struct of numbers and words always encodes")
                }
            },
            after: Vec::new(),
            array: None,
            submitted_by: String::new(),
        };
        spec.derive_from_groups();
        spec
    }
}
