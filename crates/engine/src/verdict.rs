//! The one typed answer that every job has.
use serde::{Deserialize, Serialize};
/// Why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {}
