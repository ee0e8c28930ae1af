//! The kernels of the extension over vectors of blocks, written once for every width: streams and their sums, the
//! hash of columns, and the transposition.
//!
//! Everything here is inlined into the entry points of `x86`, which turn the instructions on.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::column::{Column, Row16, TILE};
use super::row::{KAPPA, Row};
use crate::vectors::Vector;

/// Carry-less products, bits and bytes of a vector of blocks.
///
/// # Safety
/// As for `Vector`.
pub trait Wide: Vector {
    unsafe fn zero() -> Self;
    /// Products of the lower halves, and of the upper ones, of every block.
    unsafe fn low_product(self, other: Self) -> Self;
    unsafe fn high_product(self, other: Self) -> Self;
    /// Halves of every block in the other order.
    unsafe fn swap(self) -> Self;
    /// `block` in the first place, zeros in the others.
    unsafe fn first(block: __m128i) -> Self;
    /// The sum of all blocks.
    unsafe fn sum(self) -> __m128i;
    /// Words of 64 bits, shifted.
    unsafe fn left<const BITS: i32>(self) -> Self;
    unsafe fn right<const BITS: i32>(self) -> Self;
    unsafe fn byte(byte: i8) -> Self;
    /// Lower bytes of both in turn, and upper ones, in every block.
    unsafe fn low_bytes(self, other: Self) -> Self;
    unsafe fn high_bytes(self, other: Self) -> Self;
    /// Stores block l to row 128 l from `to` on.
    unsafe fn scatter(self, to: *mut Row);
}

macro_rules! wide {
    ($type:ty, $zero:ident, $product:ident, $shuffle:ident, $first:expr, $sum:expr, $left:expr, $right:expr,
     $byte:ident, $low:ident, $high:ident, $scatter:expr) => {
        // SAFETY (all functions): the caller of the trait promises the instructions and the memory.
        impl Wide for $type {
            #[inline(always)]
            unsafe fn zero() -> Self {
                unsafe { $zero() }
            }
            #[inline(always)]
            unsafe fn low_product(self, other: Self) -> Self {
                unsafe { $product::<0x00>(self, other) }
            }
            #[inline(always)]
            unsafe fn high_product(self, other: Self) -> Self {
                unsafe { $product::<0x11>(self, other) }
            }
            #[inline(always)]
            unsafe fn swap(self) -> Self {
                unsafe { $shuffle::<0x4e>(self) }
            }
            #[inline(always)]
            unsafe fn first(block: __m128i) -> Self {
                unsafe { $first(block) }
            }
            #[inline(always)]
            unsafe fn sum(self) -> __m128i {
                unsafe { $sum(self) }
            }
            #[inline(always)]
            unsafe fn left<const BITS: i32>(self) -> Self {
                unsafe { $left(self, _mm_cvtsi32_si128(BITS)) }
            }
            #[inline(always)]
            unsafe fn right<const BITS: i32>(self) -> Self {
                unsafe { $right(self, _mm_cvtsi32_si128(BITS)) }
            }
            #[inline(always)]
            unsafe fn byte(byte: i8) -> Self {
                unsafe { $byte(byte) }
            }
            #[inline(always)]
            unsafe fn low_bytes(self, other: Self) -> Self {
                unsafe { $low(self, other) }
            }
            #[inline(always)]
            unsafe fn high_bytes(self, other: Self) -> Self {
                unsafe { $high(self, other) }
            }
            #[inline(always)]
            unsafe fn scatter(self, to: *mut Row) {
                unsafe { $scatter(self, to) }
            }
        }
    };
}

