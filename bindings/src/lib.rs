//! Python module of `smpc-core`; `smpc_dp/_core.pyi` documents it.
//!
//! Arguments are checked here and errors become exceptions; the kernels run without the interpreter's lock.

#![deny(unsafe_code)]

mod active;
mod arrays;
mod certificate;
mod encodings;
mod errors;
mod fixed_point;
mod garble;
mod key_derivation;
mod keystream;
mod noise;
mod ot;
mod pedersen;
mod proofs;
mod shamir;
mod stream_hash;
mod threads;
mod tls;
mod tuple_hash;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use smpc_core::instructions;

/// Limits kernels to the instructions that the environment names, before any of them runs.
fn limit_kernels() -> PyResult<()> {
    let Some(name) = std::env::var_os("SMPC_DP_KERNELS") else {
        return Ok(());
    };
    instructions::limit(&name.to_string_lossy())
        .map_err(|why| PyImportError::new_err(format!("SMPC_DP_KERNELS: {why}")))
}

/// The compiled kernels of `smpc_dp`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    limit_kernels()?;
    active::register(module)?;
    certificate::register(module)?;
    errors::register(module)?;
    fixed_point::register(module)?;
    garble::register(module)?;
    key_derivation::register(module)?;
    keystream::register(module)?;
    noise::register(module)?;
    ot::register(module)?;
    pedersen::register(module)?;
    proofs::register(module)?;
    shamir::register(module)?;
    stream_hash::register(module)?;
    tls::register(module)?;
    tuple_hash::register(module)
}
