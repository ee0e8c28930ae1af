//! Multiples of H: a scalar is four words, which multiply H, 2^64 H, 2^128 H and 2^192 H.

use std::sync::LazyLock;

use curve25519_dalek::scalar::Scalar;
use zeroize::Zeroizing;

use super::generators::Family;
use super::point::{Extended, Niels};
use super::ristretto::{decode, encode};
use super::table::{TOGETHER, Windows};

static POWERS: LazyLock<[Niels; TOGETHER]> = LazyLock::new(|| {
    let mut point = Family::blinding().point(0);
    std::array::from_fn(|_| {
        let power = point.niels();
        let next = (0..64).fold(point.extended(), |sum, _| sum.double());
        // Another point of the same element, with Z = 1.
        point = decode(&encode(&next)).expect("the encoding of a point");
        power
    })
});

/// Returns 2 r H, in constant time.
pub fn twice(scalar: &Scalar) -> Zeroizing<Extended> {
    let (bytes, _) = scalar.as_bytes().as_chunks::<8>();
    let mut windows = Windows::new(64);
    windows.add(
        &POWERS,
        std::array::from_fn(|k| u64::from_le_bytes(bytes[k])),
    );
    Zeroizing::new(windows.twice(false))
}
