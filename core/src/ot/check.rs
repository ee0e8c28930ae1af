//! The universal hash of the columns: POLYVAL [RFC 8452, section 3] under the sender's challenge.
//!
//! A column's blocks X_1 .. X_B are the coefficients of a polynomial that is evaluated at the
//! challenge: two different columns collide for at most B challenges in 2^128. The last block is
//! never used otherwise and hides the rest.

use aes::cipher::Array;
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;
use zeroize::Zeroizing;

#[cfg(any(target_arch = "x86_64", test))]
use super::column::TILE;
use super::column::{Column, Row16};
use super::row::Kernels;
#[cfg(target_arch = "x86_64")]
use super::simd::Powers;
#[cfg(target_arch = "x86_64")]
use super::x86;
#[cfg(target_arch = "x86_64")]
use crate::instructions::Level;

/// Chunks of fewer blocks are not worth the powers of the challenge.
#[cfg(target_arch = "x86_64")]
const FEW: usize = 4;

/// The hashes of columns that arrive tile by tile.
pub enum ColumnHashes {
    Portable(Vec<Polyval>),
    #[cfg(target_arch = "x86_64")]
    Wide(Level, Box<Powers>, Zeroizing<Vec<Row16>>),
}

impl ColumnHashes {
    /// Starts `count` hashes of columns of `blocks` blocks under `challenge`.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
    pub fn new(kernels: Kernels, challenge: &[u8; 16], count: usize, blocks: usize) -> Self {
        #[cfg(target_arch = "x86_64")]
        if kernels == Kernels::Fastest
            && blocks >= FEW
            && let Some(level) = x86::hash_levels().next()
        {
            return Self::wide(level, challenge, count, blocks.min(TILE));
        }
        Self::portable(challenge, count)
    }

    fn portable(challenge: &[u8; 16], count: usize) -> Self {
        Self::Portable(vec![Polyval::new(challenge.into()); count])
    }

    /// Creates hashes with the powers for parts of up to `most` blocks.
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    fn wide(level: Level, challenge: &[u8; 16], count: usize, most: usize) -> Self {
        let zeros = [[0; 16]; TILE];
        let mut powers = Box::new(Powers {
            powers: zeros,
            sums: zeros,
        });
        let mut power = *challenge;
        for index in (TILE - most..TILE).rev() {
            powers.powers[index] = power;
            for (byte, other) in power[8..].iter().enumerate() {
                powers.sums[index][byte] = power[byte] ^ other;
            }
            // SAFETY: `hash_levels` has the level. The first power is in place: this is the product with the challenge.
            power = unsafe { x86::multiply(&powers, power) };
        }
        Self::Wide(level, powers, Zeroizing::new(vec![[0; 16]; count]))
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
            Self::Wide(level, powers, states) if blocks == TILE => {
                for (state, column) in states.iter_mut().zip(columns) {
                    *state = hash_wide(*level, powers, state, &column.blocks);
                }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Wide(level, powers, states) => {
                // The last block meets the first power: what is missing is missing in front.
                let mut part = Zeroizing::new([[0; 16]; TILE]);
                let whole = TILE - blocks.next_multiple_of(4);
                for (state, column) in states.iter_mut().zip(columns) {
                    let tail = &mut part[TILE - blocks..];
                    tail.copy_from_slice(&column.blocks[..blocks]);
                    for (byte, other) in tail.as_flattened_mut().iter_mut().zip(&*state) {
                        *byte ^= other;
                    }
                    *state = hash_wide(*level, powers, &[0; 16], &part[whole..]);
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
            Self::Wide(_, _, states) => states,
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn hash_wide(level: Level, powers: &Powers, start: &Row16, blocks: &[Row16]) -> Row16 {
    // SAFETY: `ColumnHashes::new` took the level from `hash_levels`.
    unsafe { x86::hash_column(level, powers, start, blocks) }
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
            #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
            let mut hashes = vec![ColumnHashes::portable(&challenge, 2)];
            #[cfg(target_arch = "x86_64")]
            for level in x86::hash_levels() {
                hashes.push(ColumnHashes::wide(level, &challenge, 2, blocks.min(TILE)));
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
