//! The kernels for x86-64: AES-NI, VAES on 256 bits and VAES on 512 bits.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::block::Block;
use super::simd::{SharedKeys, Vector};

/// Byte shuffle that puts the last column of a round key, rotated, into all four: since the columns are
/// then equal, AESENCLAST's ShiftRows changes nothing and SubBytes and the constant remain.
const ROTATE: i32 = 0x0c0f_0e0d;
/// Byte shuffle that rotates every word, and undoes AESENCLAST's ShiftRows beforehand.
const ROTATE_WORDS: Block = 0x0007_0a0d_0c03_0609_080f_0205_040b_0e01;
/// The upper half of a block.
const HIGH: Block = (u64::MAX as Block) << 64;

// SAFETY (all three): as for `Vector::gather`.
#[inline(always)]
unsafe fn gather1(from: [*const Block; 4]) -> __m128i {
    unsafe { _mm_loadu_si128(from[0].cast()) }
}
#[inline(always)]
unsafe fn gather2(from: [*const Block; 4]) -> __m256i {
    unsafe { _mm256_loadu2_m128i(from[1].cast(), from[0].cast()) }
}
#[inline(always)]
unsafe fn gather4(from: [*const Block; 4]) -> __m512i {
    unsafe {
        let low = _mm512_castsi256_si512(gather2(from));
        let high = _mm256_loadu2_m128i(from[3].cast(), from[2].cast());
        _mm512_inserti64x4::<1>(low, high)
    }
}

