//! The zero-knowledge weighted inner-product argument [Bulletproofs+, eprint 2020/735, section 3].
//!
//! For public generators G_1..G_N, H_1..H_N, U, H_0 and a public y, the prover shows that it knows a, b and
//! alpha such that
//!
//!   P = <a, G> + <b, H> + (sum of y^i a_i b_i) U + alpha H_0.
//!
//! A round halves N. With n = N/2, lo and hi the halves, and kappa = 1 before the first round:
//!
//!   L = <a_lo, G_hi> + y^n <b_hi, H_lo> + kappa y^n (sum of y^i a_lo,i b_hi,i) U + random H_0
//!   R = <a_hi, G_lo> + y^-n <b_lo, H_hi> + kappa (sum of y^i a_hi,i b_lo,i) U + random H_0
//!   challenge c, d = c y^n, and P := P + c L + c^-1 R,
//!   G := G_lo + c G_hi, a := a_lo + c^-1 a_hi, H := d H_lo + H_hi, b := d^-1 b_lo + b_hi, kappa := d kappa.
//!
//! At N = 1, P = a G + b H + kappa y a b U + alpha H_0 is shown by one more move: for random r, s, delta, eta
//!
//!   A = r G + s H + kappa y (r b + s a) U + delta H_0,  B = kappa y r s U + eta H_0, challenge e,
//!   r' = r + e a, s' = s + e b, delta' = eta + e delta + e^2 alpha,
//!   e^2 P + e A + B = e r' G + e s' H + kappa y r' s' U + delta' H_0.
//!
//! It is the paper's argument with a, b, G, H rescaled so that a fold multiplies half of the points only.

use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::{MultiscalarMul, VartimeMultiscalarMul};
use merlin::Transcript;
use zeroize::Zeroizing;

use super::encode::{self, Reader};
use super::error::ProofError;
use super::generators;
use super::labels;
use super::sum::Sum;
use super::transcript::{Nonces, challenge};

/// Elements of a proof about vectors of length `size`, a power of two.
pub fn elements(size: usize) -> usize {
    2 * size.ilog2() as usize + 5
}

/// The secrets of a statement.
pub struct Witness {
    pub a: Zeroizing<Vec<Scalar>>,
    pub b: Zeroizing<Vec<Scalar>>,
    pub alpha: Zeroizing<Scalar>,
}

/// The generators of a statement, as long as the vectors.
pub struct Statement {
    pub left: Vec<RistrettoPoint>,
    pub right: Vec<RistrettoPoint>,
    /// U.
    pub product: RistrettoPoint,
    pub y: Scalar,
}

fn append(
    transcript: &mut Transcript,
    proof: &mut Vec<u8>,
    label: &'static [u8],
    point: &CompressedRistretto,
) {
    transcript.append_message(label, point.as_bytes());
    proof.extend_from_slice(point.as_bytes());
}

/// Returns the sum of y^i a_i b_i, i from 1.
fn weighted(y: &Scalar, a: &[Scalar], b: &[Scalar]) -> Zeroizing<Scalar> {
    let mut power = *y;
    let mut total = Zeroizing::new(Scalar::ZERO);
    for (a, b) in a.iter().zip(b) {
        *total += power * a * b;
        power *= y;
    }
    total
}