// SAFETY (all of these): as for `Wide`.
#[inline(always)]
unsafe fn scatter1(vector: __m128i, to: *mut Row) {
    unsafe { _mm_storeu_si128(to.cast(), vector) }
}
#[inline(always)]
unsafe fn scatter2(vector: __m256i, to: *mut Row) {
    unsafe {
        scatter1(_mm256_castsi256_si128(vector), to);
        scatter1(_mm256_extracti128_si256::<1>(vector), to.add(128));
    }
}
#[inline(always)]
unsafe fn scatter4(vector: __m512i, to: *mut Row) {
    unsafe {
        scatter2(_mm512_castsi512_si256(vector), to);
        scatter2(_mm512_extracti64x4_epi64::<1>(vector), to.add(256));
    }
}
#[inline(always)]
unsafe fn same(vector: __m128i) -> __m128i {
    vector
}
#[inline(always)]
unsafe fn sum2(vector: __m256i) -> __m128i {
    unsafe {
        _mm_xor_si128(
            _mm256_castsi256_si128(vector),
            _mm256_extracti128_si256::<1>(vector),
        )
    }
}
#[inline(always)]
unsafe fn sum4(vector: __m512i) -> __m128i {
    unsafe {
        sum2(_mm256_xor_si256(
            _mm512_castsi512_si256(vector),
            _mm512_extracti64x4_epi64::<1>(vector),
        ))
    }
}

wide!(
    __m128i,
    _mm_setzero_si128,
    _mm_clmulepi64_si128,
    _mm_shuffle_epi32,
    same,
    same,
    _mm_sll_epi64,
    _mm_srl_epi64,
    _mm_set1_epi8,
    _mm_unpacklo_epi8,
    _mm_unpackhi_epi8,
    scatter1
);
wide!(
    __m256i,
    _mm256_setzero_si256,
    _mm256_clmulepi64_epi128,
    _mm256_shuffle_epi32,
    _mm256_zextsi128_si256,
    sum2,
    _mm256_sll_epi64,
    _mm256_srl_epi64,
    _mm256_set1_epi8,
    _mm256_unpacklo_epi8,
    _mm256_unpackhi_epi8,
    scatter2
);
wide!(
    __m512i,
    _mm512_setzero_si512,
    _mm512_clmulepi64_epi128,
    _mm512_shuffle_epi32,
    _mm512_zextsi128_si512,
    sum4,
    _mm512_sll_epi64,
    _mm512_srl_epi64,
    _mm512_set1_epi8,
    _mm512_unpacklo_epi8,
    _mm512_unpackhi_epi8,
    scatter4
);

/// AES-128's key schedule of a leaf.
pub type Schedule = [u128; 11];

/// Vectors of each stream that are encrypted side by side.
const ABREAST: usize = 2;

/// Encrypts `numbers` under `N` leaves.
///
/// # Safety
/// As for `Vector`.
#[inline(always)]
unsafe fn streams<V: Vector, const N: usize>(
    leaves: &[Schedule],
    numbers: [V; ABREAST],
) -> [[V; ABREAST]; N] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut blocks = [numbers; N];
        macro_rules! round {
            ($round:expr, $step:ident) => {
                for (blocks, leaf) in blocks.iter_mut().zip(leaves) {
                    let key = V::splat(leaf[$round]);
                    for at in 0..ABREAST {
                        blocks[at] = blocks[at].$step(key);
                    }
                }
            };
        }
        round!(0, xor);
        for number in 1..10 {
            round!(number, round);
        }
        round!(10, last_round);
        blocks
    }
}

