//! Commitments to secret vectors: sum of x_j G_j + r H.

use std::sync::Arc;

use curve25519_dalek::scalar::Scalar;
use zeroize::Zeroizing;

use super::blinding;
use super::block::{Block, expect_blocks};
use super::elements::Elements;
use super::error::CommitmentError;
use super::limits::{BLOCK_POINTS, expect_threads};
use super::parallel;
use super::ristretto::encode;
use super::table::{TOGETHER, Windows, half};

/// Returns the commitment to secret elements with the blinding `blinding`, encoded.
///
/// `blocks` are those of the generators from block 0 on; `threads` is 1 or 2. The time depends on the number of
/// elements, their width and the threads, but for elements out of range, which are refused.
pub fn commit(
    blocks: &[Arc<Block>],
    elements: &Elements<'_>,
    blinding: &Scalar,
    threads: usize,
) -> Result<[u8; 32], CommitmentError> {
    expect_threads(threads)?;
    expect_blocks(blocks, elements.length())?;
    elements.expect_secret_in_range()?;
    let parts = parallel::parts(elements.length(), TOGETHER, threads, |part| {
        let mut windows = Windows::new(elements.bits());
        for first in part.step_by(TOGETHER) {
            let (block, index) = (&blocks[first / BLOCK_POINTS], first % BLOCK_POINTS);
            windows.add(
                &std::array::from_fn(|k| block.point(index + k)),
                std::array::from_fn(|k| elements.word(first + k)),
            );
        }
        windows
    });
    let mut parts = parts.into_iter();
    let mut windows = parts.next().expect("a part");
    parts.for_each(|other| windows.merge(&other));
    let vector = Zeroizing::new(windows.twice(elements.signed()));
    let twice = Zeroizing::new(vector.plus(&blinding::twice(blinding).cached()));
    Ok(encode(&half(&twice)))
}
