//! The random words of one call: AES-256 in counter mode, a stream for each block of samples.

use aes::cipher::array::Array;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes256Enc, Block};
use zeroize::Zeroize;

/// Cipher blocks that are made at once, at most.
const BATCH: usize = 64;
/// Bytes of a word.
const WORD: usize = 8;

/// The streams of one call.
pub struct Streams(Aes256Enc);

impl Streams {
    /// Returns the streams under `key`.
    pub fn new(key: &[u8; 32]) -> Self {
        Self(Aes256Enc::new(key.into()))
    }

    /// Returns the stream of block `number`, of which `expected` words are likely to be read.
    pub fn words(&self, number: u64, expected: usize) -> Words<'_> {
        Words {
            cipher: &self.0,
            number: u128::from(number) << 64,
            counter: 0,
            // Short calls pay for few cipher blocks; how many are made at once does not change the stream.
            size: expected.div_ceil(2).clamp(4, BATCH),
            batch: [Block::default(); BATCH],
            next: 0,
            end: 0,
        }
    }
}

/// One stream, read from its beginning; the words that it holds are overwritten when it is dropped.
pub struct Words<'a> {
    cipher: &'a Aes256Enc,
    number: u128,
    counter: u64,
    size: usize,
    batch: [Block; BATCH],
    /// The index in `batch`, in bytes, of the next word, and the end of the words.
    next: usize,
    end: usize,
}

impl Words<'_> {
    /// Returns the next 64-bit word.
    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        if self.next == self.end {
            self.refill();
        }
        let bytes = Array::cast_slice_to_core(&self.batch).as_flattened();
        let mut word = [0; WORD];
        word.copy_from_slice(&bytes[self.next..self.next + WORD]);
        self.next += WORD;
        u64::from_le_bytes(word)
    }

    #[inline(never)]
    fn refill(&mut self) {
        let batch = &mut self.batch[..self.size];
        for (block, counter) in batch.iter_mut().zip(self.counter..) {
            *block = Block::from((self.number | u128::from(counter)).to_be_bytes());
        }
        self.cipher.encrypt_blocks(batch);
        self.counter += self.size as u64;
        self.next = 0;
        self.end = self.size * 2 * WORD;
        self.size = (2 * self.size).min(BATCH);
    }
}

impl Drop for Words<'_> {
    fn drop(&mut self) {
        Array::cast_slice_to_core_mut(&mut self.batch)
            .as_flattened_mut()
            .zeroize();
    }
}
