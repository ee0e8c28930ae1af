//! Python classes of garbling and evaluation.

use std::sync::Arc;

use numpy::{
    PyArray1, PyArray2, PyArray3, PyArray4, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyReadonlyArray3, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zeroize::Zeroizing;

use smpc_core::garble::{
    Block, Circuit, Evaluator, GATE, Garbler, Gate, Kernel, LABEL, List, check_opened, hash_output,
    read_labels, suggest_tile, write_labels,
};

use crate::arrays::{contiguous, contiguous_mut, to_write};
use crate::errors::raise;

pub(crate) mod convert;

use convert::{
    bits_of, block, check_bits, check_chunk, colour_rows, input_range, label_range, label_rows,
    pads_of, plan, rows, stream_hash, value_error, wires_of,
};

#[pyclass(frozen, module = "smpc_dp._core")]
pub(crate) struct GarblingCircuit(pub(crate) Arc<Circuit>);

#[pymethods]
impl GarblingCircuit {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        op: PyReadonlyArray1<'_, u8>,
        a: PyReadonlyArray1<'_, u32>,
        b: PyReadonlyArray1<'_, u32>,
        out: PyReadonlyArray1<'_, u32>,
        n_wires: usize,
        n_inputs: usize,
        outputs: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Self> {
        let (op, a) = (contiguous(&op, "op")?, contiguous(&a, "a")?);
        let (b, out) = (contiguous(&b, "b")?, contiguous(&out, "out")?);
        let outputs = contiguous(&outputs, "outputs")?.to_vec();
        if [a.len(), b.len(), out.len()] != [op.len(); 3] {
            return value_error(format!(
                "gates: {} op, {} a, {} b, {} out",
                op.len(),
                a.len(),
                b.len(),
                out.len()
            ));
        }
        let gates = op.iter().zip(a).zip(b.iter().zip(out));
        let gates: Vec<Gate> = gates
            .map(|((&kind, &a), (&b, &out))| Gate { kind, a, b, out })
            .collect();
        py.detach(|| Circuit::new(gates, n_wires, n_inputs, outputs))
            .map(|circuit| Self(Arc::new(circuit)))
            .map_err(raise)
    }

    #[getter]
    fn n_inputs(&self) -> usize {
        self.0.inputs()
    }

    #[getter]
    fn n_outputs(&self) -> usize {
        self.0.outputs()
    }

    #[getter]
    fn n_and(&self) -> usize {
        self.0.ands()
    }

    #[getter]
    fn n_slots(&self) -> usize {
        self.0.slots()
    }

    fn table_bytes(&self, n_instances: u64) -> u128 {
        (GATE * self.0.ands()) as u128 * u128::from(n_instances)
    }

    fn suggest_tile(&self, n_instances: usize) -> usize {
        suggest_tile(&self.0, n_instances)
    }
}

#[pyclass(name = "Garbler", module = "smpc_dp._core")]
struct PyGarbler(Garbler);

#[pymethods]
impl PyGarbler {
    #[new]
    #[pyo3(signature = (circuit, n_instances, seed, start, *, mode, tile, first_instance = 0, threads = 1, kernel = None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        circuit: &GarblingCircuit,
        n_instances: usize,
        seed: &[u8],
        start: &[u8],
        mode: &str,
        tile: usize,
        first_instance: u64,
        threads: usize,
        kernel: Option<&str>,
    ) -> PyResult<Self> {
        if seed.len() != 2 * LABEL {
            return value_error(format!("seed: {} bytes, not {}", seed.len(), 2 * LABEL));
        }
        let plan = plan(
            n_instances,
            start,
            (mode, tile),
            first_instance,
            threads,
            kernel,
        )?;
        let mut halves = Zeroizing::new([0; 2]);
        read_labels(seed, &mut *halves);
        Garbler::new(circuit.0.clone(), plan, *halves)
            .map(Self)
            .map_err(raise)
    }

    #[getter]
    fn done(&self) -> bool {
        self.0.done()
    }

    fn fill(&mut self, py: Python<'_>, buffer: &Bound<'_, PyArray1<u8>>) -> PyResult<usize> {
        let mut buffer = to_write(buffer, "buffer")?;
        let bytes = contiguous_mut(&mut buffer, "buffer")?;
        py.detach(|| self.0.fill(bytes)).map_err(raise)
    }

    fn zero_labels<'py>(
        &self,
        py: Python<'py>,
        first: usize,
        count: usize,
    ) -> PyResult<Bound<'py, PyArray3<u8>>> {
        let inputs = input_range(self.0.circuit(), first, count)?;
        let instances = self.0.plan().instances;
        label_rows(py, count, instances, |row| {
            let mut zeros = Zeroizing::new(vec![0; instances]);
            self.0.zeros(inputs.start + row, &mut zeros);
            Ok(zeros)
        })
    }

    fn set_zero_labels(&mut self, first: usize, labels: PyReadonlyArray3<'_, u8>) -> PyResult<()> {
        let (inputs, bytes) = label_range(self.0.circuit(), self.0.plan(), first, &labels)?;
        let instances = self.0.plan().instances;
        for (input, row) in inputs.zip(bytes.chunks_exact(instances * LABEL)) {
            read_labels(row, self.0.give(input, 0..instances).map_err(raise)?);
        }
        Ok(())
    }

    fn open_inputs(
        &mut self,
        py: Python<'_>,
        wires: PyReadonlyArray1<'_, u32>,
        bits: PyReadonlyArray2<'_, u8>,
        seed: &[u8],
    ) -> PyResult<()> {
        let wires = wires_of(self.0.circuit(), &wires)?;
        let bits = bits_of(wires, self.0.plan(), &bits)?;
        let seed = block(seed, "seed")?;
        py.detach(|| self.0.open(wires, bits, seed)).map_err(raise)
    }

    fn flip(
        &mut self,
        py: Python<'_>,
        wires: PyReadonlyArray1<'_, u32>,
        bits: PyReadonlyArray2<'_, u8>,
    ) -> PyResult<()> {
        let wires = wires_of(self.0.circuit(), &wires)?;
        let bits = bits_of(wires, self.0.plan(), &bits)?;
        py.detach(|| self.0.flip(wires, bits)).map_err(raise)
    }

    fn transfer(
        &mut self,
        py: Python<'_>,
        wires: PyReadonlyArray1<'_, u32>,
        index: usize,
        pads: &Bound<'_, PyArray3<u8>>,
    ) -> PyResult<()> {
        let wires = wires_of(self.0.circuit(), &wires)?;
        let count = pads.shape()[1];
        if pads.shape() != [2, count, LABEL] {
            return value_error(format!(
                "pads: shape {:?}, not (2, transfers, {LABEL})",
                pads.shape()
            ));
        }
        check_chunk(wires, self.0.plan(), index, count)?;
        let mut pads = to_write(pads, "pads")?;
        let both = contiguous_mut(&mut pads, "pads")?;
        let (first, second) = both.split_at_mut(count * LABEL);
        py.detach(|| self.0.transfer(wires, index, (first, second)))
            .map_err(raise)
    }

    fn correct(&self, py: Python<'_>, pads: &Bound<'_, PyArray3<u8>>) -> PyResult<()> {
        let count = pads.shape()[1];
        if pads.shape() != [2, count, LABEL] || !count.is_multiple_of(self.0.plan().instances) {
            return value_error(format!(
                "pads: shape {:?}, not (2, transfers of whole wires, {LABEL})",
                pads.shape()
            ));
        }
        let mut pads = to_write(pads, "pads")?;
        let both = contiguous_mut(&mut pads, "pads")?;
        let (first, second) = both.split_at_mut(count * LABEL);
        py.detach(|| self.0.correct(first, second));
        Ok(())
    }

    fn list_digest<'py>(
        &self,
        py: Python<'py>,
        wires: PyReadonlyArray1<'_, u32>,
        pads: PyReadonlyArray3<'_, u8>,
        start: &[u8],
        key: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (start, mut hash) = (block(start, "start")?, stream_hash(key)?);
        let wires = wires_of(self.0.circuit(), &wires)?;
        let pads = pads_of(self.0.plan(), wires, &pads)?;
        py.detach(|| List::new(&self.0, wires, pads, start).digest(&mut hash));
        Ok(PyBytes::new(py, &hash.digest()))
    }

    fn open_list<'py>(
        &self,
        py: Python<'py>,
        wires: PyReadonlyArray1<'_, u32>,
        pads: PyReadonlyArray3<'_, u8>,
        start: &[u8],
        bits: PyReadonlyArray2<'_, u8>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let start = block(start, "start")?;
        let wires = wires_of(self.0.circuit(), &wires)?;
        let bits = bits_of(wires, self.0.plan(), &bits)?;
        let pads = pads_of(self.0.plan(), wires, &pads)?;
        PyBytes::new_with(py, 2 * LABEL * bits.len(), |to| {
            py.detach(|| List::new(&self.0, wires, pads, start).open(bits, to));
            Ok(())
        })
    }

    fn deltas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<u8>>> {
        let deltas = py.detach(|| self.0.deltas());
        rows(py, [deltas.len(), LABEL], |row, to| {
            write_labels(&deltas[row..=row], to);
            Ok(())
        })
    }

    fn encode<'py>(
        &self,
        py: Python<'py>,
        first: usize,
        bits: PyReadonlyArray2<'_, u8>,
    ) -> PyResult<Bound<'py, PyArray3<u8>>> {
        let instances = self.0.plan().instances;
        let shape = bits.shape();
        if shape[1] != instances {
            return value_error(format!("bits: shape {shape:?}, not (inputs, {instances})"));
        }
        let inputs = input_range(self.0.circuit(), first, shape[0])?;
        let bits = check_bits(contiguous(&bits, "bits")?)?;
        let deltas = py.detach(|| self.0.deltas());
        label_rows(py, inputs.len(), instances, |row| {
            let bits = &bits[row * instances..];
            Ok(self.0.encode(inputs.start + row, bits, &deltas))
        })
    }

    fn output_zero_labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<u8>>> {
        let (outputs, instances) = (self.0.circuit().outputs(), self.0.plan().instances);
        label_rows(py, outputs, instances, |row| self.0.output_zeros(row))
    }

    fn output_colours<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<u8>>> {
        let (outputs, instances) = (self.0.circuit().outputs(), self.0.plan().instances);
        colour_rows(py, outputs, instances, |row| self.0.output_zeros(row))
    }

    fn output_hashes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray4<u8>>> {
        let shape = [
            self.0.circuit().outputs(),
            self.0.plan().instances,
            2,
            LABEL,
        ];
        rows(py, shape, |row, to| {
            let [first, second] = self.0.output_hashes(row)?;
            let both = first.iter().zip(&second);
            let both: Vec<Block> = both.flat_map(|(&first, &second)| [first, second]).collect();
            write_labels(&both, to);
            Ok(())
        })
    }
}

