//! Python classes of authenticated garbling.

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use smpc_core::active::{
    Evaluator, Garbler, Given, Leaky, Masks, Openings, Shared, Side, Triples, label_sums, shuffled,
};
use smpc_core::garble::{Block, LABEL, write_labels};
use zeroize::Zeroizing;

use crate::arrays::contiguous;
use crate::garble::GarblingCircuit;
use crate::garble::convert::{self, block, value_error};

type Bytes<'py> = PyReadonlyArray1<'py, u8>;
type Made<'py> = Bound<'py, PyArray1<u8>>;

fn side(garbler: bool) -> Side {
    if garbler {
        Side::Garbler
    } else {
        Side::Evaluator
    }
}

fn key(bytes: &[u8]) -> PyResult<&[u8; 32]> {
    bytes
        .try_into()
        .map_err(|_| PyValueError::new_err(format!("key: {} bytes, not 32", bytes.len())))
}

/// Returns bits, one a byte; refuses other numbers than 0 and 1, and other counts.
fn bits<'a>(array: &'a Bytes<'_>, name: &str, count: usize) -> PyResult<&'a [u8]> {
    let bits = contiguous(array, name)?;
    if bits.len() != count {
        return value_error(format!("{name}: {} bits, not {count}", bits.len()));
    }
    // All are read: so the compiler makes vectors of them.
    if bits.iter().fold(0, |all, bit| all | bit) > 1 {
        return value_error(format!("{name}: not all 0 or 1"));
    }
    Ok(bits)
}

/// Returns the bytes of labels; refuses other counts.
fn label_bytes<'a>(array: &'a Bytes<'_>, name: &str, count: usize) -> PyResult<&'a [u8]> {
    let bytes = contiguous(array, name)?;
    if bytes.len() != LABEL * count {
        return value_error(format!(
            "{name}: {} bytes, not {}",
            bytes.len(),
            LABEL * count
        ));
    }
    Ok(bytes)
}

fn octets(labels: &[Block]) -> Vec<u8> {
    let mut bytes = vec![0; LABEL * labels.len()];
    write_labels(labels, &mut bytes);
    bytes
}

/// Shares as Python gives them: bits, MACs and keys, of 1, 16 and 16 bytes each.
type Arrays<'py> = (Bytes<'py>, Bytes<'py>, Bytes<'py>);

/// Returns `count` shares.
fn shares<'a>(arrays: &'a Arrays<'_>, name: &str, count: usize) -> PyResult<Given<'a>> {
    let (given, macs, keys) = arrays;
    Ok(Given {
        bits: bits(given, &format!("{name}, bits"), count)?,
        macs: label_bytes(macs, &format!("{name}, MACs"), count)?
            .as_chunks()
            .0,
        keys: label_bytes(keys, &format!("{name}, keys"), count)?
            .as_chunks()
            .0,
    })
}

/// Returns the error of an object whose content a call has taken away.
fn used() -> PyErr {
    PyRuntimeError::new_err("it was used already, or is not due")
}

/// Returns the object of a class whose content a call takes away.
fn present<T>(content: Option<&T>) -> PyResult<&T> {
    content.ok_or_else(used)
}

/// The leaky triples of a group, which become buckets.
#[pyclass(module = "smpc_dp._core")]
struct ActiveLeaky {
    leaky: Leaky,
    state: State,
}

/// What is held of a group.
#[derive(PartialEq)]
enum State {
    Nothing,
    Leaky,
    Buckets,
}

impl ActiveLeaky {
    /// Returns the leaky triples or buckets, if it is in this state.
    fn held(&mut self, state: State) -> PyResult<&mut Leaky> {
        (self.state == state)
            .then_some(&mut self.leaky)
            .ok_or_else(used)
    }
}

#[pymethods]
impl ActiveLeaky {
    #[new]
    #[pyo3(signature = (garbler, delta, start, *, kernel = None))]
    fn new(garbler: bool, delta: &[u8], start: &[u8], kernel: Option<&str>) -> PyResult<Self> {
        let (delta, start) = (block(delta, "delta")?, block(start, "start")?);
        Ok(Self {
            leaky: Leaky::new(side(garbler), delta, start, convert::kernel(kernel)?),
            state: State::Nothing,
        })
    }

