//! Policy files; the first byte chooses which. Run with `cargo +nightly fuzz run policy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wharf_api::fuzz::policy(data));
