//! Errors of drawing.

/// Reason why nothing was drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoiseError {
    /// An argument that is out of range.
    Argument(&'static str),
    /// A value beyond 64 bits or beyond the range of the bounds; its probability is below 2^-500.
    Beyond,
    /// The memory for so many values is not available.
    Memory(usize),
    /// The operating system gave no randomness.
    Randomness(getrandom::Error),
}

impl std::fmt::Display for NoiseError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argument(reason) => out.write_str(reason),
            Self::Beyond => out.write_str("a value beyond 64 bits was drawn"),
            Self::Memory(count) => write!(out, "no memory for {count} values"),
            Self::Randomness(error) => write!(out, "no randomness: {error}"),
        }
    }
}

impl std::error::Error for NoiseError {}
