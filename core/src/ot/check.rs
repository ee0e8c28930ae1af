//! The universal hash of the columns: POLYVAL [RFC 8452, section 3] under the sender's challenge.
//!
//! A column's blocks X_1 .. X_B are the coefficients of a polynomial that is evaluated at the
//! challenge: two different columns collide for at most B challenges in 2^128. The last block is
//! never used otherwise and hides the rest.

use aes::cipher::Array;
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;
#[cfg(target_arch = "x86_64")]
use zeroize::Zeroizing;

use super::row::Kernels;
#[cfg(target_arch = "x86_64")]
use super::streams::TILE;
use super::streams::{Column, Row16};
#[cfg(target_arch = "x86_64")]
use super::x86;

/// Chunks of fewer blocks are not worth the powers of the challenge.
#[cfg(target_arch = "x86_64")]
const FEW: usize = 16;

/// The hashes of columns that arrive tile by tile.
pub enum ColumnHashes {
    Portable(Vec<Polyval>),
    #[cfg(target_arch = "x86_64")]
    Wide(Box<x86::Powers>, Zeroizing<Vec<Row16>>),
}

impl ColumnHashes {
    /// Starts `count` hashes of columns of `blocks` blocks under `challenge`.
    pub fn new(kernels: Kernels, challenge: &[u8; 16], count: usize, blocks: usize) -> Self {
        #[cfg(target_arch = "x86_64")]
        if kernels == Kernels::Fastest && blocks >= FEW && x86::has_hash() {
            return Self::wide(challenge, count, blocks.min(TILE));
        }
        Self::portable(challenge, count)
    }

    fn portable(challenge: &[u8; 16], count: usize) -> Self {
        Self::Portable(vec![Polyval::new(challenge.into()); count])
    }

    /// Creates hashes with the powers for parts of up to `most` blocks.
    #[cfg(target_arch = "x86_64")]
    fn wide(challenge: &[u8; 16], count: usize, most: usize) -> Self {
        let mut powers = Box::new(x86::Powers([[0; 16]; TILE]));
        let mut last = [[0; 16]; TILE];
        last[TILE - 1] = *challenge;
        powers.0[TILE - 1] = *challenge;
        for index in (TILE - most..TILE - 1).rev() {
            // The first power is in place, so this is the product with the challenge.
            last[TILE - 1] = hash_wide(&powers, &[0; 16], &last);
            powers.0[index] = last[TILE - 1];
        }
        Self::Wide(powers, Zeroizing::new(vec![[0; 16]; count]))
    }

    /// Appends the first `blocks` blocks of each column's part.
    pub fn update(&mut self, columns: &[Column], blocks: usize) {
        match self {
            Self::Portable(hashes) => {
                for (hash, column) in hashes.iter_mut().zip(columns) {
                    hash.update(Array::cast_slice_from_core(&column.blocks[..blocks]));
                }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Wide(powers, states) if blocks == TILE => {
                for (state, column) in states.iter_mut().zip(columns) {
                    *state = hash_wide(powers, state, &column.blocks);
                }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Wide(powers, states) => {
                // The last block meets the first power: what is missing is missing in front.
                let mut part = Zeroizing::new([[0; 16]; TILE]);
                for (state, column) in states.iter_mut().zip(columns) {
                    let tail = &mut part[TILE - blocks..];
                    tail.copy_from_slice(&column.blocks[..blocks]);
                    for (byte, other) in tail.as_flattened_mut().iter_mut().zip(&*state) {
                        *byte ^= other;
                    }
                    *state = hash_wide(powers, &[0; 16], &part);
                }
            }
        }
    }

    /// Returns the hashes.
    pub fn finish(self) -> Zeroizing<Vec<Row16>> {
        match self {
            Self::Portable(hashes) => {
                let finished = hashes.into_iter().map(|hash| hash.finalize().into());
                Zeroizing::new(finished.collect())
            }
            #[cfg(target_arch = "x86_64")]
            Self::Wide(_, states) => states,
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn hash_wide(powers: &x86::Powers, start: &Row16, blocks: &[Row16; TILE]) -> Row16 {
    // SAFETY: `ColumnHashes::new` has seen that the machine has the instructions.
    unsafe { x86::hash_column(powers, start, blocks) }
}

/// Returns the hash of one column whose blocks are contiguous.
pub fn hash_blocks(challenge: &[u8; 16], blocks: &[Row16]) -> Row16 {
    let mut hash = Polyval::new(challenge.into());
    hash.update(Array::cast_slice_from_core(blocks));
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both versions are the hash of the blocks in one go, whatever the parts.
    #[test]
    fn columns_that_arrive_in_tiles() {
        let challenge = std::array::from_fn(|i| (i * 73 + 5) as u8);
        for blocks in [1, 2, 3, 17, 63, TILE, TILE + 1, 3 * TILE - 2, 3 * TILE] {
            let all: Vec<Row16> = (0..2 * blocks)
                .map(|block| std::array::from_fn(|i| (block * 31 + i * i * 7 + 1) as u8))
                .collect();
            let mut hashes = vec![ColumnHashes::portable(&challenge, 2)];
            #[cfg(target_arch = "x86_64")]
            if x86::has_hash() {
                hashes.push(ColumnHashes::wide(&challenge, 2, blocks.min(TILE)));
            }
            for mut hashes in hashes {
                for start in (0..blocks).step_by(TILE) {
                    let length = TILE.min(blocks - start);
                    let mut columns = [Column::ZERO; 2];
                    for (number, column) in columns.iter_mut().enumerate() {
                        // What follows the part must not count.
                        column.bytes_mut().fill(0xa5);
                        let from = number * blocks + start;
                        column.blocks[..length].copy_from_slice(&all[from..from + length]);
                    }
                    hashes.update(&columns, length);
                }
                let expected = all
                    .chunks(blocks)
                    .map(|column| hash_blocks(&challenge, column));
                assert_eq!(*hashes.finish(), expected.collect::<Vec<_>>(), "{blocks}");
            }
        }
    }
}
