//! AES-256-CTR keystreams added to vectors of wrapping integers.
//!
//! The stream of a key is AES-256 in counter mode from an all-zero 16-byte counter block (big-endian
//! counter), read as little-endian lanes. It is made in the largest batch that the cipher's backend
//! has registers for and added while it is still in the first-level cache, so it never exists as a
//! whole.

use aes::Aes256Enc;
use aes::Block;
use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit,
    ParBlocks,
};
use zeroize::Zeroize;

/// Bytes in an AES block.
const BLOCK: usize = 16;
/// Bytes of the accumulator that stay in cache while every key passes over them.
const CHUNK: usize = 32 * 1024;
/// Keys that are expanded at once, which bounds the memory of the round keys.
const KEYS: usize = 64;

/// An unsigned integer that a keystream is read as.
pub trait Lane: Copy + Send {
    /// Bytes in a lane; divides the size of a block.
    const SIZE: usize = size_of::<Self>();

    /// Adds the lane that `bytes` encode in little-endian order, wrapping.
    fn add(&mut self, bytes: &[u8]);

    /// Subtracts the lane that `bytes` encode in little-endian order, wrapping.
    fn subtract(&mut self, bytes: &[u8]);
}

macro_rules! lane {
    ($integer:ty) => {
        impl Lane for $integer {
            #[inline(always)]
            fn add(&mut self, bytes: &[u8]) {
                let mut lane = [0; size_of::<Self>()];
                lane.copy_from_slice(bytes);
                *self = self.wrapping_add(<$integer>::from_le_bytes(lane));
            }

            #[inline(always)]
            fn subtract(&mut self, bytes: &[u8]) {
                let mut lane = [0; size_of::<Self>()];
                lane.copy_from_slice(bytes);
                *self = self.wrapping_sub(<$integer>::from_le_bytes(lane));
            }
        }
    };
}

lane!(u32);
lane!(u64);

/// A 32-byte key and whether its stream is subtracted.
#[derive(Clone, Copy)]
pub struct Mask<'a> {
    /// The key.
    pub key: &'a [u8; 32],
    /// Whether the stream is subtracted.
    pub subtract: bool,
}

/// Adds the stream of one key to `lanes`, from `skip` lanes into block number `counter`.
///
/// It runs inside the cipher's backend, so that the compiler uses the same vector instructions for
/// the counters and the additions as for the rounds.
struct AddStream<'a, T> {
    lanes: &'a mut [T],
    counter: u64,
    skip: usize,
    subtract: bool,
}

impl<T> BlockSizeUser for AddStream<'_, T> {
    type BlockSize = U16;
}

impl<T: Lane> BlockCipherEncClosure for AddStream<'_, T> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let Self {
            mut lanes,
            mut counter,
            mut skip,
            subtract,
        } = self;
        let mut batch = ParBlocks::<B>::default();
        let batch_lanes = batch.len() * BLOCK / T::SIZE;
        while !lanes.is_empty() {
            // Offsets are below 2^64 lanes of at most 8 bytes: the upper half of the counter stays 0.
            for (block, number) in batch.iter_mut().zip(counter..) {
                *block = Block::from(u128::from(number).to_be_bytes());
            }
            counter += batch.len() as u64;
            backend.encrypt_par_blocks((&mut batch).into());
            let stream = Array::cast_slice_to_core(&batch).as_flattened();
            let now = lanes.len().min(batch_lanes - skip);
            let (head, rest) = lanes.split_at_mut(now);
            let words = stream[skip * T::SIZE..].chunks_exact(T::SIZE);
            if subtract {
                head.iter_mut()
                    .zip(words)
                    .for_each(|(lane, word)| lane.subtract(word));
            } else {
                head.iter_mut()
                    .zip(words)
                    .for_each(|(lane, word)| lane.add(word));
            }
            lanes = rest;
            skip = 0;
        }
        Array::cast_slice_to_core_mut(&mut batch)
            .as_flattened_mut()
            .zeroize();
    }
}

