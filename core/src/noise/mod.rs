//! Exact samplers of integer distributions; `protocols/sampling/README.md` specifies the words read
//! and the values returned.
//!
//! One engine serves every distribution whose mass function is log-concave: strips around the mode, each with an
//! integer height that is no less than the mass of any of its values, are chosen by integer weights, and
//! a value of the strip is kept with probability mass / height. No floating point: `bounds` encloses the
//! irrational masses between integers, as tightly as a decision needs, and most decisions are made on
//! 64-bit thresholds that follow from such bounds.

mod bounds;
mod distribution;
mod draw;
mod error;
mod factorial;
mod key;
mod table;
#[cfg(test)]
mod tests;
mod words;

pub use error::NoiseError;
pub use key::NoiseKey;
