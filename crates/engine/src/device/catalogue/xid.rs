//! Errors that NVIDIA's driver reports of a GPU, by number (XID), and what each of them asks for.
//!
//! What is asked for is the vendor's recommended immediate action, in the five kinds that make a difference to a
//! scheduler. An error of an application never costs a device. Codes that the vendor calls unused are not here.

/// What an error asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It is recorded.
    Nothing,
    /// The job that made it fails; the device is as good as before.
    Job,
    /// The device is reset and returns by itself.
    Reset,
    /// The device returns when its node was restarted.
    RestartNode,
    /// The device returns when somebody has looked at it.
    Service,
}

impl Recovery {
    /// True when the device cannot be used until then.
    pub fn costs_device(self) -> bool {
        match self {
            Self::Nothing | Self::Job => false,
            Self::Reset | Self::RestartNode | Self::Service => true,
        }
    }
}

/// An error that a driver reports of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    pub number: u16,
    pub meaning: &'static str,
    pub recovery: Recovery,
}

impl Xid {
    const fn new(number: u16, meaning: &'static str, recovery: Recovery) -> Self {
        Self { number, meaning, recovery }
    }
}

/// The error of that number, if it is known.
pub fn xid(number: u16) -> Option<&'static Xid> {
    XIDS.iter().find(|known| known.number == number)
}

