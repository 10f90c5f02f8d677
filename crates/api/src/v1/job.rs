//! Jobs, their verdicts and what is said back about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};
use wharf_engine::model::job::Class;
use wharf_engine::model::policy::Mode;

use super::{ActorView, EndedAs, MissedView, ReservationView, Resume, UnpromisedView, VictimView};

/// A live job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Its identity, 32 hexadecimal digits.
    pub uid: String,
    /// Unique among its tenant's live jobs.
    pub name: String,
    /// Path of the tenant.
    pub tenant: String,
    /// How it relates to latency.
    pub class: Class,
    /// Higher first, inside the tenant.
    pub priority: i32,
    /// Wanted tasks.
    pub tasks: u32,
    /// So many or none.
    pub min: u32,
    /// The most replicas of a service; `null` for every other job.
    #[serde(default)]
    pub replicas_max: Option<u32>,
    /// The booked window whose places it uses, while that is to come or lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<String>,
    /// GPUs of one task; of the largest, where it has groups.
    pub gpus_per_task: f64,
    /// Its parts, where it has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupView>,
    /// How far it is.
    pub state: JobState,
    /// The one answer about it.
    pub verdict: VerdictView,
    /// When it was submitted.
    pub submitted_at_ms: u64,
    /// When it first started.
    pub first_start_ms: Option<u64>,
    /// Tasks that run.
    pub running_tasks: u32,
    /// Where its tasks are.
    pub placements: Vec<PlacementView>,
    /// How far its replicas are replaced; absent where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacing: Option<ReplacingView>,
    /// How long it is expected to run; absent where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateView>,
    /// How long all of its attempts together may run; `null` where nothing limits it.
    #[serde(default)]
    pub time_limit_ms: Option<u64>,
    /// When that is over, while it runs.
    #[serde(default)]
    pub limit_at_ms: Option<u64>,
    /// How long earlier attempts ran.
    #[serde(default)]
    pub ran_ms: u64,
    /// How often it was started.
    pub attempts: u32,
    /// How often it was evicted.
    pub evictions: u32,
    /// How often a task of it failed.
    pub failures: u32,
    /// The last of its tasks that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<TaskFailureView>,
    /// Jobs that have to be over before it may start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<DependencyView>,
    /// The array it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayView>,
    /// Trace labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Who submitted it, as the client said: nobody has checked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
}

/// A task that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFailureView {
    /// When.
    pub at_ms: u64,
    /// What happened, in one sentence.
    pub text: String,
}

/// A job that another waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DependencyView {
    /// `tenant/path/name`.
    pub job: String,
    /// Which end of it lets the other start: `ok` or `any`.
    pub when: String,
}

/// The array that a job is a member of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayView {
    /// Its name, by which all members are cancelled.
    pub name: String,
    /// Which member.
    pub index: u32,
    /// At most so many run at a time.
    pub at_most: u32,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum JobState {
    /// It holds nothing.
    Waiting,
    /// Its places are decided; not all of its tasks run.
    Starting,
    /// It runs.
    Running,
    /// It gives back what it holds.
    Leaving,
}

impl JobState {
    /// The word for it, the same everywhere.
    pub fn into_str(self) -> &'static str {
        self.into()
    }
}

/// How long a job is expected to run, and who says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EstimateView {
    /// All of its attempts together.
    pub ms: u64,
    /// What it was learned from; absent where its owner says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<LearnedView>,
}

/// What an estimate was learned from. It is never a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedView {
    /// So many finished jobs of its tenant, class and size: nine of ten were over by then.
    pub jobs: u64,
    /// `key=value` of the label that they have in common with it; absent where none tells them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// How many replicas of a service are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleRequest {
    /// So many.
    pub replicas: u32,
}

/// How replicas of a service are replaced by fresh ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaceRequest {
    /// So many more than are wanted may run for the time; 1 where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surge: Option<u32>,
    /// So many fewer may run for the time, where there is no room for more; 1 where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<u32>,
    /// They no longer are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop: bool,
}

/// How far a replacement of replicas is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacingView {
    /// Replicas that are still to be replaced.
    pub old: u32,
    /// So many more than are wanted may run for the time.
    pub surge: u32,
    /// So many fewer may run for the time, where there is no room for more.
    pub unavailable: u32,
}

