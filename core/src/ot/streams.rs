//! The streams of the leaves, and their sums: small-field VOLE in bit slices [Roy: SoftSpokenOT, CRYPTO 2022].
//!
//! A stream is AES-128 of the block's number (128 bits, big-endian) under the leaf; block p covers
//! rows 128 p to 128 p + 127. With leaf y's stream G_y, the receiver's columns are
//! u = sum G_y and v_b = sum over y with bit b of G_y. The sender has leaves by distance from its digit
//! d, so the same sums give w_b = v_b + d_b u; its slot 0 is missing and counts nowhere but in u.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128Enc, Block};
use zeroize::Zeroize;
#[cfg(target_arch = "x86_64")]
use zeroize::Zeroizing;

use super::base::Key;
use super::column::{Column, TILE};
#[cfg(target_arch = "x86_64")]
use super::simd::Schedule;
#[cfg(target_arch = "x86_64")]
use super::x86;
#[cfg(target_arch = "x86_64")]
use crate::instructions::Level;
#[cfg(target_arch = "x86_64")]
use crate::vectors::expand;

/// The leaves' ciphers; 2^k for each digit.
enum Ciphers {
    Portable(Vec<Aes128Enc>),
    #[cfg(target_arch = "x86_64")]
    Wide(Level, Zeroizing<Vec<Schedule>>),
}

impl Ciphers {
    fn new(leaves: &[Key]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(level) = x86::levels().next() {
            return Self::wide(level, leaves);
        }
        Self::portable(leaves)
    }

    fn portable(leaves: &[Key]) -> Self {
        let expanded = leaves.iter().map(|leaf| Aes128Enc::new(leaf.into()));
        Self::Portable(expanded.collect())
    }

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    fn wide(level: Level, leaves: &[Key]) -> Self {
        let mut schedules = Zeroizing::new(Vec::with_capacity(leaves.len()));
        for leaf in leaves {
            // SAFETY: every level has AES-NI and SSSE3.
            schedules.push(unsafe { expand(u128::from_le_bytes(*leaf)) });
        }
        Self::Wide(level, schedules)
    }
}

/// The streams of all leaves, at one tile.
pub struct Streams {
    k: usize,
    ciphers: Ciphers,
    /// The numbers of a tile's blocks, which the streams encrypt.
    numbers: Box<[Block; TILE]>,
    /// Scratch for one digit.
    buffers: Vec<Column>,
}

impl Streams {
    /// Expands the leaves' keys; round keys are zeroised when dropped.
    pub fn new(k: usize, leaves: &[Key]) -> Self {
        Self {
            k,
            ciphers: Ciphers::new(leaves),
            numbers: Box::new([Block::default(); TILE]),
            buffers: vec![Column::ZERO; 1 << k],
        }
    }

    /// Goes to the tile whose first block has the number `position`.
    pub fn seek(&mut self, position: u64) {
        for (block, number) in self.numbers.iter_mut().zip(position..) {
            *block = u128::from(number).to_be_bytes().into();
        }
    }

    /// Computes the sums of digit `digit` over the first `count` blocks of the tile, at most `TILE`.
    ///
    /// `columns` are the digit's k columns. The sum of all streams is returned; with `punctured`
    /// slot 0 is left out everywhere. What follows the blocks has no meaning.
    pub fn sums(
        &mut self,
        digit: usize,
        count: usize,
        punctured: bool,
        columns: &mut [Column],
    ) -> &Column {
        let leaves = digit << self.k..(digit + 1) << self.k;
        match &self.ciphers {
            Ciphers::Portable(ciphers) => {
                let buffers = self.buffers.iter_mut();
                for (cipher, buffer) in ciphers[leaves].iter().zip(buffers).skip(punctured.into()) {
                    let blocks = aes::cipher::Array::cast_slice_from_core_mut(&mut buffer.blocks);
                    cipher
                        .encrypt_blocks_b2b(&self.numbers[..count], &mut blocks[..count])
                        .expect("both have `count` blocks");
                }
                if punctured {
                    self.buffers[0].bytes_mut().fill(0);
                }
                fold(&mut self.buffers, columns);
            }
            #[cfg(target_arch = "x86_64")]
            Ciphers::Wide(level, schedules) => {
                let numbers = aes::cipher::Array::cast_slice_to_core(&*self.numbers);
                let numbers = numbers.first_chunk().expect("a tile's blocks");
                let (leaves, total) = (&schedules[leaves], &mut self.buffers[0]);
                // SAFETY: `Ciphers::wide` got a level of this machine.
                #[allow(unsafe_code)]
                unsafe {
                    x86::sums(*level, leaves, numbers, count, punctured, columns, total);
                }
            }
        }
        &self.buffers[0]
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for buffer in &mut self.buffers {
            buffer.bytes_mut().zeroize();
        }
    }
}

