//! Errors of oblivious transfer, by whose fault they are.

/// Reason for which a call is refused.
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

impl std::error::Error for OtError {}

/// Refuses a message of the wrong length.
pub fn expect_length(name: &str, message: &[u8], length: usize) -> Result<(), OtError> {
    if message.len() == length {
        return Ok(());
    }
    Err(OtError::Peer(format!(
        "{name}: {} bytes, not {length}",
        message.len()
    )))
}
