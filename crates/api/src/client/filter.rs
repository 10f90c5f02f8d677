//! What lists are narrowed down to: every filter that is left out asks for everything.

use crate::v1::{EndedState, HistoryKind, JobState};

/// Which jobs are asked for.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Of this tenant and those below it.
    pub tenant: Option<String>,
    /// In this state.
    pub state: Option<JobState>,
    /// Submitted by this user, as the client said.
    pub submitted_by: Option<String>,
    /// With these labels, as `key=value` or a bare key; several with commas.
    pub labels: Option<String>,
}

/// Which rows of history are asked for.
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    /// Of this kind.
    pub kind: Option<HistoryKind>,
    /// Of this tenant and those below it.
    pub tenant: Option<String>,
    /// Of jobs with this name.
    pub name: Option<String>,
    /// At most so many.
    pub limit: Option<u32>,
}

/// Which jobs that are over are asked for.
#[derive(Clone, Debug, Default)]
pub struct EndedFilter {
    /// Of this tenant and those below it.
    pub tenant: Option<String>,
    /// That ended like this.
    pub state: Option<EndedState>,
    /// With this name.
    pub name: Option<String>,
    /// Submitted by this user, as the client said.
    pub submitted_by: Option<String>,
    /// With these labels, as `key=value` or a bare key; several with commas.
    pub labels: Option<String>,
    /// At most so many.
    pub limit: Option<u32>,
    /// Those that follow an earlier answer.
    pub before: Option<u64>,
}

/// Which GPU time is asked for.
#[derive(Clone, Debug, Default)]
pub struct UsageFilter {
    /// From when: so long ago (`7d`), or a time with its zone; seven days ago unless it is said.
    pub since: Option<String>,
    /// Until when; now unless it is said.
    pub until: Option<String>,
    /// What it is told apart by, with commas; by tenant unless it is said.
    pub by: Option<String>,
    /// Of this tenant and those below it.
    pub tenant: Option<String>,
}

/// Which evictions are asked for.
#[derive(Clone, Debug, Default)]
pub struct EvictionFilter {
    /// Of jobs of this tenant and those below it.
    pub tenant: Option<String>,
    /// Of this job, named as `tenant/path/name` or by its bare name.
    pub job: Option<String>,
    /// At most so many.
    pub limit: Option<u32>,
}
