//! Who does something. Every input has an actor, and the journal keeps it with each event that follows from the input.
//!
//! The edge resolves the actor from what it knows of the caller. A name that nobody checked is a claim, and the type says
//! so. What a plan decides, and what time makes due, is done by the engine itself.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::model::is_default;

/// Who does something, by which way, and in which roles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    pub source: Source,
    #[serde(default, skip_serializing_if = "is_default")]
    pub subject: Subject,
    #[serde(default, skip_serializing_if = "is_default")]
    pub roles: Vec<Role>,
    /// For whom it acts, where that is somebody else. As trustworthy as the subject.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_behalf_of: Option<String>,
}

/// By which way an input comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum Source {
    #[strum(serialize = "anonymous")]
    Http,
    /// The process that runs the control plane: a simulation, a demonstration, a benchmark.
    Embedded,
    #[strum(serialize = "policy file")]
    PolicyFile,
    World,
    /// The control plane itself: a plan, or time that passed.
    Engine,
}

/// How somebody is called, and whether that is known or only said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    #[default]
    Unnamed,
    /// The caller says so, and nobody checked it.
    Claimed(String),
    /// The edge has checked it.
    Verified(String),
}

/// What somebody may act as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May book beyond the guarantee of a tenant.
    Operator,
}

impl Actor {
    /// Somebody unnamed without roles.
    pub const fn of(source: Source) -> Self {
        Self { source, subject: Subject::Unnamed, roles: Vec::new(), on_behalf_of: None }
    }

    /// The process that runs the control plane. It may do everything.
    pub fn embedded() -> Self {
        Self { roles: alloc::vec![Role::Operator], ..Self::of(Source::Embedded) }
    }

    /// The name, where there is one.
    pub fn name(&self) -> Option<&str> {
        match &self.subject {
            Subject::Unnamed => None,
            Subject::Claimed(name) | Subject::Verified(name) => Some(name),
        }
    }

    /// The name, or a word for somebody who has none.
    pub fn called(&self) -> &str {
        self.name().unwrap_or(self.source.into_str())
    }

    /// True when it may act as that.
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}
