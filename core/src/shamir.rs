//! Shamir's secret sharing over GF(2^128), one polynomial for each 16-byte block of the secret.
//!
//! The field, the byte order and the meaning of a share are those of pycryptodome's
//! `Crypto.Protocol.SecretSharing.Shamir` with `ssss=False`: the secret is the constant term, the
//! share of holder x is the polynomial's value at the element whose bits are those of x.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::gf128::{Multiplier, invert_all, times_small, to_block};

/// Bytes in a field element.
pub const BLOCK: usize = 16;

/// Reason for which a sharing or a reconstruction is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The secret has this length, which is not a positive multiple of a block.
    SecretLength(usize),
    /// Not between 1 and the number of holders.
    Threshold {
        /// The threshold that was asked for.
        threshold: usize,
        /// The number of holders.
        holders: usize,
    },
    /// The coefficients do not have the length of their rows.
    CoefficientsLength {
        /// Their bytes.
        got: usize,
        /// The bytes of `threshold - 1` rows.
        want: usize,
    },
    /// There are no shares to combine.
    NoShares,
    /// Shares and points differ in number.
    ShareCount {
        /// The number of shares.
        shares: usize,
        /// The number of points.
        points: usize,
    },
    /// A share is not as long as the first, or not a positive multiple of a block.
    ShareLength {
        /// Its index among the shares.
        index: usize,
        /// Its bytes.
        got: usize,
        /// The bytes that it should have.
        want: usize,
    },
    /// A holder has the point of the secret itself.
    ZeroPoint,
    /// Two holders have this point.
    RepeatedPoint(u16),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SecretLength(got) => {
                write!(f, "secret: {got} bytes, not a positive multiple of {BLOCK}")
            }
            Self::Threshold { threshold, holders } => {
                write!(
                    f,
                    "threshold: {threshold}, not between 1 and the number of holders, {holders}"
                )
            }
            Self::CoefficientsLength { got, want } => {
                write!(
                    f,
                    "coefficients: {got} bytes, not (threshold - 1) * len(secret) = {want}"
                )
            }
            Self::NoShares => write!(f, "shares: none given"),
            Self::ShareCount { shares, points } => {
                write!(f, "shares: {shares} of them for {points} points")
            }
            Self::ShareLength { index, got, want } => write!(
                f,
                "shares[{index}]: {got} bytes, not {want} (all of one length, a positive multiple of {BLOCK})"
            ),
            Self::ZeroPoint => write!(f, "xs: 0 is the secret's own point"),
            Self::RepeatedPoint(x) => write!(f, "xs: {x} occurs twice"),
        }
    }
}

impl std::error::Error for Refused {}

/// Refuses points at which shares would reveal or not determine the secret.
fn check_points(xs: &[u16]) -> Result<(), Refused> {
    let mut sorted = xs.to_vec();
    sorted.sort_unstable();
    if sorted.first() == Some(&0) {
        return Err(Refused::ZeroPoint);
    }
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Refused::RepeatedPoint(pair[0])),
        None => Ok(()),
    }
}

/// Returns the field elements of `bytes`, whose length is a multiple of 16.
fn elements(bytes: &[u8]) -> impl Iterator<Item = u128> {
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    blocks.iter().map(|&block| u128::from_be_bytes(block))
}

