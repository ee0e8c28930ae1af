//! Commitments over ristretto255, and zero-knowledge proofs about what is committed.
//!
//! `docs/proofs.md` states what each proof shows and why; this module is sans-I/O: bytes go in and out,
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
mod edges;
mod encode;
mod generators;
mod labels;
mod noise;
mod norm;
mod product;
mod python;
mod range;
mod sum;
mod transcript;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
#[cfg(feature = "timing")]
pub mod timing;

pub use python::register;

/// Most coordinates of a committed vector.
pub const MAX_LENGTH: usize = 4096;
/// Most bits of one proof.
pub const MAX_BITS: usize = 1 << 16;
/// Every committed value is below it in magnitude.
pub const VALUE_LIMIT: i128 = 1 << 126;

/// Why a call was refused. No reason holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofError {
    /// This side's argument is wrong.
    Argument(String),
    /// Somebody's statement is malformed or false.
    Statement(String),
}

impl std::fmt::Display for ProofError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argument(reason) | Self::Statement(reason) => formatter.write_str(reason),
        }
    }
}

/// Refuses a number of coordinates out of range.
fn expect_coordinates(length: usize) -> Result<(), ProofError> {
    if (1..=MAX_LENGTH).contains(&length) {
        return Ok(());
    }
    Err(ProofError::Argument(format!(
        "length: {length}, not between 1 and {MAX_LENGTH}"
    )))
}

/// Refuses more bits than one proof may have.
fn expect_bits(bits: usize) -> Result<(), ProofError> {
    if bits <= MAX_BITS {
        return Ok(());
    }
    Err(ProofError::Argument(format!(
        "{bits} bits in one proof, more than {MAX_BITS}"
    )))
}
