//! Integers modulo p = 2^255 - 19, over the formally verified arithmetic of `fiat-crypto`.
//!
//! `Element` is what multiplications give and sums take; `Loose` is a sum, which multiplications take. So
//! the compiler checks the bounds that the proofs of `fiat-crypto` assume. Everything is constant-time.

use std::ops::{Add, Mul, Neg, Sub};

use fiat_crypto::curve25519_64 as fiat;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroize;

/// Bytes of an encoded element.
pub const BYTES: usize = 32;

/// An element of the field.
#[derive(Clone, Copy)]
pub struct Element(fiat::fiat_25519_tight_field_element);

/// A sum, a difference or an element: a factor.
#[derive(Clone, Copy)]
pub struct Loose(fiat::fiat_25519_loose_field_element);

impl Element {
    pub const ZERO: Self = Self::small(0);
    pub const ONE: Self = Self::small(1);
    pub const TWO: Self = Self::small(2);

    const fn small(value: u64) -> Self {
        Self::from_limbs([value, 0, 0, 0, 0])
    }

    /// Decodes 255 bits, little-endian; ignores the highest bit.
    pub const fn from_bytes(bytes: &[u8; BYTES]) -> Self {
        let mut bits = *bytes;
        bits[BYTES - 1] &= 0x7f;
        let mut result = Self::ZERO;
        fiat::fiat_25519_from_bytes(&mut result.0, &bits);
        result
    }

    /// Returns the canonical encoding: below p, little-endian.
    pub const fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        fiat::fiat_25519_to_bytes(&mut bytes, &self.0);
        bytes
    }

    /// Of limbs of an element.
    #[inline]
    pub const fn from_limbs(limbs: [u64; 5]) -> Self {
        Self(fiat::fiat_25519_tight_field_element(limbs))
    }

    /// Whether the canonical encoding is odd.
    pub fn is_negative(self) -> Choice {
        Choice::from(self.to_bytes()[0] & 1)
    }

    pub fn is_zero(self) -> Choice {
        self.ct_eq(&Self::ZERO)
    }

    /// Returns the one of itself and its negative that is not negative.
    pub fn abs(self) -> Self {
        Self::conditional_select(&self, &-self, self.is_negative())
    }

    pub fn square(self) -> Self {
        Loose::from(self).square()
    }

    fn square_times(self, count: usize) -> Self {
        (0..count).fold(self, |power, _| power.square())
    }

    /// Returns its power (p - 5) / 8 = 2^252 - 3.
    fn power_p58(self) -> Self {
        let power2 = self.square();
        let power9 = power2.square_times(2) * self;
        let power11 = power9 * power2;
        // Of 2^n - 1 for growing n.
        let ones5 = power11.square() * power9;
        let ones10 = ones5.square_times(5) * ones5;
        let ones20 = ones10.square_times(10) * ones10;
        let ones40 = ones20.square_times(20) * ones20;
        let ones50 = ones40.square_times(10) * ones10;
        let ones100 = ones50.square_times(50) * ones50;
        let ones200 = ones100.square_times(100) * ones100;
        let ones250 = ones200.square_times(50) * ones50;
        ones250.square_times(2) * self
    }

    /// SQRT_RATIO_M1(1, self) [RFC 9496, section 4.2]: whether it is a non-zero square, and 1 / sqrt of it.
    pub fn inverse_sqrt(self) -> (Choice, Self) {
        let cube = self.square() * self;
        let power7 = cube.square() * self;
        let root = cube * power7.power_p58();
        let check = root.square() * self;
        let correct = check.ct_eq(&Self::ONE);
        let flipped = check.ct_eq(&-Self::ONE);
        let flipped_i = check.ct_eq(&-SQRT_M1);
        let root = Self::conditional_select(&root, &(root * SQRT_M1), flipped | flipped_i);
        (correct | flipped, root.abs())
    }
}

impl Loose {
    pub fn square(self) -> Element {
        let mut result = Element::ZERO;
        fiat::fiat_25519_carry_square(&mut result.0, &self.0);
        result
    }

    /// Reduces a sum, so that it may be a summand.
    pub fn carry(self) -> Element {
        let mut result = Element::ZERO;
        fiat::fiat_25519_carry(&mut result.0, &self.0);
        result
    }

    /// Returns its limbs.
    #[inline]
    pub const fn limbs(self) -> [u64; 5] {
        self.0.0
    }

    /// Of limbs that `limbs` gave.
    #[inline]
    pub const fn from_limbs(limbs: [u64; 5]) -> Self {
        Self(fiat::fiat_25519_loose_field_element(limbs))
    }
}

impl From<Element> for Loose {
    #[inline]
    fn from(element: Element) -> Self {
        Self(fiat::fiat_25519_loose_field_element(element.0.0))
    }
}

impl Add for Element {
    type Output = Loose;

    #[inline]
    fn add(self, other: Self) -> Loose {
        let mut result = Loose::from_limbs([0; 5]);
        fiat::fiat_25519_add(&mut result.0, &self.0, &other.0);
        result
    }
}

impl Sub for Element {
    type Output = Loose;

