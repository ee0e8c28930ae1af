//! The faces that Python sees; `smpc_dp/_core.pyi` documents them.

use numpy::{IntoPyArray, PyArray1};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{ExtensionReceiver, ExtensionSender, OtError, Row};

create_exception!(
    smpc_dp._core,
    OtPeerFault,
    PyException,
    "The peer's message is wrong or a check failed; the setup is destroyed."
);

fn raise(error: OtError) -> PyErr {
    let reason = error.to_string();
    match error {
        OtError::Argument(_) => PyValueError::new_err(reason),
        OtError::Peer(_) => OtPeerFault::new_err(reason),
        OtError::State(_) => PyRuntimeError::new_err(reason),
    }
}

fn exactly_32<'a>(name: &str, bytes: &'a [u8]) -> PyResult<&'a [u8; 32]> {
    bytes
        .try_into()
        .map_err(|_| PyValueError::new_err(format!("{name}: {} bytes, not 32", bytes.len())))
}

type Answer<'py> = (Bound<'py, PyBytes>, Bound<'py, PyArray1<u8>>);

fn answer<'py>(py: Python<'py>, response: &[u8], rows: Vec<Row>) -> Answer<'py> {
    (
        PyBytes::new(py, response),
        rows.into_flattened().into_pyarray(py),
    )
}

#[pyclass(name = "OtSender", module = "smpc_dp._core")]
struct PySender(ExtensionSender);

#[pymethods]
impl PySender {
    #[new]
    fn new(py: Python<'_>, context: &[u8], seed: &[u8], k: usize) -> PyResult<Self> {
        let (context, seed) = (exactly_32("context", context)?, exactly_32("seed", seed)?);
        py.detach(|| ExtensionSender::new(context, seed, k))
            .map(Self)
            .map_err(raise)
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
        corrections: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let message = py
            .detach(|| self.0.challenge(count, corrections))
            .map_err(raise)?;
        Ok(PyBytes::new(py, &message))
    }

    fn correlated<'py>(
        &mut self,
        py: Python<'py>,
        response: &[u8],
    ) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let mut rows = Vec::new();
        py.detach(|| self.0.correlated(response, &mut rows))
            .map_err(raise)?;
        Ok(rows.into_flattened().into_pyarray(py))
    }

    fn random<'py>(
        &mut self,
        py: Python<'py>,
        response: &[u8],
    ) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let mut pads = Vec::new();
        py.detach(|| self.0.random(response, &mut pads))
            .map_err(raise)?;
        Ok(pads.into_flattened().into_pyarray(py))
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

    fn extend<'py>(
        &mut self,
        py: Python<'py>,
        count: usize,
        choices: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut message = Vec::new();
        py.detach(|| self.machine.extend(count, choices, &mut message))
            .map_err(raise)?;
        Ok(PyBytes::new(py, &message))
    }

    fn correlated<'py>(&mut self, py: Python<'py>, challenge: &[u8]) -> PyResult<Answer<'py>> {
        let mut rows = Vec::new();
        let response = py
            .detach(|| self.machine.correlated(challenge, &mut rows))
            .map_err(raise)?;
        Ok(answer(py, &response, rows))
    }

    fn random<'py>(&mut self, py: Python<'py>, challenge: &[u8]) -> PyResult<Answer<'py>> {
        let mut rows = Vec::new();
        let response = py
            .detach(|| self.machine.random(challenge, &mut rows))
            .map_err(raise)?;
        Ok(answer(py, &response, rows))
    }

    #[getter]
    fn next_index(&self) -> u64 {
        self.machine.next_index()
    }
}

/// Adds what Python sees of oblivious transfer.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("OtPeerFault", module.py().get_type::<OtPeerFault>())?;
    module.add_class::<PySender>()?;
    module.add_class::<PyReceiver>()
}
