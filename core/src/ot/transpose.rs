//! Transposition of a tile: from 128 columns to its rows.

use super::column::{Column, TILE_ROWS};
use super::row::{KAPPA, Kernels, Row};
#[cfg(target_arch = "x86_64")]
use super::x86;

/// Words of 64 rows that are transposed side by side: independent lanes for the vector unit.
const LANES: usize = 8;

/// Swaps the upper `WIDTH` bits of each run of 2 `WIDTH` with the lower ones `WIDTH` words further on.
#[inline(always)]
fn exchange<const WIDTH: usize>(words: &mut [[u64; LANES]; 64]) {
    let mask = u64::MAX / ((1 << WIDTH) + 1);
    for run in words.chunks_exact_mut(2 * WIDTH) {
        let (low, high) = run.split_at_mut(WIDTH);
        let low = low.as_flattened_mut().iter_mut();
        for (left, right) in low.zip(high.as_flattened_mut()) {
            let change = (*left >> WIDTH ^ *right) & mask;
            *right ^= change;
            *left ^= change << WIDTH;
        }
    }
}

/// Transposes 64 by 64 bits in each lane: bit j of word i becomes bit i of word j.
#[inline(always)]
fn transpose_words(words: &mut [[u64; LANES]; 64]) {
    exchange::<32>(words);
    exchange::<16>(words);
    exchange::<8>(words);
    exchange::<4>(words);
    exchange::<2>(words);
    exchange::<1>(words);
}

/// The portable kernel.
fn kernel(columns: &[Column; KAPPA], rows: &mut [Row]) {
    let mut words = [[0; LANES]; 64];
    for (group, rows) in rows.chunks_mut(64 * LANES).enumerate() {
        for half in 0..2 {
            for (word, column) in words.iter_mut().zip(&columns[64 * half..]) {
                let bytes = &column.bytes()[64 * group..64 * group + 8 * LANES];
                let (chunks, _) = bytes.as_chunks();
                for (lane, chunk) in word.iter_mut().zip(chunks) {
                    *lane = u64::from_le_bytes(*chunk);
                }
            }
            transpose_words(&mut words);
            for (lane, rows) in rows.chunks_mut(64).enumerate() {
                for (row, word) in rows.iter_mut().zip(&words) {
                    row[8 * half..8 * half + 8].copy_from_slice(&word[lane].to_le_bytes());
                }
            }
        }
    }
}

/// Fills `rows`, the first of the tile: bit c of row r is bit r of column c.
#[allow(unsafe_code)]
pub fn transpose(kernels: Kernels, columns: &[Column; KAPPA], rows: &mut [Row]) {
    debug_assert!(rows.len() <= TILE_ROWS);
    if kernels == Kernels::Portable {
        return kernel(columns, rows);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(level) = x86::levels().next() {
        // SAFETY: the machine has the instructions.
        return unsafe { x86::transpose(level, columns, rows) };
    }
    kernel(columns, rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Box<[Column; KAPPA]> {
        let mut state = 1u64;
        let mut columns = Box::new([Column::ZERO; KAPPA]);
        for byte in columns.iter_mut().flat_map(Column::bytes_mut) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        columns
    }

    #[test]
    fn every_bit_moves() {
        let columns = columns();
        for length in [1, 63, 64, 65, 511, 513, TILE_ROWS] {
            let mut rows = vec![[0; 16]; length];
            transpose(Kernels::Fastest, &columns, &mut rows);
            for (r, row) in rows.iter().enumerate() {
                for (c, column) in columns.iter().enumerate() {
                    let bit = column.bytes()[r / 8] >> (r % 8) & 1;
                    assert_eq!(row[c / 8] >> (c % 8) & 1, bit, "row {r}, column {c}");
                }
            }
        }
    }

    #[test]
    fn the_vector_versions_agree() {
        let columns = columns();
        for length in [
            1, 127, 128, 129, 255, 257, 511, 512, 513, 700, 8191, TILE_ROWS,
        ] {
            let mut portable = vec![[0; 16]; length];
            transpose(Kernels::Portable, &columns, &mut portable);
            let mut vector = vec![[0; 16]; length];
            transpose(Kernels::Fastest, &columns, &mut vector);
            assert_eq!(portable, vector);
            #[cfg(target_arch = "x86_64")]
            for level in x86::levels() {
                for version in [x86::transpose, x86::transpose_by_exchanges] {
                    vector.fill([0; 16]);
                    // SAFETY: the machine has the level.
                    #[allow(unsafe_code)]
                    unsafe {
                        version(level, &columns, &mut vector);
                    }
                    assert_eq!(portable, vector, "{level:?}, {length} rows");
                }
            }
        }
    }
}
