//! Asks of jobs with groups (rule 4): all groups of a job in one ask, which is met or not met as a whole.
//!
//! Tasks of one group are met in one way, tasks of different groups each in their own: a coordinator may be on a node
//! without GPUs beside workers on eight. An ask is one combination of such ways. The largest tasks are placed first,
//! because they have the fewest places to go.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::model::group::{Lack, Lacks};
use crate::model::job::Spec;
use crate::model::need::{Need, PoolOption};
use crate::model::placement::Placement;
use crate::model::policy::Policy;
use crate::plan::place::Ask;
use crate::quota::tree::Tree;
use crate::state::State;
use crate::state::jobs::{GroupKey, KindKey};
use crate::state::ways::ways;
use crate::units::PoolId;

/// The most combinations of ways that are tried: few fleets have more than a handful of models.
const COMBINATIONS_MAX: usize = 64;

/// What asks are made of.
#[derive(Clone, Copy)]
pub(crate) struct AskMaker<'d> {
    /// Where.
    pub state: &'d State,
    /// By which policy.
    pub policy: &'d Policy,
    /// Whose meters.
    pub tree: &'d Tree,
    /// The trust domain by name, of a job that was not accepted yet.
    pub domain: Option<&'d str>,
}

impl<'d> AskMaker<'d> {
    /// Without a job in mind.
    pub(crate) fn new(state: &'d State, policy: &'d Policy, tree: &'d Tree) -> Self {
        Self { state, policy, tree, domain: None }
    }

    fn ways(self, key: &'d KindKey) -> impl Iterator<Item = PoolOption> + use<'d> {
        let domain = self.domain.unwrap_or_else(|| self.state.tenants.trust(key.trust));
        ways(&self.state.fleet, self.policy, key.class, domain, &key.shape).filter_map(Result::ok)
    }
}

/// Tasks of one group.
struct GroupPiece {
    group: usize,
    numbers: Rc<[u32]>,
    /// How the group's other tasks are met, where it has any.
    given: Option<(PoolId, Need)>,
}

impl GroupPiece {
    fn new(spec: &Spec, lack: &Lack, held: &[Placement], next: u32) -> Self {
        let other = held.iter().find(|place| spec.group_of(place.task) == Some(lack.group));
        let given = other.map(|place| (place.pool, Need::held(place)));
        Self { group: lack.group, numbers: spec.numbers_for(&lack.slots, next).into(), given }
    }
}

/// The minimum of a kind, in each way in which it could be met, in order.
pub(crate) fn minimum<'a>(desk: AskMaker<'_>, key: &'a KindKey) -> Vec<Ask<'a>> {
    if key.groups.is_empty() {
        return desk.ways(key).map(|way| Ask::new(desk.tree, key, way, key.min)).collect();
    }
    let mut first = 0;
    let piece = |(at, group): (usize, &GroupKey)| {
        let numbers = group.first_slots().map(|slot| first + slot).collect();
        first += group.key.tasks;
        GroupPiece { group: at, numbers, given: None }
    };
    let pieces = key.groups.iter().enumerate().map(piece).collect();
    together(desk, key, pieces)
}

/// What a job with groups lacks beside what it has, as alternatives in order: the rest of its minimum, or one more piece of
/// one of its groups; and whether it is the rest of its minimum. Numbers that were not used in this attempt begin with `next`.
pub(crate) fn lacking<'a>(
    desk: AskMaker<'_>,
    key: &'a KindKey,
    spec: &Spec,
    alive: &[Placement],
    next: u32,
) -> (Vec<Ask<'a>>, bool) {
    let piece = |lack: &Lack| GroupPiece::new(spec, lack, alive, next);
    match spec.lacks(alive.iter().map(|place| place.task)) {
        Lacks::Repair(lacks) => (together(desk, key, lacks.iter().map(piece).collect()), true),
        Lacks::Growth(lacks) => {
            let one = |lack: &Lack| together(desk, key, alloc::vec![piece(lack)]);
            (lacks.iter().flat_map(one).collect(), false)
        }
    }
}

/// As many tasks of each group again, elsewhere, each group as it is met now.
pub(crate) fn again<'a>(
    desk: AskMaker<'_>,
    key: &'a KindKey,
    spec: &Spec,
    held: &[Placement],
) -> Vec<Ask<'a>> {
    let piece = |group: usize| {
        let own = held.iter().filter(|place| spec.group_of(place.task) == Some(group));
        let slots: Vec<u32> = own.map(|place| spec.slot_of(place.task)).collect();
        (!slots.is_empty()).then(|| GroupPiece::new(spec, &Lack { group, slots }, held, 0))
    };
    together(desk, key, (0..key.groups.len()).filter_map(piece).collect())
}

/// The asks for places that are known: each group as its places say.
pub(crate) fn of_places<'a>(
    desk: AskMaker<'_>,
    key: &'a KindKey,
    spec: &Spec,
    places: &[Placement],
) -> Option<Ask<'a>> {
    if key.groups.is_empty() {
        let place = places.first()?;
        let need = Need::held(place);
        let way = desk.ways(key).find(|way| way.pool == place.pool && way.need == need)?;
        let tasks = u32::try_from(places.len()).expect("a gang has at most 16,384 tasks");
        return Some(Ask::new(desk.tree, key, way, tasks));
    }
    again(desk, key, spec, places).into_iter().next()
}

/// All pieces in one ask, for each combination of ways.
fn together<'a>(desk: AskMaker<'_>, key: &'a KindKey, mut pieces: Vec<GroupPiece>) -> Vec<Ask<'a>> {
    pieces.sort_by_key(|piece| {
        let shape = &key.groups[piece.group].key.shape;
        let size = (shape.gpus.units(), shape.resources.cpu_milli, shape.resources.memory);
        (Reverse(size), piece.group)
    });
    let mut combinations: Vec<Vec<Ask<'a>>> = alloc::vec![Vec::new()];
    for piece in &pieces {
        let own = &key.groups[piece.group].key;
        let allowed = |way: &PoolOption| piece.given.is_none_or(|given| given == (way.pool, way.need));
        let ways = desk.ways(own).filter(allowed);
        let asks: Vec<Ask<'a>> = ways.map(|way| part(desk, own, way, &piece.numbers)).collect();
        let with = |known: &Vec<Ask<'a>>| -> Vec<Vec<Ask<'a>>> {
            asks.iter().map(|ask| known.iter().chain([ask]).cloned().collect()).collect()
        };
        combinations = combinations.iter().flat_map(with).take(COMBINATIONS_MAX).collect();
    }
    combinations.into_iter().filter_map(joined).collect()
}

fn part<'a>(desk: AskMaker<'_>, key: &'a KindKey, way: PoolOption, numbers: &Rc<[u32]>) -> Ask<'a> {
    let tasks = u32::try_from(numbers.len()).expect("a job has at most 16,384 tasks");
    Ask { numbers: Some(Rc::clone(numbers)), ..Ask::new(desk.tree, key, way, tasks) }
}

fn joined(parts: Vec<Ask<'_>>) -> Option<Ask<'_>> {
    let mut parts = parts.into_iter();
    let first = parts.next()?;
    let beside: Vec<Ask<'_>> = parts.collect();
    Some(Ask { beside: (!beside.is_empty()).then(|| beside.into()), ..first })
}
