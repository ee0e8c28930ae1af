//! Limits on lengths, and how work is split.

use super::error::CommitmentError;

/// Points of a block of generators.
pub const BLOCK_POINTS: usize = 4096;
/// Blocks of all generators.
pub const BLOCKS: usize = 256;
/// Most elements of a committed vector.
pub const MAX_LENGTH: usize = BLOCKS * BLOCK_POINTS;
/// Most threads of one call.
pub const MAX_THREADS: usize = 2;

/// Refuses a number of threads out of range.
pub fn expect_threads(threads: usize) -> Result<(), CommitmentError> {
    if (1..=MAX_THREADS).contains(&threads) {
        return Ok(());
    }
    Err(CommitmentError::Argument(format!(
        "threads: {threads}, not 1 or {MAX_THREADS}"
    )))
}
