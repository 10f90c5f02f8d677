//! The catalogue of GPU models against the collected hardware tables, where those are present.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use wharf_engine::catalogue::MODELS;

/// The directory of collected tables: `WHARF_SHARED`, or `shared` beside the repository.
fn shared() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    std::env::var_os("WHARF_SHARED").map_or(beside, PathBuf::from)
}

#[test]
fn every_model_has_its_row_and_the_memory_of_it() {
    let path = shared().join("hardware/gpu_specs.csv");
    let Ok(table) = std::fs::read_to_string(&path) else {
        println!(
            "skipped: {} is not there; set WHARF_SHARED to the directory of collected tables",
            path.display()
        );
        return;
    };
    let mut lines = table.lines();
    assert!(lines.next().unwrap().starts_with("model,arch,mem_gb,"), "the first three columns are known");
    let rows: BTreeMap<&str, &str> = lines
        .map(|line| {
            let mut cells = line.split(',');
            (cells.next().unwrap(), cells.nth(1).unwrap_or(""))
        })
        .collect();
    for model in MODELS {
        let memory = rows.get(model.spec_row).copied();
        assert_eq!(memory, Some(model.memory_gb.to_string().as_str()), "{} ({})", model.name, model.spec_row);
    }
}
