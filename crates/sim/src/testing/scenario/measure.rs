//! Spans of time, sizes and shares as they are written in a scenario.

use wharf_engine::units::{GpuUnits, Millis};

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// `10m`, `1h30m`, `500ms`.
pub(super) fn span(text: &str) -> Result<Millis, String> {
    let wrong = || format!("`{text}` is no span of time; write it like 30s, 10m or 1h30m");
    let mut total = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let &(_, millis) = UNITS.iter().find(|(known, _)| *known == unit).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        total = number.checked_mul(millis).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        rest = after;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(Millis(total)) }
}

/// A span as it is read back by [`span`].
pub(super) fn span_text(span: Millis) -> String {
    let mut left = span.0;
    let parts = UNITS.map(|(unit, millis)| {
        let count = left / millis;
        left %= millis;
        if count > 0 { format!("{count}{unit}") } else { String::new() }
    });
    let text = parts.concat();
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// `10GiB`, `512MiB`, `2TiB`; `None` for what is no size at all.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20)];
    let (number, shift) = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A part of one GPU: `0.5`, `0.125`.
pub(super) fn share(text: &str) -> Result<GpuUnits, String> {
    let wrong = || format!("`{text}` is no share; write a part of one GPU like 0.5 or 0.125");
    let decimals =
        text.strip_prefix("0.").filter(|digits| (1..=3).contains(&digits.len())).ok_or_else(wrong)?;
    let thousandths: u64 = format!("{decimals:0<3}").parse().map_err(|_| wrong())?;
    Ok(GpuUnits::from_parts(thousandths * GpuUnits::WHOLE.parts() / 1000))
}
