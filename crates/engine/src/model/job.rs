//! What a job asks for, as the engine sees it: parsed, bounded and free of strings that decide anything.
//!
//! Selectors, tolerations and model lists have become set ids at the edge; the payload is carried to the
//! world and never read here.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::device::catalogue::mig::ProfileName;
use crate::device::catalogue::{MODELS, Media, Mig, Model, Profile};
use crate::device::geometry::units_of;
use crate::model::dependency::{ArrayMember, Dependency};
use crate::model::group::Group;
use crate::model::is_default;
use crate::units::{
    BookingId, DeviceSetId, GpuUnits, LevelId, Millis, NodeSetId, Resources, TenantId, TrustId,
};

/// The most tasks one job may have: a gang of 16,384 eight-GPU nodes is beyond any fleet we plan for.
pub const TASKS_MAX: u32 = 16_384;
pub const ALTERNATIVES_MAX: usize = 8;
/// The most whole GPUs one task may ask for: the largest node we know has 16.
pub const GPUS_PER_TASK_MAX: u32 = 16;

/// How a job relates to latency, which decides who is asked to leave for whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Class {
    /// Has an SLO; within its guarantee it is never a victim.
    Inference,
    /// Notebooks and evaluations: queues, but a person is waiting.
    Interactive,
    /// Checkpointable work, first to be asked to leave.
    #[default]
    Batch,
}

impl Class {
    /// Every class, in the order in which they are served.
    pub const ALL: [Self; 3] = [Self::Inference, Self::Interactive, Self::Batch];

    /// Its place in [`Class::ALL`].
    pub fn index(self) -> usize {
        match self {
            Self::Inference => 0,
            Self::Interactive => 1,
            Self::Batch => 2,
        }
    }
}

/// The GPU part of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GpuAsk {
    /// Whole GPUs of one node; 0 for work that needs none.
    Whole(u32),
    /// A part of one GPU, which may be shared inside one trust domain.
    Share(GpuUnits),
    Slice(ProfileName),
    AtLeast(Least),
}

/// What a slice must have at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Least {
    pub memory_mib: u32,
    /// So many parts of the device's compute…
    #[serde(default, skip_serializing_if = "is_default")]
    pub compute: u8,
    /// …of so many; 0 where any compute will do.
    #[serde(default, skip_serializing_if = "is_default")]
    pub compute_of: u8,
}

impl Default for GpuAsk {
    fn default() -> Self {
        Self::Whole(0)
    }
}

impl Least {
    fn is_met(self, mig: &Mig, profile: &Profile) -> bool {
        let compute = u32::from(profile.compute) * u32::from(self.compute_of)
            >= u32::from(self.compute) * u32::from(mig.compute);
        profile.memory_mib >= self.memory_mib && compute
    }
}

impl GpuAsk {
    /// What one task is charged before it has a place: a slice has the size of the first model that can be cut so.
    pub fn units(self) -> GpuUnits {
        match self {
            Self::Whole(count) => GpuUnits::whole(count),
            Self::Share(units) => units,
            Self::Slice(_) | Self::AtLeast(_) => {
                let on = |model: &Model| {
                    let mig = model.mig?;
                    self.profile_on(mig).map(|profile| units_of(mig, &mig.profiles[usize::from(profile)]))
                };
                MODELS.iter().find_map(on).unwrap_or(GpuUnits::WHOLE)
            }
        }
    }

    /// The number of the profile it takes on a device, if any will do: the fewest slots, then the least compute.
    pub fn profile_on(self, mig: &Mig) -> Option<u8> {
        let mut numbered = (0u8..).zip(mig.profiles);
        match self {
            Self::Whole(_) | Self::Share(_) => None,
            Self::Slice(name) => numbered.find(|(_, profile)| ProfileName::parse(profile.name) == Some(name)),
            Self::AtLeast(least) => numbered
                .filter(|(_, profile)| profile.media == Media::Usual && least.is_met(mig, profile))
                .min_by_key(|(_, profile)| (profile.slots, profile.compute)),
        }
        .map(|(number, _)| number)
    }

    /// True when it is a MIG slice.
    pub fn is_slice(self) -> bool {
        matches!(self, Self::Slice(_) | Self::AtLeast(_))
    }
}

