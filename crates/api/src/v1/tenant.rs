//! Tenants and their lines: what each is promised, what it gets, what it uses.

use serde::{Deserialize, Serialize};

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantView {
    /// `org/team/project`.
    pub path: String,
    /// One line per resource: `any` or a model, then `cpu` and `memory` where they are metered.
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
    /// `any`, a model, `cpu` or `memory`.
    pub resource: String,
    /// Always recoverable; `null` for unlimited.
    pub guaranteed: Option<f64>,
    /// Never passed; `null` for unlimited.
    pub limit: Option<f64>,
    /// What it may use now.
    pub fair_share: f64,
    /// What it uses.
    pub used: f64,
    /// What it uses and waits for.
    pub demand: f64,
}

/// The tenant tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantList {
    /// `wharf.v1.tenants`.
    pub schema: String,
    /// Every parent before its children.
    pub tenants: Vec<TenantView>,
}
