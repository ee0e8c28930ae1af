//! Python classes of oblivious transfer.

use std::hint::black_box;

use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use smpc_core::curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE;
use smpc_core::curve25519_dalek::scalar::Scalar;
use smpc_core::ot::{
    Deviation, ExtensionReceiver, ExtensionSender, KAPPA, Kernels, Row, base_first, base_pairs,
    base_respond, base_transfers, transpose_blocks,
};

use crate::arrays::to_write;
use crate::errors::raise;

fn exactly_32<'a>(name: &str, bytes: &'a [u8]) -> PyResult<&'a [u8; 32]> {
    bytes
        .try_into()
        .map_err(|_| PyValueError::new_err(format!("{name}: {} bytes, not 32", bytes.len())))
}

/// Returns the rows of 16 bytes of an array that a call fills.
fn rows<'a>(array: &'a mut PyReadwriteArray1<'_, u8>) -> PyResult<&'a mut [Row]> {
    let (rows, rest) = array.as_slice_mut()?.as_chunks_mut();
    if rest.is_empty() {
        return Ok(rows);
    }
    Err(PyValueError::new_err(format!(
        "rows: {} bytes too many for whole rows",
        rest.len()
    )))
}

#[pyclass(name = "OtSender", module = "smpc_dp._core")]
struct PySender(ExtensionSender);

#[pymethods]
impl PySender {
    #[new]
    #[pyo3(signature = (context, seed, k, bit = None))]
    fn new(
        py: Python<'_>,
        context: &[u8],
        seed: &[u8],
        k: usize,
        bit: Option<bool>,
    ) -> PyResult<Self> {
        let (context, seed) = (exactly_32("context", context)?, exactly_32("seed", seed)?);
        py.detach(|| match bit {
            None => ExtensionSender::new(context, seed, k),
            Some(bit) => ExtensionSender::with_bit(context, seed, k, bit),
        })
        .map(Self)
        .map_err(raise)
    }

    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.context())
    }

    fn respond<'py>(&mut self, py: Python<'py>, first: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let message = py.detach(|| self.0.respond(first)).map_err(raise)?;
        Ok(PyBytes::new(py, &message))
    }

    fn finish_setup(&mut self, py: Python<'_>, corrections: &[u8]) -> PyResult<()> {
        py.detach(|| self.0.finish_setup(corrections))
            .map_err(raise)
    }

    fn challenge<'py>(
        &mut self,
        py: Python<'py>,
        count: usize,
        corrections: PyReadonlyArray1<'py, u8>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let corrections = corrections.as_slice()?;
        let message = py
            .detach(|| self.0.challenge(count, corrections))
            .map_err(raise)?;
        Ok(PyBytes::new(py, &message))
    }

    fn correlated(
        &mut self,
        py: Python<'_>,
        response: &[u8],
        out: &Bound<'_, PyArray1<u8>>,
    ) -> PyResult<()> {
        let mut out = to_write(out, "rows")?;
        let rows = rows(&mut out)?;
        py.detach(|| self.0.correlated(response, rows))
            .map_err(raise)
    }

    fn random(
        &mut self,
        py: Python<'_>,
        response: &[u8],
        out: &Bound<'_, PyArray1<u8>>,
    ) -> PyResult<()> {
        let mut out = to_write(out, "rows")?;
        let pads = rows(&mut out)?;
        py.detach(|| self.0.random(response, pads)).map_err(raise)
    }

    #[getter]
    fn awaited(&self) -> usize {
        self.0.awaited()
    }

    fn delta<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.delta().map_err(raise)?))
    }

    #[getter]
    fn next_index(&self) -> u64 {
        self.0.next_index()
    }
}

#[pyclass(name = "OtReceiver", module = "smpc_dp._core")]
struct PyReceiver {
    machine: ExtensionReceiver,
    first: Vec<u8>,
}

#[pymethods]
impl PyReceiver {
    #[new]
    fn new(py: Python<'_>, context: &[u8], seed: &[u8], k: usize) -> PyResult<Self> {
        let (context, seed) = (exactly_32("context", context)?, exactly_32("seed", seed)?);
        let (machine, first) = py
            .detach(|| ExtensionReceiver::new(context, seed, k))
            .map_err(raise)?;
        Ok(Self { machine, first })
    }

    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.machine.context())
    }

    fn keep_record(&mut self) {
        self.machine.keep_record();
    }

    #[getter]
    fn recorded(&self) -> usize {
        self.machine.recorded()
    }

    /// Makes the sender's pads again; returns what does not follow from its seed.
    fn remake(
        &self,
        py: Python<'_>,
        seed: &[u8],
        out: &Bound<'_, PyArray1<u8>>,
    ) -> PyResult<Option<&'static str>> {
        let seed = exactly_32("seed", seed)?;
        let mut out = to_write(out, "pads")?;
        let pads = rows(&mut out)?;
        let deviation = py
            .detach(|| self.machine.remake(seed, pads))
            .map_err(raise)?;
        Ok(deviation.map(|deviation| match deviation {
            Deviation::BaseResponse => "base response",
            Deviation::Challenge => "challenge",
        }))
    }

    fn first_message<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.first)
    }

    fn finish_setup<'py>(
        &mut self,
        py: Python<'py>,
        response: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let message = py
            .detach(|| self.machine.finish_setup(response))
            .map_err(raise)?;
        Ok(PyBytes::new(py, &message))
    }

    fn extend(
        &mut self,
        py: Python<'_>,
        count: usize,
        choices: &[u8],
        out: &Bound<'_, PyArray1<u8>>,
    ) -> PyResult<()> {
        let mut out = to_write(out, "corrections")?;
        let corrections = out.as_slice_mut()?;
        py.detach(|| self.machine.extend(count, choices, corrections))
            .map_err(raise)
    }

    fn corrections(&self, count: usize) -> PyResult<usize> {
        self.machine.corrections(count).map_err(raise)
    }

    fn correlated<'py>(
        &mut self,
        py: Python<'py>,
        challenge: &[u8],
        out: &Bound<'py, PyArray1<u8>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = to_write(out, "rows")?;
        let rows = rows(&mut out)?;
        let response = py
            .detach(|| self.machine.correlated(challenge, rows))
            .map_err(raise)?;
        Ok(PyBytes::new(py, &response))
    }

    fn random<'py>(
        &mut self,
        py: Python<'py>,
        challenge: &[u8],
        out: &Bound<'py, PyArray1<u8>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = to_write(out, "rows")?;
        let pads = rows(&mut out)?;
        let response = py
            .detach(|| self.machine.random(challenge, pads))
            .map_err(raise)?;
        Ok(PyBytes::new(py, &response))
    }

    #[getter]
    fn awaited(&self) -> usize {
        self.machine.awaited()
    }

    #[getter]
    fn next_index(&self) -> u64 {
        self.machine.next_index()
    }
}

