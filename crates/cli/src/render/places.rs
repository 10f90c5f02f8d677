//! Where tasks are, as text: in a phrase, or a line for each task.

use wharf_api::v1::{PlacementView, SliceView};
use wharf_engine::model::policy::Mode;

use crate::render::first_lines;
use crate::render::numbers::{counted, indexes, mib, number, percent_tenths};

/// The most placements that are listed; a gang of thousands is read by programs.
const PLACEMENTS_SHOWN_MAX: usize = 16;

/// Where tasks are, in one phrase: `n1 (GPUs 0-7) and 3 more nodes`. Tasks beside each other on a node are told as one.
pub(crate) fn places(placements: &[PlacementView]) -> Option<String> {
    let first = placements.first()?;
    let beside: Vec<&PlacementView> = placements.iter().filter(|place| place.node == first.node).collect();
    let mut others: Vec<&str> = placements.iter().map(|place| place.node.as_str()).collect();
    others.retain(|node| *node != first.node);
    others.sort_unstable();
    others.dedup();
    let place = place_of_all(first, &beside);
    Some(match u64::try_from(others.len()).unwrap_or(u64::MAX) {
        0 => place,
        others => format!("{place} and {}", counted(others, "more node")),
    })
}

/// Where tasks on one node are: `n1 (GPUs 3-6)`; by node alone, where they have parts of several GPUs.
fn place_of_all(first: &PlacementView, beside: &[&PlacementView]) -> String {
    let mut gpus: Vec<u32> = beside.iter().flat_map(|place| place.gpus.iter().copied()).collect();
    gpus.sort_unstable();
    gpus.dedup();
    // A coordinator without GPUs may be the first task of its job.
    let example = beside.iter().find(|place| !place.gpus.is_empty()).map_or(first, |place| place);
    let whole = |place: &PlacementView| place.slice.is_none() && place.share >= 1.0;
    let parts = beside.iter().filter(|place| !place.gpus.is_empty() && !whole(place)).count();
    match (parts, gpus.len()) {
        (0, _) => place(&PlacementView { gpus, ..example.clone() }),
        (1, _) if beside.len() == 1 => place(first),
        (_, 1) => format!("{} (parts of GPU {})", first.node, indexes(&gpus)),
        (_, _) => format!("{} (parts of GPUs {})", first.node, indexes(&gpus)),
    }
}

/// Where one task is: `n1 (GPUs 0-7)`, `n1 (0.25 of GPU 3)`, `n1 (2g.20gb of GPU 3)`.
pub(crate) fn place(place: &PlacementView) -> String {
    let PlacementView { task: _, group: _, node, gpus, share, enforced: _, slice, memory_mib: _, tax: _ } =
        place;
    let list = indexes(gpus);
    match gpus.len() {
        0 => node.clone(),
        1 if slice.is_some() || *share < 1.0 => {
            let part = slice.as_ref().map_or_else(|| number(*share), |slice| slice.profile.clone());
            format!("{node} ({part} of GPU {list})")
        }
        1 => format!("{node} (GPU {list})"),
        _ => format!("{node} (GPUs {list})"),
    }
}

/// Where one task is and how it is kept apart there: `n3 GPU 2, MIG 2g.20gb at slot 4, 19.5 GiB, expected tax 0.9 %`,
/// `n3 GPU 1, MPS 0.25 with at most 19.0 GiB, tax up to 30 %`.
fn place_in_full(told: &PlacementView) -> String {
    let PlacementView { task: _, group: _, node, gpus, share, enforced, slice, memory_mib, tax } = told;
    let list = indexes(gpus);
    let memory = memory_mib.map(|_| mib(*memory_mib).replace("GiB", " GiB"));
    let tax = percent_tenths(*tax);
    if let Some(slice) = slice {
        let memory = memory.map_or_else(String::new, |memory| format!(", {memory}"));
        let SliceView { profile, start } = slice;
        return format!("{node} GPU {list}, MIG {profile} at slot {start}{memory}, expected tax {tax}");
    }
    let how = match enforced {
        Mode::Whole | Mode::Mig => return place(told),
        Mode::Mps => "MPS",
        Mode::TimeSlicing => "time-slicing",
    };
    let memory = memory.map_or_else(String::new, |memory| format!(" with at most {memory}"));
    format!("{node} GPU {list}, {how} {}{memory}, tax up to {tax}", number(*share))
}

/// One line per task, as far as they fit on a screen.
pub(crate) fn place_lines(placements: &[PlacementView]) -> Vec<String> {
    let names = placements.iter().filter_map(|one| Some(one.group.as_ref()?.chars().count() + 2));
    let width = names.max().unwrap_or_default();
    let line = |one: &PlacementView| {
        let group = one.group.as_deref().unwrap_or_default();
        format!("task {:<4} {group:<width$}{}", one.task, place_in_full(one))
    };
    first_lines(placements, PLACEMENTS_SHOWN_MAX, line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples::placed;

    #[test]
    fn places_are_told_in_a_phrase() {
        assert_eq!(places(&[]), None);
        assert_eq!(places(&[placed(0, "n1", &[0, 1, 2, 3], 1.0)]).unwrap(), "n1 (GPUs 0-3)");
        assert_eq!(places(&[placed(0, "n1", &[3], 0.25)]).unwrap(), "n1 (0.25 of GPU 3)");
        assert_eq!(places(&[placed(0, "n1", &[], 1.0), placed(1, "n1", &[], 1.0)]).unwrap(), "n1");
        let four: Vec<PlacementView> = (0..4).map(|task| placed(task, "n1", &[6 - task], 1.0)).collect();
        assert_eq!(places(&four).unwrap(), "n1 (GPUs 3-6)");
        let parts = [placed(0, "n1", &[3], 0.25), placed(1, "n1", &[3], 0.25)];
        assert_eq!(places(&parts).unwrap(), "n1 (parts of GPU 3)");
        let coordinator = [placed(0, "n1", &[], 1.0), placed(1, "n1", &[2], 1.0), placed(2, "n2", &[2], 1.0)];
        assert_eq!(places(&coordinator).unwrap(), "n1 (GPU 2) and 1 more node");
        let mut told = placed(0, "n3", &[1], 0.25);
        (told.enforced, told.memory_mib, told.tax) = (Mode::Mps, Some(19_456), 0.3);
        assert_eq!(place_in_full(&told), "n3 GPU 1, MPS 0.25 with at most 19.0 GiB, tax up to 30 %");
        told.enforced = Mode::Mig;
        (told.slice, told.tax) = (Some(SliceView { profile: "2g.20gb".into(), start: 4 }), 0.009);
        let sliced = "n3 GPU 1, MIG 2g.20gb at slot 4, 19.0 GiB, expected tax 0.9 %";
        assert_eq!(place_in_full(&told), sliced);
        assert_eq!(place(&told), "n3 (2g.20gb of GPU 1)");
        let gang: Vec<PlacementView> =
            (0..20).map(|task| placed(task, &format!("n{task}"), &[0], 1.0)).collect();
        assert_eq!(places(&gang).unwrap(), "n0 (GPU 0) and 19 more nodes");
        assert_eq!(place_lines(&gang).len(), 17);
        assert_eq!(place_lines(&gang).last().unwrap(), "and 4 more; -o json has all");
    }
}
