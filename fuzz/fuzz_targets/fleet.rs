//! Fleet files. Run with `cargo +nightly fuzz run fleet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wharf_api::fuzz::fleet(data));
