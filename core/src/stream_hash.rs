//! A keyed BLAKE3 over a stream: the core of the `blake3` crate, fed without the interpreter.

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

#[pyclass(module = "smpc_dp._core")]
struct StreamHash(blake3::Hasher);

#[pymethods]
impl StreamHash {
    #[new]
    fn new(key: &[u8]) -> PyResult<Self> {
        let key: &[u8; blake3::KEY_LEN] = key.try_into().map_err(|_| {
            PyValueError::new_err(format!("key: {} bytes, not {}", key.len(), blake3::KEY_LEN))
        })?;
        Ok(Self(blake3::Hasher::new_keyed(key)))
    }

    fn update(&mut self, py: Python<'_>, data: PyReadonlyArray1<'_, u8>) -> PyResult<()> {
        let bytes = data
            .as_slice()
            .map_err(|error| PyValueError::new_err(format!("data: {error}")))?;
        py.detach(|| self.0.update(bytes));
        Ok(())
    }

    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.finalize().as_bytes())
    }
}

/// Adds everything here to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StreamHash>()
}
