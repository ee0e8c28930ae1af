//! Oblivious transfer: base transfers, SoftSpoken extension, pads for random and chosen transfers.
//!
//! `docs/ot.md` states the notions, the sources, the bounds and what is not protected; this module
//! is sans-I/O: bytes go in and out, randomness is an argument, and one failed check ends a setup.
//!
//! Bits are numbered from the least significant bit of the first byte. Integers in messages and in
//! hashed parts are big-endian. Everything hashed carries the setup's context.

mod base;
mod check;
mod extension;
mod labels;
mod pads;
mod pprf;
mod python;
mod receiver;
mod sender;
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
#[cfg(feature = "timing")]
pub mod timing;

pub use python::register;
pub use receiver::ExtensionReceiver;
pub use sender::ExtensionSender;

use crate::tuple_hash::TupleHash256;

/// Base transfers of a setup, bits of the correlation, bits of a hashed column.
pub const KAPPA: usize = 128;

/// A transfer's row: bit c belongs to column c of the correlation.
pub type Row = [u8; 16];

/// Which version of a kernel runs; all give the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernels {
    Fastest,
    Portable,
}

/// Why a call was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtError {
    /// This side's argument is wrong; nothing has changed.
    Argument(String),
    /// The peer's message is wrong or a check failed; the setup is destroyed.
    Peer(String),
    /// The call is out of order, or the setup is destroyed.
    State(&'static str),
}

impl std::fmt::Display for OtError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argument(reason) | Self::Peer(reason) => formatter.write_str(reason),
            Self::State(reason) => formatter.write_str(reason),
        }
    }
}

/// `N` bytes of TupleHash256 under `label`.
fn hash<const N: usize>(label: &str, parts: &[&[u8]]) -> [u8; N] {
    let mut output = [0; N];
    let mut hasher = TupleHash256::new(label.as_bytes());
    for part in parts {
        hasher.absorb(part);
    }
    hasher.finish(&mut output);
    output
}

/// Refuses a message of the wrong length.
fn expect_length(name: &str, message: &[u8], length: usize) -> Result<(), OtError> {
    if message.len() == length {
        return Ok(());
    }
    Err(OtError::Peer(format!(
        "{name}: {} bytes, not {length}",
        message.len()
    )))
}