/// Returns shares of `secret` for the holders `xs`, any `threshold` of which determine it.
///
/// `coefficients` holds the `threshold - 1` uniformly random rows of `secret.len()` bytes: the
/// coefficients of x^(threshold-1) first, those of x last.
pub fn split(
    secret: &[u8],
    threshold: usize,
    xs: &[u16],
    coefficients: &[u8],
) -> Result<Vec<Zeroizing<Vec<u8>>>, Refused> {
    let width = secret.len();
    if width == 0 || !width.is_multiple_of(BLOCK) {
        return Err(Refused::SecretLength(width));
    }
    if threshold == 0 || threshold > xs.len() {
        return Err(Refused::Threshold {
            threshold,
            holders: xs.len(),
        });
    }
    let want = (threshold - 1) * width;
    if coefficients.len() != want {
        return Err(Refused::CoefficientsLength {
            got: coefficients.len(),
            want,
        });
    }
    check_points(xs)?;

    let mut shares: Vec<_> = xs
        .iter()
        .map(|_| Zeroizing::new(Vec::with_capacity(width)))
        .collect();
    let mut column = vec![to_block(0); threshold - 1];
    for (start, constant) in (0..width).step_by(BLOCK).zip(elements(secret)) {
        for (block, row) in column.iter_mut().zip(coefficients.chunks_exact(width)) {
            elements(&row[start..start + BLOCK]).for_each(|element| *block = to_block(element));
        }
        for (share, &x) in shares.iter_mut().zip(xs) {
            let value = Multiplier::new(x.into()).horner(&column) ^ constant;
            share.extend_from_slice(&value.to_be_bytes());
        }
    }
    for block in &mut column {
        block.as_mut_slice().zeroize();
    }
    Ok(shares)
}

/// Returns the coefficients of P(z), the product of (z + x) over all `xs`, the constant first.
fn vanishing(xs: &[u16]) -> Vec<u128> {
    let mut coefficients = vec![1];
    for &x in xs {
        let mut lower = 0;
        for coefficient in &mut coefficients {
            let here = *coefficient;
            *coefficient = lower ^ times_small(here, x);
            lower = here;
        }
        coefficients.push(lower);
    }
    coefficients
}

/// Returns Lagrange's coefficients at 0 for the points `xs`: P(0) / (x_j P'(x_j)).
///
/// In characteristic 2 the derivative keeps the odd coefficients of P alone and is a polynomial in
/// z^2, of half the degree.
fn lagrange_at_zero(xs: &[u16]) -> Vec<u128> {
    let coefficients = vanishing(xs);
    let mut odd = coefficients[1..].iter().step_by(2);
    let constant = odd.next().copied().unwrap_or_default();
    let derivative: Vec<_> = odd
        .rev()
        .map(|&coefficient| to_block(coefficient))
        .collect();
    let mut weights: Vec<u128> = xs
        .iter()
        .map(|&x| {
            let square = times_small(x.into(), x);
            let slope = Multiplier::new(square).horner(&derivative) ^ constant;
            times_small(slope, x)
        })
        .collect();
    invert_all(&mut weights);
    let numerator = Multiplier::new(coefficients[0]);
    for weight in &mut weights {
        *weight = numerator.times(*weight);
    }
    weights
}

