//! Jobs that wait for others, and members of one array.

use crate::model::dependency::ArrayMember;
use crate::model::exit::Outcome;
use crate::state::index::{list, unlist};
use crate::state::jobs::{Array, Jobs};
use crate::units::{JobId, TenantId, Uid};
use alloc::collections::BTreeSet;
use alloc::string::String;

impl Jobs {
    /// The array of that identity, while members of it live.
    pub fn array(&self, id: Uid) -> Option<&Array> {
        self.arrays.get(&id)
    }

    /// The newest array of that name of which members live.
    pub fn array_named(&self, tenant: TenantId, name: &str) -> Option<(Uid, &Array)> {
        let alike = self.arrays_by_name.get(&(tenant, String::from(name)))?;
        let alike = alike.iter().filter_map(|id| Some((*id, self.arrays.get(id)?)));
        alike.max_by_key(|(_, array)| array.members.last().copied())
    }

    /// Jobs whose dependency did not succeed, with its name.
    pub(crate) fn broken(&self) -> impl Iterator<Item = (JobId, String)> + '_ {
        self.broken.iter().filter_map(|&id| {
            let failed = self.live.get(&id)?.spec.after.iter().find(|dependency| dependency.failed)?;
            Some((id, failed.name.clone()))
        })
    }

    /// Jobs that such an end of another leaves without hope.
    pub(crate) fn waiting_for(&self, job: JobId, outcome: Outcome) -> impl Iterator<Item = JobId> + '_ {
        let all = self.dependents.get(&job).into_iter().flatten().copied();
        all.filter(move |id| {
            let after = self.live.get(id).map(|live| live.spec.after.as_slice()).unwrap_or_default();
            after.iter().any(|on| on.job == job && !on.when.is_met_by(outcome))
        })
    }

    /// Those that waited for it may start, or never can.
    pub(super) fn end_for_others(&mut self, ended: JobId, outcome: Outcome) {
        for id in self.dependents.remove(&ended).unwrap_or_default() {
            let mut broken = false;
            self.let_in(id, |job| {
                job.spec.after.retain_mut(|on| {
                    let is_it = on.job == ended;
                    on.failed |= is_it && !on.when.is_met_by(outcome);
                    broken |= on.failed;
                    !is_it || on.failed
                });
            });
            if broken {
                self.broken.insert(id);
            }
        }
    }

    /// Says whether it has to wait for its turn.
    pub(super) fn join_array(&mut self, id: JobId, tenant: TenantId, member: &ArrayMember) -> bool {
        let ArrayMember { id: array, name, index: _, at_most } = member;
        list(&mut self.arrays_by_name, (tenant, name.clone()), *array);
        let new = || Array { tenant, name: name.clone(), at_most: *at_most, members: BTreeSet::new() };
        let array = self.arrays.entry(*array).or_insert_with(new);
        array.members.insert(id);
        array.last().is_some_and(|last| last < id)
    }

    /// The next member of its array has its turn.
    pub(super) fn end_in_array(&mut self, ended: JobId, member: Option<&ArrayMember>) {
        let Some(member) = member else { return };
        let Some(array) = self.arrays.get_mut(&member.id) else { return };
        array.members.remove(&ended);
        if array.members.is_empty() {
            unlist(&mut self.arrays_by_name, &(array.tenant, array.name.clone()), &member.id);
            self.arrays.remove(&member.id);
        } else if let Some(next) = array.last() {
            self.let_in(next, |job| job.throttled = false);
        }
    }
}
