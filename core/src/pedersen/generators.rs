//! The generators G_0, G_1, ... and H, hashed to the group: nobody knows a relation between any two.
//!
//! A generator is ristretto255's map of 64 bytes of TupleHash256 over family and index [RFC 9496, section
//! 4.3.4], decoded from its encoding: the point is one of four, and always the same one.

use curve25519_dalek::ristretto::RistrettoPoint;

use super::labels;
use super::ristretto::{Affine, decode};
use crate::tuple_hash::TupleHash256;

/// Generators of one kind.
pub struct Family(TupleHash256);

impl Family {
    /// G_j: one an element of committed vectors.
    pub fn values() -> Self {
        Self::new(labels::FAMILY_VALUE)
    }

    /// H is its first.
    pub fn blinding() -> Self {
        Self::new(labels::FAMILY_BLINDING)
    }

    fn new(name: &str) -> Self {
        let mut hasher = TupleHash256::new(labels::GENERATOR.as_bytes());
        hasher.absorb(name.as_bytes());
        Self(hasher)
    }

    /// Returns a generator's encoding.
    pub fn encoded(&self, index: u32) -> [u8; 32] {
        let mut hasher = self.0.clone();
        hasher.absorb(&index.to_be_bytes());
        let mut wide = [0; 64];
        hasher.finish(&mut wide);
        RistrettoPoint::from_uniform_bytes(&wide)
            .compress()
            .to_bytes()
    }

    /// Returns a generator as a point.
    pub fn point(&self, index: u32) -> Affine {
        decode(&self.encoded(index)).expect("the encoding of a point")
    }
}
