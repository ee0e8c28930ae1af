//! The distributions: log-concave mass functions f on the integers, f(mode) = 1, enclosed as tightly as asked for.
//!
//! Values are given by their offset from the mode.

use num_bigint::{BigInt, BigUint};

use super::bounds::{Bounds, exp_neg, ln_ratio};
use super::error::NoiseError;
use super::factorial::{FACTORS, STIRLING_FROM, ln_factorial_ratio, product};

/// A positive rational, or zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rational {
    pub up: BigUint,
    pub down: BigUint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// exp(-rate offset^2)
    Square,
    /// exp(-rate |offset|)
    Absolute,
    /// exp(-rate offset) where offset >= 0
    Right,
}

/// A mass function.
#[derive(Clone, Debug)]
pub enum Distribution {
    Exponential(Exponential),
    Counting(Box<Counting>),
}

#[derive(Clone, Debug)]
pub struct Exponential {
    shape: Shape,
    rate: Rational,
    spread: BigUint,
}

/// odds^k / (k! (trials - k)!) over its value at the mode; the last factorial only where there are `trials`.
#[derive(Clone, Debug)]
pub struct Counting {
    mode: BigUint,
    odds: Rational,
    trials: Option<BigUint>,
    spread: BigUint,
}

/// -ln f at one offset.
enum Exponent {
    /// The mass is 0.
    Infinite,
    Between(Bounds<BigUint>),
    /// Bounds so tight are not available.
    Unknown,
}

impl Rational {
    pub fn new(up: BigUint, down: BigUint) -> Self {
        Self { up, down }
    }

    fn floor(&self) -> BigUint {
        &self.up / &self.down
    }
}

impl Distribution {
    /// exp(-x k) for k >= 0.
    pub fn geometric(x: Rational) -> Self {
        let spread = (&x.down * &x.down) / (&x.up * &x.up);
        Self::exponential(Shape::Right, x, spread)
    }

    /// exp(-|k| / scale).
    pub fn laplace(scale: Rational) -> Self {
        let spread = (&scale.up * &scale.up) / (&scale.down * &scale.down);
        let rate = Rational::new(scale.down, scale.up);
        Self::exponential(Shape::Absolute, rate, spread)
    }

    /// exp(-k^2 / (2 variance)).
    pub fn gaussian(variance: Rational) -> Self {
        let spread = variance.floor();
        let rate = Rational::new(variance.down, variance.up << 1u8);
        Self::exponential(Shape::Square, rate, spread)
    }

    fn exponential(shape: Shape, rate: Rational, spread: BigUint) -> Self {
        Self::Exponential(Exponential {
            shape,
            rate,
            spread,
        })
    }

    /// mean^k / k!.
    pub fn poisson(mean: Rational) -> Self {
        let mode = mean.floor();
        Self::Counting(Box::new(Counting {
            spread: mode.clone(),
            mode,
            odds: mean,
            trials: None,
        }))
    }

    /// Binomial, for 0 < p < 1 and trials > 0.
    pub fn binomial(trials: BigUint, p: Rational) -> Self {
        let mode = ((&trials + 1u8) * &p.up / &p.down).min(trials.clone());
        let q = &p.down - &p.up;
        Self::Counting(Box::new(Counting {
            spread: &trials * &p.up * &q / (&p.down * &p.down),
            mode,
            odds: Rational::new(p.up, q),
            trials: Some(trials),
        }))
    }

    /// Returns about the square of the width of the distribution, which determines the width of
    /// strips.
    pub fn spread(&self) -> &BigUint {
        match self {
            Self::Exponential(distribution) => &distribution.spread,
            Self::Counting(distribution) => &distribution.spread,
        }
    }

    /// The mode, where it is a value of 64 bits.
    pub fn origin(&self) -> Option<i64> {
        match self {
            Self::Exponential(_) => Some(0),
            Self::Counting(distribution) => i64::try_from(&distribution.mode).ok(),
        }
    }

    /// Returns bounds on 2^point (-ln f); None where f is 0 or such bounds are not available.
    pub fn exponent(&self, offset: i128, point: u64) -> Option<Bounds<BigUint>> {
        match self.enclose(offset, point) {
            Exponent::Between(bounds) => Some(bounds),
            Exponent::Infinite | Exponent::Unknown => None,
        }
    }

    /// Returns bounds on 2^bits f; None where such bounds are not available: `exact` has the value.
    pub fn mass(&self, offset: i128, bits: u64) -> Option<Bounds<BigUint>> {
        if offset == 0 {
            let one = BigUint::from(1u8) << bits;
            return Some(Bounds {
                low: one.clone(),
                high: one,
            });
        }
        let point = bits + 16;
        match self.enclose(offset, point) {
            Exponent::Infinite => Some(Bounds {
                low: BigUint::ZERO,
                high: BigUint::ZERO,
            }),
            Exponent::Between(exponent) => Some(exp_neg(&exponent, point, bits)),
            Exponent::Unknown => None,
        }
    }