/// Appends the proof to `proof`. Takes as long for any secrets.
pub fn prove(
    transcript: &mut Transcript,
    statement: Statement,
    witness: Witness,
    seed: &[u8; 32],
    proof: &mut Vec<u8>,
) {
    let Statement {
        left,
        right,
        product,
        y,
    } = statement;
    let Witness {
        mut a,
        mut b,
        mut alpha,
    } = witness;
    let blinding = generators::bases().blinding;
    let (mut left, mut right) = (Folded::new(left), Folded::new(right));
    let mut powers = vec![y];
    while 1 << powers.len() < a.len() {
        powers.push(powers[powers.len() - 1] * powers[powers.len() - 1]);
    }
    let mut kappa = Scalar::ONE;
    while a.len() > 1 {
        let n = a.len() / 2;
        let y_n = powers[n.ilog2() as usize];
        let y_minus_n = y_n.invert();
        // alpha has the entropy that a and b may lack.
        let secrets = a.iter().chain(b.iter()).chain([&*alpha]);
        let mut nonces = Nonces::new(transcript, secrets, seed);
        let (blind_l, blind_r) = (nonces.scalar(), nonces.scalar());
        let (a_lo, a_hi) = a.split_at(n);
        let (b_lo, b_hi) = b.split_at(n);
        let shifted = |b: &[Scalar], by: &Scalar| -> Zeroizing<Vec<Scalar>> {
            Zeroizing::new(b.iter().map(|b| b * by).collect())
        };
        let mut cross_l = Terms::new(left.points.len() + 2);
        left.multiply(a_lo, n, &mut cross_l);
        right.multiply(&shifted(b_hi, &y_n), 0, &mut cross_l);
        cross_l.push(*weighted(&y, a_lo, b_hi) * kappa * y_n, product);
        cross_l.push(*blind_l, blinding);
        let mut cross_r = Terms::new(left.points.len() + 2);
        left.multiply(a_hi, 0, &mut cross_r);
        right.multiply(&shifted(b_lo, &y_minus_n), n, &mut cross_r);
        cross_r.push(*weighted(&y, a_hi, b_lo) * kappa, product);
        cross_r.push(*blind_r, blinding);
        append(
            transcript,
            proof,
            labels::ROUND_L,
            &cross_l.sum().compress(),
        );
        append(
            transcript,
            proof,
            labels::ROUND_R,
            &cross_r.sum().compress(),
        );

        let c = challenge(transcript, labels::ROUND);
        let c_inverse = c.invert();
        let d = c * y_n;
        let d_inverse = c_inverse * y_minus_n;
        a = Zeroizing::new(
            a_lo.iter()
                .zip(a_hi)
                .map(|(lo, hi)| lo + c_inverse * hi)
                .collect(),
        );
        b = Zeroizing::new(
            b_lo.iter()
                .zip(b_hi)
                .map(|(lo, hi)| d_inverse * lo + hi)
                .collect(),
        );
        left.fold(&Scalar::ONE, &c);
        right.fold(&d, &Scalar::ONE);
        *alpha += c * *blind_l + c_inverse * *blind_r;
        kappa *= d;
    }
    let (a, b, scale) = (&a[0], &b[0], kappa * y);
    let mut nonces = Nonces::new(transcript, [a, b, &*alpha], seed);
    let [r, s, delta, eta] = std::array::from_fn(|_| nonces.scalar());
    let mixed = Zeroizing::new(scale * (*r * b + *s * a));
    let squared = Zeroizing::new(scale * *r * *s);
    left.collapse();
    right.collapse();
    let point_a = RistrettoPoint::multiscalar_mul(
        [&*r, &*s, &*mixed, &*delta],
        [&left.points[0], &right.points[0], &product, &blinding],
    );
    let point_b = RistrettoPoint::multiscalar_mul([&*squared, &*eta], [&product, &blinding]);
    append(transcript, proof, labels::LAST_A, &point_a.compress());
    append(transcript, proof, labels::LAST_B, &point_b.compress());
    let e = challenge(transcript, labels::LAST);
    for answer in [*r + e * a, *s + e * b, *eta + e * *delta + e * e * *alpha] {
        proof.extend_from_slice(answer.as_bytes());
    }
}

/// Blocks of points that stand for one folded vector. More make multiplications by secrets longer, fewer make more
/// points when they are added up.
const BLOCKS: usize = 4;

/// A folded vector of generators: point i is the sum over blocks of their factor times their point i. All public.
///
/// Adding the blocks up shares the doublings of several folds.
struct Folded {
    points: Vec<RistrettoPoint>,
    factors: Vec<Scalar>,
}

impl Folded {
    fn new(points: Vec<RistrettoPoint>) -> Self {
        Self {
            points,
            factors: vec![Scalar::ONE],
        }
    }

    /// Returns the length of the vector.
    fn length(&self) -> usize {
        self.points.len() / self.factors.len()
    }

    /// Adds the terms of the inner product of `secrets` and the points from `start` on.
    fn multiply(&self, secrets: &[Scalar], start: usize, terms: &mut Terms) {
        let blocks = self.points.chunks(self.length());
        for (factor, block) in self.factors.iter().zip(blocks) {
            for (secret, point) in secrets.iter().zip(&block[start..]) {
                terms.push(factor * secret, *point);
            }
        }
    }

    /// Makes each half of a block a block, times its own factor.
    fn fold(&mut self, of_lo: &Scalar, of_hi: &Scalar) {
        let halves = |factor: &Scalar| [factor * of_lo, factor * of_hi];
        self.factors = self.factors.iter().flat_map(halves).collect();
        if self.factors.len() == BLOCKS {
            self.collapse();
        }
    }

    /// Adds the blocks up.
    fn collapse(&mut self) {
        let length = self.length();
        let sum = |index| {
            let points = self.points.iter().skip(index).step_by(length);
            RistrettoPoint::vartime_multiscalar_mul(&self.factors, points)
        };
        self.points = (0..length).map(sum).collect();
        self.factors = vec![Scalar::ONE];
    }
}