#[pyclass(name = "Evaluator", module = "smpc_dp._core")]
struct PyEvaluator(Evaluator);

#[pymethods]
impl PyEvaluator {
    #[new]
    #[pyo3(signature = (circuit, n_instances, start, *, mode, tile, first_instance = 0, threads = 1, kernel = None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        circuit: &GarblingCircuit,
        n_instances: usize,
        start: &[u8],
        mode: &str,
        tile: usize,
        first_instance: u64,
        threads: usize,
        kernel: Option<&str>,
    ) -> PyResult<Self> {
        let plan = plan(
            n_instances,
            start,
            (mode, tile),
            first_instance,
            threads,
            kernel,
        )?;
        Evaluator::new(circuit.0.clone(), plan)
            .map(Self)
            .map_err(raise)
    }

    #[getter]
    fn remaining(&self) -> u64 {
        self.0.remaining()
    }

    fn set_input_labels(&mut self, first: usize, labels: PyReadonlyArray3<'_, u8>) -> PyResult<()> {
        let (inputs, bytes) = label_range(self.0.circuit(), self.0.plan(), first, &labels)?;
        let instances = self.0.plan().instances;
        for (input, row) in inputs.zip(bytes.chunks_exact(instances * LABEL)) {
            read_labels(row, self.0.set(input, 0..instances).map_err(raise)?);
        }
        Ok(())
    }

    fn open_inputs(
        &mut self,
        py: Python<'_>,
        wires: PyReadonlyArray1<'_, u32>,
        seed: &[u8],
    ) -> PyResult<()> {
        let (wires, seed) = (wires_of(self.0.circuit(), &wires)?, block(seed, "seed")?);
        py.detach(|| self.0.open(wires, seed)).map_err(raise)
    }

    fn transfer(
        &mut self,
        py: Python<'_>,
        wires: PyReadonlyArray1<'_, u32>,
        index: usize,
        choices: PyReadonlyArray1<'_, u8>,
        pads: PyReadonlyArray2<'_, u8>,
        corrections: PyReadonlyArray1<'_, u8>,
    ) -> PyResult<()> {
        let wires = wires_of(self.0.circuit(), &wires)?;
        let choices = check_bits(contiguous(&choices, "choices")?)?;
        let count = choices.len();
        let (pads, corrections) = (
            contiguous(&pads, "pads")?,
            contiguous(&corrections, "corrections")?,
        );
        if [pads.len(), corrections.len()] != [count * LABEL; 2] {
            return value_error(format!(
                "pads, corrections: {} and {} bytes for {count} choices",
                pads.len(),
                corrections.len()
            ));
        }
        check_chunk(wires, self.0.plan(), index, count)?;
        py.detach(|| self.0.transfer(wires, index, choices, pads, corrections))
            .map_err(raise)
    }

    fn feed(&mut self, py: Python<'_>, tables: PyReadonlyArray1<'_, u8>) -> PyResult<()> {
        let bytes = contiguous(&tables, "tables")?;
        py.detach(|| self.0.feed(bytes)).map_err(raise)
    }

    fn output_labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<u8>>> {
        let (outputs, instances) = (self.0.circuit().outputs(), self.0.plan().instances);
        label_rows(py, outputs, instances, |row| self.0.output(row))
    }

    fn output_colours<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<u8>>> {
        let (outputs, instances) = (self.0.circuit().outputs(), self.0.plan().instances);
        colour_rows(py, outputs, instances, |row| self.0.output(row))
    }
}