/// How much longer a job is to run: one of the two, as a duration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtendRequest {
    /// In all, like `6h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// More than now, like `2h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A part of a job with a minimum and a shape of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupView {
    /// Unique in the job.
    pub name: String,
    /// Wanted tasks of one copy.
    pub tasks: u32,
    /// So many tasks, or the copy has none.
    pub min: u32,
    /// Wanted copies.
    pub copies: u32,
    /// So many copies, or the job has none.
    pub min_copies: u32,
    /// GPUs of one task.
    pub gpus_per_task: f64,
    /// Copies that have their minimum.
    pub standing: u32,
    /// Tasks that have their places or have finished.
    pub placed_tasks: u32,
    /// Tasks that run.
    pub running_tasks: u32,
}

/// Where one task is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacementView {
    /// Which task.
    pub task: u32,
    /// Name of its group, where its job has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Name of the node.
    pub node: String,
    /// Indexes of its GPUs.
    pub gpus: Vec<u32>,
    /// How much of each of them.
    pub share: f64,
    /// How it is kept apart from what else is on them.
    #[serde(default)]
    pub enforced: Mode,
    /// The slice of its one GPU, where it has one; else `null`.
    #[serde(default)]
    pub slice: Option<SliceView>,
    /// The most memory of each GPU that it may use, in MiB; `null` for a model that is not in the catalogue.
    #[serde(default)]
    pub memory_mib: Option<u32>,
    /// Throughput that it is expected to lose by sharing, from 0 to 1, as it was known when it was placed.
    #[serde(default)]
    pub tax: f64,
}

/// A slice of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceView {
    /// Name of the profile, as the vendor's tools print it.
    pub profile: String,
    /// The first slot on the device's memory axis.
    pub start: u8,
}

/// The one typed answer about a job, the same in API, command line and tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictView {
    /// The answer.
    pub verdict: VerdictWord,
    /// Why, as a token of a closed list.
    pub reason: Option<String>,
    /// Why, in one sentence.
    pub text: String,
    /// What it needs of what is missing.
    pub need: Option<f64>,
    /// What there is of it.
    pub have: Option<f64>,
    /// Name of the group of the job that it is about, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// GPUs left after each stage, from the whole fleet down.
    #[serde(default)]
    pub funnel: Vec<FunnelStage>,
    /// What stands in the way.
    #[serde(default)]
    pub blockers: Vec<BlockerView>,
    /// Jobs that are served before it.
    pub ahead: Option<u32>,
    /// By what its class is ordered inside its tenant, where that is not its age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderView>,
    /// When the reason is over at the latest: the next try, or the end of a repair; `null` where time alone ends nothing.
    #[serde(default)]
    pub until_ms: Option<u64>,
    /// The policy it was judged by.
    pub policy_version: u32,
    /// The journal index it was judged at.
    pub basis: u64,
}

/// By what a job is ordered inside its tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderView {
    /// `attained` or `learned`.
    pub by: String,
    /// GPU time that it was served so far, in GPU-seconds.
    pub served_gpu_s: f64,
}

/// The answer in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictWord {
    /// It would start at once.
    RunnableNow,
    /// It waits for something that may come.
    Waits,
    /// It could not run on the whole fleet, healthy and empty.
    Never,
    /// Policy refuses it.
    Denied,
    /// It runs.
    Running,
    /// Its places are decided.
    Starting,
    /// It gives back what it holds.
    Leaving,
}

impl VerdictWord {
    /// What `wharf plan` exits with: 0 startable now, 1 would wait, 2 never, 3 refused.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::RunnableNow | Self::Running | Self::Starting => 0,
            Self::Waits | Self::Leaving => 1,
            Self::Never => 2,
            Self::Denied => 3,
        }
    }
}

/// GPUs that are left after one stage of the funnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunnelStage {
    /// Name of the stage.
    pub stage: String,
    /// GPUs left.
    pub gpus: u64,
}

/// Something that stands in the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockerView {
    /// What.
    pub what: String,
    /// How much is needed.
    pub need: f64,
    /// How much there is.
    pub have: f64,
    /// How much is missing.
    pub gap: f64,
}

/// Answer to a submission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submitted {
    /// `wharf.v1.submitted`.
    pub schema: String,
    /// The job.
    pub job: JobView,
    /// `false` when the same request had been made before.
    pub created: bool,
    /// How many jobs there are of an array, of which `job` is the first; absent for every other job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<u32>,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobReply {
    /// `wharf.v1.job`.
    pub schema: String,
    /// The job.
    pub job: JobView,
    /// To how many jobs of an array it was done, of which `job` is the first; absent for every other job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<u32>,
    /// Whom the control plane took the caller for; absent where nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<ActorView>,
}

/// An array with its members, those that are over too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayReply {
    /// `wharf.v1.array`.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Path of the tenant.
    pub tenant: String,
    /// At most so many run at a time.
    pub at_most: u32,
    /// By index.
    pub members: Vec<MemberView>,
    /// True when more jobs have ended since than one request looks at: members may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shortened: bool,
}