/// Computes the sums of a digit's 2^K streams over the first `count` blocks of a tile: column b of those whose number
/// has bit b, and `total` of all; with `PUNCTURED` stream 0 is left out. What follows the blocks has no meaning.
///
/// # Safety
/// As for `Vector`.
#[inline(always)]
pub unsafe fn sums<V: Wide, const K: usize, const PUNCTURED: bool>(
    leaves: &[Schedule],
    numbers: &[Row16; TILE],
    count: usize,
    columns: &mut [Column],
    total: &mut Column,
) {
    const { assert!(TILE.is_multiple_of(4 * ABREAST) && K >= 2) };
    assert!(leaves.len() == 1 << K && columns.len() == K && count <= TILE);
    let step = V::LANES * ABREAST;
    for start in (0..count).step_by(step) {
        // SAFETY: the caller's promise; `start + step` is at most TILE, a multiple of `step`.
        unsafe {
            let from = |at: usize| start + at * V::LANES;
            let load = |at| V::load(numbers.as_ptr().add(from(at)).cast());
            let numbers: [V; ABREAST] = [load(0), load(1)];
            let mut sum = [V::zero(); ABREAST];
            let mut sums = [[V::zero(); ABREAST]; K];
            for (group, leaves) in leaves.as_chunks::<4>().0.iter().enumerate() {
                // Stream 0 stands alone, also where it counts: of a loop with four streams in every group the compiler
                // makes code that takes twice as long.
                let [zero, one, two, three] = if group == 0 {
                    let [one, two, three] = streams::<V, 3>(&leaves[1..], numbers);
                    let [zero] = if PUNCTURED {
                        [[V::zero(); ABREAST]]
                    } else {
                        streams::<V, 1>(leaves, numbers)
                    };
                    [zero, one, two, three]
                } else {
                    streams::<V, 4>(leaves, numbers)
                };
                for at in 0..ABREAST {
                    let odd = one[at].xor(three[at]);
                    sums[0][at] = sums[0][at].xor(odd);
                    sums[1][at] = sums[1][at].xor(two[at].xor(three[at]));
                    let all = odd.xor(zero[at].xor(two[at]));
                    sum[at] = sum[at].xor(all);
                    for (bit, sums) in sums[2..].iter_mut().enumerate() {
                        if group >> bit & 1 == 1 {
                            sums[at] = sums[at].xor(all);
                        }
                    }
                }
            }
            for at in 0..ABREAST {
                sum[at].store(total.blocks.as_mut_ptr().add(from(at)).cast());
                for (column, sum) in columns.iter_mut().zip(sums) {
                    sum[at].store(column.blocks.as_mut_ptr().add(from(at)).cast());
                }
            }
        }
    }
}

/// Powers of a challenge h in POLYVAL's product: entry j is h^(TILE - j); and the sums of their halves, for Karatsuba's
/// product.
#[repr(align(64))]
pub struct Powers {
    pub powers: [Row16; TILE],
    pub sums: [Row16; TILE],
}

/// Returns the sum of `blocks` times the last powers, the first block plus `start`: POLYVAL's state after them. Their
/// number is a multiple of `V::LANES`, at most TILE.
///
/// # Safety
/// As for `Vector`.
#[inline(always)]
pub unsafe fn hash_column<V: Wide>(powers: &Powers, start: &Row16, blocks: &[Row16]) -> Row16 {
    assert!(blocks.len() <= TILE && blocks.len().is_multiple_of(V::LANES));
    let skipped = TILE - blocks.len();
    let mut bytes = [0; 16];
    // SAFETY: the caller's promise; every load is of LANES blocks inside the arrays.
    unsafe {
        let start = _mm_loadu_si128(start.as_ptr().cast());
        let (mut low, mut middle, mut high) = (V::zero(), V::zero(), V::zero());
        let mut first = V::first(start);
        for at in (0..blocks.len()).step_by(V::LANES) {
            let block = V::load(blocks.as_ptr().add(at).cast()).xor(first);
            let factor = V::load(powers.powers.as_ptr().add(skipped + at).cast());
            let halves = V::load(powers.sums.as_ptr().add(skipped + at).cast());
            first = V::zero();
            low = low.xor(block.low_product(factor));
            high = high.xor(block.high_product(factor));
            middle = middle.xor(block.xor(block.swap()).low_product(halves));
        }
        let (low, high, middle) = (low.sum(), high.sum(), middle.sum());
        let middle = _mm_xor_si128(middle, _mm_xor_si128(low, high));
        let low = _mm_xor_si128(low, _mm_slli_si128::<8>(middle));
        let high = _mm_xor_si128(high, _mm_srli_si128::<8>(middle));
        // Times x^-128, 64 bits at a time: the modulus is x^128 + (x^63 + x^62 + x^57) x^64 + 1.
        let modulus = _mm_set_epi64x(0xc200_0000_0000_0000_u64 as i64, 0);
        let mut state = low;
        for _ in 0..2 {
            let carried = _mm_clmulepi64_si128::<0x10>(state, modulus);
            state = _mm_xor_si128(_mm_shuffle_epi32::<0x4e>(state), carried);
        }
        _mm_storeu_si128(bytes.as_mut_ptr().cast(), _mm_xor_si128(high, state));
    }
    bytes
}