/// Every error that is in use, by number.
pub const XIDS: &[Xid] = &[
    Xid::new(8, "GPU stopped processing", Recovery::Job),
    Xid::new(11, "Invalid or corrupted push buffer stream", Recovery::Job),
    Xid::new(13, "Graphics Engine Exception", Recovery::Job),
    Xid::new(25, "Invalid or illegal push buffer stream", Recovery::Job),
    Xid::new(31, "GPU memory page fault", Recovery::Job),
    Xid::new(32, "Invalid or corrupted push buffer stream", Recovery::Job),
    Xid::new(37, "Driver firmware error", Recovery::Nothing),
    Xid::new(38, "Driver firmware error", Recovery::Nothing),
    Xid::new(39, "Copy Engine Exception", Recovery::Job),
    Xid::new(40, "Copy Engine Exception", Recovery::Job),
    Xid::new(41, "Copy Engine Exception", Recovery::Job),
    Xid::new(43, "GPU stopped processing", Recovery::Job),
    Xid::new(44, "Graphics Engine fault during context switch", Recovery::Nothing),
    Xid::new(45, "Preemptive cleanup, due to previous errors", Recovery::Job),
    Xid::new(46, "GPU stopped processing", Recovery::Reset),
    Xid::new(48, "Double Bit ECC Error", Recovery::Reset),
    Xid::new(54, "Auxiliary power is not connected to the GPU board", Recovery::Service),
    Xid::new(60, "Video processor exception", Recovery::Job),
    Xid::new(62, "Internal micro-controller halt (newer drivers)", Recovery::Reset),
    Xid::new(63, "GPU memory remapping event", Recovery::Nothing),
    Xid::new(64, "GPU memory remapping failure", Recovery::Reset),
    Xid::new(66, "Illegal access by driver", Recovery::Nothing),
    Xid::new(67, "Illegal access by driver", Recovery::Nothing),
    Xid::new(68, "NVDEC0 Exception", Recovery::Job),
    Xid::new(69, "Graphics Engine class error", Recovery::Job),
    Xid::new(70, "CE3: Unknown Error", Recovery::Job),
    Xid::new(71, "CE4: Unknown Error", Recovery::Job),
    Xid::new(72, "CE5: Unknown Error", Recovery::Job),
    Xid::new(74, "NVLINK Error", Recovery::Reset),
    Xid::new(75, "CE6: Unknown Error", Recovery::Job),
    Xid::new(76, "CE7: Unknown Error", Recovery::Job),
    Xid::new(77, "CE8: Unknown Error", Recovery::Job),
    Xid::new(78, "vGPU Start Error", Recovery::Nothing),
    Xid::new(79, "GPU has fallen off the bus", Recovery::RestartNode),
    Xid::new(80, "Corrupted data sent to GPU", Recovery::Job),
    Xid::new(82, "NVJPG0 Error", Recovery::Job),
    Xid::new(83, "NVDEC1 Error", Recovery::Job),
    Xid::new(84, "NVDEC2 Error", Recovery::Job),
    Xid::new(85, "CE9: Unknown Error", Recovery::Job),
    Xid::new(86, "OFA Exception", Recovery::Job),
    Xid::new(88, "NVDEC3 Error", Recovery::Job),
    Xid::new(89, "NVDEC4 Error", Recovery::Job),
    Xid::new(92, "High single-bit ECC error rate", Recovery::Nothing),
    Xid::new(93, "Non-fatal violation of provisioned InfoROM wear limit", Recovery::Nothing),
    Xid::new(94, "Contained memory error", Recovery::Job),
    Xid::new(95, "Uncontained memory error", Recovery::Reset),
    Xid::new(96, "NVDEC5 Error", Recovery::Job),
    Xid::new(97, "NVDEC6 Error", Recovery::Job),
    Xid::new(98, "NVDEC7 Error", Recovery::Job),
    Xid::new(99, "NVJPG1 Error", Recovery::Job),
    Xid::new(100, "NVJPG2 Error", Recovery::Job),
    Xid::new(101, "NVJPG3 Error", Recovery::Job),
    Xid::new(102, "NVJPG4 Error", Recovery::Job),
    Xid::new(103, "NVJPG5 Error", Recovery::Job),
    Xid::new(104, "NVJPG6 Error", Recovery::Job),
    Xid::new(105, "NVJPG7 Error", Recovery::Job),
    Xid::new(106, "SMBPBI Test Message", Recovery::Nothing),
    Xid::new(107, "SMBPBI Test Message Silent", Recovery::Nothing),
    Xid::new(109, "Context Switch Timeout Error", Recovery::Reset),
    Xid::new(110, "Security Fault Error", Recovery::Reset),
    Xid::new(119, "GSP RPC Timeout", Recovery::Reset),
    Xid::new(120, "GSP Error", Recovery::Reset),
    Xid::new(121, "C2C Error", Recovery::Nothing),
    Xid::new(126, "CE10: Unknown Error", Recovery::Job),
    Xid::new(127, "CE11: Unknown Error", Recovery::Job),
    Xid::new(128, "CE12: Unknown Error", Recovery::Job),
    Xid::new(129, "CE13: Unknown Error", Recovery::Job),
    Xid::new(130, "CE14: Unknown Error", Recovery::Job),
    Xid::new(131, "CE15: Unknown Error", Recovery::Job),
    Xid::new(132, "CE16: Unknown Error", Recovery::Job),
    Xid::new(133, "CE17: Unknown Error", Recovery::Job),
    Xid::new(134, "CE18: Unknown Error", Recovery::Job),
    Xid::new(135, "CE19: Unknown Error", Recovery::Job),
    Xid::new(136, "Link Training Failed", Recovery::Reset),
    Xid::new(137, "NVLink Privilege Error", Recovery::Nothing),
    Xid::new(139, "OFA1 Error", Recovery::Job),
    Xid::new(140, "ECC Unrecovered Error", Recovery::Reset),
    Xid::new(141, "CUDA Fast Path Error", Recovery::Nothing),
    Xid::new(142, "NVENC3 Error", Recovery::Nothing),
    Xid::new(143, "GPU Initialization Error", Recovery::Reset),
    Xid::new(144, "NVLINK: SAW Error", Recovery::Service),
    Xid::new(145, "NVLINK: RLW Error", Recovery::Service),
    Xid::new(146, "NVLINK: TLW Error", Recovery::Service),
    Xid::new(147, "NVLINK: TREX Error", Recovery::Service),
    Xid::new(148, "NVLINK: NVLPW_CTRL Error", Recovery::Service),
    Xid::new(149, "NVLINK: NETIR Error", Recovery::Service),
    Xid::new(150, "NVLINK: MSE Error", Recovery::Service),
    Xid::new(151, "Key rotation Error", Recovery::RestartNode),
    Xid::new(152, "DLA SMMU Error", Recovery::Nothing),
    Xid::new(153, "DLA timeout Error", Recovery::Nothing),
    Xid::new(154, "GPU Recovery Action Changed", Recovery::Nothing),
    Xid::new(155, "NVLINK: SW Defined Error", Recovery::Reset),
    Xid::new(156, "Resource Retirement Event", Recovery::Reset),
    Xid::new(157, "Resource Retirement Failure", Recovery::Nothing),
    Xid::new(158, "GPU Fatal Timeout", Recovery::Reset),
    Xid::new(159, "CHI Non-Data Error", Recovery::Nothing),
    Xid::new(160, "Channel Retirement Event", Recovery::Nothing),
    Xid::new(161, "Channel Retirement Failure", Recovery::Nothing),
    Xid::new(162, "Power Smoothing HW Circuitry capability reengaged", Recovery::Nothing),
    Xid::new(163, "Power Smoothing HW Circuitry capability disengaged", Recovery::Nothing),
    Xid::new(164, "Power Smoothing HW Circuitry low lifetime reached", Recovery::Nothing),
    Xid::new(165, "Power Smoothing HW Circuitry lifetime exhausted", Recovery::Nothing),
    Xid::new(166, "Traffic before the link was set up for encryption", Recovery::Nothing),
    Xid::new(167, "PCIe fatal timeout", Recovery::Nothing),
    Xid::new(168, "Errors found in write protected region", Recovery::Nothing),
    Xid::new(169, "Internal micro-controller halt", Recovery::Nothing),
    Xid::new(170, "NVLink interrupt in confidential computing mode", Recovery::Nothing),
    Xid::new(171, "Uncorrectable DRAM error", Recovery::Reset),
    Xid::new(172, "Uncorrectable SRAM error", Recovery::Reset),
];
