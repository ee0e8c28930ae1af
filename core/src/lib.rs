//! The compiled kernels of `smpc_dp`: no input or output, no policy, and no randomness of their own but the
//! operating system's keys for noise.
//!
//! This file holds the faces that Python sees; `smpc_dp/_core.pyi` documents them.

#![deny(unsafe_code)]

mod garble;
mod gf128;
mod keystream;
mod noise;
mod ot;
mod proofs;
mod shamir;
mod stream_hash;
mod tuple_hash;

#[cfg(test)]
mod fuzz;
#[cfg(feature = "timing")]
pub mod timing;

use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence};

use keystream::{Lane, Mask};

/// Bytes of a TupleHash256 output; fewer than 16 would be too weak for any use.
const DIGEST_LENGTHS: std::ops::RangeInclusive<usize> = 16..=65_536;
/// Threads that one call may use.
const THREADS: std::ops::RangeInclusive<usize> = 1..=256;

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

/// A TupleHash256 of which a part may come in pieces; `due` bytes of the last one are to come.
#[pyclass(module = "smpc_dp._core")]
struct TupleHash {
    hasher: tuple_hash::TupleHash256,
    due: u64,
}

#[pymethods]
impl TupleHash {
    #[new]
    fn new(custom: &[u8]) -> Self {
        Self {
            hasher: tuple_hash::TupleHash256::new(custom),
            due: 0,
        }
    }

    fn begin(&mut self, length: u64) -> PyResult<()> {
        self.whole()?;
        if length > u64::MAX / 8 {
            return Err(PyValueError::new_err(format!("length: {length} bytes")));
        }
        self.hasher.begin(length);
        self.due = length;
        Ok(())
    }

    fn update(&mut self, piece: &[u8]) -> PyResult<()> {
        let left = self.due.checked_sub(piece.len() as u64).ok_or_else(|| {
            PyValueError::new_err(format!(
                "piece: {} bytes, {} are due",
                piece.len(),
                self.due
            ))
        })?;
        self.hasher.go_on(piece);
        self.due = left;
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
        if self.due == 0 {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "{} bytes of a part are due",
            self.due
        )))
    }
}

fn add_to_array<T: Lane + numpy::Element>(
    py: Python<'_>,
    array: &Bound<'_, PyArray1<T>>,
    masks: &[Mask<'_>],
    offset: u64,
    threads: usize,
) -> PyResult<()> {
    let mut array = array
        .try_readwrite()
        .map_err(|error| PyValueError::new_err(format!("acc: {error}")))?;
    let lanes = array
        .as_slice_mut()
        .map_err(|error| PyValueError::new_err(format!("acc: {error}")))?;
    if offset.checked_add(lanes.len() as u64).is_none() {
        return Err(PyValueError::new_err(
            "offset: offset + len(acc) exceeds 2**64 - 1",
        ));
    }
    py.detach(|| keystream::add_keystreams(lanes, masks, offset, threads));
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
    if !THREADS.contains(&threads) {
        return Err(PyValueError::new_err(format!(
            "threads: {threads}, not between {} and {}",
            THREADS.start(),
            THREADS.end()
        )));
    }
    let masks: Vec<Mask<'_>> = chunks
        .iter()
        .zip(subtract)
        .map(|(key, &flag)| Mask {
            key,
            subtract: flag == 1,
        })
        .collect();
    if let Ok(array) = acc.cast::<PyArray1<u64>>() {
        add_to_array(py, array, &masks, offset, threads)
    } else if let Ok(array) = acc.cast::<PyArray1<u32>>() {
        add_to_array(py, array, &masks, offset, threads)
    } else {
        Err(PyTypeError::new_err(
            "acc: not a one-dimensional numpy array of native uint64 or uint32",
        ))
    }
}

/// The holders' points: integers from 1 to 65535 (0 is refused by the sharing itself).
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

fn refused(reason: shamir::Refused) -> PyErr {
    PyValueError::new_err(reason.to_string())
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
        .map_err(refused)?;
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
    let secret = py
        .detach(|| shamir::combine(&xs, &shares))
        .map_err(refused)?;
    Ok(PyBytes::new(py, &secret))
}

/// The compiled kernels of `smpc_dp`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    garble::register(module)?;
    noise::register(module)?;
    ot::register(module)?;
    proofs::register(module)?;
    stream_hash::register(module)?;
    module.add_class::<TupleHash>()?;
    module.add_function(wrap_pyfunction!(hash_tuple, module)?)?;
    module.add_function(wrap_pyfunction!(add_keystreams, module)?)?;
    module.add_function(wrap_pyfunction!(shamir_split, module)?)?;
    module.add_function(wrap_pyfunction!(shamir_combine, module)?)
}
