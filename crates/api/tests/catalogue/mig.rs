//! How GPUs can be cut, against the collected tables.

use std::collections::BTreeSet;

use serde_json::Value;
use wharf_engine::device::catalogue::{MODELS, Media, Mig, Profile};
use wharf_engine::device::geometry::{Layout, Slice, is_maximal, layouts, slots_of};

use crate::cells::{Row, Rows};
use crate::collected;

fn all() -> impl Iterator<Item = &'static Mig> {
    MODELS.iter().filter_map(|model| model.mig)
}

/// A figure, where the cell is one and nothing is said against it.
fn figure(cell: &str) -> Option<u16> {
    cell.parse().ok()
}

#[test]
fn every_device_has_its_axis_its_compute_and_its_mode_as_collected() {
    let Some(table) = collected("mig_devices.csv") else { return };
    let rows = Rows::of(&table);
    for mig in all() {
        let row = rows.find("device", mig.row).unwrap_or_else(|| panic!("no row {}", mig.row));
        assert_eq!(row["mem_axis_units"], mig.axis.to_string(), "{}", mig.row);
        assert_eq!(row["compute_slices"], mig.compute.to_string(), "{}", mig.row);
        assert_eq!(figure(&row["sm_full_gpu"]), mig.sm, "{}: an unverified figure is none", mig.row);
        assert_eq!(row["mig_mode_toggle"].starts_with("GPU reset"), mig.mode_resets, "{}", mig.row);
        assert_eq!(row["placement_status"].starts_with("verified"), mig.starts_seen, "{}", mig.row);
    }
}

#[test]
fn every_profile_is_as_collected_and_every_collected_profile_is_there() {
    let Some(table) = collected("mig_profiles.csv") else { return };
    let rows = Rows::of(&table);
    for mig in all() {
        let collected: Vec<&Row> = rows.with("device", mig.row).collect();
        let names: BTreeSet<&str> = collected.iter().map(|row| row["profile"].as_str()).collect();
        let ours: BTreeSet<&str> = mig.profiles.iter().map(|profile| profile.name).collect();
        assert_eq!(ours, names, "{}", mig.row);
        for row in collected {
            let number = mig.profile_named(&row["profile"]).unwrap();
            same_profile(mig, mig.profile(number).unwrap(), row);
        }
    }
}

fn same_profile(mig: &Mig, profile: &Profile, row: &Row) {
    let name = format!("{} {}", mig.row, profile.name);
    assert_eq!(row["compute_slices"], profile.compute.to_string(), "{name}");
    assert_eq!(row["mem_units"], profile.slots.to_string(), "{name}");
    let starts: Vec<String> = profile.starts.iter().map(u8::to_string).collect();
    assert_eq!(row["placement_starts"], starts.join(";"), "{name}");
    assert_eq!(row["max_instances"], profile.max.to_string(), "{name}");
    assert_eq!(figure(&row["sm"]), profile.sm, "{name}: an unverified figure is none");
    let seen = mib(&row["mem_gib_nvidia_smi"]);
    assert_eq!(seen.is_some(), profile.memory_seen, "{name}: what nobody saw is marked so");
    let ours = f64::from(profile.memory_mib);
    assert!(seen.is_none_or(|seen| (seen - ours).abs() < 0.1), "{name}: {ours} MiB beside {seen:?}");
}

/// `22.00`, `22.00 (20.50 on another driver)` and `5.70 (5836 MiB, …)` in whole MiB; nothing for what nobody saw.
fn mib(cell: &str) -> Option<f64> {
    let exact = cell.split_once(" MiB").and_then(|(before, _)| before.rsplit('(').next()?.parse().ok());
    let gib: Option<f64> = cell.split(' ').next()?.parse().ok();
    exact.or(gib.map(|gib| (gib * 1024.0).round()))
}

/// The collected tables name profiles by family: 1g, 1g.2m for twice the memory, 2g.
fn family_name(mig: &Mig, profile: &Profile) -> String {
    let least = mig.profiles.iter().map(|profile| profile.slots).min().unwrap();
    let double = if profile.compute == 1 && profile.slots > least { ".2m" } else { "" };
    format!("{}g{double}", profile.compute)
}

/// `1g@0:1 3g@4:4`
fn written(mig: &Mig, layout: Layout) -> String {
    let slice = |slice: Slice| {
        let profile = mig.profile(slice.profile).unwrap();
        format!("{}@{}:{}", family_name(mig, profile), slice.start, slots_of(mig, slice).count_ones())
    };
    layout.slices().map(slice).collect::<Vec<_>>().join(" ")
}

