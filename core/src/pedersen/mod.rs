//! Pedersen commitments over ristretto255 to long vectors of small integers, and checks of their sums.
//!
//! A commitment is sum of x_j G_j + r H, for up to 2^20 integers of 1 to 8 bytes. `docs/decisions/0051-vector-commitments.md`
//! states why the group law is here.
//!
//! - `generators`, `block`: G_j and H, and how they are stored.
//! - `field`, `point`, `ristretto`: the group, over the verified field arithmetic of `fiat-crypto`.
//! - `commit`, `table`, `blinding`: commitments to secrets, in constant time.
//! - `check`, `buckets`: checks of public totals, in variable time.
//! - `additions`: what both are measured by.

mod additions;
mod blinding;
mod block;
mod buckets;
mod check;
mod commit;
mod elements;
mod error;
mod field;
mod generators;
mod labels;
mod limits;
mod parallel;
mod point;
mod ristretto;
mod table;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use additions::{check_additions, commit_additions, make_additions};
pub use block::{BLOCK_BYTES, Block, make_block};
pub use check::check;
pub use commit::commit;
pub use elements::{Elements, Integers};
pub use error::CommitmentError;
pub use limits::{BLOCK_POINTS, BLOCKS, MAX_LENGTH, MAX_THREADS};
