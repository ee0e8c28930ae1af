//! Tests of internal parts that the Python tests cannot reach.

use curve25519_dalek::scalar::Scalar;
use zeroize::Zeroizing;

use super::bits::Bits;
use super::generators::{self, Family};
use super::product::{self, Statement, Witness};
use super::range::{split, weights};
use super::transcript::start;
use super::{encode, labels};

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

#[test]
fn blinds_of_rounds_need_the_blinding_of_the_statement() {
    let first = |alpha: u64| {
        let vector = || Zeroizing::new(vec![Scalar::ONE; 2]);
        let statement = Statement {
            left: generators::list(Family::Left, 2)[..2].to_vec(),
            right: generators::list(Family::Right, 2)[..2].to_vec(),
            product: generators::bases().product,
            y: Scalar::from(7u64),
        };
        let witness = Witness {
            a: vector(),
            b: vector(),
            alpha: Zeroizing::new(Scalar::from(alpha)),
        };
        let (mut transcript, mut proof) = (start(&[0; 32], labels::KIND_RANGE), Vec::new());
        product::prove(&mut transcript, statement, witness, &[7; 32], &mut proof);
        proof[..32].to_vec()
    };
    assert_eq!(first(1), first(1));
    assert_ne!(first(1), first(2));
}
