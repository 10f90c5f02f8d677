//! The published trace, where it is there: an order of arrival to the end, and the beginning of another twice.

use std::path::Path;

use wharf_sim::trace::openb::{Policy, run};

use super::files::{self, Columns};
use crate::args::{PlacementArgs, PlacementPolicy};

/// The traces of a checkout beside which they lie; `None` elsewhere, and a line says so.
fn args() -> Option<PlacementArgs> {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    if !traces.exists() {
        eprintln!("skipped: the traces are not in ../shared/traces");
        return None;
    }
    Some(PlacementArgs {
        traces: Some(traces),
        trace: "default".to_owned(),
        nodes: None,
        pods: None,
        arrivals: None,
        columns: "seed42,seed43".to_owned(),
        policy: PlacementPolicy::Wharf,
        first: None,
        decisions: None,
    })
}

#[test]
fn the_published_trace_is_filled_beyond_fgd_and_nothing_that_fits_is_refused() {
    let Some(args) = args() else { return };
    let input = &files::inputs(&args).unwrap()[0];
    let trace = files::trace(input).unwrap();
    let columns = Columns::read(&input.arrivals, &args.columns, trace.pods.len()).unwrap().0;
    // Up to 100 % arrived, and a little beyond so that the mean at 100 is complete.
    let whole = run(&trace, &columns[0].1[..8_450], Policy::Wharf, |_| {});
    let at_100 = whole.tally.alloc_at(100).unwrap();
    assert!(
        at_100 > 96.0,
        "{at_100:.2} % given out; FGD reaches 95.2, and 96.3 is the most without refusing"
    );
    assert_eq!(whole.tally.refused_feasible, 0);
    let begin = || run(&trace, &columns[1].1[..2_000], Policy::Wharf, |_| {});
    let once = begin();
    assert_eq!(once.tally.first_refusal_pct, None, "a cluster that is a quarter full refuses nobody");
    assert_eq!(once.hash, begin().hash);
}