fn numbers(mig: &Mig, keep: impl Fn(&Profile) -> bool) -> Vec<u8> {
    let usual = (0u8..).zip(mig.profiles).filter(|(_, profile)| profile.media == Media::Usual);
    usual.filter(|(_, profile)| keep(profile)).map(|(number, _)| number).collect()
}

fn same_layouts(mig: &Mig, profiles: &[u8], collected: &Value, counts: &Value) {
    let found = layouts(mig, profiles);
    let full = found.iter().filter(|&&layout| is_maximal(mig, profiles, layout));
    let mut full: Vec<String> = full.map(|&layout| written(mig, layout)).collect();
    let mut wanted: Vec<&str> = collected.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    full.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(full, wanted, "{}", mig.row);
    assert_eq!(counts["placed_layouts_incl_empty"], found.len(), "{}", mig.row);
    assert_eq!(counts["maximal_placed"], full.len(), "{}", mig.row);
}

#[test]
fn layouts_are_those_that_were_counted_elsewhere() {
    let Some(text) = collected("mig_layouts.json") else { return };
    let table: Value = serde_json::from_str(&text).unwrap();
    let families = table["families"].as_array().unwrap();
    for mig in all() {
        let of_axis = |family: &&Value| family["axis_units"] == mig.axis;
        let family = families.iter().find(of_axis).unwrap_or_else(|| panic!("no family of {}", mig.row));
        let base = |profile: &Profile| !family_name(mig, profile).ends_with("2m");
        let counts = family["counts"].as_object().unwrap();
        let base_counts = counts.iter().find(|(name, _)| name.starts_with("base")).unwrap().1;
        same_layouts(mig, &numbers(mig, base), &family["maximal_base"], base_counts);
        if let Some(double) = family.get("maximal_with_1g_double_memory") {
            same_layouts(mig, &numbers(mig, |_| true), double, &counts["with_1g_double_memory"]);
        }
    }
}

/// The rows of a name in the table of what geometry costs: one name may stand for several boards.
fn is_device(mig: &Mig, device: &str) -> bool {
    let squeezed = |text: &str| text.replace([' ', '-'], "").to_lowercase();
    device.split('/').any(|name| squeezed(mig.row).starts_with(&squeezed(name)))
}

/// `7x 1g`, `4g+3g`, `2g+2g+2g+1g(double memory)` as profiles of a device.
fn parts(mig: &Mig, text: &str) -> Vec<u8> {
    let named = |name: &str| {
        let name = name.replace("(double memory)", ".2m");
        let is = |profile: &Profile| family_name(mig, profile) == name.trim();
        *numbers(mig, is).first().unwrap_or_else(|| panic!("{} has no {name}", mig.row))
    };
    match text.split_once("x ") {
        Some((count, name)) => vec![named(name); count.parse().unwrap()],
        None => text.split('+').map(named).collect(),
    }
}

/// A legal layout of these profiles.
fn laid_out(mig: &Mig, parts: &[u8]) -> Option<Layout> {
    let mut wanted = parts.to_vec();
    wanted.sort_unstable();
    let made_of = |layout: &Layout| {
        let mut held: Vec<u8> = layout.slices().map(|slice| slice.profile).collect();
        held.sort_unstable();
        held == wanted
    };
    layouts(mig, &numbers(mig, |_| true)).into_iter().find(made_of)
}

#[test]
fn cutting_costs_as_many_multiprocessors_as_collected() {
    let Some(table) = collected("mig_geometry_tax.csv") else { return };
    let mut checked = 0;
    for row in Rows::of(&table).all() {
        for mig in all().filter(|mig| is_device(mig, &row["device"]) && mig.sm.is_some()) {
            let name = format!("{} {}", mig.row, row["layout"]);
            let layout =
                laid_out(mig, &parts(mig, &row["layout"])).unwrap_or_else(|| panic!("{name} is not legal"));
            let (sm, whole) = (layout.sm(mig).unwrap(), mig.sm.unwrap());
            assert_eq!(row["sm_full_gpu"], whole.to_string(), "{name}");
            assert_eq!(row["sm_usable"], sm.to_string(), "{name}");
            let lost = 100.0 * (f64::from(whole) - f64::from(sm)) / f64::from(whole);
            assert_eq!(row["sm_lost_pct"], format!("{lost:.1}"), "{name}");
            checked += 1;
        }
    }
    assert!(checked >= 20, "{checked} rows say something about a device of ours");
}
