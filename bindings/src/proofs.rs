//! Python functions and classes of commitments and proofs.

use std::hint::black_box;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};
use smpc_core::curve25519_dalek::constants::RISTRETTO_BASEPOINT_POINT;
use smpc_core::curve25519_dalek::ristretto::RistrettoPoint;
use smpc_core::curve25519_dalek::scalar::Scalar;
use smpc_core::curve25519_dalek::traits::{MultiscalarMul, VartimeMultiscalarMul};
use smpc_core::proofs::edges::{self, Claims, Edges};
use smpc_core::proofs::encode::{self, ELEMENT};
use smpc_core::proofs::{
    Item, MAX_BITS, MAX_LENGTH, Noise, Norm, Opening, ProofError, Range, Secret, combine, commit,
    expect_values, find_false,
};
use zeroize::{Zeroize, Zeroizing};

use crate::encodings::{element, elements, exactly, own_scalar};
use crate::errors::raise;
use crate::threads::check_threads;

/// An integer; one beyond 128 bits becomes the nearest, which is out of every range.
struct Whole(i128);

impl<'py> FromPyObject<'_, 'py> for Whole {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(Self).or_else(|_| {
            let negative = object.cast::<PyInt>()?.lt(0)?;
            Ok(Self(if negative { i128::MIN } else { i128::MAX }))
        })
    }
}

impl Zeroize for Whole {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

impl Whole {
    /// Returns it as a number of things; as 0, which is refused everywhere, if it is no such
    /// number.
    fn count(&self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }
}

fn wholes(all: Vec<Whole>) -> Zeroizing<Vec<i128>> {
    let all = Zeroizing::new(all);
    Zeroizing::new(all.iter().map(|whole| whole.0).collect())
}

/// Returns one range of all coordinates, or one for each.
fn range(length: usize, low: Vec<Whole>, high: Vec<Whole>) -> PyResult<Range> {
    Range::new(length, &wholes(low), &wholes(high)).map_err(raise)
}

fn norm(length: usize, bound: &Whole) -> PyResult<Norm> {
    Norm::new(length, bound.0).map_err(raise)
}

fn noise(length: &Whole, bits: &Whole) -> PyResult<Noise> {
    Noise::new(length.count(), bits.count()).map_err(raise)
}

fn bytes<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, bytes)
}

#[pyfunction]
#[pyo3(name = "commit")]
fn commit_values<'py>(
    py: Python<'py>,
    values: Vec<Whole>,
    blinding: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let values = wholes(values);
    expect_values(&values).map_err(raise)?;
    let blinding = own_scalar("blinding", blinding)?;
    let point = py.detach(|| commit(&values, &blinding).compress());
    Ok(bytes(py, point.as_bytes()))
}

#[pyfunction]
fn combine_commitments<'py>(
    py: Python<'py>,
    plus: Vec<Vec<u8>>,
    minus: Vec<Vec<u8>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (plus, minus) = (
        elements("commitment", &plus).map_err(raise)?,
        elements("commitment", &minus).map_err(raise)?,
    );
    let total = py
        .detach(|| combine(&plus, &minus).map(|point| point.compress()))
        .map_err(raise)?;
    Ok(bytes(py, total.as_bytes()))
}

#[pyfunction]
fn scalar_from_wide<'py>(py: Python<'py>, wide: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let scalar = Zeroizing::new(Scalar::from_bytes_mod_order_wide(exactly("wide", wide)?));
    Ok(bytes(py, scalar.as_bytes()))
}

#[pyfunction]
fn combine_scalars<'py>(
    py: Python<'py>,
    plus: Vec<Vec<u8>>,
    minus: Vec<Vec<u8>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (plus, minus) = (Zeroizing::new(plus), Zeroizing::new(minus));
    let mut total = Zeroizing::new(Scalar::ZERO);
    for blinding in plus.iter() {
        *total += *own_scalar("blinding", blinding)?;
    }
    for blinding in minus.iter() {
        *total -= *own_scalar("blinding", blinding)?;
    }
    Ok(bytes(py, total.as_bytes()))
}