/// A member of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    /// Which member.
    pub index: u32,
    /// Its name as a job.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// How far it is, while it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// How it ended, once it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<EndedAs>,
    /// Why it is so, in one sentence.
    pub text: String,
    /// What its process ended with, where that is why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// Live jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobList {
    /// `wharf.v1.jobs`.
    pub schema: String,
    /// In the order of submission.
    pub jobs: Vec<JobView>,
    /// Journal index at which it was made; of the first page where pages were put together. Give it as `since` to
    /// follow what changes from there.
    #[serde(default)]
    pub index: u64,
    /// What to give as `term` beside it.
    #[serde(default)]
    pub term: u64,
    /// What to give as `continue` for the next page; absent where this is the last one.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl JobList {
    /// Where what changes after it begins.
    pub fn resume(&self) -> Resume {
        Resume { index: self.index, term: self.term }
    }
}

/// Why a job is where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// `wharf.v1.explanation`.
    pub schema: String,
    /// The job, whose verdict is complete here.
    pub job: JobView,
    /// Ids of its evictions, newest first; the oldest of very many are left out.
    #[serde(default)]
    pub evictions: Vec<u64>,
    /// Places that are set aside for it.
    #[serde(default)]
    pub earmark: Option<EarmarkView>,
    /// The start that it is promised.
    #[serde(default)]
    pub reservation: Option<ReservationView>,
    /// Starts that were promised to it and given up, or made earlier, oldest first.
    #[serde(default)]
    pub missed: Vec<MissedView>,
    /// Why none is promised to it, where it waits and starts are promised at all.
    #[serde(default)]
    pub unpromised: Option<UnpromisedView>,
    /// Why its first task is where it is, where places had prices.
    #[serde(default)]
    pub chosen: Option<ChosenView>,
    /// What its tasks that run really do.
    #[serde(default)]
    pub tasks: Vec<TaskUseView>,
    /// How often a task of it was killed because it used more memory than it may; `null` where nobody counts.
    #[serde(default)]
    pub ooms: Option<u32>,
}

/// What a task that runs really does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskUseView {
    /// Which task.
    pub task: u32,
    /// How busy it keeps what it was given, from 0 to 1; `null` where that is not known, as on a GPU that others use
    /// undivided too.
    pub sm_active: Option<f64>,
    /// Memory of each of its GPUs that it uses, in MiB; `null` where that is not known.
    pub memory_used_mib: Option<u32>,
    /// The most that it may use, in MiB; `null` where that is not known.
    pub memory_limit_mib: Option<u32>,
}

/// Why a task went where it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChosenView {
    /// What decided: `only`, `without_gpus`, `drains`, `worth`, `scarce`, `cut` or `node`.
    pub by: String,
    /// What the place cost of what the fleet is worth to the work that usually comes, in GPUs.
    pub cost_gpus: f64,
    /// Name of the next best node.
    pub runner_up: Option<String>,
    /// What that would have cost, in GPUs.
    pub runner_up_cost_gpus: Option<f64>,
}

/// Places that are set aside for a job until those who leave them are gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarmarkView {
    /// Since when.
    pub since_ms: u64,
    /// Where its tasks will go.
    pub places: Vec<PlacementView>,
    /// Who still has to leave them.
    pub leaving: Vec<LeavingView>,
}

/// A task that still has to leave a place that is promised to somebody else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeavingView {
    /// Name of its job.
    pub job: String,
    /// Tenant of its job.
    pub tenant: String,
    /// Where it is.
    #[serde(flatten)]
    pub place: PlacementView,
    /// How far it is.
    pub step: LeavingStep,
    /// When the step is over at the latest; `null` where that is any moment now.
    pub deadline_ms: Option<u64>,
    /// The eviction that told it to leave for this job; `null` where it leaves for another reason.
    pub eviction: Option<u64>,
}

/// How far a task is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeavingStep {
    /// It was asked to save its work; at the deadline it is stopped.
    Asked,
    /// It has saved its work and is about to be stopped.
    Saved,
    /// It was told to stop; at the deadline it is killed.
    Stopping,
}

/// What would happen to a job if it were submitted now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanView {
    /// `wharf.v1.plan`.
    pub schema: String,
    /// The answer.
    pub verdict: VerdictView,
    /// Where its tasks would go, now or when those who have to leave are gone.
    pub placements: Vec<PlacementView>,
    /// Who would have to leave for it.
    #[serde(default)]
    pub would_preempt: Vec<VictimView>,
}
