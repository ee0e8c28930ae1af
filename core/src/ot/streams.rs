//! The streams of the leaves, and their sums: small-field VOLE in bit slices [Roy 2022, section 3].
//!
//! A stream is AES-128 of the block's number (128 bits, big-endian) under the leaf; block p covers
//! rows 128 p to 128 p + 127. With leaf y's stream G_y, the receiver's columns are
//! u = sum G_y and v_b = sum over y with bit b of G_y. The sender has leaves by distance from its digit
//! d, so the same sums give w_b = v_b + d_b u; its slot 0 is missing and counts nowhere but in u.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128Enc, Block};
use zeroize::Zeroize;

use super::base::Key;

/// Blocks of 128 rows that are worked on together: a column's part is 1 KiB, all columns 128 KiB.
pub const TILE: usize = 64;
/// Rows of a tile.
pub const TILE_ROWS: usize = TILE * 128;

/// A column's part in a tile.
pub type Column = [Row16; TILE];
/// 128 bits of a column.
pub type Row16 = [u8; 16];

/// The leaves' ciphers; 2^k for each digit.
pub struct Streams {
    k: usize,
    ciphers: Vec<Aes128Enc>,
    /// Scratch for one digit.
    buffers: Vec<Column>,
}

impl Streams {
    /// Expands the leaves' keys; round keys are zeroised when dropped.
    pub fn new(k: usize, leaves: &[Key]) -> Self {
        Self {
            k,
            ciphers: leaves
                .iter()
                .map(|leaf| Aes128Enc::new(leaf.into()))
                .collect(),
            buffers: vec![[[0; 16]; TILE]; 1 << k],
        }
    }

    /// Computes the sums of digit `digit` over `TILE` blocks from block `position`.
    ///
    /// `columns` are the digit's k columns. The sum of all streams is returned; with `punctured`
    /// slot 0 is left out everywhere.
    pub fn sums(
        &mut self,
        digit: usize,
        position: u64,
        punctured: bool,
        columns: &mut [Column],
    ) -> &Column {
        let numbers: [Block; TILE] =
            std::array::from_fn(|block| u128::from(position + block as u64).to_be_bytes().into());
        let ciphers = &self.ciphers[digit << self.k..(digit + 1) << self.k];
        for (cipher, buffer) in ciphers.iter().zip(&mut self.buffers).skip(punctured.into()) {
            let blocks = aes::cipher::Array::cast_slice_from_core_mut(buffer);
            cipher
                .encrypt_blocks_b2b(&numbers, blocks)
                .expect("both have TILE blocks");
        }
        if punctured {
            self.buffers[0].as_flattened_mut().fill(0);
        }
        for bit in (0..self.k).rev() {
            let (low, high) = self.buffers.split_at_mut(1 << bit);
            let column = &mut columns[bit];
            *column = high[0];
            for other in &high[1..1 << bit] {
                add(column, other);
            }
            for (left, right) in low.iter_mut().zip(&*high) {
                add(left, right);
            }
        }
        &self.buffers[0]
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for buffer in &mut self.buffers {
            buffer.as_flattened_mut().zeroize();
        }
    }
}

/// `left ^= right`.
#[inline]
pub fn add(left: &mut Column, right: &Column) {
    for (byte, other) in left.as_flattened_mut().iter_mut().zip(right.as_flattened()) {
        *byte ^= other;
    }
}
