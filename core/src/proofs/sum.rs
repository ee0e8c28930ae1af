//! A sum of multiples of points that must be the identity: the equation of all verification.

use std::sync::LazyLock;

use curve25519_dalek::ristretto::{RistrettoPoint, VartimeRistrettoPrecomputation};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::{
    IsIdentity, VartimeMultiscalarMul, VartimePrecomputedMultiscalarMul,
};

use super::generators::{self, Family};

/// Generators with precomputed tables: those of one small proof. About 10 KiB each, made at first
/// use.
const TABLED_VALUES: usize = 4;
const TABLED_SIDE: usize = 128;
/// Most points for which tables pay; with more, the sum is faster without.
const TABLED_POINTS: usize = 64;

static TABLES: LazyLock<VartimeRistrettoPrecomputation> = LazyLock::new(|| {
    let bases = generators::bases();
    let values = generators::list(Family::Value, TABLED_VALUES);
    let left = generators::list(Family::Left, TABLED_SIDE);
    let right = generators::list(Family::Right, TABLED_SIDE);
    let sides = left.iter().zip(right.iter()).take(TABLED_SIDE);
    let points = [&bases.blinding, &bases.product, &bases.norm]
        .into_iter()
        .chain(&values[..TABLED_VALUES])
        .chain(sides.flat_map(|(left, right)| [left, right]));
    VartimeRistrettoPrecomputation::new(points)
});

/// Position of a coordinate in a commitment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Coordinate of a vector.
    Value(usize),
    /// The squared norm.
    Norm,
}

/// Coefficients of the sum; equations are added to it, each times its own weight. All of it is
/// public.
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

/// Returns the first `count` coefficients, extended by zeros.
fn grown(coefficients: &mut Vec<Scalar>, count: usize) -> &mut [Scalar] {
    if coefficients.len() < count {
        coefficients.resize(count, Scalar::ZERO);
    }
    &mut coefficients[..count]
}

impl Sum {
    pub fn slot(&mut self, slot: Slot) -> &mut Scalar {
        match slot {
            Slot::Value(index) => &mut grown(&mut self.values, index + 1)[index],
            Slot::Norm => &mut self.norm,
        }
    }

    /// Returns the coefficients of the first `count` generators of G and of H.
    pub fn sides(&mut self, count: usize) -> (&mut [Scalar], &mut [Scalar]) {
        (grown(&mut self.left, count), grown(&mut self.right, count))
    }

    pub fn add(&mut self, scalar: Scalar, point: RistrettoPoint) {
        self.scalars.push(scalar);
        self.points.push(point);
    }

    pub fn is_identity(&self) -> bool {
        if self.values.len() <= TABLED_VALUES
            && self.left.len() <= TABLED_SIDE
            && self.points.len() <= TABLED_POINTS
        {
            return self.tabled().is_identity();
        }
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

    /// Returns the sum, computed with tables.
    fn tabled(&self) -> RistrettoPoint {
        let mut values = self.values.clone();
        values.resize(TABLED_VALUES, Scalar::ZERO);
        let sides = self.left.iter().zip(&self.right);
        let scalars: Vec<Scalar> = [self.blinding, self.product, self.norm]
            .into_iter()
            .chain(values)
            .chain(sides.flat_map(|(left, right)| [*left, *right]))
            .collect();
        TABLES.vartime_mixed_multiscalar_mul(scalars, &self.scalars, &self.points)
    }
}
