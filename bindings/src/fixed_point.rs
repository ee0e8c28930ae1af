//! Python functions that encode vectors in fixed point, add packed ones, and divide sums.

use numpy::{Element as NumpyElement, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smpc_core::fixed_point::{
    self as core, Average, Bounds, Element, FRACTIONAL_BITS, Faults, Grid, Map,
};

use crate::arrays::{contiguous, contiguous_mut, to_read, to_write, with_array};

/// Bounds of an own range and the map onto another one, as `_core.pyi` describes them.
type MapNumbers = (f64, f64, f64, f64, f64, f64, f64, f64);
/// Indexes of the first wrong values, and how many are.
type FaultNumbers = (Option<usize>, usize, Option<usize>, usize, Option<usize>);

fn wrong(reason: String) -> PyErr {
    PyValueError::new_err(reason)
}

/// Refuses an exponent whose power of two is no normal double.
fn check_exponent(fractional_bits: i32) -> PyResult<()> {
    if FRACTIONAL_BITS.contains(&fractional_bits) {
        return Ok(());
    }
    Err(wrong(format!(
        "fractional_bits: {fractional_bits}, not between {} and {}",
        FRACTIONAL_BITS.start(),
        FRACTIONAL_BITS.end()
    )))
}

/// Refuses bounds that are neither one of all values nor one of each.
fn check_bounds(lower: &[f64], upper: &[f64], length: usize) -> PyResult<()> {
    if lower.len() == upper.len() && (lower.len() == 1 || lower.len() == length) {
        return Ok(());
    }
    Err(wrong(format!(
        "bounds: {} and {} of them for {length} values",
        lower.len(),
        upper.len()
    )))
}

fn check_lengths(name: &str, given: usize, expected: usize) -> PyResult<()> {
    if given == expected {
        return Ok(());
    }
    Err(wrong(format!("{name}: {given} of them, not {expected}")))
}

/// Arguments of `encode` beside the arrays of values and elements.
struct Encoding<'a> {
    lower: &'a [f64],
    upper: &'a [f64],
    slack: f64,
    grid: Grid,
    map: Option<Map>,
}

impl Encoding<'_> {
    fn encode<V: Copy + Into<f64>, T: Element>(&self, values: &[V], elements: &mut [T]) -> Faults {
        let bounds = |index: usize| Bounds {
            lower: self.lower[index],
            upper: self.upper[index],
            slack: self.slack,
        };
        let map = self.map.as_ref();
        if self.lower.len() == 1 {
            let alike = bounds(0);
            core::encode(values, map, |_| alike, self.grid, elements)
        } else {
            core::encode(values, map, bounds, self.grid, elements)
        }
    }

    fn encode_into<V: Copy + Into<f64> + Sync, T: Element + Send + NumpyElement>(
        &self,
        py: Python<'_>,
        values: &[V],
        elements: &Bound<'_, PyArray1<T>>,
    ) -> PyResult<Faults> {
        let mut elements = to_write(elements, "elements")?;
        let elements = contiguous_mut(&mut elements, "elements")?;
        check_lengths("elements", elements.len(), values.len())?;
        check_bounds(self.lower, self.upper, values.len())?;
        Ok(py.detach(|| self.encode(values, elements)))
    }

    fn encode_values<V: Copy + Into<f64> + Sync + NumpyElement>(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyArray1<V>>,
        elements: &Bound<'_, PyAny>,
    ) -> PyResult<Faults> {
        let values = to_read(values, "values")?;
        let values = contiguous(&values, "values")?;
        with_array!(elements: u32 | u64, self.encode_into(py, values, elements))
    }
}

