//! Commitments to secret vectors: sum of x_j G_j + r H.

use std::sync::Arc;

use curve25519_dalek::scalar::Scalar;
use zeroize::Zeroize;

use super::blinding;
use super::block::Block;
use super::elements::Elements;
use super::error::CommitmentError;
use super::limits::{BLOCK_POINTS, expect_threads};
use super::parallel;
use super::ristretto::encode;
use super::table::{TOGETHER, Windows, half};

/// Refuses fewer blocks than elements need.
pub fn expect_blocks(blocks: &[Arc<Block>], length: usize) -> Result<(), CommitmentError> {
    if length <= blocks.len() * BLOCK_POINTS {
        return Ok(());
    }
    Err(CommitmentError::Argument(format!(
        "vector: {length} elements, and generators for {}",
        blocks.len() * BLOCK_POINTS
    )))
}

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
    let mut twice = windows.twice(elements.signed());
    twice = twice.plus(&blinding::twice(blinding).cached());
    let commitment = encode(&half(&twice));
    twice.zeroize();
    Ok(commitment)
}