/// Returns the first message of base transfers without an extension.
#[pyfunction]
fn ot_base_first<'py>(
    py: Python<'py>,
    context: &[u8],
    seed: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let (context, seed) = (exactly_32("context", context)?, exactly_32("seed", seed)?);
    Ok(PyBytes::new(py, &base_first(context, seed)))
}

/// Returns both keys of each of `count` base transfers, joined.
#[pyfunction]
fn ot_base_pairs<'py>(
    py: Python<'py>,
    context: &[u8],
    seed: &[u8],
    count: usize,
    response: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let (context, seed) = (exactly_32("context", context)?, exactly_32("seed", seed)?);
    let pairs = py
        .detach(|| base_pairs(context, seed, count, response))
        .map_err(raise)?;
    Ok(PyBytes::new(py, pairs.as_flattened().as_flattened()))
}

/// Returns the response to the first message of base transfers, and the chosen keys, joined.
#[pyfunction]
fn ot_base_respond<'py>(
    py: Python<'py>,
    context: &[u8],
    seed: &[u8],
    choices: &[u8],
    first: &[u8],
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (context, seed) = (exactly_32("context", context)?, exactly_32("seed", seed)?);
    let (message, keys) = py
        .detach(|| base_respond(context, seed, choices, first))
        .map_err(raise)?;
    Ok((
        PyBytes::new(py, &message),
        PyBytes::new(py, keys.as_flattened()),
    ))
}

/// Computes both sides of a setup's base transfers in this thread, for the benchmark.
#[pyfunction]
fn ot_base_transfers(py: Python<'_>, seed: &[u8]) -> PyResult<()> {
    let seed = exactly_32("seed", seed)?;
    py.detach(|| base_transfers(seed)).map_err(raise)
}

/// Returns the rows of `blocks` blocks of columns and the hashes of the columns, for the timing
/// test.
#[pyfunction]
fn ot_rows<'py>(
    py: Python<'py>,
    challenge: &[u8],
    columns: PyReadonlyArray1<'py, u8>,
    out: &Bound<'py, PyArray1<u8>>,
    portable: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let challenge = challenge
        .try_into()
        .map_err(|_| PyValueError::new_err("challenge: not 16 bytes"))?;
    let (columns, rest) = columns.as_slice()?.as_chunks::<{ KAPPA * 16 }>();
    let mut out = to_write(out, "rows")?;
    let rows = rows(&mut out)?;
    if columns.len() < 2 || !rest.is_empty() || rows.len() != 128 * (columns.len() - 1) {
        return Err(PyValueError::new_err("columns: not those of the rows"));
    }
    let kernels = if portable {
        Kernels::Portable
    } else {
        Kernels::Fastest
    };
    let hashes = py
        .detach(|| transpose_blocks(kernels, challenge, columns, rows))
        .map_err(raise)?;
    Ok(PyBytes::new(py, hashes.as_flattened()))
}

/// Multiplies varying points and the generator in the group, for the benchmark.
#[pyfunction]
fn group_multiplications(
    py: Python<'_>,
    seed: &[u8],
    variable: usize,
    fixed: usize,
) -> PyResult<()> {
    let scalar = Scalar::from_bytes_mod_order(*exactly_32("seed", seed)?);
    py.detach(|| {
        let mut point = &scalar * RISTRETTO_BASEPOINT_TABLE;
        for _ in 0..variable {
            point = black_box(point) * black_box(scalar);
        }
        for _ in 0..fixed {
            point = &black_box(scalar) * RISTRETTO_BASEPOINT_TABLE;
            black_box(point);
        }
        black_box(point);
    });
    Ok(())
}

/// Adds the classes and functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySender>()?;
    module.add_class::<PyReceiver>()?;
    module.add_function(wrap_pyfunction!(ot_base_first, module)?)?;
    module.add_function(wrap_pyfunction!(ot_base_pairs, module)?)?;
    module.add_function(wrap_pyfunction!(ot_base_respond, module)?)?;
    module.add_function(wrap_pyfunction!(ot_base_transfers, module)?)?;
    module.add_function(wrap_pyfunction!(ot_rows, module)?)?;
    module.add_function(wrap_pyfunction!(group_multiplications, module)?)
}
