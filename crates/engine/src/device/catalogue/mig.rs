//! How GPUs can be cut: profiles, and where on the device's memory axis each may begin.
//!
//! The axis is not the same everywhere (4, 8 or 12 slots), a profile's compute and memory are two numbers (3g takes
//! half the memory), and multiprocessors depend on the board: nothing here is derived, all of it is a table.

use core::fmt;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

pub const AXIS_MAX: usize = 12;
pub const PROFILES_MAX: usize = 11;

/// How GPUs of a model can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mig {
    /// The name of the rows in the collected table.
    pub row: &'static str,
    /// Slots on the memory axis.
    pub axis: u8,
    /// Compute slices of the whole device.
    pub compute: u8,
    /// Multiprocessors of the whole device, uncut, where they are known.
    pub sm: Option<u16>,
    /// Whether changing the mode resets the GPU, so that everything on it must be gone.
    pub mode_resets: bool,
    /// Whether legal starts were seen on hardware, or inferred from a model of the same family.
    pub starts_seen: bool,
    /// By number.
    pub profiles: &'static [Profile],
}

/// A size that a device can be cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// As the vendor's tools print it.
    pub name: &'static str,
    pub compute: u8,
    /// Slots on the memory axis, and what it is charged.
    pub slots: u8,
    pub starts: &'static [u8],
    pub max: u8,
    /// Usable memory in MiB: what the driver reports, which is less than the name says.
    pub memory_mib: u32,
    /// Whether somebody saw that figure; otherwise it is 15/16 of what the name says.
    pub memory_seen: bool,
    pub sm: Option<u16>,
    pub media: Media,
}

/// What a profile takes of the media engines, of which a device has one set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(const_into_str)]
pub enum Media {
    /// Its usual part.
    #[strum(serialize = "")]
    Usual,
    /// `+me`: the media extension, of which there is one.
    #[strum(serialize = "+me")]
    Extension,
    /// `+me.all`: all of them; beside it only `-me` can be created.
    #[strum(serialize = "+me.all")]
    All,
    /// `-me`: none.
    #[strum(serialize = "-me")]
    Without,
    /// `+gfx`: graphics too.
    #[strum(serialize = "+gfx")]
    Graphics,
}

/// The name of a profile, free of strings: `1g.10gb+me`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProfileName {
    pub compute: u8,
    /// The memory in its name, which is a label and not an amount.
    pub gb: u16,
    pub media: Media,
}

impl ProfileName {
    /// Reads a name as the vendor's tools print it.
    pub fn parse(text: &str) -> Option<Self> {
        let (compute, rest) = text.split_once("g.")?;
        let (gb, suffix) = rest.split_once("gb")?;
        let media = *Media::VARIANTS.iter().find(|media| media.into_str() == suffix)?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(compute) || !digits(gb) {
            return None;
        }
        Some(Self { compute: compute.parse().ok()?, gb: gb.parse().ok()?, media })
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}g.{}gb{}", self.compute, self.gb, self.media.into_str())
    }
}

impl Mig {
    /// The number of the profile of that name.
    pub fn profile_named(&self, name: &str) -> Option<u8> {
        let at = self.profiles.iter().position(|profile| profile.name == name)?;
        u8::try_from(at).ok()
    }

    /// A profile by its number.
    pub fn profile(&self, number: u8) -> Option<&'static Profile> {
        self.profiles.get(usize::from(number))
    }
}

const SEVEN: &[u8] = &[0, 1, 2, 3, 4, 5, 6];
const PAIRS: &[u8] = &[0, 2, 4, 6];
const THREE_PAIRS: &[u8] = &[0, 2, 4];
const HALVES: &[u8] = &[0, 4];
const FIRST: &[u8] = &[0];

/// How many starts there are, without a conversion that a constant cannot check.
const fn count(starts: &[u8]) -> u8 {
    match starts {
        [] => 0,
        [_, others @ ..] => 1 + count(others),
    }
}

