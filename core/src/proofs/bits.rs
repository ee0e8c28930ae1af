//! Committed bits whose weighted sums are a committed vector.
//!
//! Public: weights w_i, each in a slot c(i); the commitments A and T. The prover shows that it knows bits s_i and
//! alpha, gamma such that, with Gamma_c the generator of slot c,
//!
//!   A = sum of s_i G_i + sum of (s_i - 1) H_i + alpha H_0
//!   T = sum of s_i w_i Gamma_c(i) + gamma H_0.
//!
//! A may be fixed long before the weights are known. After both, challenges y, z, rho; then with
//! G'_i = G_i + rho w_i Gamma_c(i),
//!
//!   P = A + rho T - z sum of G'_i + z sum of H_i + (z - z^2) (sum of y^i) U
//!
//! is shown to be <a, G'> + <b, H> + (sum of y^i a_i b_i) U + (alpha + rho gamma) H_0 by `product`; honestly
//! a_i = s_i - z and b_i = s_i - 1 + z. Why that is sound: `docs/proofs/zero-knowledge.md`. Bits are filled to a power of two with
//! zeros without a weight. They are shown to be bits as well, or T could hold multiples of their generators.

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::VartimeMultiscalarMul;
use merlin::Transcript;
use subtle::ConditionallySelectable;
use zeroize::Zeroizing;

use super::encode::Reader;
use super::error::ProofError;
use super::generators::{self, Family};
use super::labels;
use super::product::{self, Statement, Witness};
use super::sum::{Slot, Sum};
use super::transcript::challenge;

/// The weight of one bit, and the slot in which it counts. Public.
pub type Weight = (Slot, Scalar);
/// Secret bits, each 0 or 1.
pub type Bits = Zeroizing<Vec<u8>>;

/// Returns the number of elements of a proof about so many bits.
pub fn elements(bits: usize) -> usize {
    product::elements(bits.next_power_of_two())
}

/// Returns `bits`, and zeros up to a power of two.
fn filled(bits: &[u8]) -> impl Iterator<Item = u8> {
    let zeros = bits.len().next_power_of_two() - bits.len();
    bits.iter().copied().chain(std::iter::repeat_n(0, zeros))
}

/// Returns A: the commitment to `bits`, in constant time.
pub fn commit(bits: &[u8], alpha: &Scalar) -> RistrettoPoint {
    let size = bits.len().next_power_of_two();
    let left = generators::list(Family::Left, size);
    let right = generators::list(Family::Right, size);
    let mut total = Zeroizing::new(generators::bases().blinding * alpha);
    for ((bit, left), right) in filled(bits).zip(left.iter()).zip(right.iter()) {
        *total += RistrettoPoint::conditional_select(&-right, left, bit.into());
    }
    *total
}

/// Returns rho w_i Gamma_c(i) for each bit, by doublings and negations where they suffice.
fn shifts(weights: &[Weight], rho: &Scalar) -> Vec<RistrettoPoint> {
    let slots = weights.iter().map(|(slot, _)| match slot {
        Slot::Value(index) => index + 1,
        Slot::Norm => 0,
    });
    let values = generators::list(Family::Value, slots.max().unwrap_or(0));
    let mut shifts: Vec<RistrettoPoint> = Vec::with_capacity(weights.len());
    let mut last: Option<&Weight> = None;
    for weight in weights {
        let point = match (last, shifts.last()) {
            (Some((slot, before)), Some(shift)) if *slot == weight.0 => {
                if weight.1 == *before {
                    Some(*shift)
                } else if weight.1 == -before {
                    Some(-shift)
                } else if weight.1 == before + before {
                    Some(shift + shift)
                } else {
                    None
                }
            }
            _ => None,
        };
        shifts.push(point.unwrap_or_else(|| {
            let generator = match weight.0 {
                Slot::Value(index) => &values[index],
                Slot::Norm => &generators::bases().norm,
            };
            RistrettoPoint::vartime_multiscalar_mul([rho * weight.1], [generator])
        }));
        last = Some(weight);
    }
    shifts
}

/// Appends the proof to `proof`; the transcript holds the statement, A and T.
pub fn prove(
    transcript: &mut Transcript,
    weights: &[Weight],
    bits: &[u8],
    alpha: &Scalar,
    gamma: &Scalar,
    seed: &[u8; 32],
    proof: &mut Vec<u8>,
) {
    let [y, z, rho] = challenges(transcript);
    let size = bits.len().next_power_of_two();
    let mut left = generators::list(Family::Left, size)[..size].to_vec();
    for (left, shift) in left.iter_mut().zip(shifts(weights, &rho)) {
        *left += shift;
    }
    let shifted = |shift: Scalar| {
        let mut scalars = Zeroizing::new(Vec::with_capacity(size));
        scalars.extend(filled(bits).map(|bit| Scalar::from(bit) + shift));
        scalars
    };
    let witness = Witness {
        a: shifted(-z),
        b: shifted(z - Scalar::ONE),
        alpha: Zeroizing::new(alpha + rho * gamma),
    };
    let statement = Statement {
        left,
        right: generators::list(Family::Right, size)[..size].to_vec(),
        product: generators::bases().product,
        y,
    };
    product::prove(transcript, statement, witness, seed, proof);
}

fn challenges(transcript: &mut Transcript) -> [Scalar; 3] {
    [labels::Y, labels::Z, labels::RHO].map(|label| challenge(transcript, label))
}

/// Adds a proof's equation, times `weight`, to `sum`.
///
/// A is one point; T is a sum of multiples of `points` and of the generators of `slots`.
pub struct Claim<'a> {
    pub weights: &'a [Weight],
    pub bits: RistrettoPoint,
    pub points: &'a [(Scalar, RistrettoPoint)],
    pub slots: &'a [(Slot, Scalar)],
}

impl Claim<'_> {
    pub fn verify(
        &self,
        transcript: &mut Transcript,
        reader: &mut Reader<'_>,
        weight: &Scalar,
        sum: &mut Sum,
    ) -> Result<(), ProofError> {
        let [y, z, rho] = challenges(transcript);
        let size = self.weights.len().next_power_of_two();
        let result = product::verify(transcript, reader, size, &y, weight, sum)?;
        sum.add(result.of_p, self.bits);
        let of_t = result.of_p * rho;
        for (scalar, point) in self.points {
            sum.add(of_t * scalar, *point);
        }
        for (slot, scalar) in self.slots {
            *sum.slot(*slot) += of_t * scalar;
        }
        let of_z = result.of_p * z;
        // The sum of y^i, i from 1, of twice as many each time.
        let (mut powers, mut power) = (y, y);
        for _ in 0..size.ilog2() {
            powers += powers * power;
            power *= power;
        }
        let mut of_left = result.left;
        for left in &mut of_left {
            *left -= of_z;
        }
        sum.product += result.product + of_z * (Scalar::ONE - z) * powers;
        let (sum_left, sum_right) = sum.sides(size);
        for (total, left) in sum_left.iter_mut().zip(&of_left) {
            *total += left;
        }
        for (total, right) in sum_right.iter_mut().zip(result.right) {
            *total += right + of_z;
        }
        let mut of_bits = of_left.iter();
        for run in self.weights.chunk_by(|one, next| one.0 == next.0) {
            let terms = run.iter().zip(&mut of_bits);
            let inner: Scalar = terms.map(|((_, weight), left)| weight * left).sum();
            *sum.slot(run[0].0) += rho * inner;
        }
        Ok(())
    }
}
