//! Dependencies between jobs, and arrays of jobs alike: what keeps a job from being a candidate at all.
//!
//! A job whose dependencies are not met, or whose array runs as many members as it may, is *held back*: it is no demand,
//! is not planned, and is listed nowhere that the planner looks. Only jobs that exist can be named, so a job depends on
//! older ones and there are no cycles. Members of an array take their turns in the order of their ids: the first so many
//! that live may run.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::model::exit::Outcome;
use crate::units::{JobId, Uid};

/// The most members of one array: all of them are queued in one decision and one commit.
pub const ARRAY_MAX: usize = 1000;
/// The most jobs that one job waits for: a whole array.
pub(crate) const DEPENDENCIES_MAX: usize = ARRAY_MAX;

/// The most dependencies of all members of one array together: each of them is kept with its name.
pub(crate) const LINKS_MAX: usize = 16_384;

/// Which end of a job lets those that wait for it start.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Condition {
    /// It succeeded. If it ends otherwise, those that wait for it are cancelled.
    #[default]
    Ok,
    Any,
}

impl Condition {
    /// True when such an end lets those that wait start.
    pub fn is_met_by(self, outcome: Outcome) -> bool {
        self == Self::Any || outcome == Outcome::Succeeded
    }
}

/// A job that another waits for, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    pub uid: Uid,
    #[serde(default)]
    pub when: Condition,
}

/// A job that another waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    pub job: JobId,
    /// Its name, for people: it may be over when this is read.
    pub name: String,
    #[serde(default)]
    pub when: Condition,
    /// It ended otherwise: who waits for it is about to be cancelled.
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub failed: bool,
}

/// As many jobs alike as there are indexes, of which so many run at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayRequest {
    /// In order, each once.
    pub indexes: Vec<u32>,
    pub at_most: u32,
}

/// The array that a job is a member of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayMember {
    /// Identity of the array: that of the submission.
    pub id: Uid,
    /// Its name; a member is called by it and its index.
    pub name: String,
    pub index: u32,
    pub at_most: u32,
}

impl ArrayMember {
    /// The identity of a member: that of the array, counted on.
    pub fn uid(array: Uid, index: u32) -> Uid {
        Uid(array.0.wrapping_add(u128::from(index)).wrapping_add(1))
    }

    /// The name of a member.
    pub fn member_name(array: &str, index: u32) -> String {
        alloc::format!("{array}-{index}")
    }
}
