//! Oblivious transfer: base transfers, SoftSpoken extension, pads for random and chosen transfers.
//!
//! `docs/proofs/ot.md` states the notions, the sources, the bounds and what is not protected; this module
//! is sans-I/O: bytes go in and out, randomness is an argument, and one failed check ends a setup.
//!
//! Bits are numbered from the least significant bit of the first byte. Integers in messages and in
//! hashed parts are big-endian. Everything hashed carries the setup's context.

mod base;
mod check;
mod column;
mod error;
mod extension;
mod hash;
mod labels;
mod pads;
mod pprf;
mod receiver;
mod remake;
mod row;
mod sender;
#[cfg(target_arch = "x86_64")]
mod simd;
mod streams;
mod transpose;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod rates;
#[cfg(test)]
mod tests;

pub use base::{base_first, base_pairs, base_respond, base_transfers};
pub use error::OtError;
pub use extension::transpose_blocks;
pub use receiver::ExtensionReceiver;
pub use remake::Deviation;
pub use row::{KAPPA, Kernels, Row};
pub use sender::ExtensionSender;
