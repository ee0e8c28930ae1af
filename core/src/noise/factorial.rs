//! Ratios of factorials: enclosed through Stirling's series, or multiplied out.

use num_bigint::{BigInt, BigUint};

use super::bounds::{Bounds, ln_ratio};

/// Least value for which Stirling's series suffices for the decisions.
pub const STIRLING_FROM: u64 = 64;
/// Factors of a ratio that is multiplied out, at most.
pub const FACTORS: u64 = 1 << 18;

/// B_2j / (2j (2j - 1)) for j = 1, 2, ..., numerators and denominators. [DLMF, 5.11.1]
const COEFFICIENTS: [(i128, u64); 18] = [
    (1, 12),
    (-1, 360),
    (1, 1260),
    (-1, 1680),
    (1, 1188),
    (-691, 360_360),
    (1, 156),
    (-3617, 122_400),
    (43_867, 244_188),
    (-174_611, 125_400),
    (77_683, 5796),
    (-236_364_091, 1_506_960),
    (657_931, 300),
    (-3_392_780_147, 93_960),
    (1_723_168_255_201, 2_492_028),
    (-7_709_321_041_217, 505_920),
    (151_628_697_551, 396),
    (-26_315_271_553_053_477_373, 2_418_179_400),
];

/// Bounds on 2^point times ln z! - ((z + 1/2) ln z - z + ln(2 pi) / 2), the sum of Stirling's series; None if
/// the series does not come within 2^-point of it. The error is less than the first term that is left
/// out. [DLMF, 5.11(ii)]
fn series(z: &BigUint, point: u64) -> Option<Bounds<BigInt>> {
    let square = z * z;
    let mut power = z.clone();
    let mut sum = BigInt::ZERO;
    for (up, down) in COEFFICIENTS {
        let denominator = &power * down;
        let term = (BigInt::from(up) << point) / BigInt::from(denominator);
        sum += &term;
        if term == BigInt::ZERO {
            // What is left out is less than a unit; each term is rounded by less than one.
            return Some(Bounds {
                low: &sum - 20,
                high: sum + 20,
            });
        }
        power *= &square;
    }
    None
}

/// Returns bounds on 2^point times ln(b! / a!) - (b - a) ln a, for a and b of STIRLING_FROM or
/// more.
pub fn ln_factorial_ratio(a: &BigUint, b: &BigUint, point: u64) -> Option<Bounds<BigInt>> {
    // (b + 1/2) ln(b / a) - (b - a) + series(b) - series(a)
    let guard = b.bits() + 2;
    let factor = BigInt::from((b << 1u8) + 1u8);
    let logarithm = ln_ratio(b, a, point + guard)
        .times(&factor)
        .coarser(guard + 1);
    let difference = BigInt::from(a.clone()) - BigInt::from(b.clone());
    let minus = series(a, point)?.times(&BigInt::from(-1));
    Some(
        logarithm
            .plus(&Bounds::of_integer(&difference, point))
            .plus(&series(b, point)?)
            .plus(&minus),
    )
}

/// Returns the product of the integers from `low` + 1 to `high`, at most FACTORS of them.
pub fn product(low: &BigUint, high: &BigUint) -> BigUint {
    let count: u64 = (high - low).try_into().unwrap_or(u64::MAX);
    if count <= 8 {
        return (1..=count).map(|i| low + i).product();
    }
    let middle = low + count / 2;
    product(low, &middle) * product(&middle, high)
}
