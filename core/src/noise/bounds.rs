//! Integers that enclose exponentials and logarithms: a real y is bounded by low <= 2^bits y <= high.

use num_bigint::{BigInt, BigUint};

/// An enclosure of a real, scaled by a power of two known to the caller.
#[derive(Clone, Debug)]
pub struct Bounds<T> {
    pub low: T,
    pub high: T,
}

impl Bounds<BigInt> {
    /// Returns the enclosure of `number` scaled by 2^point.
    pub fn of_integer(number: &BigInt, point: u64) -> Self {
        let low = number << point;
        Self {
            high: low.clone(),
            low,
        }
    }

    /// The sum.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            low: &self.low + &other.low,
            high: &self.high + &other.high,
        }
    }

    /// The product with an integer, of either sign.
    pub fn times(&self, factor: &BigInt) -> Self {
        let (one, other) = (&self.low * factor, &self.high * factor);
        if one <= other {
            Self {
                low: one,
                high: other,
            }
        } else {
            Self {
                low: other,
                high: one,
            }
        }
    }

    /// Returns the enclosure of the same real, scaled by 2^shift less.
    pub fn coarser(&self, shift: u64) -> Self {
        Self {
            low: &self.low >> shift,
            high: (&self.high >> shift) + 1,
        }
    }
}

/// Returns 2^shift x, or its floor where `shift` is negative.
fn scale(x: &BigUint, shift: i64) -> BigUint {
    if shift >= 0 {
        x << shift.unsigned_abs()
    } else {
        x >> shift.unsigned_abs()
    }
}

/// Returns bounds on 2^bits exp(-x) for every x with low <= 2^point x <= high.
pub fn exp_neg(x: &Bounds<BigUint>, point: u64, bits: u64) -> Bounds<BigUint> {
    let whole = &x.low >> point;
    if whole >= BigUint::from(bits) {
        // exp(-x) < 2^-bits
        return Bounds {
            low: BigUint::ZERO,
            high: BigUint::from(1u8),
        };
    }
    // exp(-x) is exp(-y) squared `halvings` times, with y below 1/64.
    let halvings = whole.bits() + 6;
    let guard = halvings + 40;
    let work = bits + guard;
    let y = BigInt::from(scale(&x.low, work as i64 - point as i64 - halvings as i64));
    let mut term = BigInt::from(1u8) << work;
    let mut sum = term.clone();
    let mut n = 0u32;
    while term != BigInt::ZERO {
        n += 1;
        // The shift rounds downwards, the division towards zero, so the loop ends.
        term = (-(&term * &y) >> work) / n;
        sum += &term;
    }
    for _ in 0..halvings {
        sum = (&sum * &sum) >> work;
    }
    // y is below its real value by less than a unit, each of fewer than 2^16 terms is off by less than two
    // units, the terms left out by less than one; each squaring doubles the error and adds one unit.
    let slack = BigInt::from(1u8) << (halvings + 20);
    let low = (&sum - &slack) >> guard;
    let high: BigInt = ((&sum + &slack) >> guard) + 1;
    // From the lowest x to the highest, exp(-x) falls by no more than x rises.
    let fall = scale(&(&x.high - &x.low), bits as i64 - point as i64) + 1u8;
    let fall = if x.high == x.low { BigUint::ZERO } else { fall };
    Bounds {
        low: (low - BigInt::from(fall))
            .try_into()
            .unwrap_or(BigUint::ZERO),
        high: high.try_into().unwrap_or(BigUint::ZERO),
    }
}

/// Returns bounds on 2^work atanh(z) / z's sign for z = up / down, 0 <= z <= 1/3, `work` at most
/// 2^15.
fn atanh(up: &BigUint, down: &BigUint, work: u64) -> Bounds<BigInt> {
    let mut power = (up << work) / down;
    let square = (&power * &power) >> work;
    let mut sum = power.clone();
    let mut n = 1u32;
    while power != BigUint::ZERO {
        n += 2;
        power = (&power * &square) >> work;
        sum += &power / n;
    }
    // All roundings are downwards: less than four units for each of fewer than 2^15 terms, the rest included.
    let low = BigInt::from(sum);
    Bounds {
        high: &low + (1u32 << 17),
        low,
    }
}

/// Returns bounds on 2^point ln(up / down), both positive.
pub fn ln_ratio(up: &BigUint, down: &BigUint, point: u64) -> Bounds<BigInt> {
    if up < down {
        return ln_ratio(down, up, point).times(&BigInt::from(-1));
    }
    let work = point + 32;
    // up / down = 2^twos * rest with 1/2 < rest < 2, so (rest - 1) / (rest + 1) is within 1/3 of 0.
    let twos = up.bits() - down.bits();
    let down = down << twos;
    let (larger, smaller) = if *up < down { (&down, up) } else { (up, &down) };
    let mut rest = atanh(&(larger - smaller), &(larger + smaller), work).times(&BigInt::from(2u8));
    if *up < down {
        rest = rest.times(&BigInt::from(-1));
    }
    if twos > 0 {
        let ln_two = atanh(&BigUint::from(1u8), &BigUint::from(3u8), work);
        rest = rest.plus(&ln_two.times(&BigInt::from(2 * twos)));
    }
    rest.coarser(32)
}
