//! Pads of random transfers: H(i, x) = P(P(x) xor i) xor P(x).
//!
//! The tweakable hash of two calls [Guo, Katz, Wang, Yu: Efficient and Secure Multiparty Computation
//! from Fixed-Key Block Ciphers, IEEE S&P 2020], tweakable circular correlation robust for a random
//! permutation. P is AES-128 under a public key derived from the setup's context; the tweak is the
//! transfer's index, so no pair (P, i) is ever used for two transfers.

use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use aes::{Aes128Enc, Block};
use zeroize::Zeroize;

use super::hash::hash;
use super::labels;
use super::row::Row;

/// Rows hashed together: one batch of the cipher's widest backend.
const BATCH: usize = 64;

/// The hash of one setup.
pub struct PadHash(Aes128Enc);

impl PadHash {
    /// Returns the hash for the setup with this context.
    pub fn new(context: &[u8; 32]) -> Self {
        let key: [u8; 16] = hash(labels::PAD, &[context]);
        Self(Aes128Enc::new(&key.into()))
    }

    /// Replaces row j by H(first + j, row).
    pub fn apply(&self, first: u64, rows: &mut [Row]) {
        let mut once = [Block::default(); BATCH];
        let mut twice = [Block::default(); BATCH];
        for (rows, first) in rows.chunks_mut(BATCH).zip((first..).step_by(BATCH)) {
            let rows = Array::cast_slice_from_core_mut(rows);
            let (once, twice) = (&mut once[..rows.len()], &mut twice[..rows.len()]);
            self.0
                .encrypt_blocks_b2b(rows, once)
                .expect("equal lengths");
            for ((twice, once), index) in twice.iter_mut().zip(&*once).zip(first..) {
                let value = u128::from_be_bytes((*once).into()) ^ u128::from(index);
                *twice = value.to_be_bytes().into();
            }
            self.0
                .encrypt_blocks_b2b(twice, rows)
                .expect("equal lengths");
            for (row, once) in rows.iter_mut().zip(&*once) {
                for (byte, other) in row.iter_mut().zip(once) {
                    *byte ^= other;
                }
            }
        }
        Array::cast_slice_to_core_mut(&mut once)
            .as_flattened_mut()
            .zeroize();
        Array::cast_slice_to_core_mut(&mut twice)
            .as_flattened_mut()
            .zeroize();
    }
}