    fn begin<'py>(
        &mut self,
        py: Python<'py>,
        first: u64,
        shares: Arrays<'py>,
    ) -> PyResult<Made<'py>> {
        let count = contiguous(&shares.0, "bits")?.len();
        if !count.is_multiple_of(3) || count > 3 << 24 || first > 1 << 40 {
            return value_error(format!("leaky triples: {count} bits from number {first}"));
        }
        let given = self::shares(&shares, "leaky triples", count)?;
        let sent = py.detach(|| self.leaky.begin(first, given));
        self.state = State::Leaky;
        Ok(PyArray1::from_vec(py, sent))
    }

    fn answer<'py>(&mut self, py: Python<'py>, others: Bytes<'py>) -> PyResult<Made<'py>> {
        let leaky = self.held(State::Leaky)?;
        let others = label_bytes(&others, "U", leaky.len())?;
        let answered = py.detach(|| leaky.answer(others));
        Ok(PyArray1::from_vec(py, answered))
    }

    fn finish<'py>(
        &mut self,
        py: Python<'py>,
        d: Bytes<'py>,
        key: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let leaky = self.held(State::Leaky)?;
        let (d, key) = (bits(&d, "d", leaky.len())?, self::key(key)?);
        let digest = py.detach(|| leaky.finish(d, key));
        Ok(PyBytes::new(py, &digest))
    }

    fn differences(
        &mut self,
        py: Python<'_>,
        order: PyReadonlyArray1<'_, u32>,
        size: usize,
    ) -> PyResult<ActiveOpenings> {
        let leaky = self.held(State::Leaky)?;
        let order = checked_order(&order, leaky.len(), size)?;
        let differences = py.detach(|| leaky.divide(order, size));
        self.state = State::Buckets;
        Ok(ActiveOpenings(Some(differences)))
    }

    fn combine(
        &mut self,
        py: Python<'_>,
        mut opened: PyRefMut<'_, ActiveOpenings>,
        differences: Bytes<'_>,
    ) -> PyResult<ActiveTriples> {
        let leaky = self.held(State::Buckets)?;
        let differences = bits(&differences, "differences", leaky.differences())?;
        let number = opened.present()?.bits().len();
        if number != leaky.differences() {
            return value_error(format!(
                "opened: {number} bits, not {}",
                leaky.differences()
            ));
        }
        let opened = opened.0.take().ok_or_else(used)?;
        let triples = py.detach(|| leaky.combine(opened, differences));
        self.state = State::Nothing;
        Ok(ActiveTriples(triples))
    }
}

/// Returns an order that names each of `count` leaky triples once, in whole buckets.
fn checked_order<'a>(
    order: &'a PyReadonlyArray1<'_, u32>,
    count: usize,
    size: usize,
) -> PyResult<&'a [u32]> {
    let order = contiguous(order, "order")?;
    let mut named = vec![false; count];
    for &number in order {
        match named.get_mut(number as usize) {
            Some(named) if !*named => *named = true,
            _ => return value_error(format!("order: {number} of {count}, or twice")),
        }
    }
    if size == 0 || order.len() != count || !count.is_multiple_of(size) {
        return value_error(format!(
            "order: {} of {count}, in buckets of {size}",
            order.len()
        ));
    }
    Ok(order)
}

#[pyclass(module = "smpc_dp._core")]
struct ActiveOpenings(Option<Openings>);

impl ActiveOpenings {
    fn present(&self) -> PyResult<&Openings> {
        present(self.0.as_ref())
    }
}

#[pymethods]
impl ActiveOpenings {
    fn bits<'py>(&self, py: Python<'py>) -> PyResult<Made<'py>> {
        Ok(PyArray1::from_slice(py, self.present()?.bits()))
    }

    fn digest<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let (openings, key) = (self.present()?, self::key(key)?);
        let digest = py.detach(|| openings.digest(key));
        Ok(PyBytes::new(py, &digest))
    }

    fn expected<'py>(
        &self,
        py: Python<'py>,
        stated: Bytes<'py>,
        key: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (openings, key) = (self.present()?, self::key(key)?);
        let stated = bits(&stated, "bits", openings.bits().len())?;
        let digest = py.detach(|| openings.expected(stated, key));
        Ok(PyBytes::new(py, &digest))
    }
}

