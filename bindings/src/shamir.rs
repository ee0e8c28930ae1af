//! Python functions of Shamir's secret sharing.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence};
use smpc_core::shamir;

use crate::errors::raise;

/// Returns the holders' points: integers from 1 to 65535 (the sharing itself refuses 0).
fn points(xs: &Bound<'_, PySequence>) -> PyResult<Vec<u16>> {
    xs.try_iter()?
        .map(|x| {
            let x = x?;
            x.extract().map_err(|error: PyErr| {
                if error.is_instance_of::<PyOverflowError>(x.py()) {
                    PyValueError::new_err(format!("xs: {x}, not between 1 and 65535"))
                } else {
                    error
                }
            })
        })
        .collect()
}

#[pyfunction]
fn shamir_split<'py>(
    py: Python<'py>,
    secret: &[u8],
    threshold: usize,
    xs: &Bound<'py, PySequence>,
    coefficients: &[u8],
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let xs = points(xs)?;
    let shares = py
        .detach(|| shamir::split(secret, threshold, &xs, coefficients))
        .map_err(raise)?;
    Ok(shares.iter().map(|share| PyBytes::new(py, share)).collect())
}

#[pyfunction]
fn shamir_combine<'py>(
    py: Python<'py>,
    xs: &Bound<'py, PySequence>,
    shares: &Bound<'py, PySequence>,
) -> PyResult<Bound<'py, PyBytes>> {
    let xs = points(xs)?;
    let held = shares
        .try_iter()?
        .map(|share| Ok(share?.cast_into::<PyBytes>()?))
        .collect::<PyResult<Vec<_>>>()?;
    let shares: Vec<&[u8]> = held.iter().map(|share| share.as_bytes()).collect();
    let secret = py.detach(|| shamir::combine(&xs, &shares)).map_err(raise)?;
    Ok(PyBytes::new(py, &secret))
}

/// Adds everything here to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(shamir_split, module)?)?;
    module.add_function(wrap_pyfunction!(shamir_combine, module)?)
}
