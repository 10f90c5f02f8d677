//! Stand-ins for the public traces, for people who do not have those files: the same columns, our own numbers.
//!
//! A stand-in has the proportions that make a trace hard (many small jobs and a few large gangs, durations over five
//! orders of magnitude, bursts, pods that leave cores without memory), as round figures in tables of this module. It
//! is drawn in whole numbers from a seed, so the same seed gives the same bytes on every machine and a figure that
//! was measured on it can be repeated anywhere. It does not reproduce the published trace: figures of the two are
//! never compared.

pub mod openb;
pub mod philly;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// One of a table's rows, as often as its weight says.
fn weighted<'a, T>(rng: &mut ChaCha8Rng, rows: &'a [T], weight: impl Fn(&T) -> u64) -> &'a T {
    let sum: u64 = rows.iter().map(&weight).sum();
    let mut at = rng.random_range(0..sum);
    for row in rows {
        match at.checked_sub(weight(row)) {
            Some(rest) => at = rest,
            None => return row,
        }
    }
    unreachable!("a number below the sum of the weights falls into one of them")
}