#[inline(always)]
fn correct_kernel(output: &mut [u8], sum: &[u8], choices: &[u8]) {
    for ((byte, sum), choice) in output.iter_mut().zip(sum).zip(choices) {
        *byte = sum ^ choice;
    }
}

#[inline(always)]
fn apply_kernel(column: &mut [u8], correction: &[u8], mask: u8) {
    for (byte, other) in column.iter_mut().zip(correction) {
        *byte ^= other & mask;
    }
}

/// `left ^= right`.
#[inline(always)]
fn add(left: &mut Column, right: &Column) {
    for (byte, other) in left.bytes_mut().iter_mut().zip(right.bytes()) {
        *byte ^= other;
    }
}

/// Column b becomes the sum of the buffers whose number has bit b; buffer 0 becomes the sum of all.
#[inline(always)]
fn fold(buffers: &mut [Column], columns: &mut [Column]) {
    for (bit, column) in columns.iter_mut().enumerate().rev() {
        let (low, high) = buffers.split_at_mut(1 << bit);
        let high = &high[..1 << bit];
        *column = high[0];
        for other in &high[1..] {
            add(column, other);
        }
        for (left, right) in low.iter_mut().zip(high) {
            add(left, right);
        }
    }
}

/// Defines a function as `kernel`, compiled for wider vectors where the machine has them.
macro_rules! widened {
    ($(#[$note:meta])* $name:ident, $kernel:ident, ($($argument:ident: $type:ty),*)) => {
        $(#[$note])*
        #[allow(unsafe_code)]
        pub fn $name($($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2($($argument: $type),*) {
                    $kernel($($argument),*);
                }
                if Level::Aes.permitted() && is_x86_feature_detected!("avx2") {
                    // SAFETY: the machine has AVX2, the only requirement of this safe code.
                    return unsafe { avx2($($argument),*) };
                }
            }
            $kernel($($argument),*);
        }
    };
}

widened!(
    /// `output = sum ^ choices`, a digit's corrections.
    correct, correct_kernel, (output: &mut [u8], sum: &[u8], choices: &[u8])
);
widened!(
    /// `column ^= correction & mask`, on as many bytes as the correction has.
    apply, apply_kernel, (column: &mut [u8], correction: &[u8], mask: u8)
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Both versions against the definition, on columns that are filled with the buffer's number.
    #[test]
    fn sums_by_bit_and_of_all() {
        for k in [2, 4] {
            let buffers: Vec<Column> = (0..1u8 << k)
                .map(|y| {
                    let mut column = Column::ZERO;
                    for (i, byte) in column.bytes_mut().iter_mut().enumerate() {
                        *byte = y.wrapping_mul(y).wrapping_add(i as u8).wrapping_mul(29);
                    }
                    column
                })
                .collect();
            let sum = |chosen: &dyn Fn(usize) -> bool, i: usize| {
                let terms = buffers.iter().enumerate().filter(|(y, _)| chosen(*y));
                terms.fold(0, |sum, (_, column)| sum ^ column.bytes()[i])
            };
            let mut folded = buffers.clone();
            let mut columns = vec![Column::ZERO; k];
            fold(&mut folded, &mut columns);
            for i in 0..16 * TILE {
                assert_eq!(folded[0].bytes()[i], sum(&|_| true, i));
                for (bit, column) in columns.iter().enumerate() {
                    assert_eq!(column.bytes()[i], sum(&|y| y >> bit & 1 == 1, i));
                }
            }
        }
    }

    /// Every width gives the sums of the portable version.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn sums_of_every_width() {
        for k in [2, 4] {
            let leaves: Vec<Key> = (0..2u8 << k).map(|y| [y.wrapping_mul(37); 16]).collect();
            let sums = |ciphers, count: usize, punctured| {
                let mut streams = Streams::new(k, &leaves);
                streams.ciphers = ciphers;
                streams.seek(u64::MAX - 70);
                let mut columns = vec![Column::ZERO; k];
                let total = streams.sums(1, count, punctured, &mut columns).blocks;
                let parts = columns.iter().map(|column| column.blocks[..count].to_vec());
                (total[..count].to_vec(), parts.collect::<Vec<_>>())
            };
            for (count, punctured) in [(1, false), (TILE, false), (TILE - 1, true), (9, true)] {
                let expected = sums(Ciphers::portable(&leaves), count, punctured);
                for level in x86::levels() {
                    let wide = sums(Ciphers::wide(level, &leaves), count, punctured);
                    assert_eq!(wide, expected, "{level:?}, k {k}, {count} blocks");
                }
            }
        }
    }
}
