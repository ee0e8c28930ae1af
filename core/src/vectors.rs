//! Vectors of 128-bit blocks on x86-64, of one, two and four blocks: AES, logic and shuffles, the same in each block.
//!
//! Functions are inlined into entry points that turn the instructions on.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// A block: little-endian, so that bit 0 is the lowest bit of byte 0.
type Block = u128;

/// The round constants of AES-128's key schedule; round 0 has none.
pub const ROUND_CONSTANTS: [u32; 11] = [
    0, 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36,
];

/// A vector of blocks.
///
/// # Safety
/// Every function may run only where the machine has the instructions of the implementation, and
/// `load` and `store` only where `LANES` blocks may be read or written.
pub trait Vector: Copy {
    const LANES: usize;
    unsafe fn load(from: *const Block) -> Self;
    unsafe fn store(self, to: *mut Block);
    unsafe fn splat(block: Block) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    /// One round of AES with the key `key` in every block.
    unsafe fn round(self, key: Self) -> Self;
    /// The last round of AES.
    unsafe fn last_round(self, key: Self) -> Self;
    /// The orthomorphism in every block.
    unsafe fn sigma(self) -> Self;
    /// All ones in the blocks whose lowest bit is 1, zero in the others.
    unsafe fn mask(self) -> Self;
    /// The next round key of AES-128 in every block.
    unsafe fn next_key(self, constant: u32) -> Self;
    /// Blocks from `LANES` places.
    unsafe fn gather(from: [*const Block; 4]) -> Self;
    /// `word` in every word.
    unsafe fn word(word: u32) -> Self;
    /// The key schedule's RotWord, SubWord and addition of a constant, in every word.
    unsafe fn substitute(self, constant: u32) -> Self;
    /// Words 0 of both, words 1 of both; and likewise 2 and 3, in every block.
    unsafe fn low_words(self, other: Self) -> Self;
    unsafe fn high_words(self, other: Self) -> Self;
    /// Lower halves of both, and upper ones, in every block.
    unsafe fn low_pairs(self, other: Self) -> Self;
    unsafe fn high_pairs(self, other: Self) -> Self;
}

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

/// Returns the key schedule of AES-128.
///
/// # Safety
/// The machine has the instructions.
#[target_feature(enable = "aes,ssse3")]
pub unsafe fn expand(key: Block) -> [Block; 11] {
    let mut schedule = [key; 11];
    // SAFETY: the caller's promise; one block is stored.
    unsafe {
        let mut round = __m128i::splat(key);
        for (block, constant) in schedule.iter_mut().zip(ROUND_CONSTANTS).skip(1) {
            round = round.next_key(constant);
            round.store(block);
        }
    }
    schedule
}
