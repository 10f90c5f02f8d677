//! What is lent, on small trees.

use wharf_engine::decide::input::Input;
use wharf_engine::model::policy::{GpuQuota, Policy, Tenant};
use wharf_engine::units::Timestamp;

use super::*;

/// One GPU in the units of the meter over all models.
const GPU: u64 = 3_000_000;

/// What each tenant has lent, in whole GPUs: from path, guarantee (`None` is unlimited) and own use, and from the size
/// of the fleet.
fn lent_by(tenants: &[(&str, Option<u64>, u64)], fleet: u64) -> Vec<u64> {
    let tenant = |&(path, guaranteed, _): &(&str, Option<u64>, u64)| {
        let guaranteed = guaranteed.map_or(Amount::Unlimited, |gpus| Amount::Of(gpus * GPU / 1000));
        let gpus = GpuQuota::Any(Quota { guaranteed, limit: Amount::Unlimited });
        Tenant { gpus, ..Tenant::without_lines(path) }
    };
    let policy = Policy { tenants: tenants.iter().map(tenant).collect(), ..Policy::default() };
    let mut state = State::default();
    let decision = state.decide(&Input::ApplyPolicy(policy), Timestamp(1)).unwrap();
    state.apply_all(&decision.events);
    let tree = state.tree(state.tenants.policy());
    let id = |path: &str| state.tenants.named(path).unwrap();
    let mut own = tree.zero_each();
    for &(path, _, used) in tenants {
        own[id(path).index()][0] = used * GPU;
    }
    let lent = lent(&tree, &tree.subtree_use(&own), 0, fleet * GPU);
    tenants.iter().map(|&(path, ..)| lent[id(path).index()] / GPU).collect()
}

#[test]
fn the_example_above_comes_out() {
    let tenants = [("a", Some(8), 0), ("b", Some(8), 0), ("c", Some(0), 24)];
    assert_eq!(lent_by(&tenants, 32), [4, 4, 0]);
    assert_eq!(lent_by(&tenants, 40), [0, 0, 0], "what is free is not in use by others");
    assert_eq!(lent_by(&tenants, 24), [8, 8, 0], "never more than the guarantee");
}

#[test]
fn nobody_lends_while_nobody_borrows() {
    let tenants = [("a", Some(8), 2), ("b", Some(8), 8)];
    assert_eq!(lent_by(&tenants, 16), [0, 0]);
    assert_eq!(lent_by(&tenants, 10), [0, 0], "failed nodes take nothing on loan");
    assert_eq!(lent_by(&[("a", Some(8), 2), ("b", Some(8), 9)], 11), [1, 0], "no more than is borrowed");
}

#[test]
fn a_child_lends_to_its_siblings_while_its_parent_lends_to_nobody() {
    let tenants = [("lab", Some(16), 0), ("lab/a", Some(8), 0), ("lab/b", Some(8), 16), ("x", Some(16), 16)];
    assert_eq!(lent_by(&tenants, 32), [0, 8, 0, 0]);
    assert_eq!(lent_by(&tenants, 36), [0, 4, 0, 0], "four are free, and nobody else is promised them");
}

#[test]
fn a_parent_lends_what_its_children_lend_to_others() {
    let tenants = [("lab", Some(16), 0), ("lab/a", Some(8), 4), ("lab/b", Some(8), 0), ("x", Some(0), 12)];
    assert_eq!(lent_by(&tenants, 16), [12, 4, 8, 0]);
    assert_eq!(lent_by(&tenants, 22), [6, 2, 4, 0], "half of what they do not use is free");
}

#[test]
fn a_tenant_that_is_not_metered_neither_borrows_nor_lends() {
    let tenants = [("u", None, 0), ("u/a", Some(8), 0), ("v", Some(0), 8), ("w", None, 8)];
    assert_eq!(lent_by(&tenants, 16), [0, 8, 0, 0], "who is below it lends by themselves");
    let tenants = [("a", Some(8), 0), ("w", None, 8)];
    assert_eq!(lent_by(&tenants, 8), [0, 0], "what w uses is not borrowed: nothing takes it back");
}