#[pyfunction]
fn check_point(data: &[u8]) -> PyResult<()> {
    element("commitment", data)
        .and_then(|bytes| encode::point("commitment", &bytes))
        .map_err(raise)?;
    Ok(())
}

#[pyfunction]
fn check_points(py: Python<'_>, packed: &[u8]) -> PyResult<()> {
    let points = edges::elements(packed).map_err(raise)?;
    py.detach(|| {
        points
            .iter()
            .try_for_each(|point| encode::point("commitment", point).map(drop))
    })
    .map_err(raise)
}

#[pyfunction]
fn check_scalar(data: &[u8]) -> PyResult<()> {
    element("blinding", data)
        .and_then(|bytes| encode::scalar("blinding", &bytes))
        .map_err(raise)?;
    Ok(())
}

#[pyfunction]
fn range_proof_bytes(length: Whole, low: Vec<Whole>, high: Vec<Whole>) -> PyResult<usize> {
    Ok(range(length.count(), low, high)?.elements() * ELEMENT)
}

#[pyfunction]
fn norm_proof_bytes(length: Whole, bound: Whole) -> PyResult<usize> {
    Ok(norm(length.count(), &bound)?.elements() * ELEMENT)
}

/// Returns the number of bytes of the coins, and of a proof.
#[pyfunction]
fn noise_bytes(length: Whole, bits: Whole) -> PyResult<(usize, usize)> {
    let noise = noise(&length, &bits)?;
    Ok((noise.coin_bytes(), noise.elements() * ELEMENT))
}

#[pyfunction]
fn prove_range<'py>(
    py: Python<'py>,
    context: &[u8],
    values: Vec<Whole>,
    blinding: &[u8],
    low: Vec<Whole>,
    high: Vec<Whole>,
    seed: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let values = wholes(values);
    let range = range(values.len(), low, high)?;
    let blinding = own_scalar("blinding", blinding)?;
    let (context, seed) = (exactly("context", context)?, exactly("seed", seed)?);
    let proof = py
        .detach(|| range.prove(context, &values, &blinding, seed))
        .map_err(raise)?;
    Ok(bytes(py, &proof))
}

#[pyfunction]
fn prove_norm<'py>(
    py: Python<'py>,
    context: &[u8],
    values: Vec<Whole>,
    blinding: &[u8],
    bound: Whole,
    seed: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let values = wholes(values);
    let norm = norm(values.len(), &bound)?;
    let blinding = own_scalar("blinding", blinding)?;
    let (context, seed) = (exactly("context", context)?, exactly("seed", seed)?);
    let proof = py
        .detach(|| norm.prove(context, &values, &blinding, seed))
        .map_err(raise)?;
    Ok(bytes(py, &proof))
}

#[pyclass(name = "NoiseSecret", module = "smpc_dp._core", frozen)]
struct PyNoiseSecret(Secret);

#[pymethods]
impl PyNoiseSecret {
    #[new]
    fn new(
        py: Python<'_>,
        length: Whole,
        bits: Whole,
        packed: &[u8],
        wide: &[u8],
    ) -> PyResult<Self> {
        let noise = noise(&length, &bits)?;
        let wide = exactly("wide", wide)?;
        py.detach(|| Secret::new(noise, packed, wide))
            .map(Self)
            .map_err(raise)
    }

    #[getter]
    fn commitment<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        bytes(py, self.0.commitment())
    }

    fn values(&self, coins: &[u8]) -> PyResult<Vec<i128>> {
        Ok(self.0.values(coins).map_err(raise)?.to_vec())
    }

    fn prove<'py>(
        &self,
        py: Python<'py>,
        context: &[u8],
        coins: &[u8],
        blinding: &[u8],
        seed: &[u8],
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let blinding = own_scalar("blinding", blinding)?;
        let (context, seed) = (exactly("context", context)?, exactly("seed", seed)?);
        let (noise, proof) = py
            .detach(|| self.0.prove(context, coins, &blinding, seed))
            .map_err(raise)?;
        Ok((bytes(py, &noise), bytes(py, &proof)))
    }
}

