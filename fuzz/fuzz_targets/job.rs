//! Job files. Run with `cargo +nightly fuzz run job`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wharf_api::fuzz::job(data));
