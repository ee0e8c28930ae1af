//! Limits on the size of a statement.

use super::error::ProofError;

/// Most coordinates of a committed vector.
pub const MAX_LENGTH: usize = 4096;
/// Most bits of one proof.
pub const MAX_BITS: usize = 1 << 16;
/// Every committed value is below it in magnitude.
pub const VALUE_LIMIT: i128 = 1 << 126;

/// Refuses a number of coordinates out of range.
pub fn expect_coordinates(length: usize) -> Result<(), ProofError> {
    if (1..=MAX_LENGTH).contains(&length) {
        return Ok(());
    }
    Err(ProofError::Argument(format!(
        "length: {length}, not between 1 and {MAX_LENGTH}"
    )))
}

/// Refuses more bits than one proof may have.
pub fn expect_bits(bits: usize) -> Result<(), ProofError> {
    if bits <= MAX_BITS {
        return Ok(());
    }
    Err(ProofError::Argument(format!(
        "{bits} bits in one proof, more than {MAX_BITS}"
    )))
}
