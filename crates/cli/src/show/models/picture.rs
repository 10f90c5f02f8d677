//! A model on one screen: facts, profiles, where each may begin, and every layout that is full.

use wharf_engine::device::catalogue::{Mig, Model, Profile};

use super::charged;
use super::layouts::{Counts, Layouts, Maximal, SliceView};
use crate::render::numbers::{UNKNOWN, counted, indexes, number};
use crate::render::output::{self, Paint, Tone};
use crate::render::table::{Cell, Column, Table};
use crate::render::{fact, labelled, next_line};

/// Characters of one slot.
const SLOT: usize = 5;

/// The screen.
pub(super) fn text(model: &Model, paint: Paint) -> String {
    let title = paint.tone(Tone::Strong, &format!("model/{}", model.name));
    let mut screen = vec![format!("{title}  {}", facts(model)), String::new()];
    match model.mig {
        Some(mig) => cut(mig, &mut screen, paint),
        None => screen.push("  It cannot be cut: it is given out whole or in shares.".into()),
    }
    screen.push(String::new());
    screen.push(next_line(paint, "next:", &next(model)));
    output::lines(&screen)
}

fn next(model: &Model) -> String {
    match model.mig {
        Some(_) => format!("wharf bench mig --model {}   all models: wharf get models", model.name),
        None => "wharf get models".to_owned(),
    }
}

/// `H100-SXM5-80GB, 80 GB at 3350 GB/s, 132 SMs, NVLink`
fn facts(model: &Model) -> String {
    let speed = model.bandwidth_gbps.map_or_else(|| UNKNOWN.to_owned(), |speed| speed.to_string());
    let sm = model.sm.map_or_else(|| UNKNOWN.to_owned(), |sm| sm.to_string());
    let link = if model.nvlink { ", NVLink" } else { "" };
    format!("{}, {} GB at {speed} GB/s, {sm} SMs{link}", model.spec_row, model.memory_gb)
}

fn cut(mig: &Mig, screen: &mut Vec<String>, paint: Paint) {
    let mode = if mig.mode_resets {
        "switching MIG on or off resets the GPU: everything on it must be gone"
    } else {
        "switching MIG on or off needs no reset"
    };
    screen.push(fact("axis", &format!("{} slots of memory, {} of compute", mig.axis, mig.compute), paint));
    screen.push(fact("mode", mode, paint));
    screen.extend(labelled("known", &inferred(mig), paint));
    screen.push(String::new());
    screen.extend(profiles(mig).indented(paint));
    let layouts = Layouts::of(mig);
    screen.push(String::new());
    screen.extend(counted_layouts(&layouts));
    screen.push(String::new());
    screen.push(paint.tone(Tone::Faint, &axis(mig)));
    screen.extend(layouts.maximal.iter().map(|layout| line(mig, layout)));
    if mig.sm.is_some() {
        screen.push(String::new());
        screen.push("  LOST is what the slices together have less than the uncut GPU.".into());
    }
}

/// What was seen on hardware and what was not.
fn inferred(mig: &Mig) -> Vec<String> {
    let starts = if mig.starts_seen {
        "starts as seen on hardware"
    } else {
        "starts inferred from a model of the same family, not seen on hardware"
    };
    let guessed: Vec<&Profile> = mig.profiles.iter().filter(|profile| !profile.memory_seen).collect();
    let memory = match guessed.len() {
        0 => "memory as a driver reported it".to_owned(),
        all if all == mig.profiles.len() => "memory not seen: ~ is 15/16 of what the name says".to_owned(),
        _ => "memory as a driver reported it; ~ is 15/16 of what the name says".to_owned(),
    };
    let sm = mig.profiles.iter().any(|profile| profile.sm.is_none()) || mig.sm.is_none();
    let sm = sm.then(|| format!("{UNKNOWN} under SM: no source gives the number"));
    [starts.to_owned(), memory].into_iter().chain(sm).collect()
}

fn profiles(mig: &Mig) -> Table {
    let mut table = Table::new(&[
        Column::text("PROFILE", "profile"),
        Column::number("COMPUTE", "compute"),
        Column::number("SLOTS", "slots"),
        Column::text("STARTS", "starts"),
        Column::number("MAX", "max"),
        Column::number("USABLE", "memory_mib"),
        Column::number("SM", "sm"),
        Column::number("CHARGED", "gpus"),
    ]);
    for profile in mig.profiles {
        let starts: Vec<u32> = profile.starts.iter().map(|&start| u32::from(start)).collect();
        let about = if profile.memory_seen { "" } else { "~" };
        table.row(vec![
            Cell::new(profile.name),
            Cell::new(profile.compute.to_string()),
            Cell::new(profile.slots.to_string()),
            Cell::new(indexes(&starts)),
            Cell::new(profile.max.to_string()),
            Cell::new(format!("{about}{} MiB", profile.memory_mib)),
            Cell::new(profile.sm.map_or_else(|| UNKNOWN.to_owned(), |sm| sm.to_string())),
            Cell::new(format!("{} GPU", number(charged(mig, profile)))),
        ]);
    }
    table
}

/// `298 layouts of 1g.10gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb; 19 of them are full`
fn counted_layouts(layouts: &Layouts) -> Vec<String> {
    let of = |Counts { count, maximal }: Counts| format!("{count} layouts, {maximal} full");
    let full = counted(u64::try_from(layouts.maximal.len()).unwrap_or(u64::MAX), "full one");
    let mut lines =
        vec![format!("  {} layouts of {}; the {full}:", layouts.count, layouts.profiles.join(", "))];
    let more =
        layouts.with_double_memory.map(|counts| format!("with twice the memory for 1g: {}", of(counts)));
    let more: Vec<String> =
        more.into_iter().chain([format!("with every profile: {}", of(layouts.with_all))]).collect();
    lines.push(format!("  ({})", more.join("; ")));
    lines
}

/// The slots by number, above the layouts.
fn axis(mig: &Mig) -> String {
    let slot = |slot: u8| format!(" {slot:<width$}", width = SLOT - 1);
    let slots: Vec<String> = (0..mig.axis).map(slot).collect();
    format!("  {}  {:>4}  {:>6}", slots.concat(), "SM", "LOST")
}

fn line(mig: &Mig, layout: &Maximal) -> String {
    let mut boxes = String::new();
    let mut at = 0;
    for SliceView { profile, start, slots } in &layout.slices {
        boxes.push_str(&free(start.saturating_sub(at)));
        boxes.push_str(&boxed(profile, *slots));
        at = start + slots;
    }
    boxes.push_str(&free(mig.axis.saturating_sub(at)));
    let sm = layout.sm.map_or_else(|| UNKNOWN.to_owned(), |sm| sm.to_string());
    let lost = layout.sm_lost_pct.map_or_else(|| UNKNOWN.to_owned(), |lost| format!("{lost:.1} %"));
    format!("  {boxes}  {sm:>4}  {lost:>6}")
}

/// `[3g                ]`, as wide as its slots.
fn boxed(profile: &str, slots: u8) -> String {
    let short = profile.split('.').next().unwrap_or(profile);
    format!("[{short:<width$}]", width = usize::from(slots) * SLOT - 2)
}

fn free(slots: u8) -> String {
    format!("{:<SLOT$}", " ·").repeat(usize::from(slots))
}
