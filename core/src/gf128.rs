//! The field GF(2^128) modulo x^128 + x^7 + x^2 + x + 1.
//!
//! An element is a `u128` whose bit i is the coefficient of x^i; its bytes are big-endian. GHASH
//! [NIST SP 800-38D, section 6.4] is arithmetic in the same field with the order of all 128 bits
//! reversed, and computes a polynomial by Horner's rule. What touches secrets is therefore left to
//! the `ghash` crate, which is constant-time and uses carry-less multiplication where the machine
//! has it. What is below in plain integers is for public values only: its time depends on them.

use ghash::universal_hash::UniversalHash;
use ghash::{Block, GHash};
use zeroize::Zeroize;

/// Returns the block that represents `element` in GHASH.
pub(crate) fn to_block(element: u128) -> Block {
    element.reverse_bits().to_be_bytes().into()
}

/// Returns the element that `block` represents in GHASH.
fn from_block(block: Block) -> u128 {
    u128::from_be_bytes(block.into()).reverse_bits()
}

/// Multiplication by one element: GHASH under that key.
pub struct Multiplier(GHash);

impl Multiplier {
    /// Prepares multiplications by `factor`.
    pub fn new(factor: u128) -> Self {
        let mut key = to_block(factor);
        let multiplier = Self(GHash::new(&key));
        key.as_mut_slice().zeroize();
        multiplier
    }

    /// Returns `element * factor`, in constant time.
    pub fn times(&self, element: u128) -> u128 {
        let mut block = to_block(element);
        let mut hash = self.0.clone();
        hash.update(std::slice::from_ref(&block));
        block.as_mut_slice().zeroize();
        from_block(hash.finalize())
    }

    /// Returns `sum(coefficients[i] * factor^(k - i))` for i below k = `coefficients.len()`, in
    /// constant time.
    pub(crate) fn horner(&self, coefficients: &[Block]) -> u128 {
        let mut hash = self.0.clone();
        hash.update(coefficients);
        from_block(hash.finalize())
    }
}

/// Returns `element * small`, both public.
#[inline]
pub(crate) fn times_small(element: u128, small: u16) -> u128 {
    let mut low = 0;
    let mut high = 0;
    let mut rest = small;
    while rest != 0 {
        let bit = rest.trailing_zeros();
        low ^= element << bit;
        high ^= (element >> 64) as u64 >> 1 >> (63 - bit);
        rest &= rest - 1;
    }
    // x^128 = x^7 + x^2 + x + 1, and `high` has fewer than 16 bits.
    low ^ u128::from(high ^ high << 1 ^ high << 2 ^ high << 7)
}

/// Returns the inverse of a nonzero public element: its power 2^128 - 2.
fn inverse(element: u128) -> u128 {
    let factor = Multiplier::new(element);
    let mut power = element;
    for _ in 0..126 {
        power = factor.times(Multiplier::new(power).times(power));
    }
    Multiplier::new(power).times(power)
}

/// Replaces nonzero public elements by their inverses (Montgomery's trick: one inversion for all).
pub(crate) fn invert_all(elements: &mut [u128]) {
    let mut product = 1;
    let before: Vec<u128> = elements
        .iter()
        .map(|&element| {
            let sofar = product;
            product = Multiplier::new(element).times(product);
            sofar
        })
        .collect();
    let mut suffix = inverse(product);
    for (element, prefix) in elements.iter_mut().zip(before).rev() {
        let by_suffix = Multiplier::new(suffix);
        suffix = by_suffix.times(*element);
        *element = by_suffix.times(prefix);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication by the definition, one bit at a time.
    fn product(mut a: u128, mut b: u128) -> u128 {
        let mut sum = 0;
        while b != 0 {
            if b & 1 == 1 {
                sum ^= a;
            }
            a = a << 1 ^ if a >> 127 == 1 { 0x87 } else { 0 };
            b >>= 1;
        }
        sum
    }

    fn samples() -> Vec<u128> {
        let mut all = vec![0, 1, 2, 3, 0x87, 1 << 127, u128::MAX, u128::MAX >> 1];
        let mut state = 0x0123_4567_89ab_cdef_u128;
        for _ in 0..24 {
            state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645) + 1;
            all.push(state ^ state >> 64);
        }
        all
    }

    #[test]
    fn multiplier_is_the_field_product() {
        for a in samples() {
            for b in samples() {
                assert_eq!(Multiplier::new(a).times(b), product(a, b), "{a:x} * {b:x}");
            }
        }
    }

    #[test]
    fn times_small_is_the_field_product() {
        for a in samples() {
            for small in (0..=u16::MAX)
                .step_by(251)
                .chain([1, 2, 255, 256, u16::MAX])
            {
                assert_eq!(
                    times_small(a, small),
                    product(a, small.into()),
                    "{a:x} * {small:x}"
                );
            }
        }
    }

    #[test]
    fn horner_is_the_power_sum() {
        let coefficients = samples();
        let blocks: Vec<Block> = coefficients.iter().map(|&c| to_block(c)).collect();
        for factor in [0, 1, 2, 77, u128::MAX] {
            for length in 0..blocks.len() {
                let slow = coefficients[..length]
                    .iter()
                    .fold(0, |sum, &c| product(sum ^ c, factor));
                assert_eq!(Multiplier::new(factor).horner(&blocks[..length]), slow);
            }
        }
    }

    #[test]
    fn inverses() {
        let elements: Vec<u128> = samples().into_iter().filter(|&a| a != 0).collect();
        let mut inverted = elements.clone();
        invert_all(&mut inverted);
        for (a, b) in elements.into_iter().zip(inverted) {
            assert_eq!(product(a, b), 1, "{a:x}");
        }
        invert_all(&mut []);
    }
}
