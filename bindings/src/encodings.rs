//! Bytes of Python as encodings of points and scalars, and errors by whose fault they are.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smpc_core::curve25519_dalek::scalar::Scalar;
use smpc_core::proofs::ProofError;
use smpc_core::proofs::encode::{self, ELEMENT, Element};
use zeroize::Zeroizing;

/// Returns an argument of the caller as exactly `N` bytes.
pub fn exactly<'a, const N: usize>(name: &str, bytes: &'a [u8]) -> PyResult<&'a [u8; N]> {
    bytes
        .try_into()
        .map_err(|_| PyValueError::new_err(format!("{name}: {} bytes, not {N}", bytes.len())))
}

/// Returns a scalar of the caller.
pub fn own_scalar(name: &str, bytes: &[u8]) -> PyResult<Zeroizing<Scalar>> {
    let scalar = encode::scalar(name, exactly(name, bytes)?);
    scalar
        .map(Zeroizing::new)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Returns an element of another party's statement.
pub fn element(name: &str, bytes: &[u8]) -> Result<Element, ProofError> {
    bytes
        .try_into()
        .map_err(|_| ProofError::Statement(format!("{name}: {} bytes, not {ELEMENT}", bytes.len())))
}

/// Returns elements of another party's statement.
pub fn elements(name: &str, all: &[Vec<u8>]) -> Result<Vec<Element>, ProofError> {
    all.iter().map(|bytes| element(name, bytes)).collect()
}
