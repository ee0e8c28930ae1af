//! Why a call was refused, and by whose fault.

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

impl std::error::Error for ProofError {}
