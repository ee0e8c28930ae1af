//! Commitments and proofs as functions of a secret.

use smpc_core::curve25519_dalek::scalar::Scalar;
use smpc_core::proofs::{Noise, Range, Secret, commit};

/// Wide bytes of a blinding, a seed, and eight more.
fn split(secret: &[u8]) -> (Scalar, &[u8; 32], &[u8]) {
    let (wide, rest) = secret.split_first_chunk::<64>().expect("64 bytes");
    let (seed, rest) = rest.split_first_chunk::<32>().expect("32 bytes");
    (Scalar::from_bytes_mod_order_wide(wide), seed, rest)
}

pub fn commitment(secret: &[u8]) -> Vec<u8> {
    let (blinding, seed, _) = split(secret);
    let values: Vec<i128> = seed
        .as_chunks()
        .0
        .iter()
        .map(|bytes| i128::from(i64::from_le_bytes(*bytes)))
        .collect();
    commit(&values, &blinding).compress().to_bytes().to_vec()
}

pub fn range(secret: &[u8]) -> Vec<u8> {
    let (blinding, seed, rest) = split(secret);
    let values = [i128::from(rest[0] & 7), i128::from(rest[1] & 3) - 3];
    let range = Range::new(2, &[-3], &[9]).expect("a range");
    range
        .prove(&[5; 32], &values, &blinding, seed)
        .expect("a proof")
}

pub fn noise(secret: &[u8]) -> Vec<u8> {
    let (blinding, seed, rest) = split(secret);
    let wide = secret.first_chunk().expect("64 bytes");
    let noise = Noise::new(2, 8).expect("noise");
    let held = Secret::new(noise, &rest[..2], wide).expect("a secret");
    let (commitment, mut proof) = held
        .prove(&[5; 32], &[0xa7, 0x31], &blinding, seed)
        .expect("a proof");
    proof.extend_from_slice(&commitment);
    proof
}
