//! Numbers as people read them: GPUs, shares, spans of time, sizes, and bars.

/// What is shown for what nobody knows. Never 0, and never 100 %.
pub(crate) const UNKNOWN: &str = "?";
/// What is shown for a limit that does not exist.
pub(crate) const UNLIMITED: &str = "unlimited";

/// With at most three decimals, and none that say nothing: `8`, `0.25`.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// With at most one decimal: `211.4`.
pub(crate) fn tenths(value: f64) -> String {
    number((value * 10.0).round() / 10.0)
}

/// Numbers of one column, filled up on the right so that their decimal points are below each other. Words stay.
pub(crate) fn at_the_point(cells: &[String]) -> Vec<String> {
    let is_number = |cell: &String| cell.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let decimals = |cell: &String| cell.split_once('.').map_or(0, |(_, decimals)| decimals.len() + 1);
    let most = cells.iter().filter(|cell| is_number(cell)).map(decimals).max().unwrap_or_default();
    let missing = |cell: &String| if is_number(cell) { most - decimals(cell) } else { 0 };
    let filled = |cell: &String| format!("{cell}{}", " ".repeat(missing(cell)));
    cells.iter().map(filled).collect()
}

/// A sentence that has at most `width` characters, cut after a word.
pub(crate) fn fitted(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(1) else { return String::new() };
    let ends = text.char_indices().map(|(at, _)| at).take(room + 1);
    let end = ends.filter(|&at| text[at..].starts_with([' ', ',', ';', ':'])).last().unwrap_or_default();
    let whole = text[..end].trim_end_matches([' ', ',', ';', ':', '.']);
    // A first word that is too long is better cut than not told.
    let shown: String = if whole.is_empty() { text.chars().take(room).collect() } else { whole.to_owned() };
    shown + "…"
}

/// A share of 1 as `37%`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// A share of 1 that may not be known.
pub(crate) fn percent_or_unknown(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_owned(), percent)
}

/// A count as a number to calculate with. Beyond four thousand million it is that many.
pub(crate) fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// A span of time in one unit, or two where one is too coarse: `42s`, `3m`, `2h05m`, `5d`.
pub(crate) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match (minutes, hours) {
        (0, _) => format!("{seconds}s"),
        (_, 0) => format!("{minutes}m"),
        (_, 1..10) => format!("{hours}h{:02}m", minutes % 60),
        (_, 10..48) => format!("{hours}h"),
        (_, _) => format!("{}d", hours / 24),
    }
}

/// How long ago something was on the world's clock; unknown where that clock is.
pub(crate) fn age(at: u64, now: Option<u64>) -> String {
    now.map_or_else(|| UNKNOWN.to_owned(), |now| span(now.saturating_sub(at)))
}

/// A time on the world's clock. A simulated clock may start at 0: then it is a span since the start.
pub(crate) fn moment(millis: u64) -> String {
    moment_before(millis, millis)
}

/// A time that may be long before another one on the same clock, which tells whether that is a simulated one.
pub(crate) fn moment_before(millis: u64, later: u64) -> String {
    /// The year 2001: no clock of a real machine is before it, no simulation runs until it.
    const EPOCH_MIN: u64 = 1_000_000_000_000;
    let real = i64::try_from(millis).ok().filter(|_| later >= EPOCH_MIN);
    if let Some(time) = real.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok()) {
        return time.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    }
    let seconds = millis / 1000;
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    format!("day {days} {hours:02}:{:02}:{:02}", seconds / 60 % 60, seconds % 60)
}

/// Bytes in the largest unit that keeps them above 10, rounded down: `512GiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|&(_, shift)| bytes >> shift >= 10);
    match unit {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}

/// Memory in MiB as GiB with one decimal, where it is known: `19.5GiB`.
pub(crate) fn mib(amount: Option<u32>) -> String {
    amount.map_or_else(|| UNKNOWN.to_owned(), |mib| format!("{:.1}GiB", f64::from(mib) / 1024.0))
}

/// A share of 1 as a percentage with at most one decimal: `0.9 %`.
pub(crate) fn percent_tenths(share: f64) -> String {
    format!("{} %", tenths(share * 100.0))
}

/// Thousandths of a core as cores.
pub(crate) fn cores(milli: u64) -> String {
    tenths(float(milli) / 1000.0)
}

/// Indexes in order, runs of them with a dash: `0-3,6`.
pub(crate) fn indexes(sorted: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &index in sorted {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(index) => *last = index,
            _ => runs.push((index, index)),
        }
    }
    let run = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    runs.into_iter().map(run).collect::<Vec<_>>().join(",")
}

