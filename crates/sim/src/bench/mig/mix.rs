//! What is asked for: how often each profile is.

use strum::{IntoStaticStr, VariantArray};
use wharf_engine::device::catalogue::{Media, Mig, Profile};

/// A mix that everybody can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum MixName {
    /// Half of it is the smallest profile.
    Small,
    /// From all sizes.
    Mixed,
    /// Half of it is 3g and larger.
    Large,
}

impl MixName {
    /// The word for it, the same everywhere.
    pub fn into_str(self) -> &'static str {
        self.into()
    }

    /// Shares of 1g, 1g with twice the memory, 2g, 3g, 4g, and the whole device.
    fn shares(self) -> [u32; 6] {
        match self {
            Self::Small => [50, 10, 20, 10, 5, 5],
            Self::Mixed => [30, 5, 20, 20, 10, 15],
            Self::Large => [15, 5, 15, 30, 15, 20],
        }
    }
}

/// How often each profile is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    name: String,
    /// By profile number.
    shares: Vec<u32>,
}

/// What is wrong with a file of a mix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct MixError {
    /// The line, from 1; none where it is the file as a whole.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
    /// A profile that was asked for and is none.
    pub profile: Option<String>,
}

/// The largest share.
const SHARE_MAX: u32 = 1_000_000;

impl Mix {
    /// A mix by its name. A size that the model has not is left out.
    pub fn named(name: MixName, mig: &Mig) -> Self {
        let shares = name.shares();
        let share = |profile: &Profile| role(mig, profile).map_or(0, |role| shares[role]);
        Self { name: name.into_str().into(), shares: mig.profiles.iter().map(share).collect() }
    }

    /// A mix from the text of a file: a line `profile,share` each, names as the vendor's tools print them, shares
    /// whole numbers; empty lines, `#` comments and a first line of titles do not count.
    pub fn parse(name: &str, text: &str, mig: &Mig) -> Result<Self, MixError> {
        let mut shares = vec![0; mig.profiles.len()];
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or("").trim();
            if content.is_empty() || content == "profile,share" {
                continue;
            }
            let (profile, share) =
                row(content, mig).map_err(|error| MixError { line: Some(index + 1), ..error })?;
            shares[usize::from(profile)] = share;
        }
        if shares.iter().all(|&share| share == 0) {
            return Err(wrong("nothing is asked for: every share is 0"));
        }
        Ok(Self { name: name.into(), shares })
    }

    /// Whether it is one of those that everybody can name.
    pub fn is_named(&self) -> bool {
        MixName::VARIANTS.iter().any(|name| name.into_str() == self.name)
    }

    /// Its name, or that of its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How often a profile is asked for.
    pub fn share(&self, profile: u8) -> u32 {
        self.shares.get(usize::from(profile)).copied().unwrap_or(0)
    }

    /// All shares together.
    pub fn share_sum(&self) -> u64 {
        self.shares.iter().copied().map(u64::from).sum()
    }

    /// All sizes together, each as often as it is asked for.
    pub(super) fn size_sum(&self, mig: &Mig) -> u64 {
        (0u8..).zip(&self.shares).map(|(profile, &share)| u64::from(share) * size_of(mig, profile)).sum()
    }

    /// The profile at a place drawn evenly among all.
    pub(super) fn pick(&self, drawn: u32) -> u8 {
        let mut at = (u64::from(drawn) * self.share_sum()) >> 32;
        let mut picked = 0;
        for (profile, &share) in (0u8..).zip(&self.shares) {
            if share > 0 {
                picked = profile;
            }
            if at < u64::from(share) {
                break;
            }
            at -= u64::from(share);
        }
        picked
    }
}

fn row(content: &str, mig: &Mig) -> Result<(u8, u32), MixError> {
    let Some((name, share)) = content.split_once(',') else {
        return Err(wrong(&format!("{content:?} is no line of a mix: write PROFILE,SHARE")));
    };
    let (name, share) = (name.trim(), share.trim());
    let Some(profile) = mig.profile_named(name) else {
        let what = format!("{} has no profile {name:?}", mig.row);
        return Err(MixError { profile: Some(name.into()), ..wrong(&what) });
    };
    match share.parse() {
        Ok(share) if share <= SHARE_MAX => Ok((profile, share)),
        Ok(_) | Err(_) => Err(wrong(&format!("{share:?} is no share: a whole number up to {SHARE_MAX}"))),
    }
}

fn wrong(what: &str) -> MixError {
    MixError { line: None, what: what.into(), profile: None }
}

/// Which of the six sizes of a named mix a profile is, if it is one.
fn role(mig: &Mig, profile: &Profile) -> Option<usize> {
    if profile.media != Media::Usual {
        return None;
    }
    if profile.slots == mig.axis {
        return Some(5);
    }
    let least = mig.profiles.iter().map(|profile| profile.slots).min()?;
    match profile.compute {
        1 if profile.slots > least => Some(1),
        1 => Some(0),
        compute @ 2..=4 => Some(usize::from(compute)),
        _ => None,
    }
}

/// The part of a device that a slice takes: of memory or of compute, whichever is more, in parts of [`sizes_in`].
pub fn size_of(mig: &Mig, profile: u8) -> u64 {
    let part = |profile: &Profile| {
        let memory = u64::from(profile.slots) * u64::from(mig.compute);
        memory.max(u64::from(profile.compute) * u64::from(mig.axis))
    };
    mig.profile(profile).map_or(0, part)
}

/// Parts of a whole device.
pub fn sizes_in(mig: &Mig) -> u64 {
    u64::from(mig.axis) * u64::from(mig.compute)
}

#[cfg(test)]
mod tests {
    use wharf_engine::device::catalogue::mig;

    use super::*;

    #[test]
    fn a_named_mix_takes_the_sizes_that_a_model_has() {
        let shares = |mig| Mix::named(MixName::Mixed, mig).shares;
        assert_eq!(shares(&mig::A100_80), [30, 0, 5, 20, 20, 10, 15]);
        assert_eq!(shares(&mig::A30), [30, 0, 20, 0, 15]);
        assert_eq!(shares(&mig::RTX_PRO_6000), [30, 0, 0, 0, 0, 20, 0, 0, 0, 15, 0]);
    }

    #[test]
    fn sizes_are_the_larger_of_memory_and_compute() {
        let sizes: Vec<u64> = (0..7).map(|profile| size_of(&mig::A100_80, profile)).collect();
        assert_eq!((sizes, sizes_in(&mig::A100_80)), (vec![8, 8, 14, 16, 28, 32, 56], 56));
    }

    #[test]
    fn a_file_is_lines_of_profile_and_share() {
        let text = "profile,share\n# ours\n1g.10gb, 3\n\n7g.80gb,1 # rare\n";
        let mix = Mix::parse("ours", text, &mig::A100_80).unwrap();
        assert_eq!(mix.shares, [3, 0, 0, 0, 0, 0, 1]);
        assert_eq!([0, u32::MAX].map(|drawn| mix.pick(drawn)), [0, 6]);
        for (text, line) in [
            ("1g.10gb,3\n1g.5gb,1\n", Some(2)),
            ("1g.10gb\n", Some(1)),
            ("1g.10gb,-1\n", Some(1)),
            ("1g.10gb,1000001\n", Some(1)),
            ("1g.10gb,0\n", None),
            ("", None),
        ] {
            assert_eq!(Mix::parse("x", text, &mig::A100_80).unwrap_err().line, line, "{text:?}");
        }
    }
}
