//! Proof that every coordinate of a committed vector is in [low, high], or in a range of its own.
//!
//! With W = high - low of k bits, the weights 1, 2, .., 2^(k-2), W - 2^(k-1) + 1 have exactly 0, .., W as their
//! sums of subsets: the first k - 1 give 0, .., 2^(k-1) - 1, and the last is at most 2^(k-1). So x_c - low is
//! the sum of weighted bits if and only if x_c is in the range, whatever W is.

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use merlin::Transcript;
use zeroize::Zeroizing;

use super::bits::{self, Bits, Claim, Weight};
use super::encode::{self, ELEMENT, Element, Reader};
use super::error::ProofError;
use super::limits::{VALUE_LIMIT, expect_bits, expect_coordinates};
use super::sum::{Slot, Sum};
use super::transcript::{Nonces, start};
use super::{commit, labels};

/// Returns the weights of one number from 0 to `width`, which is positive.
pub fn weights(width: u128) -> Vec<u128> {
    let bits = width.ilog2();
    let mut weights: Vec<u128> = (0..bits).map(|bit| 1 << bit).collect();
    weights.push(width - ((1 << bits) - 1));
    weights
}

/// Appends the bits of `number`, which is at most `width`, in constant time.
pub fn split(number: u128, width: u128, bits: &mut Bits) {
    let top = width.ilog2();
    let last = number >> top & 1;
    let rest = number - last * (width - ((1 << top) - 1));
    bits.extend((0..top).map(|bit| (rest >> bit & 1) as u8));
    bits.push(last as u8);
}

/// The public part of a statement about a range, or about a box: a range for each coordinate.
#[derive(Debug, Clone)]
pub struct Range {
    /// The number of coordinates.
    length: usize,
    /// One range of all coordinates, or one for each of them.
    ranges: Vec<(i128, i128)>,
}

impl Range {
    /// Takes one `low` and `high`, or as many as coordinates.
    pub fn new(length: usize, low: &[i128], high: &[i128]) -> Result<Self, ProofError> {
        expect_coordinates(length)?;
        if low.len() != high.len() || ![1, length].contains(&low.len()) {
            return Err(ProofError::Argument(format!(
                "lo, hi: {} and {} numbers for {length} coordinates",
                low.len(),
                high.len()
            )));
        }
        let limits = 1 - VALUE_LIMIT..VALUE_LIMIT;
        let ranges: Vec<_> = low.iter().copied().zip(high.iter().copied()).collect();
        let good = |&(low, high): &(i128, i128)| {
            limits.contains(&low) && limits.contains(&high) && low < high
        };
        if !ranges.iter().all(good) {
            return Err(ProofError::Argument(
                "lo, hi: not lo < hi, both below 2**126 in magnitude".into(),
            ));
        }
        let range = Self { length, ranges };
        expect_bits(range.bits())?;
        Ok(range)
    }

    /// Returns the range of each coordinate.
    fn each(&self) -> impl Iterator<Item = (i128, i128)> {
        self.ranges.iter().copied().cycle().take(self.length)
    }

    fn widths(&self) -> impl Iterator<Item = u128> {
        self.each().map(|(low, high)| (high - low).unsigned_abs())
    }

    fn bits(&self) -> usize {
        self.widths().map(|width| width.ilog2() as usize + 1).sum()
    }

    /// Returns the number of elements of a proof: A, and those of the bits.
    pub fn elements(&self) -> usize {
        1 + bits::elements(self.bits())
    }

    fn weights(&self) -> Vec<Weight> {
        let of_slot = |(index, width)| {
            let each = weights(width).into_iter().map(Scalar::from);
            each.map(move |weight| (Slot::Value(index), weight))
        };
        self.widths().enumerate().flat_map(of_slot).collect()
    }

