//! `wharf get models` and `wharf explain model/NAME`: the catalogue, which is part of the program and needs no server.

mod layouts;
mod picture;

use std::process::ExitCode;

use serde::Serialize;
use wharf_api::file::nearest;
use wharf_api::v1::{Code, Problem};
use wharf_engine::device::catalogue::{MODELS, Media, Mig, Model, Profile};
use wharf_engine::device::geometry::units_of;
use wharf_engine::units::GpuUnits;

use crate::args::ExplainArgs;
use crate::render::numbers::{UNKNOWN, float};
use crate::render::output;
use crate::render::table::{Cell, Column, Table};
use layouts::Layouts;

/// Every known model, for programs.
#[derive(Debug, Serialize)]
pub(crate) struct ModelList {
    schema: &'static str,
    pub(super) models: Vec<ModelView>,
}

impl ModelList {
    pub(super) fn known() -> Self {
        Self { schema: "wharf.models.v1", models: MODELS.iter().map(ModelView::of).collect() }
    }
}

/// One model, for programs.
#[derive(Debug, Serialize)]
pub(super) struct ModelView {
    pub(super) name: &'static str,
    spec_row: &'static str,
    memory_gb: u32,
    bandwidth_gbps: Option<u32>,
    sm: Option<u16>,
    nvlink: bool,
    mig: Option<MigView>,
}

/// How a model is cut, for programs.
#[derive(Debug, Serialize)]
struct MigView {
    row: &'static str,
    axis: u8,
    compute: u8,
    mode_resets: bool,
    starts_seen: bool,
    profiles: Vec<ProfileView>,
}

/// One profile, for programs.
#[derive(Debug, Serialize)]
struct ProfileView {
    name: &'static str,
    compute: u8,
    slots: u8,
    starts: &'static [u8],
    max: u8,
    memory_mib: u32,
    memory_seen: bool,
    sm: Option<u16>,
    media: &'static str,
    /// What a slice is charged.
    gpus: f64,
}

impl ModelView {
    fn of(model: &Model) -> Self {
        let Model { name, spec_row, memory_gb, bandwidth_gbps, sm, nvlink, mig } = *model;
        Self { name, spec_row, memory_gb, bandwidth_gbps, sm, nvlink, mig: mig.map(MigView::of) }
    }
}

impl MigView {
    fn of(mig: &Mig) -> Self {
        let Mig { row, axis, compute, sm: _, mode_resets, starts_seen, profiles } = *mig;
        let profiles = profiles.iter().map(|profile| ProfileView::of(mig, profile)).collect();
        Self { row, axis, compute, mode_resets, starts_seen, profiles }
    }
}

impl ProfileView {
    fn of(mig: &Mig, profile: &Profile) -> Self {
        let Profile { name, compute, slots, starts, max, memory_mib, memory_seen, sm, media } = *profile;
        let (media, gpus) = (word(media), charged(mig, profile));
        Self { name, compute, slots, starts, max, memory_mib, memory_seen, sm, media, gpus }
    }
}

fn word(media: Media) -> &'static str {
    match media {
        Media::Usual => "usual",
        Media::Extension => "extension",
        Media::All => "all",
        Media::Without => "without",
        Media::Graphics => "graphics",
    }
}

/// What a slice of a profile is charged, in GPUs.
fn charged(mig: &Mig, profile: &Profile) -> f64 {
    float(units_of(mig, profile).parts()) / float(GpuUnits::WHOLE.parts())
}

/// One model with its layouts, for programs.
#[derive(Debug, Serialize)]
struct ModelDocument {
    schema: &'static str,
    model: ModelView,
    layouts: Option<Layouts>,
}

/// True for what this module explains.
pub(crate) fn is_named(what: &str) -> bool {
    what.strip_prefix("model/").is_some_and(|name| !name.is_empty())
}