/// A profile with the usual media engines; negative memory and no multiprocessors were not seen.
const fn profile(
    name: &'static str,
    (compute, slots): (u8, u8),
    starts: &'static [u8],
    mib: i32,
    sm: u16,
) -> Profile {
    let (max, memory_mib, memory_seen) = (count(starts), mib.unsigned_abs(), mib > 0);
    let (sm, media) = (known(sm), Media::Usual);
    Profile { name, compute, slots, starts, max, memory_mib, memory_seen, sm, media }
}

const fn known(sm: u16) -> Option<u16> {
    if sm == 0 { None } else { Some(sm) }
}

const fn with_media(mut profile: Profile, name: &'static str, media: Media) -> Profile {
    profile.name = name;
    profile.media = media;
    if matches!(media, Media::Extension | Media::All) {
        profile.max = 1;
    }
    profile
}

/// Names, then memory in MiB and multiprocessors of 1g, 1g with twice the memory, 2g, 3g, 4g and 7g.
const fn seven_profiles(names: [&'static str; 7], mib: [i32; 6], sm: [u16; 7]) -> [Profile; 7] {
    let one = profile(names[0], (1, 1), SEVEN, mib[0], sm[0]);
    [
        one,
        with_media(one, names[1], Media::Extension),
        profile(names[2], (1, 2), PAIRS, mib[1], sm[1]),
        profile(names[3], (2, 2), THREE_PAIRS, mib[2], sm[2]),
        profile(names[4], (3, 4), HALVES, mib[3], sm[3]),
        profile(names[5], (4, 4), FIRST, mib[4], sm[4]),
        profile(names[6], (7, 8), FIRST, mib[5], sm[5]),
    ]
}

/// A device with eight slots and seven compute slices.
macro_rules! eight_slots {
    ($row:literal, $names:expr, $mib:expr, $sm:expr) => {
        Mig {
            row: $row,
            axis: 8,
            compute: 7,
            sm: known($sm[6]),
            mode_resets: false,
            starts_seen: false,
            profiles: &seven_profiles($names, $mib, $sm),
        }
    };
}

const fn seen(mut mig: Mig) -> Mig {
    mig.starts_seen = true;
    mig
}

const fn ampere(mut mig: Mig) -> Mig {
    mig.mode_resets = true;
    mig
}

// Names of profiles, by the memory of the whole device.
const GB_40: [&str; 7] = ["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"];
const GB_80: [&str; 7] = ["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
const GB_94: [&str; 7] = ["1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"];
const GB_96: [&str; 7] = ["1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"];
const GB_141: [&str; 7] = ["1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"];
const GB_180: [&str; 7] = ["1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"];
const GB_186: [&str; 7] = ["1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"];
const GB_269: [&str; 7] = ["1g.34gb", "1g.34gb+me", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"];
const GB_278: [&str; 7] = ["1g.35gb", "1g.35gb+me", "1g.70gb", "2g.70gb", "3g.139gb", "4g.139gb", "7g.278gb"];

// Multiprocessors of profiles, and of the whole device, uncut; 0 where they are not known.
const SM_UNKNOWN: [u16; 7] = [0; 7];
const SM_108: [u16; 7] = [14, 14, 28, 42, 56, 98, 108];
const SM_114: [u16; 7] = [14, 14, 30, 46, 62, 114, 114];
const SM_132: [u16; 7] = [16, 26, 32, 60, 64, 132, 132];
const SM_B200: [u16; 7] = [18, 30, 36, 0, 0, 0, 0];
const SM_GB200: [u16; 7] = [18, 32, 38, 0, 0, 0, 0];

pub(crate) const A100_40: Mig =
    ampere(seen(eight_slots!("A100-40GB", GB_40, [4864, 9851, 9851, 19968, 19968, 40192], SM_108)));
pub const A100_80: Mig =
    ampere(seen(eight_slots!("A100-80GB", GB_80, [9728, 19968, 19968, 40192, 40192, 80640], SM_108)));
pub const H100_SXM: Mig =
    seen(eight_slots!("H100-SXM5-80GB", GB_80, [9984, 20091, 20091, 40448, 40448, 81152], SM_132));
pub(crate) const H100_PCIE: Mig =
    seen(eight_slots!("H100-PCIe-80GB", GB_80, [9984, 20091, 20091, 40448, 40448, 81152], SM_114));
pub(crate) const H100_NVL: Mig =
    seen(eight_slots!("H100-NVL-94GB", GB_94, [11008, 22139, 22139, 47493, 47493, 95355], SM_132));
pub(crate) const GH200_96: Mig =
    eight_slots!("GH200-96GB", GB_96, [-11520, 23552, 23552, 47616, 47616, 95232], SM_132);
pub(crate) const H200: Mig =
    eight_slots!("H200-141GB", GB_141, [16384, 33024, 33024, 71168, 71168, 143_104], SM_132);
pub(crate) const H20: Mig =
    eight_slots!("H20-96GB", GB_96, [-11520, -23040, -23040, -46080, -46080, -92160], SM_UNKNOWN);
pub(crate) const B200: Mig =
    eight_slots!("B200-180GB", GB_180, [22528, 45312, 45312, -86400, -86400, -172_800], SM_B200);
pub(crate) const GB200: Mig =
    eight_slots!("GB200-186GB", GB_186, [22528, 46592, 46592, -89280, -89280, -178_560], SM_GB200);
pub(crate) const B300: Mig =
    eight_slots!("B300-288GB", GB_269, [-32640, -64320, -64320, -129_600, -129_600, -258_240], SM_UNKNOWN);
pub(crate) const GB300: Mig =
    eight_slots!("GB300-288GB", GB_278, [-33600, -67200, -67200, -133_440, -133_440, -266_880], SM_UNKNOWN);

const A30_ONE: Profile = profile("1g.6gb", (1, 1), &[0, 1, 2, 3], 5836, 14);
const A30_TWO: Profile = profile("2g.12gb", (2, 2), &[0, 2], 11971, 28);

pub const A30: Mig = Mig {
    row: "A30-24GB",
    axis: 4,
    compute: 4,
    sm: Some(56),
    mode_resets: true,
    starts_seen: true,
    profiles: &[
        A30_ONE,
        with_media(A30_ONE, "1g.6gb+me", Media::Extension),
        A30_TWO,
        with_media(A30_TWO, "2g.12gb+me", Media::Extension),
        profile("4g.24gb", (4, 4), FIRST, 24064, 56),
    ],
};

const PRO_ONE: Profile = profile("1g.24gb", (1, 3), &[0, 3, 6, 9], 24187, 46);
const PRO_TWO: Profile = profile("2g.48gb", (2, 6), &[0, 6], 48517, 94);
const PRO_FOUR: Profile = profile("4g.96gb", (4, 12), FIRST, 97280, 188);

// The server edition.
pub const RTX_PRO_6000: Mig = Mig {
    row: "RTX-PRO-6000-Blackwell-96GB",
    axis: 12,
    compute: 4,
    sm: Some(188),
    mode_resets: false,
    starts_seen: true,
    profiles: &[
        PRO_ONE,
        with_media(PRO_ONE, "1g.24gb+me", Media::Extension),
        with_media(PRO_ONE, "1g.24gb+gfx", Media::Graphics),
        with_media(PRO_ONE, "1g.24gb+me.all", Media::All),
        with_media(PRO_ONE, "1g.24gb-me", Media::Without),
        PRO_TWO,
        with_media(PRO_TWO, "2g.48gb+gfx", Media::Graphics),
        with_media(PRO_TWO, "2g.48gb+me.all", Media::All),
        with_media(PRO_TWO, "2g.48gb-me", Media::Without),
        PRO_FOUR,
        with_media(PRO_FOUR, "4g.96gb+gfx", Media::Graphics),
    ],
};
