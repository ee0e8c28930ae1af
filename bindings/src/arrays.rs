//! Memory of the caller's arrays, after checks.

use numpy::ndarray::Dimension;
use numpy::{Element, PyArray, PyArrayMethods, PyReadonlyArray, PyReadwriteArray};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

fn refused(name: &str, reason: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{name}: {reason}"))
}

/// Returns an array that a call reads.
pub fn to_read<'py, T: Element, D: Dimension>(
    array: &Bound<'py, PyArray<T, D>>,
    name: &str,
) -> PyResult<PyReadonlyArray<'py, T, D>> {
    array.try_readonly().map_err(|error| refused(name, error))
}

/// Returns an array that a call changes.
pub fn to_write<'py, T: Element, D: Dimension>(
    array: &Bound<'py, PyArray<T, D>>,
    name: &str,
) -> PyResult<PyReadwriteArray<'py, T, D>> {
    array.try_readwrite().map_err(|error| refused(name, error))
}

pub fn contiguous<'a, T: Element, D: Dimension>(
    array: &'a PyReadonlyArray<'_, T, D>,
    name: &str,
) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|error| refused(name, error))
}

pub fn contiguous_mut<'a, T: Element, D: Dimension>(
    array: &'a mut PyReadwriteArray<'_, T, D>,
    name: &str,
) -> PyResult<&'a mut [T]> {
    array.as_slice_mut().map_err(|error| refused(name, error))
}

/// Returns the error of an array of other elements than `T` and `U`, or of other axes than one.
pub fn other_array<T: Element, U: Element>(py: Python<'_>, name: &str) -> PyErr {
    let (first, second) = (T::get_dtype(py).to_string(), U::get_dtype(py).to_string());
    PyTypeError::new_err(format!(
        "{name}: not a one-dimensional numpy array of native {first} or {second}"
    ))
}

/// Evaluates an expression in which `$array` has one axis and elements of the first type or the second.
macro_rules! with_array {
    ($array:ident: $first:ty | $second:ty, $value:expr) => {
        if let Ok($array) = $array.cast::<numpy::PyArray1<$first>>() {
            $value
        } else if let Ok($array) = $array.cast::<numpy::PyArray1<$second>>() {
            $value
        } else {
            Err($crate::arrays::other_array::<$first, $second>(
                $array.py(),
                stringify!($array),
            ))
        }
    };
}
pub(crate) use with_array;
