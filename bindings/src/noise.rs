//! Python class of exact noise.

use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use smpc_core::noise::NoiseKey;

use crate::errors::raise;
use crate::threads::check_threads;

const MAX_COUNT: u64 = 1 << 32;

#[pyclass(name = "NoiseKey", module = "smpc_dp._core", frozen)]
struct PyNoiseKey(NoiseKey);

#[pymethods]
impl PyNoiseKey {
    #[staticmethod]
    fn system() -> PyResult<Self> {
        NoiseKey::system().map(Self).map_err(raise)
    }

    #[staticmethod]
    fn keyed(key: &[u8], context: Vec<Bound<'_, PyBytes>>) -> PyResult<Self> {
        let key = key.try_into().map_err(|_| {
            let length = key.len();
            PyValueError::new_err(format!("key: {length} bytes, not 32"))
        })?;
        let parts = context.iter().map(|part| part.as_bytes());
        Ok(Self(NoiseKey::keyed(key, parts)))
    }

    #[getter]
    fn calls(&self) -> u64 {
        self.0.calls()
    }

    fn draw<'py>(
        &self,
        py: Python<'py>,
        distribution: &str,
        terms: Vec<Vec<u8>>,
        count: u64,
        threads: usize,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        if count > MAX_COUNT {
            return Err(PyValueError::new_err(format!("count: {count} above 2^32")));
        }
        check_threads(threads)?;
        let samples = py
            .detach(|| self.0.draw(distribution, &terms, count as usize, threads))
            .map_err(raise)?;
        Ok(samples.into_pyarray(py))
    }
}

/// Adds the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyNoiseKey>()
}