/// Returns the secret that `shares`, held at `xs`, determine; every share given is used.
///
/// With fewer shares than the threshold the result is unrelated to the secret: the caller counts.
pub fn combine(xs: &[u16], shares: &[&[u8]]) -> Result<Zeroizing<Vec<u8>>, Refused> {
    let Some(first) = shares.first() else {
        return Err(Refused::NoShares);
    };
    if shares.len() != xs.len() {
        return Err(Refused::ShareCount {
            shares: shares.len(),
            points: xs.len(),
        });
    }
    let width = first.len();
    for (index, share) in shares.iter().enumerate() {
        if share.is_empty() || share.len() != width || !share.len().is_multiple_of(BLOCK) {
            let want = width.next_multiple_of(BLOCK).max(BLOCK);
            return Err(Refused::ShareLength {
                index,
                got: share.len(),
                want,
            });
        }
    }
    check_points(xs)?;

    let mut secret = Zeroizing::new(vec![0u128; width / BLOCK]);
    for (share, weight) in shares.iter().zip(lagrange_at_zero(xs)) {
        let weight = Multiplier::new(weight);
        for (sum, element) in secret.iter_mut().zip(elements(share)) {
            *sum ^= weight.times(element);
        }
    }
    Ok(Zeroizing::new(
        secret.iter().flat_map(|sum| sum.to_be_bytes()).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize, seed: u8) -> Vec<u8> {
        (0..length)
            .map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 3) as u8) ^ seed)
            .collect()
    }

    fn refs<'a>(shares: impl IntoIterator<Item = &'a Zeroizing<Vec<u8>>>) -> Vec<&'a [u8]> {
        shares.into_iter().map(|share| share.as_slice()).collect()
    }

    #[test]
    fn threshold_shares_recover_the_secret() {
        let xs = [1, 2, 3, 255, 256, 4097, u16::MAX];
        for width in [16, 32, 48] {
            let secret = bytes(width, 0xa5);
            for threshold in 1..=xs.len() {
                let coefficients = bytes((threshold - 1) * width, 0x3c);
                let shares = split(&secret, threshold, &xs, &coefficients).unwrap();
                for start in 0..=xs.len() - threshold {
                    let end = start + threshold;
                    let got = combine(&xs[start..end], &refs(&shares[start..end])).unwrap();
                    assert_eq!(*got, secret, "{threshold} shares from {start}");
                }
            }
        }
    }

    #[test]
    fn fewer_shares_give_something_else() {
        let secret = bytes(16, 1);
        let shares = split(&secret, 3, &[1, 2, 3], &bytes(32, 7)).unwrap();
        let got = combine(&[1, 2], &refs(&shares[..2])).unwrap();
        assert_ne!(*got, secret);
    }

    /// A line, by hand: s + r x at x = 1, 2, 3.
    #[test]
    fn known_line() {
        let secret = 5u128.to_be_bytes();
        let slope = (1u128 << 127).to_be_bytes();
        let shares = split(&secret, 2, &[1, 2, 3], &slope).unwrap();
        let values: Vec<u128> = shares.iter().flat_map(|share| elements(share)).collect();
        assert_eq!(values, [5 | 1 << 127, 5 ^ 0x87, 5 ^ 0x87 ^ 1 << 127]);
    }

    #[test]
    fn lagrange_is_its_definition() {
        for xs in [&[7][..], &[1, 2], &[1, 2, 3], &[5, 9, 300, u16::MAX, 2]] {
            for (j, weight) in lagrange_at_zero(xs).into_iter().enumerate() {
                let (mut left, mut right) = (weight, 1);
                for &x in xs.iter().filter(|&&x| x != xs[j]) {
                    left = times_small(left, xs[j] ^ x);
                    right = times_small(right, x);
                }
                assert_eq!(left, right, "weight {j} of {xs:?}");
            }
        }
    }

    #[test]
    fn bad_sharings_are_refused() {
        let secret = [0; 16];
        let refused = |secret: &[u8], threshold, xs: &[u16], coefficients: &[u8]| {
            split(secret, threshold, xs, coefficients).unwrap_err()
        };
        assert_eq!(refused(&[], 1, &[1], &[]), Refused::SecretLength(0));
        assert_eq!(refused(&[0; 17], 1, &[1], &[]), Refused::SecretLength(17));
        for threshold in [0, 3] {
            let holders = 2;
            assert_eq!(
                refused(&secret, threshold, &[1, 2], &[0; 32]),
                Refused::Threshold { threshold, holders }
            );
        }
        assert_eq!(
            refused(&secret, 2, &[1, 2], &[0; 15]),
            Refused::CoefficientsLength { got: 15, want: 16 }
        );
        assert_eq!(refused(&secret, 2, &[0, 2], &[0; 16]), Refused::ZeroPoint);
        assert_eq!(
            refused(&secret, 2, &[4, 2, 4], &[0; 16]),
            Refused::RepeatedPoint(4)
        );
    }

    #[test]
    fn bad_reconstructions_are_refused() {
        let share = [0; 16].as_slice();
        assert_eq!(combine(&[], &[]), Err(Refused::NoShares));
        assert_eq!(
            combine(&[1], &[share, share]),
            Err(Refused::ShareCount {
                shares: 2,
                points: 1
            })
        );
        assert_eq!(
            combine(&[1, 2], &[share, &[0; 32]]),
            Err(Refused::ShareLength {
                index: 1,
                got: 32,
                want: 16
            })
        );
        assert_eq!(
            combine(&[1], &[&[0; 15]]),
            Err(Refused::ShareLength {
                index: 0,
                got: 15,
                want: 16
            })
        );
        assert_eq!(combine(&[1, 0], &[share, share]), Err(Refused::ZeroPoint));
        assert_eq!(
            combine(&[6, 6], &[share, share]),
            Err(Refused::RepeatedPoint(6))
        );
    }
}
