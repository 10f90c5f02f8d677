//! Slurm batch scripts: `#SBATCH --gres=gpu:4` is `gpus: 4`.

use super::super::super::{At, Fault};
use super::super::text;
use super::{Job, name};

/// What a directive begins with.
const MARK: &str = "#SBATCH";

/// Short options as their long form.
const SHORT: [(char, &str); 9] = [
    ('J', "job-name"),
    ('N', "nodes"),
    ('n', "ntasks"),
    ('c', "cpus-per-task"),
    ('t', "time"),
    ('G', "gpus"),
    ('A', "account"),
    ('p', "partition"),
    ('a', "array"),
];

/// A script with directives.
pub(super) fn script(text: &str) -> Option<Fault> {
    let lines = text.lines().zip(1u64..);
    let directives = lines.filter_map(|(line, number)| Some((line.trim().strip_prefix(MARK)?, number)));
    let directives: Vec<(&str, u64)> = directives.collect();
    let &(_, line) = directives.first()?;
    let mut asked = Asked::default();
    for (directive, _) in &directives {
        for (option, value) in options(directive) {
            asked.read(&option, value);
        }
    }
    let left = asked.left.clone();
    let beside =
        if left.is_empty() { String::new() } else { format!("; not taken over: {}", left.join(", ")) };
    let what = "this is a Slurm batch script; Wharf takes a job file, which says what a job needs and not what it runs";
    let instead = format!("{}{beside}", asked.job().text());
    Some(Fault::new(Some(At { line, column: 1 }), what).instead(instead))
}

/// The options of one directive: `--gres=gpu:4`, `--gres gpu:4`, `-N 2`, `-N2`.
fn options(directive: &str) -> Vec<(String, &str)> {
    // What follows is a remark.
    let directive = directive.split(" #").next().unwrap_or_default();
    let mut words = directive.split_whitespace().peekable();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let (option, value) = match (word.strip_prefix("--"), word.strip_prefix('-')) {
            (Some(long), _) => match long.split_once('=') {
                Some((option, value)) => (option.to_owned(), Some(value)),
                None => (long.to_owned(), None),
            },
            (None, Some(short)) => {
                let mut rest = short.chars();
                let letter = rest.next();
                let long = SHORT.iter().find(|(short, _)| Some(*short) == letter).map(|(_, long)| *long);
                let value = Some(rest.as_str().trim_start_matches('=')).filter(|value| !value.is_empty());
                (long.map_or_else(|| format!("-{short}"), str::to_owned), value)
            }
            (None, None) => continue,
        };
        let value = value.or_else(|| words.next_if(|next| !next.starts_with('-')));
        found.push((option, value.unwrap_or_default()));
    }
    found
}

/// What the directives ask for, in Slurm's words.
#[derive(Default)]
struct Asked {
    job: Job,
    nodes: Option<u64>,
    tasks: Option<u64>,
    tasks_per_node: Option<u64>,
    cores_per_task: Option<u64>,
    gpus_in_all: Option<u64>,
    /// What has no equivalent, or cannot be read.
    left: Vec<String>,
}

impl Asked {
    fn read(&mut self, option: &str, value: &str) {
        let known = match option {
            "job-name" => keep(&mut self.job.name, name(value)),
            "account" => keep(&mut self.job.tenant, name(value)),
            // A range of nodes, `2-4`, asks for at least the first number.
            "nodes" => keep(&mut self.nodes, text::whole(value.split('-').next().unwrap_or_default())),
            "ntasks" => keep(&mut self.tasks, text::whole(value)),
            "ntasks-per-node" => keep(&mut self.tasks_per_node, text::whole(value)),
            "cpus-per-task" => keep(&mut self.cores_per_task, text::whole(value)),
            "time" => keep(&mut self.job.limit, limit(value)),
            "mem" => keep(&mut self.job.memory, memory(value)),
            "gres" | "gpus-per-node" | "gpus-per-task" => self.gpus(value),
            "gpus" => {
                let (model, count) = model_and_count(value);
                keep(&mut self.job.model, model);
                keep(&mut self.gpus_in_all, count)
            }
            _ => false,
        };
        if !known {
            let dashes = if option.starts_with('-') { "" } else { "--" };
            self.left.push(format!("{dashes}{option}"));
        }
    }

    /// `gpu:4`, `gpu:a100:4`, `a100:4` or `4`.
    fn gpus(&mut self, value: &str) -> bool {
        let (model, count) = model_and_count(value.strip_prefix("gpu:").unwrap_or(value));
        keep(&mut self.job.model, model);
        keep(&mut self.job.gpus, count)
    }

    /// One task of Wharf is all that one node has of a job of Slurm.
    fn job(self) -> Job {
        let tasks = self.nodes.or(self.tasks);
        let per_node = match (self.nodes, self.tasks) {
            (Some(nodes), Some(tasks)) => self.tasks_per_node.or(tasks.checked_div(nodes)),
            (Some(_), None) => self.tasks_per_node,
            (None, _) => None,
        };
        let cores = self.cores_per_task.map(|cores| cores.saturating_mul(per_node.unwrap_or(1)));
        let of_each = self.gpus_in_all.and_then(|all| all.checked_div(tasks.unwrap_or(1)));
        Job { tasks, cpu: cores.map(|cores| cores.to_string()), gpus: self.job.gpus.or(of_each), ..self.job }
    }
}

fn keep<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    let known = value.is_some();
    *place = value.or(place.take());
    known
}

fn model_and_count(value: &str) -> (Option<String>, Option<u64>) {
    match value.rsplit_once(':') {
        Some((model, count)) => (name(model), text::whole(count)),
        None if value == "gpu" => (None, Some(1)),
        None => (None, text::whole(value)),
    }
}

/// `90`, `1:30:00`, `2-12`, `2-12:30:00`: minutes, or days before a dash.
fn limit(value: &str) -> Option<String> {
    let (days, rest) = match value.split_once('-') {
        Some((days, rest)) => (text::whole(days)?, rest),
        None => (0, value),
    };
    let parts: Vec<u64> = rest.split(':').map(text::whole).collect::<Option<_>>()?;
    let seconds = match (value.contains('-'), parts.as_slice()) {
        (true, [hours]) => hours * 3600,
        (true, [hours, minutes]) => hours * 3600 + minutes * 60,
        (false, [minutes]) => minutes * 60,
        (false, [minutes, seconds]) => minutes * 60 + seconds,
        (_, [hours, minutes, seconds]) => hours * 3600 + minutes * 60 + seconds,
        (_, _) => return None,
    };
    let millis = days.checked_mul(86_400)?.checked_add(seconds)?.checked_mul(1000)?;
    Some(text::duration_text(millis))
}

/// Slurm counts in powers of two, and in megabytes where nothing is said.
fn memory(value: &str) -> Option<String> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let unit = match unit {
        "" | "M" | "MB" => "MiB",
        "K" | "KB" => "KiB",
        "G" | "GB" => "GiB",
        "T" | "TB" => "TiB",
        _ => return None,
    };
    text::whole(number).map(|number| format!("{number}{unit}"))
}
