//! Pedersen vector commitments: sum of v_c Gamma_c + r H_0; and sums of them.

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::{Identity, MultiscalarMul};
use zeroize::Zeroizing;

use super::encode::{self, Element};
use super::error::ProofError;
use super::generators::{self, Family};
use super::limits::{MAX_LENGTH, VALUE_LIMIT};
use super::sum::{Slot, Sum};

/// Refuses more coordinates than a commitment has, and values out of range.
pub fn expect_values(values: &[i128]) -> Result<(), ProofError> {
    if values.len() > MAX_LENGTH {
        return Err(ProofError::Argument(format!(
            "values: {} coordinates, more than {MAX_LENGTH}",
            values.len()
        )));
    }
    let beyond = |value: &i128| value.unsigned_abs() >= VALUE_LIMIT.unsigned_abs();
    match values.iter().position(beyond) {
        None => Ok(()),
        Some(index) => Err(ProofError::Argument(format!(
            "values: number {index} is not below 2**126 in magnitude"
        ))),
    }
}

/// Returns the commitment, in constant time for its length.
pub fn commit(values: &[i128], blinding: &Scalar) -> RistrettoPoint {
    let gamma = generators::list(Family::Value, values.len());
    let mut scalars = Zeroizing::new(Vec::with_capacity(values.len() + 1));
    scalars.push(*blinding);
    scalars.extend(values.iter().map(|&value| encode::value(value)));
    let points = std::iter::once(&generators::bases().blinding).chain(&gamma[..values.len()]);
    RistrettoPoint::multiscalar_mul(scalars.iter(), points)
}

/// Returns the sum of `plus` minus the sum of `minus`.
pub fn combine(plus: &[Element], minus: &[Element]) -> Result<RistrettoPoint, ProofError> {
    let mut total = RistrettoPoint::identity();
    for commitment in plus {
        total += encode::point("commitment", commitment)?;
    }
    for commitment in minus {
        total -= encode::point("commitment", commitment)?;
    }
    Ok(total)
}

/// The claim that the sum of `plus` minus the sum of `minus` commits to `values` with `blinding`.
pub struct Opening {
    /// Commitments that are added.
    pub plus: Vec<Element>,
    /// Commitments that are subtracted.
    pub minus: Vec<Element>,
    /// The values of their sum.
    pub values: Vec<i128>,
    /// The blinding of their sum.
    pub blinding: Element,
}

impl Opening {
    pub(super) fn verify(&self, weight: &Scalar, sum: &mut Sum) -> Result<(), ProofError> {
        let blinding = encode::scalar("blinding", &self.blinding)?;
        let total = combine(&self.plus, &self.minus)?;
        sum.add(*weight, total);
        sum.blinding -= weight * blinding;
        for (index, &value) in self.values.iter().enumerate() {
            *sum.slot(Slot::Value(index)) -= weight * encode::value(value);
        }
        Ok(())
    }
}
