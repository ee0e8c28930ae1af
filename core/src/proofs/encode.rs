//! Canonical encodings of points, scalars and values; anything else is refused.

use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;

use super::error::ProofError;

/// Bytes of a point and of a scalar.
pub const ELEMENT: usize = 32;
/// A point or a scalar, encoded.
pub type Element = [u8; ELEMENT];

/// Returns the point that `bytes` canonically encode [RFC 9496, section 4.3.1]; the identity is
/// one.
pub fn point(name: &str, bytes: &Element) -> Result<RistrettoPoint, ProofError> {
    CompressedRistretto(*bytes).decompress().ok_or_else(|| {
        ProofError::Statement(format!("{name}: not the encoding of a group element"))
    })
}

/// Returns the scalar that `bytes` canonically encode: little-endian, below the group's order.
pub fn scalar(name: &str, bytes: &Element) -> Result<Scalar, ProofError> {
    Scalar::from_canonical_bytes(*bytes)
        .into_option()
        .ok_or_else(|| ProofError::Statement(format!("{name}: not the encoding of a scalar")))
}

/// Returns `value` modulo the group's order, in constant time.
pub(super) fn value(value: i128) -> Scalar {
    let sign = value >> 127;
    let magnitude = Scalar::from(((value ^ sign) - sign) as u128);
    // 1 for values from zero on, -1 below.
    let unit = Scalar::ONE - Scalar::from((sign & 2) as u128);
    magnitude * unit
}

/// Takes elements off a proof from its front.
pub(super) struct Reader<'a> {
    elements: std::slice::Iter<'a, Element>,
}

impl<'a> Reader<'a> {
    /// Refuses a proof with another number of elements.
    pub fn new(proof: &'a [u8], elements: usize) -> Result<Self, ProofError> {
        let (whole, rest) = proof.as_chunks::<ELEMENT>();
        if whole.len() != elements || !rest.is_empty() {
            return Err(ProofError::Statement(format!(
                "proof: {} bytes, not {}",
                proof.len(),
                elements * ELEMENT
            )));
        }
        Ok(Self {
            elements: whole.iter(),
        })
    }

    pub fn element(&mut self) -> &'a Element {
        self.elements.next().expect("as many as were counted")
    }

    pub fn scalar(&mut self, name: &str) -> Result<Scalar, ProofError> {
        scalar(name, self.element())
    }
}