#[pyclass(module = "smpc_dp._core")]
struct ActiveTriples(Triples);

#[pymethods]
impl ActiveTriples {
    #[new]
    fn new() -> Self {
        Self(Triples::default())
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn append(&mut self, mut other: PyRefMut<'_, Self>) {
        self.0.append(&mut other.0);
    }
}

#[pyclass(module = "smpc_dp._core")]
struct ActiveMasks(Option<Masks>);

#[pymethods]
impl ActiveMasks {
    #[new]
    fn new(
        garbler: bool,
        delta: &[u8],
        circuit: &GarblingCircuit,
        n_instances: usize,
        inputs: Arrays<'_>,
        gates: Arrays<'_>,
    ) -> PyResult<Self> {
        let circuit = circuit.0.clone();
        let inputs = Shared::from(shares(&inputs, "inputs", circuit.inputs() * n_instances)?);
        let gates = Shared::from(shares(&gates, "gates", circuit.ands() * n_instances)?);
        let delta = block(delta, "delta")?;
        Ok(Self(Some(Masks::new(
            side(garbler),
            delta,
            circuit,
            n_instances,
            inputs,
            gates,
        ))))
    }

    fn open(&mut self, py: Python<'_>, triples: &ActiveTriples) -> PyResult<ActiveOpenings> {
        let masks = self.0.as_mut();
        let masks = masks.ok_or_else(used)?;
        if triples.0.len() < masks.gates() {
            return value_error(format!(
                "triples: {}, not {}",
                triples.0.len(),
                masks.gates()
            ));
        }
        Ok(ActiveOpenings(Some(py.detach(|| masks.open(&triples.0)))))
    }

    fn multiply(
        &mut self,
        py: Python<'_>,
        triples: &ActiveTriples,
        opened: Bytes<'_>,
    ) -> PyResult<()> {
        let masks = self.0.as_mut();
        let masks = masks.ok_or_else(used)?;
        let opened = bits(&opened, "openings", 2 * masks.gates())?;
        if triples.0.len() < masks.gates() {
            return value_error(format!(
                "triples: {}, not {}",
                triples.0.len(),
                masks.gates()
            ));
        }
        py.detach(|| masks.multiply(&triples.0, opened));
        Ok(())
    }

    fn outputs(&self) -> PyResult<ActiveOpenings> {
        Ok(ActiveOpenings(Some(
            present(self.0.as_ref())?.open_outputs(),
        )))
    }

    fn output_macs<'py>(&self, py: Python<'py>) -> PyResult<(Made<'py>, Made<'py>)> {
        let outputs = present(self.0.as_ref())?.outputs();
        let made =
            [&outputs.macs, &outputs.keys].map(|labels| PyArray1::from_vec(py, octets(labels)));
        let [macs, keys] = made;
        Ok((macs, keys))
    }
}

/// Takes the masks for the one who garbles or evaluates.
fn taken(masks: &mut ActiveMasks, masked: &Bytes<'_>) -> PyResult<(Masks, Vec<u8>)> {
    let present = present(masks.0.as_ref())?;
    if !present.multiplied() {
        return Err(PyRuntimeError::new_err("the products are not made yet"));
    }
    let masked = bits(masked, "masked values", present.inputs())?.to_vec();
    let masks = masks.0.take();
    let masks = masks.ok_or_else(used)?;
    Ok((masks, masked))
}

#[pyclass(module = "smpc_dp._core")]
struct ActiveGarbler(Garbler);

#[pymethods]
impl ActiveGarbler {
    #[new]
    #[pyo3(signature = (masks, start, first, masked, *, kernel = None))]
    fn new(
        mut masks: PyRefMut<'_, ActiveMasks>,
        start: &[u8],
        first: u64,
        masked: Bytes<'_>,
        kernel: Option<&str>,
    ) -> PyResult<Self> {
        let (start, kernel) = (block(start, "start")?, convert::kernel(kernel)?);
        let (masks, masked) = taken(&mut masks, &masked)?;
        Ok(Self(Garbler::new(masks, kernel, start, first, masked)))
    }