/// What one task asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    pub gpus: GpuAsk,
    pub resources: Resources,
    pub nodes: NodeSetId,
    pub devices: DeviceSetId,
    /// Whether its share may be time-sliced: its tasks take turns on the whole device.
    #[serde(default, skip_serializing_if = "is_default")]
    pub time_slicing: bool,
    /// What it takes where that does not fit, in order.
    #[serde(default, skip_serializing_if = "is_default")]
    pub any_of: Vec<Alternative>,
}

impl Shape {
    /// So much of any device on any node.
    pub fn of(gpus: GpuAsk, resources: Resources) -> Self {
        Self { gpus, resources, ..Self::default() }
    }

    /// What it asks for, and what it takes instead, in order.
    pub fn alternatives(&self) -> impl Iterator<Item = Alternative> {
        let first = Alternative { gpus: self.gpus, devices: self.devices };
        core::iter::once(first).chain(self.any_of.iter().copied())
    }
}

/// Another way to meet a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Alternative {
    pub gpus: GpuAsk,
    pub devices: DeviceSetId,
}

/// Required closeness. Wishes come with the placement score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Topology {
    /// The GPUs of one task share an NVLink island.
    pub task_on_island: bool,
    /// All tasks share one domain of this level.
    pub gang_within: Option<LevelId>,
}

/// What a job promises about saving its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Checkpoint {
    /// How often it saves by itself.
    pub every: Millis,
    /// How long it needs to save when asked.
    pub grace: Millis,
    /// It promises to save when asked: leaving costs it no work that it did before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_request: bool,
}

impl Checkpoint {
    /// What is lost of work that ran for so long when it has to leave.
    pub fn lost(&self, ran: Millis) -> Millis {
        if self.on_request {
            // It goes on until it is gone, and what it does after the ask is done again.
            return ran.min(self.grace);
        }
        Millis(ran.0.checked_rem(self.every.0).unwrap_or(0))
    }
}

/// A job as submitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Unique among the tenant's live jobs.
    pub name: String,
    pub tenant: TenantId,
    pub class: Class,
    /// Higher first, inside the tenant.
    pub priority: i32,
    pub tasks: u32,
    /// The gang: so many tasks or none.
    pub min: u32,
    pub shape: Shape,
    /// Parts with a shape of their own, from which the three fields above follow; none where all tasks are alike.
    #[serde(default, skip_serializing_if = "is_default")]
    pub groups: Vec<Group>,
    #[serde(default)]
    pub topology: Topology,
    pub preemptible: bool,
    pub trust: TrustId,
    pub time_limit: Option<Millis>,
    /// How long its owner thinks it runs.
    pub estimate: Option<Millis>,
    /// Its replicas are independent and their wanted number changes; `tasks` is that number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    pub checkpoint: Option<Checkpoint>,
    /// The booked window whose places it uses, while that is to come or lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<BookingId>,
    /// How many task failures it survives by starting again.
    pub retries: u32,
    #[serde(default)]
    pub labels: Vec<(String, String)>,
    /// What the world runs; opaque here.
    #[serde(default)]
    pub payload: String,
    /// Jobs that have to be over before it may start; those that are have left the list.
    #[serde(default, skip_serializing_if = "is_default")]
    pub after: Vec<Dependency>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub array: Option<ArrayMember>,
    /// Who submitted it, as the client named them: a claim, as long as nobody checks identities. Empty where nobody said.
    #[serde(default, skip_serializing_if = "is_default")]
    pub submitted_by: String,
}

/// How many replicas a service may have; the least is the job's minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    pub max: u32,
    /// As many as were wanted when it was submitted.
    pub replicas: u32,
}

impl Spec {
    /// Bytes of everything in it whose length its owner chooses: what it adds to the memory, the journal and every snapshot.
    pub fn bytes(&self) -> u64 {
        let Self { name, labels, payload, groups, .. } = self;
        let labels = labels.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let groups = groups.iter().map(|group| group.name.len()).sum::<usize>();
        u64::try_from(name.len() + labels + payload.len() + groups).unwrap_or(u64::MAX)
    }

    /// A batch job of one such task that says nothing else of itself.
    pub fn of(name: impl Into<String>, shape: Shape) -> Self {
        Self { name: name.into(), tasks: 1, min: 1, shape, preemptible: true, ..Self::default() }
    }

    /// How long it needs to save its work when asked.
    pub fn grace(&self) -> Millis {
        self.checkpoint.map_or(Millis(0), |checkpoint| checkpoint.grace)
    }
}
