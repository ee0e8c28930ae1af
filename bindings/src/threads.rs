//! Limits on the number of threads of one call.

use std::ops::RangeInclusive;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

const THREADS: RangeInclusive<usize> = 1..=256;

/// Refuses a number of threads out of range.
pub fn check_threads(threads: usize) -> PyResult<()> {
    if THREADS.contains(&threads) {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "threads: {threads}, not between {} and {}",
        THREADS.start(),
        THREADS.end()
    )))
}
