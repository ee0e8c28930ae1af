//! Proof that a committed vector is the noise given by committed secret bits and public coins.
//!
//! Coordinate c has m secret bits s_ck, committed to before the coins b_ck are known, and
//!
//!   eta_c = sum over k of (s_ck xor b_ck) - m/2 = sum over k of (1 - 2 b_ck) s_ck + (sum over k of b_ck) - m/2,
//!
//! which is linear in the secret bits: with the coins uniform and independent of them, a centred binomial of
//! variance m/4 that the author can neither choose nor, with uniform secret bits, anyone else know.

use curve25519_dalek::scalar::Scalar;
use merlin::Transcript;
use zeroize::Zeroizing;

use super::bits::{self, Bits, Claim, Weight};
use super::encode::{self, ELEMENT, Element, Reader};
use super::error::ProofError;
use super::limits::{expect_bits, expect_coordinates};
use super::sum::{Slot, Sum};
use super::transcript::start;
use super::{commit, labels};

/// The public part of a statement about noise.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    /// The number of coordinates.
    length: usize,
    /// Bits of a coordinate: even, so that the mean is a whole number.
    bits_each: usize,
}

impl Noise {
    /// The statement about `length` coordinates of `bits_each` bits.
    pub fn new(length: usize, bits_each: usize) -> Result<Self, ProofError> {
        expect_coordinates(length)?;
        if bits_each == 0 || !bits_each.is_multiple_of(2) {
            return Err(ProofError::Argument(format!(
                "bits: {bits_each}, not positive and even"
            )));
        }
        expect_bits(bits_each.saturating_mul(length))?;
        Ok(Self { length, bits_each })
    }

    fn bits(&self) -> usize {
        self.length * self.bits_each
    }

    /// Returns the bytes of the coins and of the packed secret bits.
    pub fn coin_bytes(&self) -> usize {
        self.bits().div_ceil(8)
    }

    /// Returns the number of elements of a proof.
    pub fn elements(&self) -> usize {
        bits::elements(self.bits())
    }

    /// Bit number c m + k belongs to coordinate c; the least significant bit of a byte comes first.
    fn unpack(&self, name: &str, packed: &[u8]) -> Result<Bits, ProofError> {
        if packed.len() != self.coin_bytes() {
            return Err(ProofError::Argument(format!(
                "{name}: {} bytes, not {}",
                packed.len(),
                self.coin_bytes()
            )));
        }
        let bits = (0..self.bits()).map(|i| packed[i / 8] >> (i % 8) & 1);
        Ok(Zeroizing::new(bits.collect()))
    }

    fn transcript(
        &self,
        context: &[u8; 32],
        coins: &Bits,
        bits: &Element,
        noise: &Element,
    ) -> Transcript {
        let mut transcript = start(context, labels::KIND_NOISE);
        transcript.append_u64(labels::LENGTH, self.length as u64);
        transcript.append_u64(labels::BITS_EACH, self.bits_each as u64);
        transcript.append_message(labels::COINS, coins);
        transcript.append_message(labels::BITS, bits);
        transcript.append_message(labels::VALUES, noise);
        transcript
    }

    /// Returns 1 - 2 b for each coin.
    fn weights(&self, coins: &Bits) -> Vec<Weight> {
        let signs = [Scalar::ONE, -Scalar::ONE];
        let weight =
            |(i, &coin): (usize, &u8)| (Slot::Value(i / self.bits_each), signs[coin as usize]);
        coins.iter().enumerate().map(weight).collect()
    }

    /// Adds the equation of a proof about the commitments to bits and noise, times `weight`, to `sum`.
    #[expect(clippy::too_many_arguments, reason = "they are the statement")]
    pub(super) fn verify(
        &self,
        context: &[u8; 32],
        secret_commitment: &Element,
        noise_commitment: &Element,
        coins: &[u8],
        proof: &[u8],
        weight: &Scalar,
        sum: &mut Sum,
    ) -> Result<(), ProofError> {
        let mut reader = Reader::new(proof, self.elements())?;
        let coins = self.unpack("coins", coins)?;
        let mut transcript = self.transcript(context, &coins, secret_commitment, noise_commitment);
        let bits = encode::point("secret commitment", secret_commitment)?;
        let target = encode::point("noise commitment", noise_commitment)?;
        let half = Scalar::from(self.bits_each as u64 / 2);
        let ones =
            |coins: &[u8]| Scalar::from(coins.iter().map(|&coin| u64::from(coin)).sum::<u64>());
        let of_coordinate = coins.chunks_exact(self.bits_each).enumerate();
        let slots: Vec<_> = of_coordinate
            .map(|(index, coins)| (Slot::Value(index), half - ones(coins)))
            .collect();
        let claim = Claim {
            weights: &self.weights(&coins),
            bits,
            points: &[(Scalar::ONE, target)],
            slots: &slots,
        };
        claim.verify(&mut transcript, &mut reader, weight, sum)
    }
}

/// An author's secret bits, overwritten when dropped.
pub struct Secret {
    noise: Noise,
    bits: Bits,
    alpha: Zeroizing<Scalar>,
    commitment: Element,
}

impl Secret {
    /// Creates a secret from packed uniform bits and 64 uniform bytes.
    pub fn new(noise: Noise, packed: &[u8], wide: &[u8; 64]) -> Result<Self, ProofError> {
        let bits = noise.unpack("bits", packed)?;
        let alpha = Zeroizing::new(Scalar::from_bytes_mod_order_wide(wide));
        let commitment = bits::commit(&bits, &alpha).compress().to_bytes();
        Ok(Self {
            noise,
            bits,
            alpha,
            commitment,
        })
    }

    /// Returns the commitment to the bits.
    pub fn commitment(&self) -> &Element {
        &self.commitment
    }

    /// Returns eta of each coordinate.
    pub fn values(&self, coins: &[u8]) -> Result<Zeroizing<Vec<i128>>, ProofError> {
        let coins = self.noise.unpack("coins", coins)?;
        let bits_each = self.noise.bits_each;
        let pairs = self
            .bits
            .chunks_exact(bits_each)
            .zip(coins.chunks_exact(bits_each));
        let eta = |(bits, coins): (&[u8], &[u8])| {
            let ones: i128 = bits.iter().zip(coins).map(|(s, b)| i128::from(s ^ b)).sum();
            ones - bits_each as i128 / 2
        };
        Ok(Zeroizing::new(pairs.map(eta).collect()))
    }

    /// Returns the commitment to the noise with `blinding`, and the proof.
    pub fn prove(
        &self,
        context: &[u8; 32],
        coins: &[u8],
        blinding: &Scalar,
        seed: &[u8; 32],
    ) -> Result<(Element, Vec<u8>), ProofError> {
        let noise = commit::commit(&self.values(coins)?, blinding)
            .compress()
            .to_bytes();
        let coins = self.noise.unpack("coins", coins)?;
        let mut transcript = self
            .noise
            .transcript(context, &coins, &self.commitment, &noise);
        let weights = self.noise.weights(&coins);
        let mut proof = Vec::with_capacity(self.noise.elements() * ELEMENT);
        bits::prove(
            &mut transcript,
            &weights,
            &self.bits,
            &self.alpha,
            blinding,
            seed,
            &mut proof,
        );
        Ok((noise, proof))
    }
}
