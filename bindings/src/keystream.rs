//! Python functions that add keystreams to arrays.

use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smpc_core::keystream::{Lane, Mask, add_keystreams as add_to_lanes};

use crate::arrays::{contiguous_mut, to_write, with_array};
use crate::threads::check_threads;

fn add_to_array<T: Lane + numpy::Element>(
    py: Python<'_>,
    acc: &Bound<'_, PyArray1<T>>,
    masks: &[Mask<'_>],
    offset: u64,
    threads: usize,
) -> PyResult<()> {
    let mut acc = to_write(acc, "acc")?;
    let lanes = contiguous_mut(&mut acc, "acc")?;
    if offset.checked_add(lanes.len() as u64).is_none() {
        return Err(PyValueError::new_err(
            "offset: offset + len(acc) exceeds 2**64 - 1",
        ));
    }
    py.detach(|| add_to_lanes(lanes, masks, offset, threads));
    Ok(())
}

#[pyfunction]
#[pyo3(signature = (acc, keys, subtract, offset = 0, threads = 1))]
fn add_keystreams(
    py: Python<'_>,
    acc: &Bound<'_, PyAny>,
    keys: &[u8],
    subtract: &[u8],
    offset: u64,
    threads: usize,
) -> PyResult<()> {
    let (chunks, rest) = keys.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(PyValueError::new_err(format!(
            "keys: {} bytes, not a multiple of 32",
            keys.len()
        )));
    }
    if subtract.len() != chunks.len() {
        return Err(PyValueError::new_err(format!(
            "subtract: {} flags for {} keys",
            subtract.len(),
            chunks.len()
        )));
    }
    if let Some(flag) = subtract.iter().find(|&&flag| flag > 1) {
        return Err(PyValueError::new_err(format!(
            "subtract: flag {flag}, not 0 or 1"
        )));
    }
    check_threads(threads)?;
    let masks: Vec<Mask<'_>> = chunks
        .iter()
        .zip(subtract)
        .map(|(key, &flag)| Mask {
            key,
            subtract: flag == 1,
        })
        .collect();
    with_array!(acc: u64 | u32, add_to_array(py, acc, &masks, offset, threads))
}

/// Adds everything here to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(add_keystreams, module)?)
}