/// Terms of a sum of secret multiples.
struct Terms {
    scalars: Zeroizing<Vec<Scalar>>,
    points: Vec<RistrettoPoint>,
}

impl Terms {
    /// Takes at most `count` terms: memory that moves would leave secrets behind.
    fn new(count: usize) -> Self {
        Self {
            scalars: Zeroizing::new(Vec::with_capacity(count)),
            points: Vec::with_capacity(count),
        }
    }

    fn push(&mut self, scalar: Scalar, point: RistrettoPoint) {
        self.scalars.push(scalar);
        self.points.push(point);
    }

    /// Returns the sum; takes as long for any scalars.
    fn sum(&self) -> RistrettoPoint {
        RistrettoPoint::multiscalar_mul(self.scalars.iter(), &self.points)
    }
}

/// Coefficients that the caller must add to the verifier's equation.
pub struct Coefficients {
    /// e^2 times the weight: the coefficient of P.
    pub of_p: Scalar,
    /// Of each G_i and H_i, apart from P's.
    pub left: Vec<Scalar>,
    pub right: Vec<Scalar>,
    /// Of U, apart from P's.
    pub product: Scalar,
}

/// Reads a proof about vectors of length `size`, and adds its terms in other points than P, G, H, U
/// to `sum`, times `weight`.
///
/// The equation holds if that, `of_p` times P, and the coefficients' multiples of G, H and U sum to the identity.
pub fn verify(
    transcript: &mut Transcript,
    reader: &mut Reader<'_>,
    size: usize,
    y: &Scalar,
    weight: &Scalar,
    sum: &mut Sum,
) -> Result<Coefficients, ProofError> {
    let mut crossed = Vec::with_capacity(size.ilog2() as usize);
    let mut challenges = Vec::with_capacity(crossed.capacity());
    for _ in 0..size.ilog2() {
        let (bytes_l, bytes_r) = (reader.element(), reader.element());
        transcript.append_message(labels::ROUND_L, bytes_l);
        transcript.append_message(labels::ROUND_R, bytes_r);
        crossed.push((encode::point("L", bytes_l)?, encode::point("R", bytes_r)?));
        challenges.push(challenge(transcript, labels::ROUND));
    }
    let (bytes_a, bytes_b) = (reader.element(), reader.element());
    transcript.append_message(labels::LAST_A, bytes_a);
    transcript.append_message(labels::LAST_B, bytes_b);
    let (point_a, point_b) = (encode::point("A", bytes_a)?, encode::point("B", bytes_b)?);
    let e = challenge(transcript, labels::LAST);
    let r = reader.scalar("r'")?;
    let s = reader.scalar("s'")?;
    let delta = reader.scalar("delta'")?;

    // The equation times all c, so that none is inverted: of a product that is not zero the weight stays uniform.
    let all: Scalar = challenges.iter().product();
    if all == Scalar::ZERO {
        return Err(ProofError::Statement("a challenge is zero".into()));
    }
    let unscaled = weight * e * e;
    let weight = weight * all;
    let of_p = unscaled * all;
    for (index, ((l, r), c)) in crossed.iter().zip(&challenges).enumerate() {
        let others = challenges[..index].iter().chain(&challenges[index + 1..]);
        sum.add(of_p * c, *l);
        sum.add(unscaled * others.product::<Scalar>(), *r);
    }
    sum.add(weight * e, point_a);
    sum.add(weight, point_b);
    sum.blinding -= weight * delta;

    // G_i ends up in G times the product of the c of the rounds in which i is in the upper half.
    let left = expanded(-weight * e * r, challenges.iter().copied());
    // H_i: the d of the rounds in which it is in the lower half.
    let mut powers = vec![*y];
    for _ in 0..challenges.len() {
        powers.push(powers[powers.len() - 1] * powers[powers.len() - 1]);
    }
    let of_rounds = challenges
        .iter()
        .zip(powers[..challenges.len()].iter().rev());
    let mut right = expanded(-weight * e * s, of_rounds.map(|(c, y_n)| c * y_n));
    right.reverse();
    // kappa y = y^N times every c.
    let top = weight * r * s * all * powers[challenges.len()];
    Ok(Coefficients {
        of_p,
        left,
        right,
        product: -top,
    })
}

/// Returns `start` times each product of some of the `factors`; the first factor tells both halves apart.
fn expanded(start: Scalar, factors: impl Iterator<Item = Scalar>) -> Vec<Scalar> {
    factors.fold(vec![start], |products, factor| {
        products
            .iter()
            .flat_map(|&product| [product, product * factor])
            .collect()
    })
}
