//! Batch verifier: many statements in one multiplication; on failure, the false ones.
//!
//! Each equation is multiplied by a weight that nobody knew when the statements were made: 252 bits of the
//! verifier's operating system. If any equation is false, the weighted sum is the identity with probability at
//! most 2^-252 times a small constant [Bellare, Garay, Rabin 1998].

use curve25519_dalek::scalar::Scalar;

use super::commit::Opening;
use super::encode::Element;
use super::error::ProofError;
use super::labels;
use super::noise::Noise;
use super::norm::Norm;
use super::range::Range;
use super::sum::Sum;
use crate::tuple_hash::TupleHash256;

/// A statement with its proof, as received.
pub enum Item {
    /// Commitments, and their opening.
    Opening(Opening),
    /// The committed values are in a range.
    Range {
        /// The statement.
        range: Range,
        /// What the proof is bound to.
        context: Element,
        /// The commitment to the values.
        commitment: Element,
        /// The proof.
        proof: Vec<u8>,
    },
    /// The norm of the committed values is bounded.
    Norm {
        /// The statement.
        norm: Norm,
        /// What the proof is bound to.
        context: Element,
        /// The commitment to the values.
        commitment: Element,
        /// The proof.
        proof: Vec<u8>,
    },
    /// The committed values are noise of secret bits and public coins.
    Noise {
        /// The statement.
        noise: Noise,
        /// What the proof is bound to.
        context: Element,
        /// The commitment to the secret bits.
        secret_commitment: Element,
        /// The commitment to the noise.
        noise_commitment: Element,
        /// The coins, packed.
        coins: Vec<u8>,
        /// The proof.
        proof: Vec<u8>,
    },
    /// A statement that could not be read.
    Malformed,
}

impl Item {
    fn verify(&self, weights: &mut Weights, sum: &mut Sum) -> Result<(), ProofError> {
        match self {
            Self::Opening(opening) => opening.verify(&weights.next(), sum),
            Self::Range {
                range,
                context,
                commitment,
                proof,
            } => range.verify(context, commitment, proof, &weights.next(), sum),
            Self::Norm {
                norm,
                context,
                commitment,
                proof,
            } => {
                let both = [weights.next(), weights.next()];
                norm.verify(context, commitment, proof, &both, sum)
            }
            Self::Noise {
                noise,
                context,
                secret_commitment,
                noise_commitment,
                coins,
                proof,
            } => noise.verify(
                context,
                secret_commitment,
                noise_commitment,
                coins,
                proof,
                &weights.next(),
                sum,
            ),
            Self::Malformed => Err(ProofError::Statement("malformed".into())),
        }
    }
}

/// The weights of one check, from a fresh seed.
struct Weights {
    start: TupleHash256,
    number: u64,
}

impl Weights {
    fn fresh() -> Result<Self, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let mut start = TupleHash256::new(labels::WEIGHT.as_bytes());
        start.absorb(&seed);
        Ok(Self { start, number: 0 })
    }

    fn next(&mut self) -> Scalar {
        let mut hasher = self.start.clone();
        hasher.absorb(&self.number.to_be_bytes());
        self.number += 1;
        let mut wide = [0; 64];
        hasher.finish(&mut wide);
        Scalar::from_bytes_mod_order_wide(&wide)
    }
}

/// Returns the numbers of the false statements, ascending, found on `threads` threads.
pub fn find_false(items: &[Item], threads: usize) -> Result<Vec<usize>, getrandom::Error> {
    let share = items.len().div_ceil(threads).max(1);
    let numbered: Vec<_> = items.iter().enumerate().collect();
    let parts = std::thread::scope(|scope| {
        let (first, rest) = numbered.split_at(share.min(numbered.len()));
        let workers: Vec<_> = rest
            .chunks(share)
            .map(|part| scope.spawn(|| search(part)))
            .collect();
        let first = search(first);
        let ended = workers.into_iter().map(|worker| {
            let ended = worker.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        std::iter::once(first)
            .chain(ended)
            .collect::<Result<Vec<_>, _>>()
    })?;
    Ok(parts.concat())
}

/// Checks all at once; if that fails, each half.
fn search(items: &[(usize, &Item)]) -> Result<Vec<usize>, getrandom::Error> {
    let mut weights = Weights::fresh()?;
    let mut sum = Sum::default();
    let (mut readable, mut result) = (Vec::with_capacity(items.len()), Vec::new());
    for &(number, item) in items {
        match item.verify(&mut weights, &mut sum) {
            Ok(()) => readable.push((number, item)),
            Err(_) => result.push(number),
        }
    }
    if !result.is_empty() {
        // What an unreadable item had added before it was refused makes the sum meaningless.
        result.extend(search(&readable)?);
        result.sort_unstable();
        return Ok(result);
    }
    if sum.is_identity() {
        return Ok(result);
    }
    drop(sum);
    if let [(number, _)] = items {
        return Ok(vec![*number]);
    }
    let (lower, upper) = items.split_at(items.len() / 2);
    result.extend(search(lower)?);
    result.extend(search(upper)?);
    Ok(result)
}
