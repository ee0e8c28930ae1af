//! What the Python tests cannot reach: the parts below the faces.

use curve25519_dalek::scalar::Scalar;

use super::bits::Bits;
use super::encode;
use super::range::{split, weights};

#[test]
fn subset_sums_are_the_whole_range_and_nothing_else() {
    for width in 1..70u128 {
        let weights = weights(width);
        let sums: std::collections::BTreeSet<u128> = (0..1u32 << weights.len())
            .map(|subset| {
                let taken = weights.iter().enumerate();
                taken
                    .map(|(bit, weight)| weight * u128::from(subset >> bit & 1))
                    .sum()
            })
            .collect();
        assert_eq!(sums, (0..=width).collect());
        for number in 0..=width {
            let mut bits = Bits::new(Vec::new());
            split(number, width, &mut bits);
            let sum: u128 = bits
                .iter()
                .zip(&weights)
                .map(|(&bit, weight)| u128::from(bit) * weight)
                .sum();
            assert_eq!((sum, bits.len()), (number, weights.len()));
        }
    }
}

#[test]
fn values_are_encoded_with_their_sign() {
    for value in [
        0,
        1,
        -1,
        7,
        -7,
        i128::from(i64::MIN),
        (1 << 126) - 1,
        1 - (1 << 126),
    ] {
        let magnitude = Scalar::from(value.unsigned_abs());
        let expected = if value < 0 { -magnitude } else { magnitude };
        assert_eq!(encode::value(value), expected);
    }
}
