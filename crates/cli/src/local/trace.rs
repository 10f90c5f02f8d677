//! `wharf trace generate`: synthetic traces in the files that `wharf sim` and `wharf bench placement` read.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use wharf_sim::trace::openb::Trace;
use wharf_sim::trace::philly::Row;
use wharf_sim::trace::synthetic;

use crate::args::{GenerateArgs, TraceArgs, TraceCommand, TraceKind};
use crate::render::output;
use crate::render::problem::Usage;

/// Orders of arrival of the openb stand-in, named like the published ones.
const ORDERS: [(&str, u64); 2] = [("seed42", 42), ("seed43", 43)];

pub(crate) fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let TraceCommand::Generate(args) = &args.command;
    let files = match args.kind {
        TraceKind::Philly => philly(args.seed),
        TraceKind::Openb => openb(args.seed),
    };
    write(&args.out, &files)?;
    output::print(&told(args, &files))?;
    Ok(ExitCode::SUCCESS)
}

/// A file by its path below the directory.
type File = (&'static str, String);

fn philly(seed: u64) -> Vec<File> {
    let jobs = synthetic::philly::jobs(seed);
    let jobs = jobs.iter().map(|Row { id, vc, submit, gpus, duration }| {
        let (submit, duration) = (submit.0 / 1000, duration.0 / 1000);
        // The trace's clock is one for all virtual clusters here.
        format!("{id},{vc},{submit},{submit},{gpus},{duration}")
    });
    let sizes = synthetic::philly::clusters().map(|(vc, nodes)| format!("{vc},{nodes}"));
    vec![
        ("philly_jobs.csv", table("job_id,vc,submit_s,submit_vc_s,num_gpu,duration_s", jobs)),
        ("philly_vcs.csv", table("vc,helios_nodes_8gpu", sizes)),
    ]
}

fn openb(seed: u64) -> Vec<File> {
    let trace = synthetic::openb::trace(seed);
    let nodes = trace.nodes.iter().map(|node| {
        format!("{},{},{},{},{}", node.name, node.cpu_milli, node.memory_mib, node.gpus, node.model)
    });
    let pods = trace.pods.iter().enumerate().map(|(at, pod)| {
        let models = pod.models.join("|");
        format!("pod-{at:04},{},{},{},{},{models}", pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli)
    });
    vec![
        ("openb_nodes_gpu.csv", table("sn,cpu_milli,memory_mib,gpu,model", nodes)),
        ("openb_pods/default.csv", table("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", pods)),
        ("fgd-arrival-orders/default.csv", orders(&trace)),
    ]
}

/// One column for each order; a shorter one ends in blanks.
fn orders(trace: &Trace) -> String {
    let columns = ORDERS.map(|(_, seed)| synthetic::openb::arrivals(trace, seed));
    let longest = columns.iter().map(Vec::len).max().unwrap_or_default();
    let cell = |column: &Vec<usize>, row| column.get(row).map_or(String::new(), usize::to_string);
    let rows = (0..longest).map(|row| columns.each_ref().map(|column| cell(column, row)).join(","));
    table(&ORDERS.map(|(name, _)| name).join(","), rows)
}

fn table(header: &str, rows: impl Iterator<Item = String>) -> String {
    let mut text = format!("{header}\n");
    for row in rows {
        text.push_str(&row);
        text.push('\n');
    }
    text
}

/// Nothing that is there already is written over: it may be the published trace.
fn write(out: &Path, files: &[File]) -> anyhow::Result<()> {
    let paths: Vec<PathBuf> = files.iter().map(|(name, _)| out.join(name)).collect();
    if let Some(there) = paths.iter().find(|path| path.exists()) {
        let what = format!("{} exists, and a trace is never written over", there.display());
        return Err(Usage { what, next: "give --out an empty directory".to_owned() }.into());
    }
    for (path, (_, text)) in paths.iter().zip(files) {
        let dir = path.parent().unwrap_or(out);
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn told(args: &GenerateArgs, files: &[File]) -> String {
    let dir = args.out.display();
    let rows = |body: &str| body.lines().count() - 1;
    let mut lines: Vec<String> =
        files.iter().map(|(name, body)| format!("{dir}/{name}: {} rows", rows(body))).collect();
    lines.push(match args.kind {
        TraceKind::Philly => {
            format!("next: wharf sim --trace {dir}/philly_jobs.csv --format philly --gpus 1840 --order all")
        }
        TraceKind::Openb => format!("next: wharf bench placement --traces {dir} --columns all"),
    });
    output::lines(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_already_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let files = [("a/b.csv", "x\n1\n".to_owned())];
        write(dir.path(), &files).unwrap();
        let again = write(dir.path(), &files).unwrap_err();
        assert!(again.to_string().contains("never written over"), "{again}");
        assert_eq!(std::fs::read_to_string(dir.path().join("a/b.csv")).unwrap(), "x\n1\n");
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_on_every_machine() {
        let hash = |files: Vec<File>| {
            let text: String = files.into_iter().map(|(_, text)| text).collect();
            blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
        };
        assert_eq!(hash(philly(1)), "fc0bc3f2c1bc821e");
        assert_eq!(hash(openb(1)), "e720216452504168");
    }
}