/// Explains a model.
pub(crate) fn explain(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let model = find(crate::args::names::without_kind(&args.what, "model"))?;
    output::answer(
        args.output,
        &ModelDocument {
            schema: "wharf.model.v1",
            model: ModelView::of(model),
            layouts: model.mig.map(Layouts::of),
        },
        |paint| picture::text(model, paint),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// A model by its name or by the name of one of its rows, in letters of any case.
pub(crate) fn find(name: &str) -> Result<&'static Model, Problem> {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    let found = MODELS.iter().find(|model| is(model.name) || is(model.spec_row) || is(row(model)));
    found.ok_or_else(|| {
        let rows = MODELS.iter().flat_map(|model| [model.name, model.spec_row, row(model)]);
        let near = nearest(name, &rows.filter(|row| !row.is_empty()).collect::<Vec<_>>());
        let meant = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
        let works = "a model that is not listed works as whole GPUs and shares";
        let problem = Problem::new(Code::UnknownModel, format!("the catalogue has no model {name:?}"));
        problem.hint(format!("{meant}{works}; list them with: wharf get models"))
    })
}

fn row(model: &Model) -> &'static str {
    model.mig.map_or("", |mig| mig.row)
}

const COLUMNS: [Column; 11] = [
    Column::text("NAME", "name"),
    Column::number("MEMORY", "memory_gb"),
    Column::number("BANDWIDTH", "bandwidth_gbps"),
    Column::number("SM", "sm"),
    Column::text("NVLINK", "nvlink"),
    Column::number("SLOTS", "axis"),
    Column::text("PROFILES", "profiles"),
    Column::text("STARTS", "starts_seen").wide(),
    Column::text("MODE CHANGE", "mode_resets").wide(),
    Column::text("SPEC ROW", "spec_row").wide(),
    Column::text("MIG ROW", "mig_row").wide(),
];

/// One row per model.
pub(super) fn table(models: &[ModelView]) -> Table {
    let mut table = Table::new(&COLUMNS);
    for model in models {
        let ModelView { name, spec_row, memory_gb, bandwidth_gbps, sm, nvlink, mig } = model;
        let known = |value: Option<String>| value.unwrap_or_else(|| UNKNOWN.to_owned());
        let of_mig = |text: &dyn Fn(&MigView) -> String| mig.as_ref().map_or_else(|| "-".to_owned(), text);
        let names: Option<Vec<&str>> =
            mig.as_ref().map(|mig| mig.profiles.iter().map(|profile| profile.name).collect());
        table.row(vec![
            Cell::new(*name),
            Cell::new(format!("{memory_gb}GB")).plain(memory_gb),
            Cell::new(known(bandwidth_gbps.map(|speed| format!("{speed}GB/s"))))
                .plain_if_known(bandwidth_gbps.as_ref()),
            Cell::new(known(sm.map(|sm| sm.to_string()))).plain_if_known(sm.as_ref()),
            Cell::new(if *nvlink { "yes" } else { "-" }).plain(nvlink),
            Cell::new(of_mig(&|mig| mig.axis.to_string())).plain_if_known(mig.as_ref().map(|mig| &mig.axis)),
            Cell::new(of_mig(&span)).plain(&names.unwrap_or_default().join(" ")),
            Cell::new(of_mig(&|mig| if mig.starts_seen { "seen" } else { "inferred" }.to_owned()))
                .plain_if_known(mig.as_ref().map(|mig| &mig.starts_seen)),
            Cell::new(of_mig(&|mig| if mig.mode_resets { "resets" } else { "in place" }.to_owned()))
                .plain_if_known(mig.as_ref().map(|mig| &mig.mode_resets)),
            Cell::new(*spec_row),
            Cell::new(of_mig(&|mig| mig.row.to_owned())).plain_if_known(mig.as_ref().map(|mig| &mig.row)),
        ]);
    }
    table
}

/// `7: 1g.10gb to 7g.80gb`
fn span(mig: &MigView) -> String {
    let usual = || mig.profiles.iter().filter(|profile| profile.media == word(Media::Usual));
    let (first, last) = (usual().next(), usual().next_back());
    match first.zip(last) {
        Some((first, last)) => format!("{}: {} to {}", mig.profiles.len(), first.name, last.name),
        None => String::new(),
    }
}
