//! GPU models as a table of our own.
//!
//! A model that is not here works as whole GPUs of unknown memory. Figures are checked against the collected
//! hardware tables where those are present. MIG geometry is absent on purpose until slices are placed.

/// What is known of a GPU model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// The name used in job files, policy and labels.
    pub name: &'static str,
    /// The name of the row in the collected specification table.
    pub spec_row: &'static str,
    /// Memory in GB as the vendor counts it.
    pub memory_gb: u32,
    /// Whether GPUs of this model in one node are joined by NVLink in their usual form factor.
    pub nvlink: bool,
}

/// Every model known by name, sorted by name.
pub const MODELS: &[Model] = &[
    Model { name: "a100", spec_row: "A100-SXM4-80GB", memory_gb: 80, nvlink: true },
    Model { name: "a100-40gb", spec_row: "A100-SXM4-40GB", memory_gb: 40, nvlink: true },
    Model { name: "a30", spec_row: "A30", memory_gb: 24, nvlink: false },
    Model { name: "b200", spec_row: "B200-SXM-180GB", memory_gb: 180, nvlink: true },
    Model { name: "b300", spec_row: "B300-SXM-288GB", memory_gb: 288, nvlink: true },
    Model { name: "gb200", spec_row: "GB200-186GB", memory_gb: 186, nvlink: true },
    Model { name: "gb300", spec_row: "GB300-288GB", memory_gb: 288, nvlink: true },
    Model { name: "gh200", spec_row: "GH200-96GB", memory_gb: 96, nvlink: false },
    Model { name: "h100", spec_row: "H100-SXM5-80GB", memory_gb: 80, nvlink: true },
    Model { name: "h20", spec_row: "H20-96GB", memory_gb: 96, nvlink: true },
    Model { name: "h200", spec_row: "H200-SXM-141GB", memory_gb: 141, nvlink: true },
    Model { name: "l4", spec_row: "L4", memory_gb: 24, nvlink: false },
    Model { name: "l40s", spec_row: "L40S", memory_gb: 48, nvlink: false },
    Model { name: "t4", spec_row: "T4", memory_gb: 16, nvlink: false },
    Model { name: "v100", spec_row: "V100-SXM2-32GB", memory_gb: 32, nvlink: true },
];

/// The model of that name, if it is known.
pub fn model(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.name == name)
}
