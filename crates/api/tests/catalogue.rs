//! The catalogue of GPU models against the collected hardware tables, where those are present.

#![expect(clippy::unwrap_used, reason = "clippy does not see that the functions around tests are tests too")]

#[path = "catalogue/cells.rs"]
mod cells;
#[path = "catalogue/mig.rs"]
mod mig;
#[path = "catalogue/xid.rs"]
mod xid;

use std::path::{Path, PathBuf};

use wharf_engine::device::catalogue::MODELS;

use cells::Rows;

/// A collected table, from `WHARF_SHARED` or from `shared` beside the repository. Where it is not there, that is said.
fn collected(name: &str) -> Option<String> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let dir = std::env::var_os("WHARF_SHARED").map_or(beside, PathBuf::from);
    let path = dir.join("hardware").join(name);
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        println!(
            "skipped: {} is not there; set WHARF_SHARED to the directory of collected tables",
            path.display()
        );
    }
    text
}

#[test]
fn every_model_has_its_row_and_the_memory_of_it() {
    let Some(table) = collected("gpu_specs.csv") else { return };
    let rows = Rows::of(&table);
    for model in MODELS {
        let row = rows.find("model", model.spec_row);
        let memory = row.as_ref().map(|row| row["mem_gb"].as_str());
        assert_eq!(memory, Some(model.memory_gb.to_string().as_str()), "{} ({})", model.name, model.spec_row);
    }
}