macro_rules! vector {
    ($type:ty, $lanes:literal, $load:ident, $store:ident, $splat:expr, $set:ident, $xor:ident, $and:ident,
     $round:ident, $last:ident, $dwords:ident, $bytes:ident, $shift:ident, $left:ident, $right:ident,
     $gather:expr, $low_words:ident, $high_words:ident, $low_pairs:ident, $high_pairs:ident) => {
        // SAFETY (all functions): the caller of the trait promises the instructions and the memory;
        // loads and stores are unaligned ones.
        impl Vector for $type {
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn load(from: *const Block) -> Self {
                unsafe { $load(from.cast()) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut Block) {
                unsafe { $store(to.cast(), self) }
            }
            #[inline(always)]
            unsafe fn splat(block: Block) -> Self {
                unsafe { $splat(_mm_loadu_si128((&raw const block).cast())) }
            }
            #[inline(always)]
            unsafe fn xor(self, other: Self) -> Self {
                unsafe { $xor(self, other) }
            }
            #[inline(always)]
            unsafe fn and(self, other: Self) -> Self {
                unsafe { $and(self, other) }
            }
            #[inline(always)]
            unsafe fn round(self, key: Self) -> Self {
                unsafe { $round(self, key) }
            }
            #[inline(always)]
            unsafe fn last_round(self, key: Self) -> Self {
                unsafe { $last(self, key) }
            }
            #[inline(always)]
            unsafe fn sigma(self) -> Self {
                unsafe { $dwords::<0x4e>(self).xor(self.and(Self::splat(HIGH))) }
            }
            #[inline(always)]
            unsafe fn mask(self) -> Self {
                unsafe { $right::<31>($left::<31>($dwords::<0>(self))) }
            }
            #[inline(always)]
            unsafe fn next_key(self, constant: u32) -> Self {
                unsafe {
                    let column = $last($bytes(self, $set(ROTATE)), $set(constant as i32));
                    let sums = self.xor($shift::<4>(self));
                    sums.xor($shift::<8>(sums)).xor(column)
                }
            }
            #[inline(always)]
            unsafe fn gather(from: [*const Block; 4]) -> Self {
                unsafe { $gather(from) }
            }
            #[inline(always)]
            unsafe fn word(word: u32) -> Self {
                unsafe { $set(word as i32) }
            }
            #[inline(always)]
            unsafe fn substitute(self, constant: u32) -> Self {
                unsafe {
                    $last(
                        $bytes(self, Self::splat(ROTATE_WORDS)),
                        $set(constant as i32),
                    )
                }
            }
            #[inline(always)]
            unsafe fn low_words(self, other: Self) -> Self {
                unsafe { $low_words(self, other) }
            }
            #[inline(always)]
            unsafe fn high_words(self, other: Self) -> Self {
                unsafe { $high_words(self, other) }
            }
            #[inline(always)]
            unsafe fn low_pairs(self, other: Self) -> Self {
                unsafe { $low_pairs(self, other) }
            }
            #[inline(always)]
            unsafe fn high_pairs(self, other: Self) -> Self {
                unsafe { $high_pairs(self, other) }
            }
        }
    };
}

vector!(
    __m128i,
    1,
    _mm_loadu_si128,
    _mm_storeu_si128,
    std::convert::identity,
    _mm_set1_epi32,
    _mm_xor_si128,
    _mm_and_si128,
    _mm_aesenc_si128,
    _mm_aesenclast_si128,
    _mm_shuffle_epi32,
    _mm_shuffle_epi8,
    _mm_bslli_si128,
    _mm_slli_epi32,
    _mm_srai_epi32,
    gather1,
    _mm_unpacklo_epi32,
    _mm_unpackhi_epi32,
    _mm_unpacklo_epi64,
    _mm_unpackhi_epi64
);
vector!(
    __m256i,
    2,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_broadcastsi128_si256,
    _mm256_set1_epi32,
    _mm256_xor_si256,
    _mm256_and_si256,
    _mm256_aesenc_epi128,
    _mm256_aesenclast_epi128,
    _mm256_shuffle_epi32,
    _mm256_shuffle_epi8,
    _mm256_bslli_epi128,
    _mm256_slli_epi32,
    _mm256_srai_epi32,
    gather2,
    _mm256_unpacklo_epi32,
    _mm256_unpackhi_epi32,
    _mm256_unpacklo_epi64,
    _mm256_unpackhi_epi64
);
vector!(
    __m512i,
    4,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_broadcast_i32x4,
    _mm512_set1_epi32,
    _mm512_xor_si512,
    _mm512_and_si512,
    _mm512_aesenc_epi128,
    _mm512_aesenclast_epi128,
    _mm512_shuffle_epi32,
    _mm512_shuffle_epi8,
    _mm512_bslli_epi128,
    _mm512_slli_epi32,
    _mm512_srai_epi32,
    gather4,
    _mm512_unpacklo_epi32,
    _mm512_unpackhi_epi32,
    _mm512_unpacklo_epi64,
    _mm512_unpackhi_epi64
);

/// The key schedule of AES-128.
///
/// # Safety
/// The machine has the instructions.
#[target_feature(enable = "aes,ssse3")]
pub unsafe fn expand(key: Block) -> [Block; 11] {
    // SAFETY: the caller's promise.
    unsafe { SharedKeys::<__m128i>::new([key; 2]).first() }
}

/// The entry points for one set of instructions: whole vectors first, the lanes that are left one by one.
macro_rules! entry_points {
    ($module:ident, $features:literal, $vector:ty, $wide:literal) => {
        pub mod $module {
            use std::arch::x86_64::*;

            use crate::garble::block::Block;
            use crate::garble::operands::{Keys, Wires};
            use crate::garble::runs::{Ands, Xors};
            use crate::garble::simd::{self, KeySource, SharedKeys, UniqueKeys, Vector};
            use crate::garble::simd_runs;

            const LANES: usize = <$vector as Vector>::LANES;

            /// # Safety
            /// The machine has the instructions, and `Kernel::garble` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn garble(
                registers: &mut [Block],
                wires: Wires,
                keys: Keys<'_>,
                delta: &[Block],
                [generator, evaluator]: [&mut [u8]; 2],
            ) {
                let registers = registers.as_mut_ptr();
                let delta = delta.as_ptr();
                let rows = [generator.as_mut_ptr(), evaluator.as_mut_ptr()];
                // SAFETY: the caller's promise.
                unsafe {
                    match keys {
                        Keys::Shared(pair) => {
                            let keys = SharedKeys::<$vector>::new(pair);
                            let at = simd::garble::<$vector, _, $wide>(
                                &keys, registers, wires, delta, rows, 0,
                            );
                            let at = simd::garble::<$vector, _, 1>(
                                &keys, registers, wires, delta, rows, at,
                            );
                            if at < wires.lanes {
                                let keys = SharedKeys::<__m128i>::new(pair);
                                simd::garble::<__m128i, _, 1>(
                                    &keys, registers, wires, delta, rows, at,
                                );
                            }
                        }
                        Keys::Unique { lanes, pair } => {
                            let keys = UniqueKeys::<$vector>::new(lanes, pair);
                            let at = simd::garble::<$vector, _, 2>(
                                &keys, registers, wires, delta, rows, 0,
                            );
                            let at = simd::garble::<$vector, _, 1>(
                                &keys, registers, wires, delta, rows, at,
                            );
                            let keys = UniqueKeys::<__m128i>::new(lanes, pair);
                            simd::garble::<__m128i, _, 1>(&keys, registers, wires, delta, rows, at);
                        }
                    }
                }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::evaluate` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn evaluate(
                registers: &mut [Block],
                wires: Wires,
                keys: Keys<'_>,
                rows: [&[u8]; 2],
            ) {
                let registers = registers.as_mut_ptr();
                let rows = rows.map(<[u8]>::as_ptr);
                // SAFETY: the caller's promise.
                unsafe {
                    match keys {
                        Keys::Shared(pair) => {
                            let keys = SharedKeys::<$vector>::new(pair);
                            let at =
                                simd::evaluate::<$vector, _, 4>(&keys, registers, wires, rows, 0);
                            let at =
                                simd::evaluate::<$vector, _, 1>(&keys, registers, wires, rows, at);
                            if at < wires.lanes {
                                let keys = SharedKeys::<__m128i>::new(pair);
                                simd::evaluate::<__m128i, _, 1>(&keys, registers, wires, rows, at);
                            }
                        }
                        Keys::Unique { lanes, pair } => {
                            let keys = UniqueKeys::<$vector>::new(lanes, pair);
                            let at =
                                simd::evaluate::<$vector, _, 2>(&keys, registers, wires, rows, 0);
                            let at =
                                simd::evaluate::<$vector, _, 1>(&keys, registers, wires, rows, at);
                            let keys = UniqueKeys::<__m128i>::new(lanes, pair);
                            simd::evaluate::<__m128i, _, 1>(&keys, registers, wires, rows, at);
                        }
                    }
                }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::xor` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn xor(registers: &mut [Block], wires: Wires) {
                let registers = registers.as_mut_ptr();
                // SAFETY: the caller's promise.
                unsafe {
                    let at = simd::xor::<$vector>(registers, wires, 0);
                    simd::xor::<__m128i>(registers, wires, at);
                }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::garble_run` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn garble_run(
                registers: &mut [Block],
                run: Ands<'_>,
                delta: Block,
                table: &mut [u8],
            ) {
                let registers = registers.as_mut_ptr();
                // SAFETY: the caller's promise.
                unsafe { simd_runs::garble::<$vector, __m128i>(registers, run, delta, table) }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::evaluate_run` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn evaluate_run(registers: &mut [Block], run: Ands<'_>, table: &[u8]) {
                // SAFETY: the caller's promise.
                unsafe {
                    simd_runs::evaluate::<$vector, __m128i>(registers.as_mut_ptr(), run, table)
                }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::xor_run` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn xor_run(registers: &mut [Block], run: Xors<'_>) {
                // SAFETY: the caller's promise.
                unsafe { simd_runs::xor::<__m128i>(registers.as_mut_ptr(), run) }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::hash` checked the keys.
            #[target_feature(enable = $features)]
            pub unsafe fn hash(keys: Keys<'_>, labels: &mut [Block]) {
                // SAFETY: the caller's promise.
                unsafe {
                    match keys {
                        Keys::Shared(pair) => {
                            let narrow = SharedKeys::<__m128i>::new(pair);
                            replace::<_, _, true>(&SharedKeys::new(pair), &narrow, labels);
                        }
                        Keys::Unique { lanes, pair } => {
                            let narrow = UniqueKeys::<__m128i>::new(lanes, pair);
                            replace::<_, _, true>(&UniqueKeys::new(lanes, pair), &narrow, labels);
                        }
                    }
                }
            }

            /// # Safety
            /// The machine has the instructions.
            #[target_feature(enable = $features)]
            pub unsafe fn encrypt(schedule: &[Block; 11], blocks: &mut [Block]) {
                // SAFETY: the caller's promise.
                unsafe {
                    let wide = SharedKeys::<$vector>::expanded(schedule);
                    let narrow = SharedKeys::<__m128i>::expanded(schedule);
                    replace::<_, _, false>(&wide, &narrow, blocks);
                }
            }

            /// # Safety
            /// As for `hash`.
            #[inline(always)]
            unsafe fn replace<W: KeySource<$vector>, N: KeySource<__m128i>, const HASH: bool>(
                wide: &W,
                narrow: &N,
                blocks: &mut [Block],
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    let at = simd::replace::<$vector, _, 8, HASH>(wide, blocks, 0);
                    let at = simd::replace::<$vector, _, 1, HASH>(wide, blocks, at);
                    if LANES > 1 {
                        simd::replace::<__m128i, _, 1, HASH>(narrow, blocks, at);
                    }
                }
            }
        }
    };
}

entry_points!(aes, "aes,ssse3,sse4.1", __m128i, 2);
entry_points!(vaes256, "aes,vaes,avx2", __m256i, 2);
entry_points!(
    vaes512,
    "aes,vaes,avx2,avx512f,avx512bw,avx512vl",
    __m512i,
    2
);