    fn enclose(&self, offset: i128, point: u64) -> Exponent {
        match self {
            Self::Exponential(distribution) => distribution.enclose(offset, point),
            Self::Counting(distribution) => distribution.enclose(offset, point),
        }
    }

    /// Returns the mass itself where it is a rational; `Beyond` for an offset too large to multiply
    /// out.
    pub fn exact(&self, offset: i128) -> Result<Option<Rational>, NoiseError> {
        if offset == 0 {
            return Ok(Some(Rational::new(1u8.into(), 1u8.into())));
        }
        match self {
            Self::Exponential(distribution) if distribution.shape == Shape::Right && offset < 0 => {
                Ok(Some(Rational::new(BigUint::ZERO, 1u8.into())))
            }
            Self::Exponential(_) => Ok(None),
            Self::Counting(distribution) => distribution.exact(offset).map(Some),
        }
    }
}

impl Exponential {
    fn enclose(&self, offset: i128, point: u64) -> Exponent {
        let distance = BigUint::from(offset.unsigned_abs());
        let factor = match self.shape {
            Shape::Right if offset < 0 => return Exponent::Infinite,
            Shape::Square => &distance * &distance,
            Shape::Absolute | Shape::Right => distance,
        };
        let low = ((factor * &self.rate.up) << point) / &self.rate.down;
        Exponent::Between(Bounds {
            high: &low + 1u8,
            low,
        })
    }
}

impl Counting {
    /// Returns k and, where there are trials, trials - k; None outside of the support.
    fn index(&self, offset: i128) -> Option<(BigUint, Option<BigUint>)> {
        let k = BigUint::try_from(BigInt::from(self.mode.clone()) + offset).ok()?;
        match &self.trials {
            None => Some((k, None)),
            Some(trials) if k <= *trials => {
                let rest = trials - &k;
                Some((k, Some(rest)))
            }
            Some(_) => None,
        }
    }

    fn enclose(&self, offset: i128, point: u64) -> Exponent {
        let Some((k, rest)) = self.index(offset) else {
            return Exponent::Infinite;
        };
        match self.stirling(&k, rest.as_ref(), offset, point) {
            Some(bounds) => Exponent::Between(Bounds {
                low: bounds.low.try_into().unwrap_or(BigUint::ZERO),
                high: bounds.high.try_into().unwrap_or(BigUint::ZERO),
            }),
            None => Exponent::Unknown,
        }
    }

    fn stirling(
        &self,
        k: &BigUint,
        rest: Option<&BigUint>,
        offset: i128,
        point: u64,
    ) -> Option<Bounds<BigInt>> {
        let from = BigUint::from(STIRLING_FROM);
        if *k < from || self.mode < from {
            return None;
        }
        let work = point + 8;
        // ln(k! / mode!) - offset ln(mode), then the same with trials - k: the rests of the logarithms make
        // one, of a ratio near 1.
        let mut exponent = ln_factorial_ratio(&self.mode, k, work)?;
        let (mut up, down) = (self.odds.up.clone(), &self.odds.down * &self.mode);
        if let (Some(rest), Some(trials)) = (rest, &self.trials) {
            let rest_of_mode = trials - &self.mode;
            if *rest < from || rest_of_mode < from {
                return None;
            }
            exponent = exponent.plus(&ln_factorial_ratio(&rest_of_mode, rest, work)?);
            up *= rest_of_mode;
        }
        let guard = 130;
        let slope = ln_ratio(&up, &down, work + guard)
            .times(&BigInt::from(-offset))
            .coarser(guard);
        Some(exponent.plus(&slope).coarser(8))
    }

    fn exact(&self, offset: i128) -> Result<Rational, NoiseError> {
        let Some((k, rest)) = self.index(offset) else {
            return Ok(Rational::new(BigUint::ZERO, 1u8.into()));
        };
        let steps = offset.unsigned_abs();
        if steps > u128::from(FACTORS) {
            return Err(NoiseError::Beyond);
        }
        let steps = steps as u32;
        let (low, high) = if offset > 0 {
            (&self.mode, &k)
        } else {
            (&k, &self.mode)
        };
        // f(high) / f(low)
        let mut up = self.odds.up.pow(steps);
        let down = self.odds.down.pow(steps) * product(low, high);
        if let (Some(rest), Some(trials)) = (&rest, &self.trials) {
            let of_mode = trials - &self.mode;
            let (fewer, more) = if offset > 0 {
                (rest, &of_mode)
            } else {
                (&of_mode, rest)
            };
            up *= product(fewer, more);
        }
        Ok(if offset > 0 {
            Rational::new(up, down)
        } else {
            Rational::new(down, up)
        })
    }
}
