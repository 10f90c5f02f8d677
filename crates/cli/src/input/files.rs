//! Reading what is given: files, compressed files and standard input, and what they hash to.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use sha2::{Digest, Sha256};
use wharf_api::file::BYTES_MAX;

/// What was read.
pub(crate) struct Given {
    /// Its text.
    pub(crate) text: String,
    /// SHA-256 of its bytes as they stand in the file.
    pub(crate) sha256: [u8; 32],
}

/// Reads a file; `-` is standard input, and names that end in `.gz` are read as such.
pub(crate) fn read(path: &Path) -> anyhow::Result<Given> {
    let name = path.display();
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    }
    let sha256 = Sha256::digest(&bytes).into();
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut plain = Vec::new();
        let mut unzipped = flate2::read::MultiGzDecoder::new(bytes.as_slice());
        unzipped.read_to_end(&mut plain).with_context(|| format!("{name} ends in .gz and is not gzip"))?;
        bytes = plain;
    }
    let text = String::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8"))?;
    Ok(Given { text, sha256 })
}

/// The text of standard input, cut soon after what a file may hold at most; `fault` is what is said when it cannot be read.
pub(super) fn standard_input(fault: &'static str) -> anyhow::Result<String> {
    let limit = u64::try_from(BYTES_MAX).expect("a MiB fits") + 1;
    let mut text = String::new();
    std::io::stdin().lock().take(limit).read_to_string(&mut text).context(fault)?;
    Ok(text)
}

/// The hash of several hashes, in order.
pub(crate) fn combined(hashes: &[[u8; 32]]) -> String {
    let mut all = Sha256::new();
    for hash in hashes {
        all.update(hash);
    }
    let bytes: [u8; 32] = all.finalize().into();
    wharf_controller::codec::hex(&bytes)
}
