//! The planner's choice of victims beside everything the rules allow, on small fleets.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::Context;
use wharf_sim::judge::oracle::{Report, Run};

use super::Measured;
use crate::args::VictimsArgs;

impl Measured for Report {
    fn keeps_promise(&self) -> bool {
        self.ok
    }
}

pub(super) fn run(args: &VictimsArgs) -> anyhow::Result<Report> {
    let run = Run { seed: args.seed, count: args.count };
    let Some(path) = &args.dump else { return run.run(|_| Ok(())) };
    let cannot = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(File::create(path).with_context(cannot)?);
    let report = run.run(|line| writeln!(out, "{}", serde_json::to_string(line)?).with_context(cannot))?;
    out.flush().with_context(cannot)?;
    Ok(report)
}
