//! What is free and of no use, in the words of the API.

use std::collections::BTreeMap;

use wharf_api::v1::{StrandedShapeView, StrandedView, gpus, thousandths};
use wharf_engine::answer::stranded::{StrandedAsk, StrandedPool, StrandedShape, StrandedWhy, stranded};
use wharf_engine::model::job::GpuAsk;
use wharf_engine::model::need::Need;
use wharf_engine::state::State;
use wharf_engine::units::GpuUnits;

/// Pool by pool.
pub(crate) fn all(state: &State) -> Vec<StrandedView> {
    stranded(state).iter().map(|pool| of_pool(state, pool)).collect()
}

fn of_pool(state: &State, pool: &StrandedPool) -> StrandedView {
    StrandedView {
        model: state.fleet.model(pool.pool).to_owned(),
        gpus: pool.gpus,
        free: gpus(pool.free),
        stranded: gpus(pool.stranded_units()),
        why: why(&pool.stranded),
        shapes: pool.shapes.iter().map(|shape| of_shape(state, shape)).collect(),
    }
}

fn of_shape(state: &State, shape: &StrandedShape) -> StrandedShapeView {
    StrandedShapeView {
        shape: gang(state, &shape.asked, ask(shape.asked.gpus, shape.asked.need)),
        cpu_milli: shape.asked.resources.cpu_milli,
        trust: shape.asked.trust.map(|trust| state.tenants.trust(trust).to_owned()),
        pending: shape.source.pending,
        typical: thousandths(u64::from(shape.source.typical_milli)),
        fits: shape.fits,
        usable: gpus(shape.usable),
        why: why(&shape.why),
    }
}

fn why(reasons: &BTreeMap<StrandedWhy, GpuUnits>) -> BTreeMap<String, f64> {
    reasons.iter().map(|(why, &units)| (why.into_str().to_owned(), gpus(units))).collect()
}

/// A shape with how many of it start together, and where.
fn gang(state: &State, asked: &StrandedAsk, each: String) -> String {
    let level = asked.within.and_then(|level| state.fleet.levels().get(usize::from(level.0)));
    let within = level.map(|level| format!(" in one {level}")).unwrap_or_default();
    match asked.together {
        0 | 1 => each,
        together => format!("{each}, {together} together{within}"),
    }
}

/// What a task asks for, in a few words.
fn ask(asked: GpuAsk, need: Need) -> String {
    match asked {
        // An alternative, or a share that is met in another way.
        GpuAsk::Share(_) | GpuAsk::Slice(_) | GpuAsk::AtLeast(_) if matches!(need, Need::Whole(_)) => {
            format!("{} GPU whole", need.units())
        }
        GpuAsk::Share(_) if matches!(need, Need::Slice { .. }) => format!("{} GPU as a slice", need.units()),
        GpuAsk::Whole(1) => "1 GPU".to_owned(),
        GpuAsk::Whole(count) => format!("{count} GPUs"),
        GpuAsk::Share(units) => format!("{units} GPU"),
        GpuAsk::Slice(name) => format!("slice {name}"),
        GpuAsk::AtLeast(least) => {
            let memory = (least.memory_mib > 0).then(|| match least.memory_mib {
                mib if mib.is_multiple_of(1024) => format!("{}GiB", mib / 1024),
                mib => format!("{mib}MiB"),
            });
            let compute = (least.compute > 0).then(|| format!("{}/{}", least.compute, least.compute_of));
            let parts: Vec<String> = memory.into_iter().chain(compute).collect();
            format!("slice {}", parts.join(" "))
        }
    }
}
