//! Booking files. Run with `cargo +nightly fuzz run booking`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wharf_api::fuzz::booking(data));
