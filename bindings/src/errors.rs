//! Python exceptions for the core's errors, with the same texts.

use pyo3::create_exception;
use pyo3::exceptions::{
    PyException, PyMemoryError, PyOSError, PyOverflowError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use smpc_core::Error;
use smpc_core::noise::NoiseError;
use smpc_core::ot::OtError;
use smpc_core::pedersen::CommitmentError;
use smpc_core::proofs::ProofError;

create_exception!(
    smpc_dp._core,
    OtPeerFault,
    PyException,
    "The peer's message is wrong or a check failed; the setup is destroyed."
);

create_exception!(
    smpc_dp._core,
    FalseStatement,
    PyException,
    "Somebody's commitment, opening or proof is malformed or false."
);

create_exception!(
    smpc_dp._core,
    DamagedBlock,
    PyException,
    "A stored block of generators is not that of this version."
);

/// Returns the Python exception of an error of the core.
pub fn raise(error: impl Into<Error>) -> PyErr {
    let error = error.into();
    let reason = error.to_string();
    match error {
        Error::Garbling(_)
        | Error::Sharing(_)
        | Error::Noise(NoiseError::Argument(_))
        | Error::Transfer(OtError::Argument(_))
        | Error::Commitment(CommitmentError::Argument(_))
        | Error::Proof(ProofError::Argument(_)) => PyValueError::new_err(reason),
        Error::Noise(NoiseError::Beyond) => PyOverflowError::new_err(reason),
        Error::Noise(NoiseError::Memory(_)) => PyMemoryError::new_err(reason),
        Error::Noise(NoiseError::Randomness(_)) | Error::Randomness(_) => {
            PyOSError::new_err(reason)
        }
        Error::Transfer(OtError::Peer(_)) => OtPeerFault::new_err(reason),
        Error::Transfer(OtError::State(_)) => PyRuntimeError::new_err(reason),
        Error::Commitment(CommitmentError::Damaged(_)) => DamagedBlock::new_err(reason),
        Error::Commitment(CommitmentError::Statement(_))
        | Error::Proof(ProofError::Statement(_)) => FalseStatement::new_err(reason),
    }
}

/// Adds the exceptions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("OtPeerFault", module.py().get_type::<OtPeerFault>())?;
    module.add("DamagedBlock", module.py().get_type::<DamagedBlock>())?;
    module.add("FalseStatement", module.py().get_type::<FalseStatement>())
}
