//! Python function of HKDF-SHA256 [RFC 5869].

use hkdf::Hkdf;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sha2::Sha256;

#[pyfunction]
#[pyo3(signature = (key, salt, info, length = 32))]
fn hkdf_sha256<'py>(
    py: Python<'py>,
    key: &[u8],
    salt: &[u8],
    info: &[u8],
    length: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, length, |output| {
        Hkdf::<Sha256>::new(Some(salt), key)
            .expand(info, output)
            .map_err(|_| PyValueError::new_err(format!("length: {length} bytes, above 8160")))
    })
}

/// Adds everything here to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(hkdf_sha256, module)?)
}
