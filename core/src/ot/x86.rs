//! The kernels for x86-64 with AVX-512: the hash of columns, and the transposition.
//!
//! The portable versions are in `check` and `transpose`, which choose; tests compare them.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::instructions::Level;

use super::row::{KAPPA, Row};
use super::streams::{Column, Row16, TILE};

/// Tells whether `hash_column` may be called.
pub fn has_hash() -> bool {
    Level::Vaes512.permitted()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
}

/// Tells whether `transpose` may be called.
pub fn has_transpose() -> bool {
    Level::Vaes512.permitted()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("gfni")
}

/// The powers of a challenge h in POLYVAL's product: entry j is h^(TILE - j).
#[repr(align(64))]
pub struct Powers(pub [Row16; TILE]);

/// Returns the sum of `blocks[j]` times power j, the first block plus `start`: POLYVAL's state
/// after them.
///
/// # Safety
/// `has_hash()`.
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq")]
pub unsafe fn hash_column(powers: &Powers, start: &Row16, blocks: &[Row16; TILE]) -> Row16 {
    const { assert!(TILE.is_multiple_of(4)) };
    // SAFETY: every load is of 16 or 64 bytes inside the arrays: TILE blocks are TILE / 4 vectors.
    let (from, factors, start) = unsafe {
        (
            blocks.as_ptr().cast::<__m512i>(),
            powers.0.as_ptr().cast::<__m512i>(),
            _mm512_zextsi128_si512(_mm_loadu_si128(start.as_ptr().cast())),
        )
    };
    let mut low = _mm512_setzero_si512();
    let mut middle = low;
    let mut high = low;
    let mut first = start;
    for vector in 0..TILE / 4 {
        // SAFETY: as above.
        let (block, factor) = unsafe {
            (
                _mm512_loadu_si512(from.add(vector)),
                _mm512_loadu_si512(factors.add(vector)),
            )
        };
        let block = _mm512_xor_si512(block, first);
        first = _mm512_setzero_si512();
        low = _mm512_xor_si512(low, _mm512_clmulepi64_epi128::<0x00>(block, factor));
        high = _mm512_xor_si512(high, _mm512_clmulepi64_epi128::<0x11>(block, factor));
        // 0x96 is the sum of three.
        middle = _mm512_ternarylogic_epi64::<0x96>(
            middle,
            _mm512_clmulepi64_epi128::<0x01>(block, factor),
            _mm512_clmulepi64_epi128::<0x10>(block, factor),
        );
    }
    let (low, middle, high) = (sum_of_lanes(low), sum_of_lanes(middle), sum_of_lanes(high));
    let low = _mm_xor_si128(low, _mm_slli_si128::<8>(middle));
    let high = _mm_xor_si128(high, _mm_srli_si128::<8>(middle));
    // Times x^-128, 64 bits at a time: the modulus is x^128 + (x^63 + x^62 + x^57) x^64 + 1.
    let modulus = _mm_set_epi64x(0xc200_0000_0000_0000_u64 as i64, 0);
    let fold = |value| {
        let carried = _mm_clmulepi64_si128::<0x10>(value, modulus);
        _mm_xor_si128(_mm_shuffle_epi32::<0x4e>(value), carried)
    };
    let state = _mm_xor_si128(high, fold(fold(low)));
    let mut bytes = [0; 16];
    // SAFETY: 16 bytes are stored.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), state) };
    bytes
}

#[inline]
#[target_feature(enable = "avx512f")]
fn sum_of_lanes(value: __m512i) -> __m128i {
    let half = _mm256_xor_si256(
        _mm512_castsi512_si256(value),
        _mm512_extracti64x4_epi64::<1>(value),
    );
    _mm_xor_si128(
        _mm256_castsi256_si128(half),
        _mm256_extracti128_si256::<1>(half),
    )
}

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
/// `has_transpose()`.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub unsafe fn transpose(columns: &[Column; KAPPA], rows: &mut [Row]) {
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
