//! Errors of vector commitments, by whose fault they are.

/// Reason for which a call is refused. It never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitmentError {
    /// This side's argument is wrong.
    Argument(String),
    /// Stored generators are not those of this version.
    Damaged(String),
    /// Another party's statement is malformed.
    Statement(String),
}

impl std::fmt::Display for CommitmentError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argument(reason) | Self::Damaged(reason) | Self::Statement(reason) => {
                formatter.write_str(reason)
            }
        }
    }
}

impl std::error::Error for CommitmentError {}