#[pyfunction]
fn garbling_kernels() -> Vec<&'static str> {
    Kernel::available().into_iter().map(Kernel::name).collect()
}

#[pyfunction]
#[pyo3(signature = (labels, start, *, mode, tile, first_instance = 0, kernel = None))]
fn garbling_label_hashes<'py>(
    py: Python<'py>,
    labels: PyReadonlyArray3<'_, u8>,
    start: &[u8],
    mode: &str,
    tile: usize,
    first_instance: u64,
    kernel: Option<&str>,
) -> PyResult<Bound<'py, PyArray3<u8>>> {
    let shape = labels.shape();
    if shape[2] != LABEL {
        return value_error(format!(
            "labels: shape {shape:?}, not (outputs, instances, {LABEL})"
        ));
    }
    let plan = plan(shape[1], start, (mode, tile), first_instance, 1, kernel)?;
    let bytes = contiguous(&labels, "labels")?;
    rows(py, [shape[0], shape[1], LABEL], |row, to| {
        let mut hashed = Zeroizing::new(vec![0; plan.instances]);
        read_labels(&bytes[row * to.len()..], &mut hashed);
        hash_output(&plan, row, &mut hashed);
        write_labels(&hashed, to);
        Ok(())
    })
}

#[pyfunction]
#[pyo3(signature = (opened, bits, start, key, *, mode, tile, first_instance = 0, kernel = None))]
#[allow(clippy::too_many_arguments)]
fn garbling_opened_list<'py>(
    py: Python<'py>,
    opened: PyReadonlyArray3<'_, u8>,
    bits: PyReadonlyArray2<'_, u8>,
    start: &[u8],
    key: &[u8],
    mode: &str,
    tile: usize,
    first_instance: u64,
    kernel: Option<&str>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyArray3<u8>>)> {
    let (shape, masks) = (opened.shape(), bits.shape());
    if shape[2] != 2 * LABEL || masks[0] > shape[0] || masks[1] != shape[1] {
        return value_error(format!(
            "opened, bits: shapes {shape:?} and {masks:?}, not (positions, instances, {}) and (masks, instances)",
            2 * LABEL
        ));
    }
    let plan = plan(shape[1], start, (mode, tile), first_instance, 1, kernel)?;
    let mut hash = stream_hash(key)?;
    let (content, bits) = (
        contiguous(&opened, "opened")?,
        check_bits(contiguous(&bits, "bits")?)?,
    );
    let mut labels = vec![0; content.len() / 2];
    py.detach(|| check_opened(&plan, content, bits, &mut labels, &mut hash));
    let labels = PyArray1::from_vec(py, labels).reshape([shape[0], shape[1], LABEL])?;
    Ok((PyBytes::new(py, &hash.digest()), labels))
}

/// Adds everything here to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<GarblingCircuit>()?;
    module.add_class::<PyGarbler>()?;
    module.add_class::<PyEvaluator>()?;
    module.add_function(wrap_pyfunction!(garbling_kernels, module)?)?;
    module.add_function(wrap_pyfunction!(garbling_opened_list, module)?)?;
    module.add_function(wrap_pyfunction!(garbling_label_hashes, module)?)
}
