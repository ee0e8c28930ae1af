//! Python class of the generators of vector commitments, with commitments and checks.

use std::hint::black_box;
use std::iter::successors;
use std::sync::{Arc, PoisonError, RwLock};

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use smpc_core::curve25519_dalek::constants::RISTRETTO_BASEPOINT_POINT;
use smpc_core::curve25519_dalek::ristretto::RistrettoPoint;
use smpc_core::curve25519_dalek::scalar::Scalar;
use smpc_core::curve25519_dalek::traits::{MultiscalarMul, VartimeMultiscalarMul};
use smpc_core::pedersen::{self, BLOCK_BYTES, BLOCK_POINTS, Block, Elements, Integers, MAX_LENGTH};
use smpc_core::proofs::encode;

use crate::arrays::{contiguous, other_array, to_read};
use crate::encodings::{element, own_scalar};
use crate::errors::raise;

/// An array of integers of Python: its type says whether they have a sign.
enum Array<'py> {
    Unsigned(PyReadonlyArray1<'py, u64>),
    Signed(PyReadonlyArray1<'py, i64>),
}

impl<'py> Array<'py> {
    fn new(name: &str, array: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = array.cast::<PyArray1<u64>>() {
            Ok(Self::Unsigned(to_read(array, name)?))
        } else if let Ok(array) = array.cast::<PyArray1<i64>>() {
            Ok(Self::Signed(to_read(array, name)?))
        } else {
            Err(other_array::<u64, i64>(array.py(), name))
        }
    }

    fn elements(&self, name: &str, width: usize) -> PyResult<Elements<'_>> {
        let integers = match self {
            Self::Unsigned(array) => Integers::Unsigned(contiguous(array, name)?),
            Self::Signed(array) => Integers::Signed(contiguous(array, name)?),
        };
        Elements::new(integers, width).map_err(raise)
    }
}

#[pyclass(module = "smpc_dp._core", frozen)]
#[derive(Default)]
struct Generators(RwLock<Vec<Arc<Block>>>);

impl Generators {
    /// Returns the blocks of now; others may be appended meanwhile.
    fn all(&self) -> Vec<Arc<Block>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[pymethods]
impl Generators {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self) -> usize {
        let blocks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        blocks.len() * BLOCK_POINTS
    }

    fn append(&self, py: Python<'_>, number: usize, block: &[u8]) -> PyResult<()> {
        let block = py.detach(|| Block::read(number, block)).map_err(raise)?;
        let mut blocks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if number > blocks.len() {
            return Err(PyValueError::new_err(format!(
                "block: {number}, and the next is {}",
                blocks.len()
            )));
        }
        if number == blocks.len() {
            blocks.push(Arc::new(block));
        }
        Ok(())
    }

    #[pyo3(signature = (elements, width, blinding, threads = 1))]
    fn commit<'py>(
        &self,
        py: Python<'py>,
        elements: &Bound<'py, PyAny>,
        width: usize,
        blinding: &[u8],
        threads: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let array = Array::new("elements", elements)?;
        let elements = array.elements("elements", width)?;
        let blinding = own_scalar("blinding", blinding)?;
        let blocks = self.all();
        let commitment = py
            .detach(|| pedersen::commit(&blocks, &elements, &blinding, threads))
            .map_err(raise)?;
        Ok(PyBytes::new(py, &commitment))
    }

    #[pyo3(signature = (totals, width, blinding_sum, commitments, threads = 1))]
    fn check(
        &self,
        py: Python<'_>,
        totals: &Bound<'_, PyAny>,
        width: usize,
        blinding_sum: &[u8],
        commitments: Vec<Vec<u8>>,
        threads: usize,
    ) -> PyResult<bool> {
        let array = Array::new("totals", totals)?;
        let totals = array.elements("totals", width)?;
        let blinding_sum = element("blinding_sum", blinding_sum)
            .and_then(|bytes| encode::scalar("blinding_sum", &bytes))
            .map_err(raise)?;
        let commitments = commitments
            .iter()
            .enumerate()
            .map(|(number, bytes)| element(&format!("commitments: number {number}"), bytes))
            .collect::<Result<Vec<_>, _>>()
            .map_err(raise)?;
        let blocks = self.all();
        py.detach(|| pedersen::check(&blocks, &totals, &blinding_sum, &commitments, threads))
            .map_err(raise)
    }
}

#[pyfunction]
#[pyo3(signature = (number, threads = 1))]
fn make_generator_block(
    py: Python<'_>,
    number: usize,
    threads: usize,
) -> PyResult<Bound<'_, PyBytes>> {
    let block = py
        .detach(|| pedersen::make_block(number, threads))
        .map_err(raise)?;
    Ok(PyBytes::new(py, &block))
}

/// Counts the additions of a commitment and of a check, each of 7 and of 8 multiplications, for a benchmark.
#[pyfunction]
fn count_additions(length: usize, width: usize) -> PyResult<((usize, usize), (usize, usize))> {
    let commit = pedersen::commit_additions(length, width).map_err(raise)?;
    let check = pedersen::check_additions(length, width).map_err(raise)?;
    Ok((commit.into(), check.into()))
}

/// Makes so many additions of 7 and of 8 multiplications, for a benchmark.
#[pyfunction]
fn make_additions(py: Python<'_>, seven: usize, eight: usize) {
    py.detach(|| pedersen::make_additions([seven, eight]));
}

/// Sums of multiples by curve25519-dalek, for a benchmark.
#[pyclass(module = "smpc_dp._core", frozen)]
struct PeerMultiples {
    scalars: Vec<Scalar>,
    points: Vec<RistrettoPoint>,
}

#[pymethods]
impl PeerMultiples {
    #[new]
    fn new(elements: PyReadonlyArray1<'_, u64>) -> PyResult<Self> {
        let elements = elements.as_slice()?;
        let next = |last: &RistrettoPoint| Some(last + RISTRETTO_BASEPOINT_POINT);
        Ok(Self {
            scalars: elements.iter().copied().map(Scalar::from).collect(),
            points: successors(Some(RISTRETTO_BASEPOINT_POINT), next)
                .take(elements.len())
                .collect(),
        })
    }

    fn add(&self, py: Python<'_>, constant_time: bool) {
        py.detach(|| {
            black_box(if constant_time {
                RistrettoPoint::multiscalar_mul(&self.scalars, &self.points)
            } else {
                RistrettoPoint::vartime_multiscalar_mul(&self.scalars, &self.points)
            });
        });
    }
}

/// Adds everything here to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("GENERATOR_BLOCK_BYTES", BLOCK_BYTES)?;
    module.add("GENERATOR_BLOCK_POINTS", BLOCK_POINTS)?;
    module.add("MAX_COMMITTED_VECTOR", MAX_LENGTH)?;
    module.add_class::<Generators>()?;
    module.add_class::<PeerMultiples>()?;
    module.add_function(wrap_pyfunction!(count_additions, module)?)?;
    module.add_function(wrap_pyfunction!(make_additions, module)?)?;
    module.add_function(wrap_pyfunction!(make_generator_block, module)?)
}
