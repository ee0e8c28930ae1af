//! The random words of one call: AES-256 in counter mode, a stream for each block of samples.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes256Enc, Block};
use zeroize::Zeroize;

/// Cipher blocks that are made at once, at most.
const BATCH: usize = 64;

/// The streams of one call.
pub struct Streams(Aes256Enc);

impl Streams {
    /// The streams under `key`.
    pub fn new(key: &[u8; 32]) -> Self {
        Self(Aes256Enc::new(key.into()))
    }

    /// The stream of block `number`, of which `expected` words are likely to be read.
    pub fn words(&self, number: u64, expected: usize) -> Words<'_> {
        Words {
            cipher: &self.0,
            number: u128::from(number) << 64,
            counter: 0,
            expected,
            words: [0; 2 * BATCH],
            next: 0,
            end: 0,
        }
    }
}

/// One stream, read from its beginning; the words that it still holds are overwritten when it is dropped.
pub struct Words<'a> {
    cipher: &'a Aes256Enc,
    number: u128,
    counter: u64,
    expected: usize,
    words: [u64; 2 * BATCH],
    next: usize,
    end: usize,
}

impl Words<'_> {
    /// The next 64-bit word.
    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        if self.next == self.end {
            self.refill();
        }
        let word = self.words[self.next];
        self.next += 1;
        word
    }

    #[inline(never)]
    fn refill(&mut self) {
        // Short calls pay for few cipher blocks; which are made does not change the stream.
        let blocks = self.expected.div_ceil(2).clamp(4, BATCH);
        self.expected = self.expected.saturating_sub(2 * blocks);
        let mut batch = [Block::default(); BATCH];
        for (block, counter) in batch[..blocks].iter_mut().zip(self.counter..) {
            *block = Block::from((self.number | u128::from(counter)).to_be_bytes());
        }
        self.counter += blocks as u64;
        self.cipher.encrypt_blocks(&mut batch[..blocks]);
        for (pair, block) in self
            .words
            .as_chunks_mut::<2>()
            .0
            .iter_mut()
            .zip(&batch[..blocks])
        {
            let both = u128::from_le_bytes((*block).into());
            *pair = [both as u64, (both >> 64) as u64];
        }
        batch.iter_mut().for_each(|block| block.zeroize());
        self.next = 0;
        self.end = 2 * blocks;
    }
}

impl Drop for Words<'_> {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}