    #[inline]
    fn sub(self, other: Self) -> Loose {
        let mut result = Loose::from_limbs([0; 5]);
        fiat::fiat_25519_sub(&mut result.0, &self.0, &other.0);
        result
    }
}

impl Neg for Element {
    type Output = Self;

    #[inline]
    fn neg(self) -> Self {
        (Self::ZERO - self).carry()
    }
}

impl<Factor: Into<Loose>> Mul<Factor> for Loose {
    type Output = Element;

    #[inline]
    fn mul(self, other: Factor) -> Element {
        let mut result = Element::ZERO;
        fiat::fiat_25519_carry_mul(&mut result.0, &self.0, &other.into().0);
        result
    }
}

impl<Factor: Into<Loose>> Mul<Factor> for Element {
    type Output = Self;

    #[inline]
    fn mul(self, other: Factor) -> Self {
        Loose::from(self) * other
    }
}

impl ConditionallySelectable for Element {
    fn conditional_select(first: &Self, second: &Self, choice: Choice) -> Self {
        Self::from_limbs(ConditionallySelectable::conditional_select(
            &first.0.0,
            &second.0.0,
            choice,
        ))
    }
}

impl ConditionallySelectable for Loose {
    fn conditional_select(first: &Self, second: &Self, choice: Choice) -> Self {
        Self::from_limbs(ConditionallySelectable::conditional_select(
            &first.0.0,
            &second.0.0,
            choice,
        ))
    }
}

impl ConstantTimeEq for Element {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.to_bytes().ct_eq(&other.to_bytes())
    }
}

impl Zeroize for Element {
    fn zeroize(&mut self) {
        self.0.0.zeroize();
    }
}

/// Decodes 64 hexadecimal digits of a constant's bytes.
const fn constant(digits: &[u8; 2 * BYTES]) -> Element {
    const fn digit(character: u8) -> u8 {
        match character {
            b'0'..=b'9' => character - b'0',
            _ => character - b'a' + 10,
        }
    }
    let mut bytes = [0; BYTES];
    let mut index = 0;
    while index < BYTES {
        bytes[index] = digit(digits[2 * index]) << 4 | digit(digits[2 * index + 1]);
        index += 1;
    }
    Element::from_bytes(&bytes)
}

/// d = -121665 / 121666 [RFC 9496, section 4.1].
pub const D: Element =
    constant(b"a3785913ca4deb75abd841414d0a700098e879777940c78c73fe6f2bee6c0352");
/// 2 d.
pub const TWICE_D: Element =
    constant(b"59f1b226949bd6eb56b183829a14e00030d1f3eef2808e19e7fcdf56dcd90624");
/// 1 / (2 d).
pub const INVERSE_TWICE_D: Element =
    constant(b"18fce4663b79f01217aa3c214cebae05b3e7dc668a108b9521e76a0a693f4860");
/// The square root of -1 that is not negative.
pub const SQRT_M1: Element =
    constant(b"b0a00e4a271beec478e42fad0618432fa7d7fb3d99004d2b0bdfc14f8024832b");
/// 1 / sqrt(a - d), where a = -1.
pub const INVSQRT_A_MINUS_D: Element =
    constant(b"ea405d80aafdc899be72415a17162f9d40d801fe917bc216a2fcafcf05896c78");

#[cfg(test)]
mod tests {
    use super::*;

    fn small(value: u64) -> Element {
        Element::small(value)
    }

    fn same(first: Element, second: Element) -> bool {
        first.ct_eq(&second).into()
    }

    #[test]
    fn constants_satisfy_their_definitions() {
        assert!(same(D * small(121_666), -small(121_665)));
        assert!(same(TWICE_D, (D + D).carry()));
        assert!(same(TWICE_D * INVERSE_TWICE_D, Element::ONE));
        assert!(same(SQRT_M1.square(), -Element::ONE));
        let a_minus_d = (-Element::ONE - D).carry();
        assert!(same(INVSQRT_A_MINUS_D.square() * a_minus_d, Element::ONE));
        for constant in [SQRT_M1, INVSQRT_A_MINUS_D] {
            assert!(!bool::from(constant.is_negative()));
        }
    }

    #[test]
    fn inverse_roots_are_of_squares() {
        let mut squares = 0;
        for value in 1..200 {
            let (is_square, root) = small(value).inverse_sqrt();
            assert!(!bool::from(root.is_negative()));
            let expected = if is_square.into() {
                Element::ONE
            } else {
                SQRT_M1
            };
            assert!(same(root.square() * small(value), expected));
            squares += u32::from(is_square.unwrap_u8());
        }
        assert!((70..130).contains(&squares));
        let (is_square, root) = Element::ZERO.inverse_sqrt();
        assert!(!bool::from(is_square) && bool::from(root.is_zero()));
    }

    #[test]
    fn encodings_are_canonical() {
        let mut p_plus_1 = [0xff; BYTES];
        p_plus_1[0] = 0xee;
        p_plus_1[BYTES - 1] = 0x7f;
        assert!(same(Element::from_bytes(&p_plus_1), Element::ONE));
        assert_eq!((-Element::ONE).to_bytes()[0], 0xec);
        assert_eq!((-Element::ZERO).to_bytes(), [0; BYTES]);
    }
}
