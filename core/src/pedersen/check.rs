//! Whether commitments open, together, to public totals: sum of total_j G_j + R H = sum of C_u.

use std::sync::Arc;

use curve25519_dalek::scalar::Scalar;

use super::block::{Block, expect_blocks};
use super::buckets::Buckets;
use super::elements::Elements;
use super::error::CommitmentError;
use super::limits::{BLOCK_POINTS, expect_threads};
use super::point::Extended;
use super::ristretto::{decode, same};
use super::table::half;
use super::{blinding, parallel};

/// Returns the sum of encoded points; refuses the first that is not a canonical encoding.
fn sum(encoded: &[[u8; 32]], threads: usize) -> Result<Extended, CommitmentError> {
    let parts = parallel::parts(encoded.len(), 1, threads, |mut part| {
        part.try_fold(Extended::IDENTITY, |sum, index| {
            match decode(&encoded[index]) {
                Some(point) => Ok(sum.plus_niels(&point.niels())),
                None => Err(CommitmentError::Statement(format!(
                    "commitments: number {index} is not the encoding of a group element"
                ))),
            }
        })
    });
    parts.into_iter().try_fold(
        Extended::IDENTITY,
        |sum, part| Ok(sum.plus(&part?.cached())),
    )
}

/// Returns whether the sum of `commitments` is the commitment to `totals` with `blinding_sum`, in variable time.
///
/// `blocks` are those of the generators from block 0 on; `threads` is 1 or 2. Refuses totals out of range and
/// commitments that are not canonical encodings, by their numbers.
pub fn check(
    blocks: &[Arc<Block>],
    totals: &Elements<'_>,
    blinding_sum: &Scalar,
    commitments: &[[u8; 32]],
    threads: usize,
) -> Result<bool, CommitmentError> {
    expect_threads(threads)?;
    expect_blocks(blocks, totals.length())?;
    totals.expect_public_in_range()?;
    let sum = sum(commitments, threads)?;
    let parts = parallel::parts(totals.length(), 1, threads, |part| {
        let mut buckets = Buckets::new(totals.bits(), part.len());
        for index in part {
            let (magnitude, negative) = totals.magnitude(index);
            let point = blocks[index / BLOCK_POINTS].point(index % BLOCK_POINTS);
            buckets.add(&point, magnitude, negative);
        }
        buckets.total()
    });
    let blinding = half(&blinding::twice(blinding_sum));
    let expected = parts
        .iter()
        .fold(blinding, |total, part| total.plus(&part.cached()));
    Ok(same(&expected, &sum).into())
}
