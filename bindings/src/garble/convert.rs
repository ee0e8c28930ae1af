//! Checked conversion of labels, ranges and parameters between Python and the core.

use std::ops::Range;

use numpy::{
    PyArray, PyArray1, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyReadonlyArray3, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use zeroize::Zeroizing;

use smpc_core::garble::{Block, Circuit, Kernel, LABEL, Mode, Plan, Refused, write_labels};
use smpc_core::stream_hash::{KEY, StreamHash};

use crate::arrays::contiguous;
use crate::errors::raise;
use crate::threads::check_threads;

pub fn value_error<T>(text: String) -> PyResult<T> {
    Err(PyValueError::new_err(text))
}

pub fn block(bytes: &[u8], name: &str) -> PyResult<Block> {
    let bytes: [u8; LABEL] = bytes.try_into().map_err(|_| {
        PyValueError::new_err(format!("{name}: {} bytes, not {LABEL}", bytes.len()))
    })?;
    Ok(Block::from_le_bytes(bytes))
}

/// Returns an array of `count` rows of `each` bytes, made without the interpreter.
pub fn rows<'py, const N: usize>(
    py: Python<'py>,
    shape: [usize; N],
    write: impl Fn(usize, &mut [u8]) -> Result<(), Refused> + Send + Sync,
) -> PyResult<Bound<'py, PyArray<u8, numpy::ndarray::Dim<[usize; N]>>>>
where
    numpy::ndarray::Dim<[usize; N]>: numpy::ndarray::Dimension,
    [usize; N]: numpy::ndarray::IntoDimension<Dim = numpy::ndarray::Dim<[usize; N]>>,
{
    let each: usize = shape[1..].iter().product();
    let mut bytes = vec![0; shape[0] * each];
    py.detach(|| {
        let mut rows = bytes.chunks_exact_mut(each.max(1)).enumerate();
        rows.try_for_each(|(row, to)| write(row, to))
    })
    .map_err(raise)?;
    PyArray1::from_vec(py, bytes).reshape(shape)
}

/// Returns the range of inputs `first..first + count` of a circuit.
pub fn input_range(circuit: &Circuit, first: usize, count: usize) -> PyResult<Range<usize>> {
    match first.checked_add(count) {
        Some(end) if end <= circuit.inputs() => Ok(first..end),
        _ => value_error(format!(
            "inputs: {count} from {first}, of {} inputs",
            circuit.inputs()
        )),
    }
}

/// Returns the range of inputs, from `first` on, that these labels are for, and the labels.
pub fn label_range<'a>(
    circuit: &Circuit,
    plan: &Plan,
    first: usize,
    labels: &'a PyReadonlyArray3<'_, u8>,
) -> PyResult<(Range<usize>, &'a [u8])> {
    let shape = labels.shape();
    if shape[1..] != [plan.instances, LABEL] {
        return value_error(format!(
            "labels: shape {shape:?}, not (inputs, {}, {LABEL})",
            plan.instances
        ));
    }
    let inputs = input_range(circuit, first, shape[0])?;
    Ok((inputs, contiguous(labels, "labels")?))
}

/// Returns the kernel of this machine with this name, the fastest without one.
pub fn kernel(name: Option<&str>) -> PyResult<Kernel> {
    let mut kernels = Kernel::available();
    if let Some(name) = name {
        kernels.retain(|kernel| kernel.name() == name);
    }
    match kernels.last() {
        Some(kernel) => Ok(*kernel),
        None => value_error(format!("kernel: {name:?} is not one of this machine")),
    }
}

pub fn plan(
    n_instances: usize,
    start: &[u8],
    (mode, tile): (&str, usize),
    first_instance: u64,
    threads: usize,
    kernel: Option<&str>,
) -> PyResult<Plan> {
    check_threads(threads)?;
    let mode = match mode {
        "unique" => Mode::Unique,
        "tile" => Mode::Tile,
        _ => return value_error(format!("mode: {mode:?}, not 'unique' or 'tile'")),
    };
    let plan = Plan {
        start: block(start, "start")?,
        mode,
        tile,
        first: first_instance,
        instances: n_instances,
        threads,
        kernel: self::kernel(kernel)?,
    };
    plan.check().map_err(raise)?;
    Ok(plan)
}

