#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![deny(unsafe_code)]

pub mod active;
mod error;
pub mod fixed_point;
pub mod garble;
pub mod gf128;
pub mod instructions;
pub mod keystream;
pub mod noise;
pub mod ot;
pub mod pedersen;
pub mod proofs;
pub mod shamir;
pub mod stream_hash;
pub mod tuple_hash;
#[cfg(target_arch = "x86_64")]
mod vectors;

#[cfg(test)]
mod fuzz;

/// The crate of the group: its scalars are arguments and results of `proofs`.
pub use curve25519_dalek;
pub use error::Error;
