//! GPU models as tables of our own.
//!
//! A model that is not here works as whole GPUs and shares of unknown memory. Figures are checked against the
//! collected hardware tables where those are present; what nobody has seen on hardware is marked as such.

pub mod mig;
pub mod xid;

pub use mig::{Media, Mig, Profile};
pub use xid::{Recovery, Xid, xid};

/// What is known of a GPU model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// The name used in job files, policy and labels.
    pub name: &'static str,
    /// The name of the row in the collected specification table.
    pub spec_row: &'static str,
    /// As the vendor counts it.
    pub memory_gb: u32,
    pub bandwidth_gbps: Option<u32>,
    pub sm: Option<u16>,
    /// Whether GPUs of this model in one node are joined by NVLink in their usual form factor.
    pub nvlink: bool,
    pub mig: Option<&'static Mig>,
}

impl Model {
    const fn whole(name: &'static str, spec_row: &'static str, memory_gb: u32) -> Self {
        Self { name, spec_row, memory_gb, bandwidth_gbps: None, sm: None, nvlink: false, mig: None }
    }

    const fn at(mut self, bandwidth_gbps: u32) -> Self {
        self.bandwidth_gbps = Some(bandwidth_gbps);
        self
    }

    const fn linked(mut self) -> Self {
        self.nvlink = true;
        self
    }

    const fn cut(mut self, mig: &'static Mig) -> Self {
        self.mig = Some(mig);
        self.sm = mig.sm;
        self
    }
}

/// Every model known by name, sorted by name.
pub const MODELS: &[Model] = &[
    Model::whole("a100", "A100-SXM4-80GB", 80).at(2000).linked().cut(&mig::A100_80),
    Model::whole("a100-40gb", "A100-SXM4-40GB", 40).at(1555).linked().cut(&mig::A100_40),
    Model::whole("a30", "A30", 24).at(933).cut(&mig::A30),
    Model::whole("b200", "B200-SXM-180GB", 180).at(8000).linked().cut(&mig::B200),
    Model::whole("b300", "B300-SXM-288GB", 288).at(8000).linked().cut(&mig::B300),
    Model::whole("gb200", "GB200-186GB", 186).at(8000).linked().cut(&mig::GB200),
    Model::whole("gb300", "GB300-288GB", 288).at(8000).linked().cut(&mig::GB300),
    Model::whole("gh200", "GH200-96GB", 96).at(4000).cut(&mig::GH200_96),
    Model::whole("h100", "H100-SXM5-80GB", 80).at(3350).linked().cut(&mig::H100_SXM),
    Model::whole("h100-nvl", "H100-NVL-94GB", 94).cut(&mig::H100_NVL),
    Model::whole("h100-pcie", "H100-PCIe-80GB", 80).at(2000).cut(&mig::H100_PCIE),
    Model::whole("h20", "H20-96GB", 96).at(4000).linked().cut(&mig::H20),
    Model::whole("h200", "H200-SXM-141GB", 141).at(4800).linked().cut(&mig::H200),
    Model::whole("l4", "L4", 24).at(300),
    Model::whole("l40s", "L40S", 48).at(860),
    Model::whole("rtx-pro-6000", "RTX-PRO-6000-Blackwell-Server", 96).at(1600).cut(&mig::RTX_PRO_6000),
    Model::whole("t4", "T4", 16).at(320),
    Model::whole("v100", "V100-SXM2-32GB", 32).at(900).linked(),
];

/// The model of that name, if it is known.
pub fn model(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.name == name)
}

/// How GPUs of that model can be cut, if the model is known and they can.
pub fn mig(name: &str) -> Option<&'static Mig> {
    model(name)?.mig
}