    fn transcript(&self, context: &[u8; 32], commitment: &Element) -> Transcript {
        let kind = match self.ranges[..] {
            [_] => labels::KIND_RANGE,
            _ => labels::KIND_BOX,
        };
        let mut transcript = start(context, kind);
        transcript.append_u64(labels::LENGTH, self.length as u64);
        let (low, high): (Vec<_>, Vec<_>) = self
            .ranges
            .iter()
            .map(|(low, high)| (low.to_le_bytes(), high.to_le_bytes()))
            .unzip();
        transcript.append_message(labels::LOW, low.as_flattened());
        transcript.append_message(labels::HIGH, high.as_flattened());
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
        expect_within(values, self.length, &self.ranges)?;
        let commitment = commit::commit(values, blinding).compress().to_bytes();
        let mut transcript = self.transcript(context, &commitment);
        let mut bits = Bits::new(Vec::with_capacity(self.bits()));
        for ((value, (low, _)), width) in values.iter().zip(self.each()).zip(self.widths()) {
            split((value - low).unsigned_abs(), width, &mut bits);
        }
        let mut proof = Vec::with_capacity(self.elements() * ELEMENT);
        let alpha = commit_bits(&mut transcript, &bits, blinding, seed, &mut proof);
        let weights = self.weights();
        bits::prove(
            &mut transcript,
            &weights,
            &bits,
            &alpha,
            blinding,
            seed,
            &mut proof,
        );
        Ok(proof)
    }

    /// Adds the equation of a proof about `commitment`, times `weight`, to `sum`.
    pub(super) fn verify(
        &self,
        context: &[u8; 32],
        commitment: &Element,
        proof: &[u8],
        weight: &Scalar,
        sum: &mut Sum,
    ) -> Result<(), ProofError> {
        let mut reader = Reader::new(proof, self.elements())?;
        let mut transcript = self.transcript(context, commitment);
        let target = encode::point("commitment", commitment)?;
        let bits = read_bits(&mut transcript, &mut reader)?;
        let less = |(c, (low, _))| (Slot::Value(c), -encode::value(low));
        let slots: Vec<_> = self.each().enumerate().map(less).collect();
        let claim = Claim {
            weights: &self.weights(),
            bits,
            points: &[(Scalar::ONE, target)],
            slots: &slots,
        };
        claim.verify(&mut transcript, &mut reader, weight, sum)
    }
}

/// Refuses values of another number, or out of their range: a proof would be false.
pub fn expect_within(
    values: &[i128],
    length: usize,
    ranges: &[(i128, i128)],
) -> Result<(), ProofError> {
    if values.len() != length {
        return Err(ProofError::Argument(format!(
            "values: {} coordinates, not {length}",
            values.len()
        )));
    }
    let mut pairs = values.iter().zip(ranges.iter().cycle());
    match pairs.position(|(value, (low, high))| !(low..=high).contains(&value)) {
        None => Ok(()),
        Some(index) => Err(ProofError::Argument(format!(
            "values: number {index} is out of range"
        ))),
    }
}

/// Commits to `bits` with a fresh alpha, appends A to transcript and proof; returns alpha.
pub fn commit_bits(
    transcript: &mut Transcript,
    bits: &Bits,
    blinding: &Scalar,
    seed: &[u8; 32],
    proof: &mut Vec<u8>,
) -> Zeroizing<Scalar> {
    let packed: Zeroizing<Vec<Scalar>> =
        Zeroizing::new(bits.iter().map(|&bit| Scalar::from(bit)).collect());
    let secrets = packed.iter().chain([blinding]);
    let alpha = Nonces::new(transcript, secrets, seed).scalar();
    let point: RistrettoPoint = bits::commit(bits, &alpha);
    let bytes = point.compress().to_bytes();
    transcript.append_message(labels::BITS, &bytes);
    proof.extend_from_slice(&bytes);
    alpha
}

/// Reads A.
pub fn read_bits(
    transcript: &mut Transcript,
    reader: &mut Reader<'_>,
) -> Result<RistrettoPoint, ProofError> {
    let bytes = reader.element();
    transcript.append_message(labels::BITS, bytes);
    encode::point("bits", bytes)
}