#[pyclass(name = "ProofBatch", module = "smpc_dp._core")]
struct PyProofBatch(Vec<Item>);

impl PyProofBatch {
    /// Adds a statement; an unreadable one counts as false and is no error of the caller.
    fn push(&mut self, item: Result<Item, ProofError>) {
        self.0.push(item.unwrap_or(Item::Malformed));
    }
}

#[pymethods]
impl PyProofBatch {
    #[new]
    fn new() -> Self {
        Self(Vec::new())
    }

    fn add_opening(
        &mut self,
        plus: Vec<Vec<u8>>,
        minus: Vec<Vec<u8>>,
        values: Vec<Whole>,
        blinding: &[u8],
    ) {
        let opening = || {
            let values: Vec<i128> = values.iter().map(|value| value.0).collect();
            expect_values(&values)?;
            Ok(Item::Opening(Opening {
                plus: elements("commitment", &plus)?,
                minus: elements("commitment", &minus)?,
                blinding: element("blinding", blinding)?,
                values,
            }))
        };
        let item = opening();
        self.push(item);
    }

    fn add_range(
        &mut self,
        context: &[u8],
        commitment: &[u8],
        length: Whole,
        low: Vec<Whole>,
        high: Vec<Whole>,
        proof: Vec<u8>,
    ) -> PyResult<()> {
        let range = range(length.count(), low, high)?;
        let context = *exactly("context", context)?;
        self.push(
            element("commitment", commitment).map(|commitment| Item::Range {
                range,
                context,
                commitment,
                proof,
            }),
        );
        Ok(())
    }

    fn add_norm(
        &mut self,
        context: &[u8],
        commitment: &[u8],
        length: Whole,
        bound: Whole,
        proof: Vec<u8>,
    ) -> PyResult<()> {
        let norm = norm(length.count(), &bound)?;
        let context = *exactly("context", context)?;
        self.push(
            element("commitment", commitment).map(|commitment| Item::Norm {
                norm,
                context,
                commitment,
                proof,
            }),
        );
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "they are the statement")]
    fn add_noise(
        &mut self,
        context: &[u8],
        secret_commitment: &[u8],
        noise_commitment: &[u8],
        length: Whole,
        bits: Whole,
        coins: Vec<u8>,
        proof: Vec<u8>,
    ) -> PyResult<()> {
        let noise = noise(&length, &bits)?;
        let context = *exactly("context", context)?;
        exactly_coins(&noise, &coins)?;
        let commitments = element("commitment", secret_commitment)
            .and_then(|secret| Ok((secret, element("commitment", noise_commitment)?)));
        self.push(
            commitments.map(|(secret_commitment, noise_commitment)| Item::Noise {
                noise,
                context,
                secret_commitment,
                noise_commitment,
                coins,
                proof,
            }),
        );
        Ok(())
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Returns the false statements and empties the batch, unless the call fails.
    fn find_false(&mut self, py: Python<'_>, threads: usize) -> PyResult<Vec<usize>> {
        check_threads(threads)?;
        let items = &self.0;
        let result = py.detach(|| find_false(items, threads)).map_err(raise)?;
        self.0 = Vec::new();
        Ok(result)
    }
}

/// Party, neighbours, commitments, other points.
type PackedClaims = (u16, Vec<u8>, Vec<u8>, Vec<u8>);

#[pyclass(name = "EdgeFold", module = "smpc_dp._core", frozen)]
struct PyEdgeFold(Edges);

#[pymethods]
impl PyEdgeFold {
    #[new]
    fn new(counted: &[u8], locate: bool) -> PyResult<Self> {
        let counted = counted.iter().map(|&flag| flag != 0).collect();
        Edges::new(counted, locate).map(Self).map_err(raise)
    }

