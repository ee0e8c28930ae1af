//! Errors of proofs, by whose fault they are.

/// Reason for which a call is refused. It never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofError {
    /// This side's argument is wrong.
    Argument(String),
    /// Another party's statement is malformed or false.
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
