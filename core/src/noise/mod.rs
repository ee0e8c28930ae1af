//! Exact samplers of integer laws; `docs/sampling.md` specifies what is read and what is returned.
//!
//! One engine serves every law whose mass function is log-concave: strips around the mode, each with an
//! integer height that is no less than the mass of any of its values, are chosen by integer weights, and
//! a value of the strip is kept with probability mass / height. No floating point: `bounds` encloses the
//! irrational masses between integers, as tightly as a decision needs, and most decisions are made on
//! 64-bit thresholds that follow from such bounds.

mod bounds;
mod draw;
mod factorial;
mod law;
mod python;
mod table;
#[cfg(test)]
mod tests;
mod words;

pub use python::register;

/// A source's key from a caller's key and context.
const SOURCE_KEY: &str = "smpc-dp/1/noise-source";
/// The key of one call from its source's key, the call's number, the law and its parameters.
const CALL_KEY: &str = "smpc-dp/1/noise-call";

/// Why nothing was drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoiseError {
    /// An argument that is out of range.
    Argument(&'static str),
    /// A value beyond 64 bits or beyond what bounds are kept for; its probability is below 2^-1000.
    Beyond,
}

impl std::fmt::Display for NoiseError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argument(reason) => out.write_str(reason),
            Self::Beyond => out.write_str("a value beyond 64 bits was drawn"),
        }
    }
}