/// Exchanges the upper `WIDTH` bits of each run of 2 `WIDTH` bits with the lower ones, `WIDTH` vectors further on.
///
/// # Safety
/// As for `Vector`.
#[inline(always)]
unsafe fn exchange<V: Wide, const WIDTH: i32>(vectors: &mut [V; 8], mask: i8) {
    let width = WIDTH as usize;
    for at in (0..8).filter(|at| at & width == 0) {
        // SAFETY: the caller's promise.
        unsafe {
            let (left, right) = (vectors[at], vectors[at + width]);
            let change = left.right::<WIDTH>().xor(right).and(V::byte(mask));
            vectors[at + width] = right.xor(change);
            vectors[at] = left.xor(change.left::<WIDTH>());
        }
    }
}

/// Puts the pairs of bytes of eight vectors side by side, in every block: output p has their pairs p.
///
/// # Safety
/// As for `Vector`.
#[inline(always)]
unsafe fn interleave<V: Wide>(mut vectors: [V; 8]) -> [V; 8] {
    for _ in 0..3 {
        let before = vectors;
        for i in 0..4 {
            // SAFETY: the caller's promise.
            unsafe {
                vectors[2 * i] = before[i].low_bytes(before[i + 4]);
                vectors[2 * i + 1] = before[i].high_bytes(before[i + 4]);
            }
        }
    }
    vectors
}

/// Fills the `128 V::LANES` rows from `rows` on that the blocks of the columns from number `from` on make: bit c of row r
/// is bit r of column c.
///
/// # Safety
/// As for `Vector`; so many rows may be written.
#[inline(always)]
pub unsafe fn transpose<V: Wide>(columns: &[Column; KAPPA], from: usize, rows: *mut Row) {
    assert!(from + V::LANES <= TILE);
    // SAFETY: the caller's promise; LANES blocks are read of each column from `from` on.
    unsafe {
        // Byte p of block l of entry [j][c] is columns 8 c to 8 c + 7 of row 128 l + 8 p + j.
        let mut parts = [[V::zero(); KAPPA / 8]; 8];
        for (c, columns) in columns.as_chunks::<8>().0.iter().enumerate() {
            let mut bits = [V::zero(); 8];
            for (vector, column) in bits.iter_mut().zip(columns) {
                *vector = V::load(column.blocks.as_ptr().add(from).cast());
            }
            exchange::<V, 4>(&mut bits, 0x0f);
            exchange::<V, 2>(&mut bits, 0x33);
            exchange::<V, 1>(&mut bits, 0x55);
            for (part, vector) in parts.iter_mut().zip(bits) {
                part[c] = vector;
            }
        }
        for (j, part) in parts.iter().enumerate() {
            let mut halves = [[V::zero(); 8]; 2];
            for i in 0..8 {
                halves[0][i] = part[i].low_bytes(part[i + 8]);
                halves[1][i] = part[i].high_bytes(part[i + 8]);
            }
            for (half, vectors) in halves.into_iter().enumerate() {
                for (p, vector) in interleave(vectors).into_iter().enumerate() {
                    vector.scatter(rows.add(64 * half + 8 * p + j));
                }
            }
        }
    }
}
