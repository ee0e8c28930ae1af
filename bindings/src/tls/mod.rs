//! Python classes of TLS for bulk data: `rustls`, over the caller's memory and without the interpreter's lock.

mod context;
mod records;

use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustls::{CertificateError, Error};

use records::{Connection, Records};

create_exception!(
    smpc_dp._core,
    TlsError,
    PyOSError,
    "The other end's TLS is wrong; the text says in what."
);

fn raise(error: Error) -> PyErr {
    TlsError::new_err(match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is not one of the roster".to_owned()
        }
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            "it has not the key of the certificate that it shows".to_owned()
        }
        other => format!("TLS failed ({other})"),
    })
}

/// The roster's certificates, and a member's own with its key.
#[pyclass(frozen, module = "smpc_dp._core")]
struct TlsContext(context::Context);

#[pymethods]
impl TlsContext {
    #[new]
    fn new(key_pem: &[u8], certificate: &[u8], trusted: Vec<Vec<u8>>) -> PyResult<Self> {
        let made = context::Context::new(key_pem, certificate, trusted);
        made.map(Self)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn connect(&self) -> PyResult<TlsConnection> {
        let end = self.0.client().map_err(raise)?;
        Ok(TlsConnection::new(Connection::new(end)))
    }

    fn accept(&self) -> PyResult<TlsConnection> {
        let end = self.0.server().map_err(raise)?;
        Ok(TlsConnection::new(Connection::new(end)))
    }
}

/// One end of a connection; one thread may encrypt while another decrypts.
#[pyclass(frozen, module = "smpc_dp._core")]
struct TlsConnection(Mutex<Box<dyn Records>>);

impl TlsConnection {
    fn new(records: impl Records + 'static) -> Self {
        Self(Mutex::new(Box::new(records)))
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn Records>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl TlsConnection {
    fn shake<'py>(
        &self,
        py: Python<'py>,
        received: &[u8],
    ) -> PyResult<(Bound<'py, PyBytes>, bool)> {
        let (rest, done) = py
            .detach(|| {
                let mut records = self.lock();
                records.shake(received).map(|done| (records.rest(), done))
            })
            .map_err(raise)?;
        Ok((PyBytes::new(py, &rest), done))
    }

    fn rest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.lock().rest())
    }

    fn unread<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.lock().unread())
    }

    fn certificate<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.lock().certificate().unwrap_or_default())
    }

    fn encrypt(
        &self,
        py: Python<'_>,
        buffers: Vec<PyReadonlyArray1<'_, u8>>,
        mut out: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<usize> {
        let bytes = buffers
            .iter()
            .map(|buffer| buffer.as_slice())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| PyValueError::new_err(format!("buffers: {error}")))?;
        let out = out
            .as_slice_mut()
            .map_err(|error| PyValueError::new_err(format!("out: {error}")))?;
        py.detach(|| self.lock().encrypt(&bytes, out))
            .map_err(raise)
    }

    fn decrypt(
        &self,
        py: Python<'_>,
        mut received: PyReadwriteArray1<'_, u8>,
        mut out: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<(usize, usize)> {
        let received = received
            .as_slice_mut()
            .map_err(|error| PyValueError::new_err(format!("received: {error}")))?;
        let out = out
            .as_slice_mut()
            .map_err(|error| PyValueError::new_err(format!("out: {error}")))?;
        py.detach(|| self.lock().decrypt(received, out))
            .map_err(raise)
    }
}

/// Adds everything here to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("TlsError", module.py().get_type::<TlsError>())?;
    module.add_class::<TlsContext>()?;
    module.add_class::<TlsConnection>()
}