/// Returns the labels of each output or input, row by row.
pub fn label_rows(
    py: Python<'_>,
    count: usize,
    instances: usize,
    row: impl Fn(usize) -> Result<Zeroizing<Vec<Block>>, Refused> + Send + Sync,
) -> PyResult<Bound<'_, PyArray3<u8>>> {
    rows(py, [count, instances, LABEL], |number, to| {
        write_labels(&row(number)?, to);
        Ok(())
    })
}

/// Returns the colours of the labels of each output, row by row.
pub fn colour_rows(
    py: Python<'_>,
    count: usize,
    instances: usize,
    row: impl Fn(usize) -> Result<Zeroizing<Vec<Block>>, Refused> + Send + Sync,
) -> PyResult<Bound<'_, PyArray2<u8>>> {
    rows(py, [count, instances], |number, to| {
        for (to, label) in to.iter_mut().zip(row(number)?.iter()) {
            *to = (label & 1) as u8;
        }
        Ok(())
    })
}

/// Returns input wires, in any order, after a check.
pub fn wires_of<'a>(
    circuit: &Circuit,
    wires: &'a PyReadonlyArray1<'_, u32>,
) -> PyResult<&'a [u32]> {
    let wires = contiguous(wires, "wires")?;
    match wires
        .iter()
        .find(|&&wire| wire as usize >= circuit.inputs())
    {
        Some(wire) => value_error(format!("wires: {wire}, of {} inputs", circuit.inputs())),
        None => Ok(wires),
    }
}

/// Refuses bytes other than 0 and 1. All are read, so that the time does not depend on their
/// values.
pub fn check_bits(bits: &[u8]) -> PyResult<&[u8]> {
    if bits.iter().fold(0, |all, bit| all | bit) > 1 {
        return value_error("bits: an element that is not 0 or 1".into());
    }
    Ok(bits)
}

/// Returns the bits of `wires`, each of all instances.
pub fn bits_of<'a>(
    wires: &[u32],
    plan: &Plan,
    bits: &'a PyReadonlyArray2<'_, u8>,
) -> PyResult<&'a [u8]> {
    let shape = [wires.len(), plan.instances];
    if bits.shape() != shape {
        return value_error(format!("bits: shape {:?}, not {shape:?}", bits.shape()));
    }
    check_bits(contiguous(bits, "bits")?)
}

/// Refuses more labels, from `index` on, than `wires` have.
pub fn check_chunk(wires: &[u32], plan: &Plan, index: usize, count: usize) -> PyResult<()> {
    let all = wires.len() * plan.instances;
    match index.checked_add(count) {
        Some(end) if end <= all && count > 0 => Ok(()),
        _ => value_error(format!("transfers: {count} from {index}, of {all}")),
    }
}

/// Returns the pads of the last ones of `wires`, each of all instances.
pub fn pads_of<'a>(
    plan: &Plan,
    wires: &[u32],
    pads: &'a PyReadonlyArray3<'_, u8>,
) -> PyResult<&'a [u8]> {
    let shape = pads.shape();
    if shape[0] > wires.len() || shape[1..] != [plan.instances, LABEL] {
        return value_error(format!(
            "pads: shape {shape:?}, not (masks, {}, {LABEL}) for {} wires",
            plan.instances,
            wires.len()
        ));
    }
    contiguous(pads, "pads")
}

/// Returns an empty hash under a key.
pub fn stream_hash(key: &[u8]) -> PyResult<StreamHash> {
    match key.try_into() {
        Ok(key) => Ok(StreamHash::new(key)),
        Err(_) => value_error(format!("key: {} bytes, not {KEY}", key.len())),
    }
}
