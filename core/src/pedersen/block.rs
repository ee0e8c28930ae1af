//! Blocks of generators as they are stored: a point is y + x, y - x and 2 d x y, canonical, 32 bytes each.
//!
//! Making a point takes four inverse square roots, reading it none. What is stored is compared with the
//! digests in `digests.bin`: keyed BLAKE3, which the crate has for streams. It takes a third of the time of
//! SHA-256 in the processor's own instructions.

use std::sync::Arc;

use super::error::CommitmentError;
use super::field::{BYTES, Element};
use super::generators::Family;
use super::labels;
use super::limits::{BLOCK_POINTS, BLOCKS, expect_threads};
use super::parallel;
use super::point::Niels;
use crate::stream_hash::{KEY, StreamHash};
use crate::tuple_hash::TupleHash256;

/// Bytes of a point.
pub const POINT_BYTES: usize = 3 * BYTES;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = BLOCK_POINTS * POINT_BYTES;

/// The digest of each block, made by `write_digests` in `tests.rs`.
static DIGESTS: &[u8; BLOCKS * KEY] = include_bytes!("digests.bin");

/// A block that is as its digest says.
pub struct Block(Vec<u8>);

impl Block {
    /// Copies block `number`; refuses bytes that are not this block, in variable time.
    pub fn read(number: usize, bytes: &[u8]) -> Result<Self, CommitmentError> {
        expect_number(number)?;
        if bytes.len() != BLOCK_BYTES {
            return Err(CommitmentError::Damaged(format!(
                "block {number}: {} bytes, not {BLOCK_BYTES}",
                bytes.len()
            )));
        }
        // What is hashed is the copy: nobody else can change it.
        let block = bytes.to_vec();
        if digest(number, &block) != DIGESTS.as_chunks::<KEY>().0[number] {
            return Err(CommitmentError::Damaged(format!(
                "block {number}: not the generators of this version"
            )));
        }
        Ok(Self(block))
    }

    /// Returns the generator at `index` of the block.
    #[inline]
    pub fn point(&self, index: usize) -> Niels {
        let (points, _) = self.0.as_chunks::<POINT_BYTES>();
        let (parts, _) = points[index].as_chunks::<BYTES>();
        Niels {
            plus: Element::from_bytes(&parts[0]),
            minus: Element::from_bytes(&parts[1]),
            product: Element::from_bytes(&parts[2]),
        }
    }
}

fn expect_number(number: usize) -> Result<(), CommitmentError> {
    if number < BLOCKS {
        return Ok(());
    }
    Err(CommitmentError::Argument(format!(
        "block: {number}, not below {BLOCKS}"
    )))
}

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

/// Makes the bytes of block `number`, on 1 or 2 threads.
pub fn make_block(number: usize, threads: usize) -> Result<Vec<u8>, CommitmentError> {
    expect_number(number)?;
    expect_threads(threads)?;
    let values = Family::values();
    let first = number * BLOCK_POINTS;
    let parts = parallel::parts(BLOCK_POINTS, 1, threads, |part| {
        let mut bytes = Vec::with_capacity(part.len() * POINT_BYTES);
        for index in part {
            let point = values.point((first + index) as u32).niels();
            for coordinate in [point.plus, point.minus, point.product] {
                bytes.extend_from_slice(&coordinate.to_bytes());
            }
        }
        bytes
    });
    Ok(parts.concat())
}

/// Returns the digest of block `number`: keyed BLAKE3 of its bytes.
pub(super) fn digest(number: usize, bytes: &[u8]) -> [u8; KEY] {
    let mut hasher = TupleHash256::new(labels::BLOCK.as_bytes());
    hasher.absorb(&(number as u32).to_be_bytes());
    let mut key = [0; KEY];
    hasher.finish(&mut key);
    let mut hash = StreamHash::new(&key);
    hash.update(bytes);
    hash.digest()
}
