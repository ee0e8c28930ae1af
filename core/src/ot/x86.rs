//! The kernels for x86-64: AES-NI, VAES on 256 bits and on 512 bits, with carry-less products and transpositions as wide.
//!
//! The portable versions are in `streams`, `check` and `transpose`, which choose; tests compare them.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::column::{Column, Row16, TILE};
use super::row::{KAPPA, Row};
use super::simd::{self, Powers, Schedule};
use crate::instructions::Level;

/// Levels with kernels here, the widest first.
const LEVELS: [Level; 3] = [Level::Vaes512, Level::Vaes256, Level::Aes];

/// Returns the levels whose streams and transposition may be called, the widest first.
pub fn levels() -> impl Iterator<Item = Level> {
    LEVELS
        .into_iter()
        .filter(|level| level.permitted() && level.detected())
}

/// Returns the levels whose hash may be called, the widest first.
pub fn hash_levels() -> impl Iterator<Item = Level> {
    levels().filter(|&level| {
        is_x86_feature_detected!("pclmulqdq")
            && (level == Level::Aes || is_x86_feature_detected!("vpclmulqdq"))
    })
}

/// Runs a function of the module of a level; `Level::Portable` has none.
macro_rules! dispatch {
    ($level:expr, $function:ident $(::<$k:literal, $punctured:literal>)? ( $($argument:expr),* )) => {
        match $level {
            Level::Vaes512 => vaes512::$function$(::<$k, $punctured>)?($($argument),*),
            Level::Vaes256 => vaes256::$function$(::<$k, $punctured>)?($($argument),*),
            _ => aes::$function$(::<$k, $punctured>)?($($argument),*),
        }
    };
}

/// Computes the sums of a digit's streams (`streams`), with the number of leaves that says what k is.
///
/// # Safety
/// `levels` has the level.
pub unsafe fn sums(
    level: Level,
    leaves: &[Schedule],
    numbers: &[Row16; TILE],
    count: usize,
    punctured: bool,
    columns: &mut [Column],
    total: &mut Column,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (columns.len(), punctured) {
            (2, false) => dispatch!(
                level,
                sums::<2, false>(leaves, numbers, count, columns, total)
            ),
            (2, true) => dispatch!(
                level,
                sums::<2, true>(leaves, numbers, count, columns, total)
            ),
            (_, false) => dispatch!(
                level,
                sums::<4, false>(leaves, numbers, count, columns, total)
            ),
            (_, true) => dispatch!(
                level,
                sums::<4, true>(leaves, numbers, count, columns, total)
            ),
        }
    }
}

/// Returns POLYVAL's state after `blocks`, a multiple of 4, from `start`.
///
/// # Safety
/// `hash_levels` has the level.
pub unsafe fn hash_column(level: Level, powers: &Powers, start: &Row16, blocks: &[Row16]) -> Row16 {
    // SAFETY: the caller's promise.
    unsafe { dispatch!(level, hash_column(powers, start, blocks)) }
}

/// Returns `block` times the last power.
///
/// # Safety
/// `hash_levels` is not empty.
#[target_feature(enable = "pclmulqdq")]
pub unsafe fn multiply(powers: &Powers, block: Row16) -> Row16 {
    // SAFETY: the caller's promise.
    unsafe { simd::hash_column::<__m128i>(powers, &[0; 16], &[block]) }
}

/// Fills `rows`, the first of the tile: bit c of row r is bit r of column c.
///
/// # Safety
/// `levels` has the level.
pub unsafe fn transpose(level: Level, columns: &[Column; KAPPA], rows: &mut [Row]) {
    // SAFETY: the caller's promise.
    unsafe {
        if level == Level::Vaes512 && is_x86_feature_detected!("gfni") {
            transpose_gfni(columns, rows);
        } else if level == Level::Aes && is_x86_feature_detected!("avx2") {
            // A transposition needs no AES.
            vaes256::transpose(columns, rows);
        } else {
            transpose_by_exchanges(level, columns, rows);
        }
    }
}

/// Does what `transpose` does, without GFNI.
///
/// # Safety
/// `levels` has the level.
pub unsafe fn transpose_by_exchanges(level: Level, columns: &[Column; KAPPA], rows: &mut [Row]) {
    // SAFETY: the caller's promise.
    unsafe { dispatch!(level, transpose(columns, rows)) }
}

/// The entry points for one set of instructions.
macro_rules! entry_points {
    ($module:ident, $vector:ty, $features:literal, $products:literal, $moves:literal) => {
        mod $module {
            use std::arch::x86_64::*;

            use crate::ot::column::{Column, Row16, TILE};
            use crate::ot::row::{KAPPA, Row};
            use crate::ot::simd::{self, Powers, Schedule};

            /// # Safety
            /// The machine has the instructions.
            #[target_feature(enable = $features)]
            pub unsafe fn sums<const K: usize, const PUNCTURED: bool>(
                leaves: &[Schedule],
                numbers: &[Row16; TILE],
                count: usize,
                columns: &mut [Column],
                total: &mut Column,
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    simd::sums::<$vector, K, PUNCTURED>(leaves, numbers, count, columns, total);
                }
            }

            /// # Safety
            /// The machine has the instructions.
            #[target_feature(enable = $products)]
            pub unsafe fn hash_column(powers: &Powers, start: &Row16, blocks: &[Row16]) -> Row16 {
                // SAFETY: the caller's promise.
                unsafe { simd::hash_column::<$vector>(powers, start, blocks) }
            }

            /// # Safety
            /// The machine has the instructions.
            #[target_feature(enable = $moves)]
            pub unsafe fn transpose(columns: &[Column; KAPPA], rows: &mut [Row]) {
                const LANES: usize = <$vector as crate::vectors::Vector>::LANES;
                const ROWS: usize = 128 * LANES;
                for (number, rows) in rows.chunks_mut(ROWS).enumerate() {
                    // SAFETY: the caller's promise; ROWS rows may be written.
                    unsafe {
                        if rows.len() == ROWS {
                            simd::transpose::<$vector>(columns, LANES * number, rows.as_mut_ptr());
                        } else {
                            let mut whole = [[0; 16]; ROWS];
                            simd::transpose::<$vector>(columns, LANES * number, whole.as_mut_ptr());
                            rows.copy_from_slice(&whole[..rows.len()]);
                        }
                    }
                }
            }
        }
    };
}

