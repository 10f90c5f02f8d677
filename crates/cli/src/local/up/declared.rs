//! Which nodes the simulated fleet of a data directory is to have.
//!
//! A fleet that was started from a file has the nodes of that file. One that was started by name has those of a copy in
//! the data directory, which is there to be edited.

use std::path::{Path, PathBuf};

use anyhow::Context;
use wharf_api::file::fleet::{load_fleet, preset_text};
use wharf_controller::world::NodeReport;

/// The fleet where nothing is said.
const DEFAULT: &str = "lab";

/// A fleet and its file.
pub(super) struct Declared {
    /// What it is called in the data directory: a preset, or the file as it was typed at the first start.
    pub(super) name: String,
    /// The file that says which nodes it has.
    pub(super) file: PathBuf,
    /// What the file says; `None` when it cannot be read and the directory holds a fleet, which then stays as it is.
    pub(super) nodes: Option<Vec<NodeReport>>,
}

impl Declared {
    /// Reads what is asked for, or what the directory holds.
    pub(super) fn read(asked: Option<&str>, held: Option<&str>, data: &Path) -> anyhow::Result<Self> {
        let name = match (asked, held) {
            (Some(asked), Some(held)) if same_file(asked, held) => held,
            (asked, held) => asked.or(held).unwrap_or(DEFAULT),
        };
        let file = match preset_text(name) {
            Some(_) => data.join(format!("fleet-{name}.yaml")),
            None => PathBuf::from(name),
        };
        let is_edited = file.exists();
        let read = load_fleet(if is_edited { file.to_str().unwrap_or(name) } else { name });
        let nodes = match read {
            Ok(fleet) => Some(fleet.nodes),
            // What is wrong is said by whoever watches the file.
            Err(_) if held == Some(name) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { name: name.to_owned(), file, nodes })
    }

    /// Writes the copy of a preset that is there to be edited, where there is none.
    pub(super) fn write_example(&self) -> anyhow::Result<()> {
        let Some(text) = preset_text(&self.name).filter(|_| !self.file.exists()) else { return Ok(()) };
        std::fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))
    }
}

/// Whether two paths lead to one file.
fn same_file(one: &str, other: &str) -> bool {
    let real = |path: &str| std::fs::canonicalize(path).ok();
    preset_text(one).is_none() && real(one).is_some_and(|one| real(other) == Some(one))
}
