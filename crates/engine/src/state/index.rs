//! Indexes from a key to a set of values. A key without values is not in its index.

use alloc::collections::{BTreeMap, BTreeSet};

type Index<K, V> = BTreeMap<K, BTreeSet<V>>;

/// Adds a value.
pub(super) fn list<K: Ord, V: Ord>(index: &mut Index<K, V>, key: K, value: V) {
    index.entry(key).or_default().insert(value);
}

/// Takes a value out.
pub(super) fn unlist<K: Ord, V: Ord>(index: &mut Index<K, V>, key: &K, value: &V) {
    let values = index.get_mut(key).expect("an index has what is taken out of it");
    assert!(values.remove(value), "an index has what is taken out of it");
    if values.is_empty() {
        index.remove(key);
    }
}

/// Adds a value, or takes it out.
pub(super) fn set_listed<K: Ord, V: Ord>(index: &mut Index<K, V>, key: K, value: V, listed: bool) {
    if listed { list(index, key, value) } else { unlist(index, &key, &value) }
}