entry_points!(
    aes,
    __m128i,
    "aes,ssse3,sse4.1",
    "sse4.1,pclmulqdq",
    "ssse3,sse4.1"
);
entry_points!(
    vaes256,
    __m256i,
    "aes,vaes,avx2",
    "avx2,pclmulqdq,vpclmulqdq",
    "avx2"
);
entry_points!(
    vaes512,
    __m512i,
    "aes,vaes,avx2,avx512f,avx512bw,avx512vl",
    "avx512f,avx512bw,avx512vl,pclmulqdq,vpclmulqdq",
    "avx512f,avx512bw,avx512vl"
);

/// Rows that one line of 64 bytes of every column makes.
const LINE_ROWS: usize = 512;

/// The rows of a line: byte r of lane l of entry [c][j] is columns 8 c to 8 c + 7 of row 128 l + 16 j + r.
type Line = [[__m512i; 8]; KAPPA / 8];

/// Puts the bytes of eight vectors side by side, lane by lane of 16: output b has their bytes 2 b, then 2 b + 1.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn interleave(mut vectors: [__m512i; 8]) -> [__m512i; 8] {
    for _ in 0..3 {
        let before = vectors;
        for i in 0..4 {
            vectors[2 * i] = _mm512_unpacklo_epi8(before[i], before[i + 4]);
            vectors[2 * i + 1] = _mm512_unpackhi_epi8(before[i], before[i + 4]);
        }
    }
    vectors
}

/// Fills `rows`, the first of the tile: bit c of row r is bit r of column c.
///
/// # Safety
/// The machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn transpose_gfni(columns: &[Column; KAPPA], rows: &mut [Row]) {
    let mut scratch = [[_mm512_setzero_si512(); 8]; KAPPA / 8];
    let (whole, rest) = rows.as_chunks_mut::<LINE_ROWS>();
    let lines = whole.len();
    for (line, rows) in whole.iter_mut().enumerate() {
        transpose_line(columns, line, &mut scratch, rows);
    }
    if !rest.is_empty() {
        let mut rows = [[0; 16]; LINE_ROWS];
        transpose_line(columns, lines, &mut scratch, &mut rows);
        rest.copy_from_slice(&rows[..rest.len()]);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn transpose_line(
    columns: &[Column; KAPPA],
    line: usize,
    scratch: &mut Line,
    rows: &mut [Row; LINE_ROWS],
) {
    // Byte p of each word is 1 << p: the affine map of a word, 8 bytes of columns, then gives its 8 rows.
    let unit = _mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64);
    for (parts, columns) in scratch.iter_mut().zip(columns.as_chunks::<8>().0) {
        let mut loaded = [_mm512_setzero_si512(); 8];
        // The affine map counts the rows of its matrix from the last byte.
        for (vector, column) in loaded.iter_mut().zip(columns.iter().rev()) {
            let line = &column.bytes()[64 * line..64 * line + 64];
            // SAFETY: 64 bytes are loaded from 64.
            *vector = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
        }
        for (part, words) in parts.iter_mut().zip(interleave(loaded)) {
            *part = _mm512_gf2p8affine_epi64_epi8::<0>(unit, words);
        }
    }
    for j in 0..8 {
        let mut even = [_mm512_setzero_si512(); 8];
        let mut odd = even;
        for i in 0..8 {
            even[i] = scratch[2 * i][j];
            odd[i] = scratch[2 * i + 1][j];
        }
        let (even, odd) = (interleave(even), interleave(odd));
        for four in 0..4 {
            let (a, b) = (even[2 * four], odd[2 * four]);
            let (c, d) = (even[2 * four + 1], odd[2 * four + 1]);
            // Lane l of each is one row: 128 l + 16 j + 4 four, and the three that follow.
            let (r0, r1) = (_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b));
            let (r2, r3) = (_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d));
            let (low01, high01) = (
                _mm512_shuffle_i32x4::<0x44>(r0, r1),
                _mm512_shuffle_i32x4::<0xee>(r0, r1),
            );
            let (low23, high23) = (
                _mm512_shuffle_i32x4::<0x44>(r2, r3),
                _mm512_shuffle_i32x4::<0xee>(r2, r3),
            );
            let lanes = [
                _mm512_shuffle_i32x4::<0x88>(low01, low23),
                _mm512_shuffle_i32x4::<0xdd>(low01, low23),
                _mm512_shuffle_i32x4::<0x88>(high01, high23),
                _mm512_shuffle_i32x4::<0xdd>(high01, high23),
            ];
            for (lane, vector) in lanes.into_iter().enumerate() {
                let to = &mut rows[128 * lane + 16 * j + 4 * four..][..4];
                // SAFETY: 64 bytes are stored to four rows.
                unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), vector) };
            }
        }
    }
}
