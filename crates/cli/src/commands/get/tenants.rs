//! Tenants as a table: what each is promised, may use, and uses. One row per tenant and resource.

use wharf_api::v1::{LineView, TenantView};

use crate::numbers::{UNLIMITED, number};
use crate::table::{Cell, Column, Table};

const LINE_COLUMNS: [Column; 6] = [
    Column::text("RESOURCE", "resource"),
    Column::number("GUARANTEED", "guaranteed"),
    Column::number("USED", "used"),
    Column::number("FAIR", "fair_share"),
    Column::number("LIMIT", "limit"),
    Column::number("DEMAND", "demand"),
];

const BEFORE: [Column; 1] = [Column::text("TENANT", "tenant")];
const AFTER: [Column; 4] = [
    Column::number("RUNNING", "running"),
    Column::number("WAITING", "waiting"),
    Column::number("WEIGHT", "weight").wide(),
    Column::number("PRIORITY", "priority").wide(),
];

/// Every line of every tenant. The tenant is repeated, so that a line can be found with grep.
pub(in crate::commands) fn table(tenants: &[TenantView]) -> Table {
    let columns: Vec<Column> = BEFORE.into_iter().chain(LINE_COLUMNS).chain(AFTER).collect();
    let mut table = Table::new(&columns);
    for tenant in tenants {
        for line in &tenant.lines {
            let before = [Cell::new(tenant.path.clone())];
            let after = [
                tenant.running.to_string(),
                tenant.waiting.to_string(),
                tenant.weight.to_string(),
                tenant.priority.to_string(),
            ];
            table.row(before.into_iter().chain(cells(line)).chain(after.map(Cell::new)).collect());
        }
    }
    table
}

/// The lines of one tenant.
pub(in crate::commands) fn lines_table(tenant: &TenantView) -> Table {
    let mut table = Table::new(&LINE_COLUMNS);
    for line in &tenant.lines {
        table.row(cells(line).to_vec());
    }
    table
}

fn cells(line: &LineView) -> [Cell; 6] {
    let LineView { resource, guaranteed, limit, fair_share, used, demand } = line;
    let bounded = |amount: &Option<f64>| {
        Cell::new(amount.map_or_else(|| UNLIMITED.to_owned(), number)).plain_if_known(amount.as_ref())
    };
    [
        Cell::new(resource.clone()),
        bounded(guaranteed),
        Cell::new(number(*used)),
        Cell::new(number(*fair_share)),
        bounded(limit),
        Cell::new(number(*demand)),
    ]
}
