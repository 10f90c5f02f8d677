//! Tenants and their lines: what each is promised, what it gets, what it uses.

use serde::{Deserialize, Serialize};

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantView {
    /// `org/team/project`.
    pub path: String,
    /// One line per resource: `gpus` or a model, then `cpu` and `memory_gib` where they are metered.
    pub lines: Vec<LineView>,
    /// Claim on what is left, relative to its siblings.
    pub weight: u32,
    /// Higher is served first from what is left.
    pub priority: i32,
    /// Jobs that wait, below it too.
    pub waiting: u32,
    /// Jobs that hold something, below it too.
    pub running: u32,
}

/// One resource of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineView {
    /// `gpus`, a model, `cpu` or `memory_gib`.
    pub resource: String,
    /// Always recoverable; `None` is the word `unlimited` on the wire.
    #[serde(with = "unlimited")]
    pub guaranteed: Option<f64>,
    /// Never passed; `None` is the word `unlimited` on the wire.
    #[serde(with = "unlimited")]
    pub limit: Option<f64>,
    /// What it may use now.
    pub fair_share: f64,
    /// What it uses.
    pub used: f64,
    /// What it uses above its guarantee; 0 where that is unlimited.
    #[serde(default)]
    pub borrowed: f64,
    /// What of its guarantee it does not use and others do.
    #[serde(default)]
    pub lent: f64,
    /// What it uses and waits for.
    pub demand: f64,
    /// What it borrowed on average, the latest use counted most; absent where that does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<f64>,
}

/// The tenant tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantList {
    /// `wharf.v1.tenants`.
    pub schema: String,
    /// Every parent before its children.
    pub tenants: Vec<TenantView>,
    /// After so long what was borrowed counts half as much; absent where it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_life_ms: Option<u64>,
}

/// An amount that may not be metered at all: a number, or the word for it.
mod unlimited {
    use serde::{Deserialize, Deserializer, Serializer, de};

    const WORD: &str = "unlimited";

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Word(String),
    }

    #[expect(clippy::ref_option, reason = "serde hands a reference to the field")]
    pub(super) fn serialize<S: Serializer>(amount: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        match amount {
            Some(amount) => to.serialize_f64(*amount),
            None => to.serialize_str(WORD),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        match Written::deserialize(from)? {
            Written::Number(amount) => Ok(Some(amount)),
            Written::Word(word) if word == WORD => Ok(None),
            Written::Word(word) => Err(de::Error::custom(format!("{word:?} is no amount"))),
        }
    }
}
