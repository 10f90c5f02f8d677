//! Amounts as people write them: `48h`, `4GiB`, `500m`, `0.25`, `1/3`. All exact: no float is involved.
//!
//! Each function answers `None` for a text it does not understand; the constant beside it says what it does.

/// Accepted by [`duration`].
pub(super) const DURATION: &str = "a duration such as 48h, 1h30m, 90s or 2d (units: d, h, m, s, ms)";
/// Accepted by [`size`].
pub(super) const SIZE: &str = "a size such as 4GiB, 512MiB, 80GB or a number of bytes";
/// Accepted by [`cores`].
pub(super) const CORES: &str = "cores such as 8, 0.5 or 500m";

const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

const SIZE_UNITS: [(&str, u64); 21] = [
    ("", 1),
    ("B", 1),
    ("k", 1000),
    ("K", 1000),
    ("kB", 1000),
    ("KB", 1000),
    ("Ki", 1 << 10),
    ("KiB", 1 << 10),
    ("M", 1_000_000),
    ("MB", 1_000_000),
    ("Mi", 1 << 20),
    ("MiB", 1 << 20),
    ("G", 1_000_000_000),
    ("GB", 1_000_000_000),
    ("Gi", 1 << 30),
    ("GiB", 1 << 30),
    ("T", 1_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("Ti", 1 << 40),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
];

/// Milliseconds of `1h30m`: whole numbers with falling units.
pub(super) fn duration(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut units_left = &DURATION_UNITS[..];
    let mut total = 0u64;
    while !rest.is_empty() {
        let (number, tail) = split_digits(rest);
        let (unit, tail) = tail.split_at(tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len()));
        let place = units_left.iter().position(|(word, _)| *word == unit)?;
        let part = number.parse::<u64>().ok()?.checked_mul(units_left[place].1)?;
        total = total.checked_add(part)?;
        units_left = &units_left[place + 1..];
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

/// The shortest text that [`duration`] reads as `millis`.
pub(super) fn duration_text(millis: u64) -> String {
    let mut rest = millis;
    let parts = DURATION_UNITS.map(|(unit, size)| {
        let count = rest / size;
        rest %= size;
        if count > 0 { format!("{count}{unit}") } else { String::new() }
    });
    let text = parts.concat();
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Bytes of `1.5GiB`.
pub(super) fn size(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let scale = SIZE_UNITS.iter().find(|(word, _)| *word == unit.trim())?.1;
    if scale == 1 {
        return whole(number.trim());
    }
    let bytes = u128::from(thousandths(number.trim())?) * u128::from(scale) / 1000;
    u64::try_from(bytes).ok()
}

/// The shortest whole number that [`size`] reads as `bytes`: `512GiB`, `1536MiB`.
pub(super) fn size_text(bytes: u64) -> String {
    let units = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fits = |&(_, shift): &(&str, u32)| bytes > 0 && bytes.trailing_zeros() >= shift;
    match units.into_iter().find(fits) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}

/// Thousandths of a core of `0.5` or `500m`.
pub(super) fn cores(text: &str) -> Option<u64> {
    match text.strip_suffix('m') {
        Some(milli) => whole(milli),
        None => thousandths(text),
    }
}

/// Thousandths of a decimal number with at most three decimals that count.
pub(super) fn thousandths(text: &str) -> Option<u64> {
    let (integer, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let decimals = decimals.trim_end_matches('0');
    let known = decimals.len() <= 3 && decimals.bytes().all(|byte| byte.is_ascii_digit());
    if !known || !text.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let integer = if integer.is_empty() { 0 } else { whole(integer)? };
    let fraction: u64 = format!("{decimals:0<3}").parse().ok()?;
    integer.checked_mul(1000)?.checked_add(fraction)
}

/// Parts of 1/3000 of `8`, `0.25` or `1/3`; only what is exact in them.
pub(super) fn gpu_parts(text: &str) -> Option<u64> {
    let Some((above, below)) = text.split_once('/') else {
        return thousandths(text)?.checked_mul(3);
    };
    let (above, below) = (whole(above.trim())?, whole(below.trim())?);
    let parts = above.checked_mul(3000)?;
    (below > 0 && parts.is_multiple_of(below)).then(|| parts / below)
}

/// The shortest fraction that [`gpu_parts`] reads as `parts`.
pub(super) fn gpu_text(parts: u64) -> String {
    if parts == 0 {
        return "0".to_owned();
    }
    let (mut above, mut below) = (parts, 3000u64);
    for prime in [2, 3, 5] {
        while above.is_multiple_of(prime) && below.is_multiple_of(prime) {
            above /= prime;
            below /= prime;
        }
    }
    if below == 1 { above.to_string() } else { format!("{above}/{below}") }
}

/// A whole number, digits only: no sign, no blanks, no other base.
pub(super) fn whole(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// A name: lower-case letters, digits, `-` and `.`, with a letter or digit at both ends.
pub(super) fn is_name(text: &str, chars_max: usize) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let outer =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.len() <= chars_max
        && bytes.iter().all(|byte| inner(*byte))
        && outer(bytes.first())
        && outer(bytes.last())
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_whole_numbers_with_falling_units() {
        assert_eq!(duration("48h"), Some(172_800_000));
        assert_eq!(duration("1h30m"), Some(5_400_000));
        assert_eq!(duration("2d"), Some(172_800_000));
        assert_eq!(duration("1s500ms"), Some(1500));
        for wrong in
            ["", "48", "h", "1.5h", "30m1h", "1h1h", "-1h", "1 h", "1H", "9999999999999999999d", "١h"]
        {
            assert_eq!(duration(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_duration_reads_back_as_written() {
        for millis in [0, 1, 1000, 61_000, 5_400_000, 90_061_001] {
            assert_eq!(duration(&duration_text(millis)), Some(millis), "{}", duration_text(millis));
        }
    }

    #[test]
    fn sizes_know_both_kinds_of_units() {
        assert_eq!(size("4GiB"), Some(4 << 30));
        assert_eq!(size("4Gi"), Some(4 << 30));
        assert_eq!(size("80GB"), Some(80_000_000_000));
        assert_eq!(size("1.5 GiB"), Some(3 << 29));
        assert_eq!(size("123"), Some(123));
        for wrong in ["", "GiB", "4gib", "4 Gi B", "-1", "1.5", "1e9", "0x10", "99999999PiB", "4GiB4"] {
            assert_eq!(size(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_size_reads_back_as_written() {
        let sizes = [0, 1, 1536, 4 << 30, 3 << 29, 2 << 40, 5 << 50, u64::MAX];
        for bytes in sizes {
            assert_eq!(size(&size_text(bytes)), Some(bytes), "{}", size_text(bytes));
        }
        assert_eq!([4 << 30, 3 << 29, 1000].map(size_text), ["4GiB", "1536MiB", "1000B"]);
    }

    #[test]
    fn fractions_of_a_gpu_are_exact_or_refused() {
        assert_eq!(gpu_parts("0.25"), Some(750));
        assert_eq!(gpu_parts(".5"), Some(1500));
        assert_eq!(gpu_parts("0.333"), Some(999));
        assert_eq!(gpu_parts("1/3"), Some(1000));
        assert_eq!(gpu_parts("0.2500"), Some(750));
        assert_eq!(gpu_parts("8"), Some(24_000));
        for wrong in ["", ".", "1/7", "1/0", "0.0625", "-1", "1e0", "a/b", "1/", "٣", "1.2.3", "0.-1"] {
            assert_eq!(gpu_parts(wrong), None, "{wrong:?}");
        }
        for parts in [0, 1, 750, 999, 1000, 1500, 3000, 24_000] {
            assert_eq!(gpu_parts(&gpu_text(parts)), Some(parts), "{}", gpu_text(parts));
        }
    }

    #[test]
    fn cores_may_be_thousandths() {
        assert_eq!(cores("500m"), Some(500));
        assert_eq!(cores("0.5"), Some(500));
        assert_eq!(cores("16"), Some(16_000));
        for wrong in ["", "m", "1.5m", "-1", "0.0001", "all"] {
            assert_eq!(cores(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn names_begin_and_end_with_a_letter_or_digit() {
        for right in ["a", "llama-70b", "v1.2", "0"] {
            assert!(is_name(right, 63), "{right:?}");
        }
        for wrong in ["", "-a", "a-", "A", "a_b", "a b", "é", "a/b", &"a".repeat(64)] {
            assert!(!is_name(wrong, 63), "{wrong:?}");
        }
    }
}
