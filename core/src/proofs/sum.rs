//! A sum of multiples of points that is to be the identity: what all verification comes down to.

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::{IsIdentity, VartimeMultiscalarMul};

use super::generators::{self, Family};

/// Where a coordinate of a commitment lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Coordinate of a vector.
    Value(usize),
    /// The squared norm.
    Norm,
}

/// The coefficients; equations are added to it, each times its own weight. All of it is public.
#[derive(Default)]
pub struct Sum {
    values: Vec<Scalar>,
    left: Vec<Scalar>,
    right: Vec<Scalar>,
    pub blinding: Scalar,
    pub product: Scalar,
    pub norm: Scalar,
    scalars: Vec<Scalar>,
    points: Vec<RistrettoPoint>,
}

/// The first `count` coefficients.
fn grown(coefficients: &mut Vec<Scalar>, count: usize) -> &mut [Scalar] {
    if coefficients.len() < count {
        coefficients.resize(count, Scalar::ZERO);
    }
    &mut coefficients[..count]
}

impl Sum {
    pub fn slot(&mut self, slot: Slot) -> &mut Scalar {
        match slot {
            Slot::Value(place) => &mut grown(&mut self.values, place + 1)[place],
            Slot::Norm => &mut self.norm,
        }
    }

    /// Coefficients of the first `count` generators of G and of H.
    pub fn sides(&mut self, count: usize) -> (&mut [Scalar], &mut [Scalar]) {
        (grown(&mut self.left, count), grown(&mut self.right, count))
    }

    pub fn add(&mut self, scalar: Scalar, point: RistrettoPoint) {
        self.scalars.push(scalar);
        self.points.push(point);
    }

    pub fn is_identity(&self) -> bool {
        let bases = generators::bases();
        let values = generators::list(Family::Value, self.values.len());
        let left = generators::list(Family::Left, self.left.len());
        let right = generators::list(Family::Right, self.right.len());
        let alone = [self.blinding, self.product, self.norm];
        let scalars = alone
            .iter()
            .chain(&self.values)
            .chain(&self.left)
            .chain(&self.right)
            .chain(&self.scalars);
        let points = [&bases.blinding, &bases.product, &bases.norm]
            .into_iter()
            .chain(&values[..self.values.len()])
            .chain(&left[..self.left.len()])
            .chain(&right[..self.right.len()])
            .chain(&self.points);
        RistrettoPoint::vartime_multiscalar_mul(scalars, points).is_identity()
    }
}
