//! Proof that the sum of the squares of a committed vector's coordinates is at most a bound.
//!
//! V = sum of x_c Gamma_c + gamma H_0 is the commitment; N is its own generator. The prover publishes
//!
//!   S = sum of x_c G_c + sum of x_c H_c + sigma H_0,  Q = q N + theta H_0  with q the sum of the x_c^2.
//!
//! Challenges y, z, rho, tau; with G'_c = G_c + rho Gamma_c,
//!
//!   P = S + rho V + tau Q - z sum of y^c G'_c + z sum of y^c H_c - tau z^2 (sum of y^2c) N
//!
//! is shown to be <a, G'> + <b, H> + <a, b> tau N + (..) H_0 by `product` with all weights 1; honestly
//! a_c = x_c - z y^c and b_c = x_c + z y^c. That shows q for the x of V, modulo the group's order. Then `bits`
//! shows, about V + B sum of Gamma_c + bound N - Q, that every x_c + B is in [0, 2 B] and bound - q in [0, bound],
//! for B the root of the bound, rounded down. So q cannot have wrapped, and is at most the bound.
//!
//! Vectors are filled to a power of two with zeros, as coordinates of V beyond its length, which `bits` shows to
//! be zero.

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::MultiscalarMul;
use merlin::Transcript;
use zeroize::Zeroizing;

use super::bits::{self, Bits, Claim, Weight};
use super::encode::{self, ELEMENT, Element, Reader};
use super::error::ProofError;
use super::generators::{self, Family};
use super::limits::{VALUE_LIMIT, expect_bits, expect_coordinates};
use super::product::{self, Statement, Witness};
use super::range::{commit_bits, expect_within, read_bits, split, weights};
use super::sum::{Slot, Sum};
use super::transcript::{Nonces, challenge, start};
use super::{commit, labels};

/// The public part of a statement about a norm.
#[derive(Debug, Clone, Copy)]
pub struct Norm {
    /// The number of coordinates.
    length: usize,
    /// The bound on the squared norm.
    bound: u128,
}

/// S and Q.
struct Squares {
    values: RistrettoPoint,
    norm: RistrettoPoint,
}

impl Norm {
    /// The statement that the squared norm of `length` coordinates is at most `bound`.
    pub fn new(length: usize, bound: i128) -> Result<Self, ProofError> {
        expect_coordinates(length)?;
        if !(1..VALUE_LIMIT).contains(&bound) {
            return Err(ProofError::Argument(
                "bound_squared: not positive and below 2**126".into(),
            ));
        }
        let norm = Self {
            length,
            bound: bound.unsigned_abs(),
        };
        expect_bits(norm.bits())?;
        Ok(norm)
    }

    /// B.
    fn root(&self) -> u128 {
        self.bound.isqrt()
    }

    fn size(&self) -> usize {
        self.length.next_power_of_two()
    }

    fn bits(&self) -> usize {
        let each = (2 * self.root()).ilog2() as usize + 1;
        self.length * each + self.bound.ilog2() as usize + 1
    }

    /// Returns the number of elements of a proof: S, Q, the inner product's, A, and those of the
    /// bits.
    pub fn elements(&self) -> usize {
        3 + product::elements(self.size()) + bits::elements(self.bits())
    }

    fn weights(&self) -> Vec<Weight> {
        let each: Vec<_> = weights(2 * self.root())
            .into_iter()
            .map(Scalar::from)
            .collect();
        let of_slot = |index| each.iter().map(move |&weight| (Slot::Value(index), weight));
        let of_norm = weights(self.bound)
            .into_iter()
            .map(|weight| (Slot::Norm, Scalar::from(weight)));
        (0..self.length).flat_map(of_slot).chain(of_norm).collect()
    }

    fn transcript(&self, context: &[u8; 32], commitment: &Element) -> Transcript {
        let mut transcript = start(context, labels::KIND_NORM);
        transcript.append_u64(labels::LENGTH, self.length as u64);
        transcript.append_message(labels::BOUND, &self.bound.to_le_bytes());
        transcript.append_message(labels::VALUES, commitment);
        transcript
    }

    /// Returns the proof about the commitment to `values` with `blinding`.
    pub fn prove(
        &self,
        context: &[u8; 32],
        values: &[i128],
        blinding: &Scalar,
        seed: &[u8; 32],
    ) -> Result<Vec<u8>, ProofError> {
        let root = self.root() as i128;
        expect_within(values, self.length, &[(-root, root)])?;
        // In range, a square is at most the bound; of a few thousand the sum fits.
        let norm: u128 = values
            .iter()
            .map(|value| value.unsigned_abs().pow(2))
            .fold(0, u128::saturating_add);
        if norm > self.bound {
            return Err(ProofError::Argument(
                "values: the sum of their squares exceeds the bound".into(),
            ));
        }
        let commitment = commit::commit(values, blinding).compress().to_bytes();
        let mut transcript = self.transcript(context, &commitment);
        let mut proof = Vec::with_capacity(self.elements() * ELEMENT);
        let theta = self.prove_squares(&mut transcript, values, norm, blinding, seed, &mut proof);

        let mut bits = Bits::new(Vec::with_capacity(self.bits()));
        for value in values {
            split((value + root).unsigned_abs(), 2 * self.root(), &mut bits);
        }
        split(self.bound - norm, self.bound, &mut bits);
        let gamma = Zeroizing::new(blinding - *theta);
        let alpha = commit_bits(&mut transcript, &bits, &gamma, seed, &mut proof);
        let weights = self.weights();
        bits::prove(
            &mut transcript,
            &weights,
            &bits,
            &alpha,
            &gamma,
            seed,
            &mut proof,
        );
        Ok(proof)
    }

