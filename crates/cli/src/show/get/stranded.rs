//! What is free and of no use: each pool, then the shapes that it could meet.
use std::collections::BTreeMap;

use wharf_api::client::Client;
use wharf_api::v1::{StrandedShapeView, StrandedView};

use super::{List, show};
use crate::args::GetArgs;
use crate::render::numbers::{cores, number, percent};
use crate::render::output::Tone;
use crate::render::table::{Cell, Column, Table};

const COLUMNS: [Column; 10] = [
    Column::text("MODEL", "model"),
    Column::text("SHAPE", "shape"),
    Column::number("CPU", "cpu_milli").wide(),
    Column::text("TRUST", "trust").wide(),
    Column::number("PENDING", "pending"),
    Column::number("TYPICAL", "typical"),
    Column::number("FITS", "fits"),
    Column::number("USABLE", "usable"),
    Column::number("STRANDED", "stranded"),
    Column::text("WHY", "why"),
];

/// Lists it.
pub(super) fn list(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let answer = client.stranded()?;
    let names = answer.pools.iter().map(|pool| format!("pool/{}", pool.model)).collect();
    let table = table(&answer.pools);
    let empty = "the fleet has no GPUs; its nodes: wharf get nodes".into();
    show(args, &List { answer: &answer, names, table, empty })
}

/// A row for each pool, and one for each shape that it could meet.
pub(in crate::show) fn table(pools: &[StrandedView]) -> Table {
    let mut table = Table::new(&COLUMNS);
    for pool in pools {
        table.row(of_pool(pool));
        for shape in &pool.shapes {
            table.row(of_shape(pool, shape));
        }
    }
    table
}

fn of_pool(pool: &StrandedView) -> Vec<Cell> {
    let usable = pool.free - pool.stranded;
    let tone = if pool.stranded > 0.0 { Tone::Warn } else { Tone::Good };
    let nothing = || Cell::new("-").plain(&"");
    vec![
        Cell::new(pool.model.clone()),
        Cell::new(format!("any, {} of {} free", number(pool.free), pool.gpus)).plain(&"any"),
        nothing(),
        nothing(),
        nothing(),
        nothing(),
        nothing(),
        Cell::new(number(usable)).plain(&usable),
        Cell::new(number(pool.stranded)).plain(&pool.stranded).tone(tone),
        Cell::new(reasons(&pool.why)),
    ]
}

fn of_shape(pool: &StrandedView, shape: &StrandedShapeView) -> Vec<Cell> {
    let stranded = pool.free - shape.usable;
    vec![
        Cell::new(pool.model.clone()),
        Cell::new(format!("  {}", shape.shape)).plain(&shape.shape),
        Cell::new(cores(shape.cpu_milli)).plain(&shape.cpu_milli),
        Cell::new(shape.trust.as_deref().unwrap_or("-")).plain(&shape.trust.as_deref().unwrap_or("")),
        Cell::new(shape.pending.to_string()),
        Cell::new(percent(shape.typical)).plain(&shape.typical),
        Cell::new(shape.fits.to_string()),
        Cell::new(number(shape.usable)).plain(&shape.usable),
        Cell::new(number(stranded)).plain(&stranded),
        Cell::new(reasons(&shape.why)),
    ]
}

/// `4 not together, 0.5 left over`, the most first.
fn reasons(why: &BTreeMap<String, f64>) -> String {
    let mut most: Vec<(&String, &f64)> = why.iter().collect();
    most.sort_by(|a, b| b.1.total_cmp(a.1));
    let texts = most.iter().map(|(why, gpus)| format!("{} {}", number(**gpus), why.replace('_', " ")));
    texts.collect::<Vec<_>>().join(", ")
}
