//! Jobs that the world owns, and those that their owners change while they wait.

use super::{Jobs, Phase};
use crate::model::job::Spec;
use crate::units::{JobId, Uid};

impl Jobs {
    /// The live jobs that the world owns.
    pub fn owned(&self) -> impl Iterator<Item = (JobId, Uid)> {
        self.owned.iter().filter_map(|&id| Some((id, self.live.get(&id)?.uid)))
    }

    pub(crate) fn set_owned(&mut self, id: JobId, owned: bool) {
        self.live_mut(id).owned = owned;
        self.list(id);
    }

    /// It asks for something else. Nobody lists it meanwhile.
    pub(super) fn change_spec(&mut self, id: JobId, spec: &Spec) {
        let job = self.live_mut(id);
        assert!(job.phase == Phase::Waiting, "a job changes while it waits");
        let before = core::mem::replace(&mut job.spec, spec.clone());
        assert!((before.tenant, &before.name) == (spec.tenant, &spec.name), "a changed job keeps its name");
        let bytes = self.bytes.get_mut(&spec.tenant).expect("a live job's tenant is counted");
        *bytes = *bytes + spec.bytes() - before.bytes();
        self.list(id);
    }
}