    fn tables<'py>(&mut self, py: Python<'py>, seed: &[u8]) -> PyResult<(Made<'py>, Made<'py>)> {
        let seed = block(seed, "seed")?;
        let (tables, bits) = py.detach(|| self.0.tables(seed));
        Ok((PyArray1::from_vec(py, tables), PyArray1::from_vec(py, bits)))
    }

    fn expected<'py>(
        &self,
        py: Python<'py>,
        values: Bytes<'py>,
        key: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let values = bits(&values, "masked values", self.0.masks().gates())?;
        let key = self::key(key)?;
        let digest = py.detach(|| self.0.expected(values, key));
        Ok(PyBytes::new(py, &digest))
    }

    fn answer<'py>(
        &self,
        py: Python<'py>,
        values: Bytes<'py>,
        key: &[u8],
    ) -> PyResult<(Bound<'py, PyBytes>, Made<'py>)> {
        let values = bits(&values, "masked values", self.0.masks().gates())?;
        let key = self::key(key)?;
        let (digest, outputs) = py.detach(|| self.0.answer(values, key));
        Ok((PyBytes::new(py, &digest), PyArray1::from_vec(py, outputs)))
    }
}

/// Masked values of the gates, digest of their labels, digest of the MACs, masked values of the outputs.
type Evaluated<'py> = (
    Made<'py>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Made<'py>,
);

#[pyclass(module = "smpc_dp._core")]
struct ActiveEvaluator(Evaluator);

#[pymethods]
impl ActiveEvaluator {
    #[new]
    #[pyo3(signature = (masks, start, first, masked, *, kernel = None))]
    fn new(
        mut masks: PyRefMut<'_, ActiveMasks>,
        start: &[u8],
        first: u64,
        masked: Bytes<'_>,
        kernel: Option<&str>,
    ) -> PyResult<Self> {
        let (start, kernel) = (block(start, "start")?, convert::kernel(kernel)?);
        let (masks, masked) = taken(&mut masks, &masked)?;
        Ok(Self(Evaluator::new(masks, kernel, start, first, masked)))
    }

    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        seed: &[u8],
        tables: Bytes<'py>,
        table_bits: Bytes<'py>,
        keys: (Vec<u8>, Vec<u8>),
    ) -> PyResult<Evaluated<'py>> {
        let gates = self.0.masks().gates();
        let tables = contiguous(&tables, "tables")?;
        if tables.len() != 2 * LABEL * gates {
            return value_error(format!(
                "tables: {} bytes, not {}",
                tables.len(),
                2 * LABEL * gates
            ));
        }
        let table_bits = bits(&table_bits, "table bits", gates)?;
        let (seed, keys) = (block(seed, "seed")?, [key(&keys.0)?, key(&keys.1)?]);
        let evaluated = py.detach(|| self.0.evaluate(seed, tables, table_bits, keys));
        Ok((
            PyArray1::from_vec(py, evaluated.values),
            PyBytes::new(py, &evaluated.labels),
            PyBytes::new(py, &evaluated.macs),
            PyArray1::from_vec(py, evaluated.outputs),
        ))
    }
}

#[pyfunction]
fn active_order<'py>(
    py: Python<'py>,
    count: usize,
    key: &[u8],
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    if count > 1 << 24 {
        return value_error(format!("leaky triples: {count}, more than {}", 1 << 24));
    }
    let key = Zeroizing::new(*self::key(key)?);
    let order = py.detach(|| shuffled(count, &key));
    Ok(PyArray1::from_vec(py, order))
}

#[pyfunction]
fn active_sums<'py>(
    py: Python<'py>,
    labels: Bytes<'py>,
    weights: PyReadonlyArray1<'py, u64>,
) -> PyResult<Made<'py>> {
    let weights = contiguous(&weights, "weights")?;
    let labels = label_bytes(&labels, "labels", weights.len())?.as_chunks().0;
    let sums = py.detach(|| label_sums(labels, weights));
    Ok(PyArray1::from_slice(py, sums.as_flattened()))
}

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ActiveLeaky>()?;
    module.add_class::<ActiveOpenings>()?;
    module.add_class::<ActiveTriples>()?;
    module.add_class::<ActiveMasks>()?;
    module.add_class::<ActiveGarbler>()?;
    module.add_class::<ActiveEvaluator>()?;
    module.add_function(wrap_pyfunction!(active_order, module)?)?;
    module.add_function(wrap_pyfunction!(active_sums, module)?)
}