    /// Proves that Q commits to the squared norm of V; returns the blinding of Q.
    fn prove_squares(
        &self,
        transcript: &mut Transcript,
        values: &[i128],
        norm: u128,
        blinding: &Scalar,
        seed: &[u8; 32],
        proof: &mut Vec<u8>,
    ) -> Zeroizing<Scalar> {
        let size = self.size();
        let left = generators::list(Family::Left, size);
        let right = generators::list(Family::Right, size);
        let gamma = generators::list(Family::Value, size);
        let bases = generators::bases();
        let mut x = Zeroizing::new(Vec::with_capacity(size));
        x.extend(values.iter().map(|&value| encode::value(value)));
        x.resize(size, Scalar::ZERO);
        let mut nonces = Nonces::new(transcript, x.iter().chain([blinding]), seed);
        let (sigma, theta) = (nonces.scalar(), nonces.scalar());

        let in_both = left[..size]
            .iter()
            .zip(&right[..size])
            .map(|(left, right)| left + right);
        let squares = RistrettoPoint::multiscalar_mul(
            x.iter().chain([&*sigma]),
            in_both.chain([bases.blinding]),
        );
        let q = Zeroizing::new(Scalar::from(norm));
        let of_norm =
            RistrettoPoint::multiscalar_mul([&*q, &*theta], [&bases.norm, &bases.blinding]);
        for (label, point) in [(labels::SQUARES, squares), (labels::NORM, of_norm)] {
            let bytes = point.compress().to_bytes();
            transcript.append_message(label, &bytes);
            proof.extend_from_slice(&bytes);
        }
        let [y, z, rho, tau] = challenges(transcript);
        let shifts = powers(&y, &z, size);
        let pairs = x.iter().zip(&shifts);
        let witness = Witness {
            a: Zeroizing::new(pairs.clone().map(|(x, shift)| x - shift).collect()),
            b: Zeroizing::new(pairs.map(|(x, shift)| x + shift).collect()),
            alpha: Zeroizing::new(*sigma + rho * blinding + tau * *theta),
        };
        let times_rho = gamma[..size].iter().map(|gamma| gamma * rho);
        let statement = Statement {
            left: left[..size]
                .iter()
                .zip(times_rho)
                .map(|(left, gamma)| left + gamma)
                .collect(),
            right: right[..size].to_vec(),
            product: bases.norm * tau,
            y: Scalar::ONE,
        };
        product::prove(transcript, statement, witness, seed, proof);
        theta
    }

    /// Adds the equations of a proof about `commitment`, times two weights, to `sum`.
    pub(super) fn verify(
        &self,
        context: &[u8; 32],
        commitment: &Element,
        proof: &[u8],
        weights: &[Scalar; 2],
        sum: &mut Sum,
    ) -> Result<(), ProofError> {
        let mut reader = Reader::new(proof, self.elements())?;
        let mut transcript = self.transcript(context, commitment);
        let target = encode::point("commitment", commitment)?;
        let squares =
            self.verify_squares(&mut transcript, &mut reader, &target, &weights[0], sum)?;
        let bits = read_bits(&mut transcript, &mut reader)?;
        let root = Scalar::from(self.root());
        let mut slots: Vec<_> = (0..self.length).map(|c| (Slot::Value(c), root)).collect();
        slots.push((Slot::Norm, Scalar::from(self.bound)));
        let claim = Claim {
            weights: &self.weights(),
            bits,
            points: &[(Scalar::ONE, target), (-Scalar::ONE, squares.norm)],
            slots: &slots,
        };
        claim.verify(&mut transcript, &mut reader, &weights[1], sum)
    }

    fn verify_squares(
        &self,
        transcript: &mut Transcript,
        reader: &mut Reader<'_>,
        target: &RistrettoPoint,
        weight: &Scalar,
        sum: &mut Sum,
    ) -> Result<Squares, ProofError> {
        let (values, norm) = (reader.element(), reader.element());
        transcript.append_message(labels::SQUARES, values);
        transcript.append_message(labels::NORM, norm);
        let squares = Squares {
            values: encode::point("S", values)?,
            norm: encode::point("Q", norm)?,
        };
        let [y, z, rho, tau] = challenges(transcript);
        let size = self.size();
        let result = product::verify(transcript, reader, size, &Scalar::ONE, weight, sum)?;
        sum.add(result.of_p, squares.values);
        sum.add(result.of_p * rho, *target);
        sum.add(result.of_p * tau, squares.norm);
        let shifts = powers(&y, &z, size);
        let mut squared = Scalar::ZERO;
        for (index, shift) in shifts.iter().enumerate() {
            let of_left = result.left[index] - result.of_p * shift;
            let (left, right) = sum.sides(size);
            left[index] += of_left;
            right[index] += result.right[index] + result.of_p * shift;
            *sum.slot(Slot::Value(index)) += rho * of_left;
            squared += shift * shift;
        }
        sum.norm += tau * (result.product - result.of_p * squared);
        Ok(squares)
    }
}

fn challenges(transcript: &mut Transcript) -> [Scalar; 4] {
    [labels::Y, labels::Z, labels::RHO, labels::TAU].map(|label| challenge(transcript, label))
}

/// Returns z y^c for c from 1 to `size`.
fn powers(y: &Scalar, z: &Scalar, size: usize) -> Vec<Scalar> {
    let next = |power: &Scalar| Some(power * y);
    std::iter::successors(Some(z * y), next)
        .take(size)
        .collect()
}
