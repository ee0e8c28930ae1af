//! The universal hash of the columns: POLYVAL [RFC 8452, section 3] under the sender's challenge.
//!
//! A column's blocks X_1 .. X_B are the coefficients of a polynomial that is evaluated at the
//! challenge: two different columns collide for at most B challenges in 2^128. The last block is
//! never used otherwise and hides the rest.

use polyval::Polyval;
use polyval::universal_hash::UniversalHash;

use super::streams::{Column, Row16};

/// The hashes of columns that arrive tile by tile.
pub struct ColumnHashes(Vec<Polyval>);

impl ColumnHashes {
    /// Starts `count` hashes under `challenge`.
    pub fn new(challenge: &[u8; 16], count: usize) -> Self {
        Self(vec![Polyval::new(challenge.into()); count])
    }

    /// Appends the first `blocks` blocks of each column's part.
    pub fn update(&mut self, columns: &[Column], blocks: usize) {
        for (hash, column) in self.0.iter_mut().zip(columns) {
            hash.update(aes::cipher::Array::cast_slice_from_core(
                &column.blocks[..blocks],
            ));
        }
    }

    /// The hashes.
    pub fn finish(self) -> impl Iterator<Item = Row16> {
        self.0.into_iter().map(|hash| hash.finalize().into())
    }
}

/// The hash of one column whose blocks lie together.
pub fn hash_blocks(challenge: &[u8; 16], blocks: &[Row16]) -> Row16 {
    let mut hash = Polyval::new(challenge.into());
    hash.update(aes::cipher::Array::cast_slice_from_core(blocks));
    hash.finalize().into()
}
