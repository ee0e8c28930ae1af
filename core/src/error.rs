//! Errors of all modules: the reasons for which a call is refused.

use std::fmt;

use crate::garble;
use crate::noise::NoiseError;
use crate::ot::OtError;
use crate::pedersen::CommitmentError;
use crate::proofs::ProofError;
use crate::shamir;

/// Reason for which a call of any module is refused. It never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// An invalid circuit, parameter or call of `garble`.
    Garbling(garble::Refused),
    /// An invalid distribution, or a failure while drawing from it.
    Noise(NoiseError),
    /// An invalid argument, message or call of `ot`.
    Transfer(OtError),
    /// An invalid argument, block or statement of `pedersen`.
    Commitment(CommitmentError),
    /// An invalid argument or statement of `proofs`.
    Proof(ProofError),
    /// An invalid sharing or reconstruction.
    Sharing(shamir::Refused),
    /// The operating system gave no randomness.
    Randomness(getrandom::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Garbling(reason) => reason.fmt(formatter),
            Self::Noise(reason) => reason.fmt(formatter),
            Self::Transfer(reason) => reason.fmt(formatter),
            Self::Commitment(reason) => reason.fmt(formatter),
            Self::Proof(reason) => reason.fmt(formatter),
            Self::Sharing(reason) => reason.fmt(formatter),
            Self::Randomness(reason) => reason.fmt(formatter),
        }
    }
}

impl std::error::Error for Error {}

impl From<garble::Refused> for Error {
    fn from(reason: garble::Refused) -> Self {
        Self::Garbling(reason)
    }
}

impl From<NoiseError> for Error {
    fn from(reason: NoiseError) -> Self {
        Self::Noise(reason)
    }
}

impl From<OtError> for Error {
    fn from(reason: OtError) -> Self {
        Self::Transfer(reason)
    }
}

impl From<CommitmentError> for Error {
    fn from(reason: CommitmentError) -> Self {
        Self::Commitment(reason)
    }
}

impl From<ProofError> for Error {
    fn from(reason: ProofError) -> Self {
        Self::Proof(reason)
    }
}

impl From<shamir::Refused> for Error {
    fn from(reason: shamir::Refused) -> Self {
        Self::Sharing(reason)
    }
}

impl From<getrandom::Error> for Error {
    fn from(reason: getrandom::Error) -> Self {
        Self::Randomness(reason)
    }
}
