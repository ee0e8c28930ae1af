//! merlin transcripts of proofs: public values are appended, challenges and the prover's nonces
//! drawn.

use curve25519_dalek::scalar::Scalar;
use merlin::{Transcript, TranscriptRng};
use rand_core::{CryptoRng, RngCore};
use zeroize::{Zeroize, Zeroizing};

use super::labels;

/// Starts the transcript of a proof of `kind` for the caller's digest.
pub fn start(context: &[u8; 32], kind: &'static [u8]) -> Transcript {
    let mut transcript = Transcript::new(labels::PROOF);
    transcript.append_message(labels::CONTEXT, context);
    transcript.append_message(labels::KIND, kind);
    transcript
}

/// Returns a challenge: 64 bytes modulo the group's order.
pub fn challenge(transcript: &mut Transcript, label: &'static [u8]) -> Scalar {
    let mut wide = [0; 64];
    transcript.challenge_bytes(label, &mut wide);
    Scalar::from_bytes_mod_order_wide(&wide)
}

/// The prover's source of nonces: bound to the transcript so far, the witness, and fresh bytes.
///
/// Nonces repeat only if all three do, so neither a poor source nor a repeated seed reveals a witness.
pub struct Nonces(TranscriptRng);

impl Nonces {
    pub fn new<'a>(
        transcript: &Transcript,
        witness: impl IntoIterator<Item = &'a Scalar>,
        seed: &[u8; 32],
    ) -> Self {
        let mut builder = transcript.build_rng();
        for secret in witness {
            builder = builder.rekey_with_witness_bytes(labels::WITNESS, secret.as_bytes());
        }
        Self(builder.finalize(&mut Seed(*seed)))
    }

    pub fn scalar(&mut self) -> Zeroizing<Scalar> {
        let mut wide = Zeroizing::new([0; 64]);
        self.0.fill_bytes(wide.as_mut());
        Zeroizing::new(Scalar::from_bytes_mod_order_wide(&wide))
    }
}

/// The 32 fresh bytes that merlin asks a generator for.
struct Seed([u8; 32]);

impl RngCore for Seed {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

impl CryptoRng for Seed {}

impl Drop for Seed {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
