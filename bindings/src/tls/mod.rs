//! Python classes of TLS for bulk data: `rustls`, over the caller's memory and without the interpreter's lock.

mod context;
mod records;
mod socket;

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustls::{CertificateError, Error};

use crate::arrays::{contiguous, contiguous_mut};

use records::{Connection, Records, part};
use socket::{Incoming, LOOKS, Outgoing, SEND};

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

/// Returns an error of the socket, or of TLS inside one.
fn raise_io(error: io::Error) -> PyErr {
    if let Some(number) = error.raw_os_error() {
        let text = error.to_string();
        let reason = text.split(" (os error").next().unwrap_or_default();
        return PyOSError::new_err((number, reason.to_owned()));
    }
    match error.downcast::<Error>() {
        Ok(inner) => raise(inner),
        Err(other) => PyOSError::new_err(other.to_string()),
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
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
struct TlsConnection {
    records: Mutex<Box<dyn Records>>,
    /// Locked before `records`, as is `incoming`; no call locks both of them.
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<Incoming>,
}

impl TlsConnection {
    fn new(records: impl Records + 'static) -> Self {
        Self {
            records: Mutex::new(Box::new(records)),
            outgoing: Mutex::default(),
            incoming: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn Records>> {
        lock(&self.records)
    }
}

/// Returns the bytes of each buffer.
fn slices<'a>(buffers: &'a [PyReadonlyArray1<'_, u8>]) -> PyResult<Vec<&'a [u8]>> {
    let buffers = buffers.iter();
    buffers
        .map(|buffer| contiguous(buffer, "buffers"))
        .collect()
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
        let bytes = slices(&buffers)?;
        let out = contiguous_mut(&mut out, "out")?;
        py.detach(|| self.lock().encrypt(&bytes, out))
            .map_err(raise)
    }

    fn send(
        &self,
        py: Python<'_>,
        socket: i32,
        buffers: Vec<PyReadonlyArray1<'_, u8>>,
        mut start: usize,
    ) -> PyResult<(usize, bool)> {
        let bytes = slices(&buffers)?;
        let total = bytes.iter().map(|buffer| buffer.len()).sum();
        py.detach(|| {
            let mut outgoing = lock(&self.outgoing);
            while outgoing.send(socket)? {
                if start >= total {
                    return Ok((start, true));
                }
                let (next, count) = part(&bytes, start, SEND);
                let encrypted = outgoing.refill(|out| self.lock().encrypt(&next, out));
                encrypted.map_err(io::Error::other)?;
                start += count;
            }
            Ok((start, false))
        })
        .map_err(raise_io)
    }

    fn receive(
        &self,
        py: Python<'_>,
        socket: i32,
        mut out: PyReadwriteArray1<'_, u8>,
        mut have: usize,
    ) -> PyResult<(usize, bool)> {
        let out = contiguous_mut(&mut out, "out")?;
        py.detach(|| {
            let mut incoming = lock(&self.incoming);
            if !incoming.has_begun() {
                incoming.begin(&self.lock().unread());
            }
            let mut looks = 0;
            while have < out.len() {
                let room = &mut out[have..];
                let step = self.lock().decrypt(incoming.waiting(), room);
                let (used, got) = step.map_err(io::Error::other)?;
                incoming.take(used);
                have += got;
                if (used, got) == (0, 0) {
                    // Only here, where nothing that came waits to be decrypted, may the caller wait.
                    if looks == LOOKS {
                        return Ok((have, false));
                    }
                    looks += 1;
                    match incoming.receive(socket)? {
                        Some(0) => return Ok((have, true)),
                        Some(_) => {}
                        None => return Ok((have, false)),
                    }
                }
            }
            Ok((have, false))
        })
        .map_err(raise_io)
    }

    fn decrypt(
        &self,
        py: Python<'_>,
        mut received: PyReadwriteArray1<'_, u8>,
        mut out: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<(usize, usize)> {
        let received = contiguous_mut(&mut received, "received")?;
        let out = contiguous_mut(&mut out, "out")?;
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
