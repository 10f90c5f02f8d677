//! How much memory a piece of work asks for: the allocator of this program with counters in front of it.
//!
//! It is mimalloc: planning takes and gives back many small pieces beside a journal that grows, on which the system's
//! spent a fifth of a long replay.
//!
//! The counters move only while [`counted`] runs; the rest of the time each allocation costs one more relaxed load of a
//! flag that never changes. They are of the whole process, so that work in other threads is counted too: count
//! one thing at a time, and time it in another run.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static ON: AtomicBool = AtomicBool::new(false);
static TOTAL: AtomicU64 = AtomicU64::new(0);
static NET: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

struct Counting;

/// What a piece of work asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocated {
    /// Bytes of all allocations; one that grows counts in full each time.
    pub(crate) total: u64,
    /// The most it held at once beyond what was held before, in bytes.
    pub(crate) peak: u64,
}

/// Does the work and counts what it allocates.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, Allocated) {
    TOTAL.store(0, Relaxed);
    NET.store(0, Relaxed);
    PEAK.store(0, Relaxed);
    ON.store(true, Relaxed);
    let done = work();
    ON.store(false, Relaxed);
    let peak = u64::try_from(PEAK.load(Relaxed)).unwrap_or_default();
    (done, Allocated { total: TOTAL.load(Relaxed), peak })
}

fn taken(bytes: usize) {
    if ON.load(Relaxed) {
        // An allocation is never larger than `isize::MAX`.
        TOTAL.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Relaxed);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        PEAK.fetch_max(NET.fetch_add(bytes, Relaxed) + bytes, Relaxed);
    }
}

fn given_back(bytes: usize) {
    if ON.load(Relaxed) {
        NET.fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Relaxed);
    }
}

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait; every call goes to mimalloc as it came")]
// SAFETY: mimalloc does the work with the very arguments given; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        given_back(layout.size());
        unsafe { MiMalloc.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        given_back(layout.size());
        taken(size);
        unsafe { MiMalloc.realloc(place, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_and_what_was_given_back_are_both_in_the_total() {
        let (kept, allocated) = counted(|| {
            drop(std::hint::black_box(vec![0u8; 1000]));
            std::hint::black_box(vec![0u8; 5000])
        });
        // Other tests allocate meanwhile: at least so much.
        assert!(allocated.total >= 6000, "{allocated:?}");
        assert_eq!(kept.len(), 5000);
    }
}