#[pyfunction]
#[pyo3(signature = (values, elements, lower, upper, slack, fractional_bits, lowest, map = None))]
#[allow(clippy::too_many_arguments)]
fn encode_fixed_point(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    elements: &Bound<'_, PyAny>,
    lower: PyReadonlyArray1<'_, f64>,
    upper: PyReadonlyArray1<'_, f64>,
    slack: f64,
    fractional_bits: i32,
    lowest: i64,
    map: Option<MapNumbers>,
) -> PyResult<FaultNumbers> {
    check_exponent(fractional_bits)?;
    let (lower, upper) = (contiguous(&lower, "lower")?, contiguous(&upper, "upper")?);
    let farthest = lower
        .iter()
        .chain(upper)
        .fold(0.0, |most: f64, bound| most.max(bound.abs()));
    let map = map.map(
        |(own_lower, own_upper, own_slack, middle, scale, centre, onto_lower, onto_upper)| Map {
            own: Bounds {
                lower: own_lower,
                upper: own_upper,
                slack: own_slack,
            },
            middle,
            scale,
            centre,
            onto: Bounds {
                lower: onto_lower,
                upper: onto_upper,
                slack: 0.0,
            },
        },
    );
    let encoding = Encoding {
        lower,
        upper,
        slack,
        grid: Grid {
            fractional_bits,
            lowest,
            farthest,
        },
        map,
    };
    let faults = with_array!(values: f32 | f64, encoding.encode_values(py, values, elements))?;
    let ((own, first_own), (outside, first)) = (faults.outside_own, faults.outside);
    Ok((faults.infinite, own, first_own, outside, first))
}

fn add_to_array<T: Element + Send + NumpyElement>(
    py: Python<'_>,
    elements: &Bound<'_, PyArray1<T>>,
    packed: &[u8],
    width: usize,
) -> PyResult<()> {
    if !(1..=T::SIZE).contains(&width) {
        let reason = format!("width: {width}, not between 1 and {}", T::SIZE);
        return Err(wrong(reason));
    }
    let mut elements = to_write(elements, "elements")?;
    let elements = contiguous_mut(&mut elements, "elements")?;
    check_lengths("packed bytes", packed.len(), elements.len() * width)?;
    py.detach(|| core::add_packed(elements, packed, width));
    Ok(())
}

#[pyfunction]
fn add_packed(
    py: Python<'_>,
    elements: &Bound<'_, PyAny>,
    packed: PyReadonlyArray1<'_, u8>,
    width: usize,
) -> PyResult<()> {
    let packed = contiguous(&packed, "packed")?;
    with_array!(elements: u32 | u64, add_to_array(py, elements, packed, width))
}

fn average_of<T: Element + Sync + NumpyElement>(
    py: Python<'_>,
    elements: &Bound<'_, PyArray1<T>>,
    how: Average,
    bounds: Option<(&[f64], &[f64])>,
    values: &Bound<'_, PyArray1<f64>>,
) -> PyResult<bool> {
    let elements = to_read(elements, "elements")?;
    let elements = contiguous(&elements, "elements")?;
    let mut values = to_write(values, "values")?;
    let values = contiguous_mut(&mut values, "values")?;
    check_lengths("values", values.len(), elements.len())?;
    if let Some((lower, upper)) = bounds {
        check_bounds(lower, upper, elements.len())?;
    }
    Ok(py.detach(|| match bounds {
        None => core::average(elements, how, |_| None, values),
        Some(([lower], [upper])) => {
            let alike = Some((*lower, *upper));
            core::average(elements, how, |_| alike, values)
        }
        Some((lower, upper)) => {
            let each = |index: usize| Some((lower[index], upper[index]));
            core::average(elements, how, each, values)
        }
    }))
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn average_fixed_point(
    py: Python<'_>,
    elements: &Bound<'_, PyAny>,
    values: &Bound<'_, PyArray1<f64>>,
    bits: u32,
    offset: i64,
    weight: f64,
    fractional_bits: i32,
    bounds: Option<(PyReadonlyArray1<'_, f64>, PyReadonlyArray1<'_, f64>)>,
) -> PyResult<bool> {
    check_exponent(fractional_bits)?;
    if !(1..=64).contains(&bits) {
        return Err(wrong(format!("bits: {bits}, not between 1 and 64")));
    }
    let bounds = match &bounds {
        None => None,
        Some((lower, upper)) => Some((contiguous(lower, "lower")?, contiguous(upper, "upper")?)),
    };
    let how = Average {
        bits,
        offset,
        weight,
        fractional_bits,
    };
    with_array!(elements: u32 | u64, average_of(py, elements, how, bounds, values))
}

/// Adds everything here to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(encode_fixed_point, module)?)?;
    module.add_function(wrap_pyfunction!(add_packed, module)?)?;
    module.add_function(wrap_pyfunction!(average_fixed_point, module)?)
}