    /// Folds claims; returns for each party the sum of its edges, or the reason why it is
    /// malformed.
    fn take<'py>(
        &self,
        py: Python<'py>,
        claims: Vec<PackedClaims>,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, String)>> {
        let claims = claims
            .into_iter()
            .map(|(party, neighbours, edges, others)| {
                Ok(Claims {
                    party,
                    neighbours: edges::parties(&neighbours)?,
                    edges: edges::elements(&edges)?,
                    others: edges::elements(&others)?,
                })
            })
            .collect::<Result<Vec<_>, ProofError>>()
            .map_err(raise)?;
        let sums = py.detach(|| self.0.take(&claims));
        sums.into_iter()
            .map(|sum| match sum {
                Ok(sum) => Ok((bytes(py, &sum), String::new())),
                Err(ProofError::Statement(reason)) => Ok((bytes(py, b""), reason)),
                Err(error) => Err(raise(error)),
            })
            .collect()
    }

    fn cancels(&self) -> bool {
        self.0.cancels()
    }

    fn apart(&self) -> Vec<usize> {
        self.0.apart()
    }
}

fn exactly_coins(noise: &Noise, coins: &[u8]) -> PyResult<()> {
    if coins.len() == noise.coin_bytes() {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "coins: {} bytes, not {}",
        coins.len(),
        noise.coin_bytes()
    )))
}

/// Decodes a point so often, and makes sums of so many public or secret multiples, for a benchmark.
#[pyfunction]
fn group_sums(
    py: Python<'_>,
    seed: &[u8],
    decoded: usize,
    public: Vec<usize>,
    secret: Vec<usize>,
) -> PyResult<()> {
    let scalar = Scalar::from_bytes_mod_order(*exactly("seed", seed)?);
    py.detach(|| {
        let longest = public.iter().chain(&secret).copied().max().unwrap_or(0);
        let grow = |last: &Scalar| Some(last * scalar);
        let scalars: Vec<_> = std::iter::successors(Some(scalar), grow)
            .take(longest)
            .collect();
        let add = |last: &RistrettoPoint| Some(last + RISTRETTO_BASEPOINT_POINT);
        let first = Some(RISTRETTO_BASEPOINT_POINT);
        let points: Vec<_> = std::iter::successors(first, add).take(longest).collect();
        let encoded = RISTRETTO_BASEPOINT_POINT.compress();
        for _ in 0..decoded {
            black_box(black_box(&encoded).decompress());
        }
        for count in public {
            black_box(RistrettoPoint::vartime_multiscalar_mul(
                &scalars[..count],
                &points[..count],
            ));
        }
        for count in secret {
            black_box(RistrettoPoint::multiscalar_mul(
                &scalars[..count],
                &points[..count],
            ));
        }
    });
    Ok(())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("MAX_COMMITTED", MAX_LENGTH)?;
    module.add("MAX_PROOF_BITS", MAX_BITS)?;
    module.add_class::<PyNoiseSecret>()?;
    module.add_class::<PyProofBatch>()?;
    module.add_class::<PyEdgeFold>()?;
    module.add_function(wrap_pyfunction!(commit_values, module)?)?;
    module.add_function(wrap_pyfunction!(combine_commitments, module)?)?;
    module.add_function(wrap_pyfunction!(scalar_from_wide, module)?)?;
    module.add_function(wrap_pyfunction!(combine_scalars, module)?)?;
    module.add_function(wrap_pyfunction!(check_point, module)?)?;
    module.add_function(wrap_pyfunction!(check_points, module)?)?;
    module.add_function(wrap_pyfunction!(check_scalar, module)?)?;
    module.add_function(wrap_pyfunction!(range_proof_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(norm_proof_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(noise_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(group_sums, module)?)?;
    module.add_function(wrap_pyfunction!(prove_range, module)?)?;
    module.add_function(wrap_pyfunction!(prove_norm, module)?)
}
