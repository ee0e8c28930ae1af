//! Python class of a keyed BLAKE3 over a stream, fed without the interpreter.

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use smpc_core::stream_hash::{self, KEY};

use crate::arrays::contiguous;

/// Bytes that are hashed in less time than the lock takes to be released and taken again.
const SHORT: usize = 1 << 10;

#[pyclass(module = "smpc_dp._core")]
struct StreamHash(stream_hash::StreamHash);

#[pymethods]
impl StreamHash {
    #[new]
    fn new(key: &[u8]) -> PyResult<Self> {
        let key: &[u8; KEY] = key
            .try_into()
            .map_err(|_| PyValueError::new_err(format!("key: {} bytes, not {}", key.len(), KEY)))?;
        Ok(Self(stream_hash::StreamHash::new(key)))
    }

    fn update(&mut self, py: Python<'_>, data: PyReadonlyArray1<'_, u8>) -> PyResult<()> {
        let bytes = contiguous(&data, "data")?;
        if bytes.len() < SHORT {
            self.0.update(bytes);
        } else {
            py.detach(|| self.0.update(bytes));
        }
        Ok(())
    }

    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.digest())
    }
}

/// Adds everything here to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StreamHash>()
}