/// A bar of at most `width` cells, exact to an eighth of a cell. What is more than nothing is always seen.
pub(crate) fn bar(share: f64, width: u16) -> String {
    const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
    let length = share.clamp(0.0, 1.0) * f64::from(width);
    let mut text = String::new();
    for cell in 0..width {
        let inside = (length - f64::from(cell)) * 8.0;
        let full = EIGHTHS.into_iter().zip(1u8..).filter(|&(_, eighths)| f64::from(eighths) <= inside + 0.5);
        text.extend(full.last().map(|(block, _)| block));
    }
    if text.is_empty() && share > 0.0 { "▏".to_owned() } else { text }
}

/// `1 GPU`, `0.25 GPU`, `8 GPUs`.
pub(crate) fn gpus(count: f64) -> String {
    if count > 1.0 || count <= 0.0 {
        format!("{} GPUs", number(count))
    } else {
        format!("{} GPU", number(count))
    }
}

/// `1 job`, `2 jobs`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_no_decimals_that_say_nothing() {
        assert_eq!(
            [8.0, 0.25, 1.0 / 3.0, 0.0, -0.0, 100.0].map(number),
            ["8", "0.25", "0.333", "0", "0", "100"]
        );
        assert_eq!(tenths(211.44), "211.4");
        assert_eq!([0.0, 0.374, 1.0].map(percent), ["0%", "37%", "100%"]);
        assert_eq!(percent_or_unknown(None), "?");
    }

    #[test]
    fn numbers_of_a_column_are_aligned_at_the_point() {
        let cells = ["336.5", "8", "0.25", "unlimited", "?"].map(str::to_owned);
        assert_eq!(at_the_point(&cells), ["336.5 ", "8   ", "0.25", "unlimited", "?"]);
        assert_eq!(at_the_point(&["8".to_owned(), "16".to_owned()]), ["8", "16"]);
        assert_eq!(at_the_point(&[]), [""; 0]);
    }

    #[test]
    fn a_sentence_is_cut_after_a_word() {
        let text = "it needs 24 GPUs; 14 GPUs are free";
        assert_eq!(fitted(text, 34), text);
        assert_eq!(fitted(text, 33), "it needs 24 GPUs; 14 GPUs are…");
        assert_eq!(fitted(text, 18), "it needs 24 GPUs…");
        assert_eq!(fitted(text, 17), "it needs 24 GPUs…");
        assert_eq!(fitted(text, 3), "it…");
        assert_eq!(fitted("WaitingForCapacity", 8), "Waiting…");
        assert_eq!([fitted(text, 1), fitted(text, 0), fitted("", 0)], ["…", "", ""]);
        assert_eq!(fitted("schöne größe", 8), "schöne…");
    }

    #[test]
    fn spans_are_short() {
        let spans = [0, 59_999, 60_000, 3_599_000, 3_600_000, 7_500_000, 36_000_000, 172_800_000];
        assert_eq!(spans.map(span), ["0s", "59s", "1m", "59m", "1h00m", "2h05m", "10h", "2d"]);
        assert_eq!(age(1000, Some(61_000)), "1m");
        assert_eq!(age(1000, Some(0)), "0s");
        assert_eq!(age(1000, None), "?");
    }

    #[test]
    fn a_clock_that_starts_at_zero_counts_days() {
        assert_eq!(moment(90_061_000), "day 1 01:01:01");
        assert_eq!(moment(1_763_250_301_000), "2025-11-15 23:45:01Z");
        assert_eq!(moment_before(90_061_000, 1_763_250_301_000), "1970-01-02 01:01:01Z");
        assert_eq!(moment(u64::MAX), "day 213503982334 14:25:51");
    }

    #[test]
    fn sizes_stay_readable() {
        assert_eq!([0, 9, 20 << 30, 2 << 40, 96 << 40].map(size), ["0B", "9B", "20GiB", "2048GiB", "96TiB"]);
        assert_eq!(cores(127_500), "127.5");
    }

    #[test]
    fn runs_of_indexes_are_folded() {
        assert_eq!(indexes(&[0, 1, 2, 3, 6]), "0-3,6");
        assert_eq!(indexes(&[5]), "5");
        assert_eq!(indexes(&[]), "");
        assert_eq!(indexes(&[u32::MAX, 0]), "4294967295,0");
    }

    #[test]
    fn bars_are_exact_to_an_eighth_and_show_every_little() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.625, 4), "██▌");
        assert_eq!(bar(0.0001, 4), "▏");
        assert_eq!(bar(0.0, 4), "");
        assert_eq!(bar(7.0, 4), "████");
        assert_eq!(bar(f64::NAN, 4), "");
    }
}