/// Adds lanes `offset..offset + lanes.len()` of every mask's stream to `lanes`, in this thread.
fn add_in_thread<T: Lane>(lanes: &mut [T], masks: &[Mask<'_>], offset: u64) {
    let per_block = (BLOCK / T::SIZE) as u64;
    for group in masks.chunks(KEYS) {
        // Round keys are zeroised when the ciphers are dropped.
        let ciphers: Vec<(Aes256Enc, bool)> = group
            .iter()
            .map(|mask| (Aes256Enc::new(mask.key.into()), mask.subtract))
            .collect();
        let mut position = offset;
        let mut rest = &mut *lanes;
        while !rest.is_empty() {
            // The first chunk ends at a block boundary, so that later ones start at one.
            let skip = (position % per_block) as usize;
            let now = rest.len().min(CHUNK / T::SIZE - skip);
            let (chunk, after) = rest.split_at_mut(now);
            for (cipher, subtract) in &ciphers {
                cipher.encrypt_with_backend(AddStream {
                    lanes: &mut *chunk,
                    counter: position / per_block,
                    skip,
                    subtract: *subtract,
                });
            }
            position += now as u64;
            rest = after;
        }
    }
}

/// Adds (or subtracts) lanes `offset..offset + lanes.len()` of every mask's stream to `lanes`, wrapping.
///
/// The lanes are divided over `threads` threads. The caller sees to it that
/// `offset + lanes.len()` fits in 64 bits.
pub fn add_keystreams<T: Lane>(lanes: &mut [T], masks: &[Mask<'_>], offset: u64, threads: usize) {
    let share = lanes
        .len()
        .div_ceil(threads.max(1))
        .next_multiple_of(CHUNK / T::SIZE);
    if lanes.len() <= share {
        return add_in_thread(lanes, masks, offset);
    }
    std::thread::scope(|scope| {
        let mut position = offset;
        for part in lanes.chunks_mut(share) {
            let length = part.len() as u64;
            scope.spawn(move || add_in_thread(part, masks, position));
            position += length;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stream of `key`, block by block, with nothing shared with the batched code but the cipher.
    fn stream(key: &[u8; 32], length: usize) -> Vec<u8> {
        let cipher = Aes256Enc::new(key.into());
        let mut bytes = Vec::new();
        for number in 0u128.. {
            if bytes.len() >= length {
                break;
            }
            let mut block = Block::from(number.to_be_bytes());
            cipher.encrypt_block(&mut block);
            bytes.extend_from_slice(&block);
        }
        bytes
    }

    fn keys(count: u8) -> Vec<[u8; 32]> {
        (0..count)
            .map(|j| std::array::from_fn(|i| (i as u8).wrapping_mul(7) ^ j))
            .collect()
    }

    fn check<T: Lane + Default + PartialEq + std::fmt::Debug>(
        length: usize,
        offset: usize,
        count: u8,
        threads: usize,
    ) {
        let keys = keys(count);
        let masks: Vec<Mask<'_>> = keys
            .iter()
            .enumerate()
            .map(|(j, key)| Mask {
                key,
                subtract: j % 3 == 1,
            })
            .collect();
        let mut expected = vec![T::default(); length];
        for mask in &masks {
            let bytes = stream(mask.key, (offset + length) * T::SIZE);
            let words = bytes[offset * T::SIZE..].chunks_exact(T::SIZE);
            for (lane, word) in expected.iter_mut().zip(words) {
                if mask.subtract {
                    lane.subtract(word);
                } else {
                    lane.add(word);
                }
            }
        }
        let mut lanes = vec![T::default(); length];
        add_keystreams(&mut lanes, &masks, offset as u64, threads);
        assert_eq!(
            lanes, expected,
            "{length} lanes from {offset}, {threads} threads"
        );
    }

    /// NIST SP 800-38A, F.1.5 (ECB-AES256.Encrypt), the block cipher under the stream.
    #[test]
    fn block_known_answer() {
        let key: [u8; 32] = [
            0x60, 0x3d, 0xeb, 0x10, 0x15, 0xca, 0x71, 0xbe, 0x2b, 0x73, 0xae, 0xf0, 0x85, 0x7d,
            0x77, 0x81, 0x1f, 0x35, 0x2c, 0x07, 0x3b, 0x61, 0x08, 0xd7, 0x2d, 0x98, 0x10, 0xa3,
            0x09, 0x14, 0xdf, 0xf4,
        ];
        let mut block = Block::from([
            0x6b, 0xc1, 0xbe, 0xe2, 0x2e, 0x40, 0x9f, 0x96, 0xe9, 0x3d, 0x7e, 0x11, 0x73, 0x93,
            0x17, 0x2a,
        ]);
        Aes256Enc::new(&key.into()).encrypt_block(&mut block);
        assert_eq!(
            block,
            Block::from([
                0xf3, 0xee, 0xd1, 0xbd, 0xb5, 0xd2, 0xa0, 0x3c, 0x06, 0x4b, 0x5a, 0x7e, 0x3d, 0xb1,
                0x81, 0xf8,
            ])
        );
    }

    #[test]
    fn every_short_length_and_offset() {
        for length in 0..40 {
            for offset in 0..6 {
                check::<u64>(length, offset, 2, 1);
                check::<u32>(length, offset, 2, 1);
            }
        }
    }

    fn check_around_chunks<T: Lane + Default + PartialEq + std::fmt::Debug>() {
        let chunk = CHUNK / T::SIZE;
        for length in [chunk - 1, chunk, chunk + 1, 2 * chunk + 5] {
            for offset in [0, 1, 127, 128, chunk - 1, chunk] {
                check::<T>(length, offset, 3, 1);
            }
        }
    }

    #[test]
    fn chunk_boundaries() {
        check_around_chunks::<u64>();
        check_around_chunks::<u32>();
    }

    #[test]
    fn more_keys_than_one_group() {
        check::<u64>(300, 5, 2 * KEYS as u8 + 1, 1);
    }

    #[test]
    fn threads_do_not_matter() {
        for threads in [2, 3, 8] {
            check::<u64>(20_000, 3, 3, threads);
            check::<u32>(20_000, 3, 3, threads);
        }
    }

    /// The counter's carry into higher bytes.
    #[test]
    fn far_offsets() {
        let key = [9; 32];
        let offset = (1u64 << 33) - 1;
        let mut lanes = [0u64; 5];
        let mask = Mask {
            key: &key,
            subtract: false,
        };
        add_keystreams(&mut lanes, &[mask], offset, 1);
        let cipher = Aes256Enc::new(&key.into());
        for (lane, position) in lanes.iter().zip(offset..) {
            let mut block = Block::from(u128::from(position / 2).to_be_bytes());
            cipher.encrypt_block(&mut block);
            let start = (position % 2) as usize * 8;
            let word = u64::from_le_bytes(block[start..start + 8].try_into().unwrap());
            assert_eq!(*lane, word);
        }
    }
}
