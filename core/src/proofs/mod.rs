//! Commitments over ristretto255, and zero-knowledge proofs about committed values.
//!
//! `docs/proofs/zero-knowledge.md` states what each proof shows and why; this module is sans-I/O: bytes go in and out,
//! randomness is an argument, except for the weights of a batch, which the verifier's own system draws.
//!
//! - `commit`: Pedersen vector commitments.
//! - `product`: the zero-knowledge weighted inner-product argument [Bulletproofs+, section 3].
//! - `bits`: committed bits whose weighted sums are a committed vector. Ranges and noise are such sums.
//! - `range`, `noise`, `norm`: the three statements; `batch`: many of them in one multiplication.
//! - `edges`: whether commitments cancel in pairs, in memory that does not grow with them.

mod batch;
mod bits;
mod commit;
pub mod edges;
pub mod encode;
mod error;
mod generators;
mod labels;
mod limits;
mod noise;
mod norm;
mod product;
mod range;
mod sum;
mod transcript;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use batch::{Item, find_false};
pub use commit::{Opening, combine, commit, expect_values};
pub use error::ProofError;
pub use limits::{MAX_BITS, MAX_LENGTH, VALUE_LIMIT};
pub use noise::{Noise, Secret};
pub use norm::Norm;
pub use range::Range;
