//! The results as a table, with what is known of each trace beside them.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Played;
use super::files::Limits;

/// One line a column, then the mean.
pub(super) fn of(all: &[Played], limits: &BTreeMap<String, Limits>) -> String {
    let mut text = String::from(
        "trace        column  policy     90 %    95 %   100 %   130 %  | FGD authors  ceiling  closed | first refusal | refused to 100 %: cpu share   1   2   4   8 | us p50    p99    max | solve ms p50   max\n",
    );
    let mut closed = Vec::new();
    for played in all {
        let known = limits.get(&played.trace);
        let part = known
            .zip(played.alloc_pct.at_100)
            .map(|(known, at)| (at - known.fgd) / (known.ceiling - known.fgd));
        closed.extend(part);
        row(&mut text, played, known, part);
    }
    if !closed.is_empty() {
        let count = f64::from(u32::try_from(closed.len()).expect("columns are few"));
        let mean = closed.iter().sum::<f64>() / count;
        let _ = writeln!(
            text,
            "mean part of the way from FGD to the ceiling that is closed: {:.1} %",
            mean * 100.0
        );
    }
    text.push_str("timed: plan() alone; prices are solved and applied between arrivals\n");
    text
}

fn row(text: &mut String, played: &Played, known: Option<&Limits>, part: Option<f64>) {
    let alloc = &played.alloc_pct;
    let percent =
        |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"));
    let refused = &played.refused;
    let solve =
        played.solve_ms.map_or_else(|| "-".to_owned(), |times| format!("{:.1}  {:.1}", times.p50, times.max));
    let _ = writeln!(
        text,
        "{:12} {:7} {:8} {:>6}  {:>6}  {:>6}  {:>6}  | {:>11}  {:>7}  {:>6} | {:>13} | {:>21} {:>5} {:>3} {:>3} {:>3} {:>3} | {:>6.1} {:>6.1} {:>6.0} | {:>17}",
        played.trace,
        played.column,
        played.policy,
        percent(alloc.at_90),
        percent(alloc.at_95),
        percent(alloc.at_100),
        percent(alloc.at_130),
        percent(known.map(|known| known.fgd)),
        percent(known.map(|known| known.ceiling)),
        percent(part.map(|part| part * 100.0)),
        percent(played.first_refusal_pct),
        refused.cpu,
        refused.share,
        refused.one,
        refused.two,
        refused.four,
        refused.eight,
        played.latency_us.p50,
        played.latency_us.p99,
        played.latency_us.max,
        solve,
    );
}
