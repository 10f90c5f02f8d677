//! Tenants: what each is promised, may use, and uses. One row per tenant and resource.
use wharf_api::client::Client;
use wharf_api::v1::{Code, LineView, TenantList, TenantView};

use super::{List, show};
use crate::args::GetArgs;
use crate::render::numbers::{UNLIMITED, number};
use crate::render::problem::missing;
use crate::render::table::{Cell, Column, Table};

const LINE_COLUMNS: [Column; 6] = [
    Column::text("RESOURCE", "resource"),
    Column::number("GUARANTEED", "guaranteed"),
    Column::number("USED", "used"),
    Column::number("FAIR", "fair_share"),
    Column::number("LIMIT", "limit"),
    Column::number("DEMAND", "demand"),
];

/// Shown of one tenant, and of many only when asked for.
const LOAN_COLUMNS: [Column; 2] = [Column::number("BORROWED", "borrowed"), Column::number("LENT", "lent")];
/// Shown wherever the past counts, and otherwise only when asked for.
const PAST: Column = Column::number("PAST", "past");

const BEFORE: [Column; 1] = [Column::text("TENANT", "tenant")];
const AFTER: [Column; 4] = [
    Column::number("RUNNING", "running"),
    Column::number("WAITING", "waiting"),
    Column::number("WEIGHT", "weight").wide(),
    Column::number("PRIORITY", "priority").wide(),
];

/// Lists them.
pub(super) fn list(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    let TenantList { schema, mut tenants, half_life_ms } = client.tenants()?;
    if let Some(path) = &args.tenant {
        reject_unknown(path, &tenants)?;
        tenants.retain(|tenant| is_under(&tenant.path, path));
    }
    let names = tenants.iter().map(|tenant| format!("tenant/{}", tenant.path)).collect();
    let table = table(&tenants);
    let empty = "the policy names no tenants; they are in its tenants.yaml".into();
    show(args, &List { answer: &TenantList { schema, tenants, half_life_ms }, names, table, empty })
}

/// An empty list of a tenant that is not there would look as if it had nothing.
pub(super) fn known(client: &Client, args: &GetArgs) -> anyhow::Result<()> {
    match &args.tenant {
        Some(path) => reject_unknown(path, &client.tenants()?.tenants),
        None => Ok(()),
    }
}

fn reject_unknown(path: &str, tenants: &[TenantView]) -> anyhow::Result<()> {
    if tenants.iter().any(|tenant| is_under(&tenant.path, path)) {
        return Ok(());
    }
    let known = tenants.iter().map(|tenant| tenant.path.as_str());
    Err(missing(Code::UnknownTenant, ("tenant", path), known, "tenants"))
}

/// True for a tenant itself and for those below it.
pub(super) fn is_under(tenant: &str, path: &str) -> bool {
    tenant.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Every line of every tenant. The tenant is repeated, so that a line can be found with grep.
pub(in crate::show) fn table(tenants: &[TenantView]) -> Table {
    let loans = LOAN_COLUMNS.map(Column::wide);
    let counts = tenants.iter().flat_map(|tenant| &tenant.lines).any(|line| line.past.is_some());
    let past = if counts { PAST } else { PAST.wide() };
    let columns = BEFORE.into_iter().chain(LINE_COLUMNS).chain(loans).chain([past]).chain(AFTER);
    let columns: Vec<Column> = columns.collect();
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
pub(in crate::show) fn lines_table(tenant: &TenantView) -> Table {
    let counts = tenant.lines.iter().any(|line| line.past.is_some());
    let past = if counts { PAST } else { PAST.wide() };
    let columns: Vec<Column> = LINE_COLUMNS.into_iter().chain(LOAN_COLUMNS).chain([past]).collect();
    let mut table = Table::new(&columns);
    for line in &tenant.lines {
        table.row(cells(line).to_vec());
    }
    table
}

fn cells(line: &LineView) -> [Cell; 9] {
    let LineView { resource, guaranteed, limit, fair_share, used, borrowed, lent, demand, past } = line;
    let bounded = |amount: &Option<f64>| Cell::new(amount.map_or_else(|| UNLIMITED.to_owned(), number));
    [
        Cell::new(resource.clone()),
        bounded(guaranteed),
        Cell::new(number(*used)),
        Cell::new(number(*fair_share)),
        bounded(limit),
        Cell::new(number(*demand)),
        Cell::new(number(*borrowed)),
        Cell::new(number(*lent)),
        Cell::new(past.map_or_else(|| "-".to_owned(), number)).plain_if_known(past.map(number).as_ref()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::output::Paint;
    use crate::render::table::Look;

    #[test]
    fn loans_are_shown_where_there_is_room_for_them() {
        let line = LineView {
            resource: "gpus".into(),
            guaranteed: Some(8.0),
            limit: None,
            fair_share: 12.5,
            used: 10.0,
            borrowed: 2.0,
            lent: 0.0,
            demand: 40.0,
            past: None,
        };
        let (path, lines) = ("lab/nlp".to_owned(), vec![line]);
        let tenant = TenantView { path, lines, weight: 2, priority: 5, waiting: 3, running: 1 };
        let look = |wide| Look { wide, headers: true, paint: Paint::OFF };
        let short = "\
TENANT   RESOURCE  GUARANTEED  USED  FAIR      LIMIT  DEMAND  RUNNING  WAITING
lab/nlp  gpus               8    10  12.5  unlimited      40        1        3
";
        let tenants = [tenant];
        assert_eq!(table(&tenants).aligned(look(false)), short);
        let wide = table(&tenants).aligned(look(true));
        assert!(
            wide.contains("  DEMAND  BORROWED  LENT  PAST  RUNNING  WAITING  WEIGHT  PRIORITY\n"),
            "{wide}"
        );
        let csv = table(&tenants).csv(false);
        assert_eq!(csv, "lab/nlp,gpus,8,10,12.5,unlimited,40,2,0,,1,3,2,5\n");
        let mut tenants = tenants;
        tenants[0].lines[0].past = Some(1.75);
        let counts = table(&tenants).aligned(look(false));
        assert!(counts.contains("  DEMAND  PAST  RUNNING"), "{counts}");
        assert!(counts.contains("      40  1.75        1"), "{counts}");
    }

    #[test]
    fn a_tenant_is_under_itself_and_its_parents_only() {
        assert!(is_under("lab/nlp", "lab"));
        assert!(is_under("lab", "lab"));
        assert!(!is_under("labour", "lab"));
        assert!(!is_under("lab", "lab/nlp"));
    }
}
