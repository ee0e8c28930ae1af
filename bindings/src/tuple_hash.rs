//! Python functions of TupleHash256, whole and in pieces.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence};
use smpc_core::tuple_hash;

/// Allowed output lengths of TupleHash256 in bytes; fewer than 16 would be too weak for any use.
const DIGEST_LENGTHS: std::ops::RangeInclusive<usize> = 16..=65_536;

#[pyfunction]
#[pyo3(name = "tuple_hash", signature = (custom, parts, length = 32))]
fn hash_tuple<'py>(
    py: Python<'py>,
    custom: &[u8],
    parts: &Bound<'py, PySequence>,
    length: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    if !DIGEST_LENGTHS.contains(&length) {
        return Err(PyValueError::new_err(format!(
            "length: {length} bytes, not between {} and {}",
            DIGEST_LENGTHS.start(),
            DIGEST_LENGTHS.end()
        )));
    }
    let mut hasher = tuple_hash::TupleHash256::new(custom);
    for part in parts.try_iter()? {
        hasher.absorb(part?.cast::<PyBytes>()?.as_bytes());
    }
    PyBytes::new_with(py, length, |output| {
        hasher.finish(output);
        Ok(())
    })
}

/// A TupleHash256 that may take a part in pieces; `due` bytes of the last part are missing.
#[pyclass(module = "smpc_dp._core")]
struct TupleHash {
    hasher: tuple_hash::TupleHash256,
    expected: u64,
}

#[pymethods]
impl TupleHash {
    #[new]
    fn new(custom: &[u8]) -> Self {
        Self {
            hasher: tuple_hash::TupleHash256::new(custom),
            expected: 0,
        }
    }

    fn begin(&mut self, length: u64) -> PyResult<()> {
        self.whole()?;
        if length > u64::MAX / 8 {
            return Err(PyValueError::new_err(format!("length: {length} bytes")));
        }
        self.hasher.begin(length);
        self.expected = length;
        Ok(())
    }

    fn update(&mut self, piece: &[u8]) -> PyResult<()> {
        let left = self
            .expected
            .checked_sub(piece.len() as u64)
            .ok_or_else(|| {
                PyValueError::new_err(format!(
                    "piece: {} bytes, {} are due",
                    piece.len(),
                    self.expected
                ))
            })?;
        self.hasher.go_on(piece);
        self.expected = left;
        Ok(())
    }

    fn digest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.whole()?;
        let mut output = [0; 32];
        self.hasher.clone().finish(&mut output);
        Ok(PyBytes::new(py, &output))
    }
}

impl TupleHash {
    fn whole(&self) -> PyResult<()> {
        if self.expected == 0 {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "{} bytes of a part are due",
            self.expected
        )))
    }
}

/// Adds everything here to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TupleHash>()?;
    module.add_function(wrap_pyfunction!(hash_tuple, module)?)
}
