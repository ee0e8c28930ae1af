//! Fixed-point encoding of vectors as wrapping integers, packed sums of them, and averages of the sums.
//!
//! A value is checked, put within its bounds and rounded half to even in one pass; so is a sum divided.
//! Products with powers of two are exact but for one rounding, as those of C's `ldexp` are.

use std::ops::RangeInclusive;

/// Values of which the first that is wrong is searched once more.
const BLOCK: usize = 4096;
/// Adding it rounds a double below 2^51 to an integer, half to even, in the lowest bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;
/// Below it a double plus `MAGIC` has one representation.
const ROUNDED: f64 = 2_251_799_813_685_248.0;
/// Every integer up to here is a double.
const EXACT: u64 = 1 << 53;
/// Exponents whose power of two, and its inverse, are normal doubles.
pub const FRACTIONAL_BITS: RangeInclusive<i32> = -1022..=1022;

/// An unsigned integer that values are encoded as, modulo its range.
pub trait Element: Copy {
    /// Bytes of an element.
    const SIZE: usize = size_of::<Self>();

    /// Returns an integer modulo the range.
    fn wrap(value: u64) -> Self;

    /// Returns the element as an integer.
    fn widen(self) -> u64;

    /// Returns the sum modulo the range.
    fn add(self, other: Self) -> Self;
}

macro_rules! element {
    ($integer:ty) => {
        impl Element for $integer {
            #[inline(always)]
            fn wrap(value: u64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn widen(self) -> u64 {
                u64::from(self)
            }

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
    };
}

element!(u32);
element!(u64);

/// Least and greatest value, and by how much a value may be beyond either before it counts as outside.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Least value.
    pub lower: f64,
    /// Greatest value.
    pub upper: f64,
    /// Distance beyond a bound up to which a value is put on the bound and not counted.
    pub slack: f64,
}

impl Bounds {
    #[inline(always)]
    fn excludes(&self, value: f64) -> bool {
        (self.lower - value > self.slack) | (value - self.upper > self.slack)
    }

    #[inline(always)]
    fn put(&self, value: f64) -> f64 {
        put_within(value, self.lower, self.upper)
    }
}

/// Returns the value, or the bound that it is beyond.
#[inline(always)]
fn put_within(value: f64, lower: f64, upper: f64) -> f64 {
    let value = if value < lower { lower } else { value };
    if value > upper { upper } else { value }
}

/// Map of values from bounds of their own onto other ones: the middles are mapped on each other.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Own bounds.
    pub own: Bounds,
    /// Middle of the own bounds.
    pub middle: f64,
    /// Quotient of the widths.
    pub scale: f64,
    /// Middle of the other bounds.
    pub centre: f64,
    /// The other bounds.
    pub onto: Bounds,
}

impl Map {
    #[inline(always)]
    fn apply(&self, value: f64) -> f64 {
        let mapped = (self.own.put(value) - self.middle) / self.scale + self.centre;
        self.onto.put(mapped)
    }
}

/// The grid: integers are values times 2^`fractional_bits`, minus `lowest`.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Binary digits after the point.
    pub fractional_bits: i32,
    /// The integer that becomes 0.
    pub lowest: i64,
    /// The largest magnitude of a bound: how values are rounded depends on it, and not on the values.
    pub farthest: f64,
}

/// Returns 2^`exponent`, which must be in `FRACTIONAL_BITS`.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + i64::from(exponent)) as u64) << 52)
}

/// What was wrong with values: indexes of the first ones, and counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Index of the first value that is not finite.
    pub infinite: Option<usize>,
    /// The number of values outside their own bounds, and the index of the first one.
    pub outside_own: (usize, Option<usize>),
    /// The number of values outside the bounds of the grid, once mapped, and the index of the first one.
    pub outside: (usize, Option<usize>),
}

/// Adds a block's count to a count, and notes where the first one is.
fn note(
    counted: &mut (usize, Option<usize>),
    start: usize,
    count: usize,
    mut wrong: impl FnMut(usize) -> bool,
    length: usize,
) {
    if count > 0 && counted.1.is_none() {
        counted.1 = (0..length).find(|&at| wrong(at)).map(|at| start + at);
    }
    counted.0 += count;
}

/// Writes values that are finite doubles within `bounds(index)`, once mapped, as integers of a grid.
///
/// Values that are not finite are written as anything: `Faults` names the first one.
///
/// # Panics
/// If the lengths differ.
pub fn encode<V: Copy + Into<f64>, T: Element>(
    values: &[V],
    map: Option<&Map>,
    bounds: impl Fn(usize) -> Bounds,
    grid: Grid,
    elements: &mut [T],
) -> Faults {
    assert_eq!(values.len(), elements.len(), "values and elements");
    let mut faults = Faults::default();
    let mut start = 0;
    for (values, elements) in values.chunks(BLOCK).zip(elements.chunks_mut(BLOCK)) {
        let at = |index: usize| bounds(start + index);
        let (infinite, own, outside) = match map {
            None => encode_block(values, |value| value, |_| false, at, grid, elements),
            Some(map) => encode_block(
                values,
                |value| map.apply(value),
                |value| map.own.excludes(value),
                at,
                grid,
                elements,
            ),
        };
        if infinite > 0 && faults.infinite.is_none() {
            let first = values.iter().position(|&value| !value.into().is_finite());
            faults.infinite = first.map(|at| start + at);
        }
        let own_of = |index: usize| map.is_some_and(|map| map.own.excludes(values[index].into()));
        note(&mut faults.outside_own, start, own, own_of, values.len());
        let outside_of = |index: usize| {
            let value = values[index].into();
            at(index).excludes(map.map_or(value, |map| map.apply(value)))
        };
        note(
            &mut faults.outside,
            start,
            outside,
            outside_of,
            values.len(),
        );
        start += values.len();
    }
    faults
}

/// Encodes a block; returns how many values are not finite, outside their own bounds, and those of the grid.
#[inline(always)]
fn encode_block<V: Copy + Into<f64>, T: Element>(
    values: &[V],
    map: impl Fn(f64) -> f64,
    excluded: impl Fn(f64) -> bool,
    bounds: impl Fn(usize) -> Bounds,
    grid: Grid,
    elements: &mut [T],
) -> (usize, usize, usize) {
    let scale = power_of_two(grid.fractional_bits);
    let (mut infinite, mut own, mut outside) = (0u64, 0u64, 0u64);
    let base = (MAGIC.to_bits()).wrapping_add(grid.lowest as u64);
    for (index, (value, element)) in values.iter().zip(elements.iter_mut()).enumerate() {
        let value: f64 = (*value).into();
        let bounds = bounds(index);
        infinite += u64::from(!value.is_finite());
        own += u64::from(excluded(value));
        let value = map(value);
        outside += u64::from(bounds.excludes(value));
        let scaled = bounds.put(value) * scale;
        *element = T::wrap((scaled + MAGIC).to_bits().wrapping_sub(base));
    }
    if grid.farthest * scale >= ROUNDED {
        for (index, (value, element)) in values.iter().zip(elements.iter_mut()).enumerate() {
            let scaled = bounds(index).put(map((*value).into())) * scale;
            let rounded = scaled.round_ties_even() as i64;
            *element = T::wrap((rounded as u64).wrapping_sub(grid.lowest as u64));
        }
    }
    (infinite as usize, own as usize, outside as usize)
}

/// Adds elements of `width` bytes each, little-endian, to `elements`, modulo their range.
///
/// # Panics
/// If `packed` does not have `width` bytes an element, or `width` is not 1 to the size of an element.
pub fn add_packed<T: Element>(elements: &mut [T], packed: &[u8], width: usize) {
    assert!((1..=T::SIZE).contains(&width), "width");
    assert_eq!(
        Some(packed.len()),
        elements.len().checked_mul(width),
        "packed"
    );
    match width {
        1 => add_of_width::<T, 1>(elements, packed),
        2 => add_of_width::<T, 2>(elements, packed),
        3 => add_of_width::<T, 3>(elements, packed),
        4 => add_of_width::<T, 4>(elements, packed),
        5 => add_of_width::<T, 5>(elements, packed),
        6 => add_of_width::<T, 6>(elements, packed),
        7 => add_of_width::<T, 7>(elements, packed),
        _ => add_of_width::<T, 8>(elements, packed),
    }
}

fn add_of_width<T: Element, const WIDTH: usize>(elements: &mut [T], packed: &[u8]) {
    for (element, bytes) in elements.iter_mut().zip(packed.as_chunks::<WIDTH>().0) {
        let mut word = [0; 8];
        word[..WIDTH].copy_from_slice(bytes);
        *element = element.add(T::wrap(u64::from_le_bytes(word)));
    }
}

/// How a sum of elements becomes an average.
#[derive(Clone, Copy, Debug)]
pub struct Average {
    /// Bits of an element that count; 1 to 64.
    pub bits: u32,
    /// Added to an element, modulo 2^64, for the sum on the grid.
    pub offset: i64,
    /// What the sum is divided by.
    pub weight: f64,
    /// Binary digits of the grid after the point.
    pub fractional_bits: i32,
}

/// Divides sums on the grid, and puts quotients within `bounds(index)`; returns whether all are exactly rounded.
///
/// They are where no sum is 2^53 or more. The weight must be below.
///
/// # Panics
/// If the lengths differ.
pub fn average<T: Element>(
    elements: &[T],
    average: Average,
    bounds: impl Fn(usize) -> Option<(f64, f64)>,
    values: &mut [f64],
) -> bool {
    assert_eq!(elements.len(), values.len(), "elements and values");
    let mask = u64::MAX >> (64 - average.bits.clamp(1, 64));
    let scale = power_of_two(-average.fractional_bits);
    let mut largest = 0;
    for (index, (element, value)) in elements.iter().zip(values).enumerate() {
        let sum = (element.widen() & mask).wrapping_add(average.offset as u64) as i64;
        largest = largest.max(sum.unsigned_abs());
        let quotient = sum as f64 / average.weight * scale;
        *value = match bounds(index) {
            None => quotient,
            Some((lower, upper)) => put_within(quotient, lower, upper),
        };
    }
    largest < EXACT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds half to even with integers, of a value below 2^62.
    fn rounded(value: f64) -> i64 {
        let whole = value.floor();
        let rest = value - whole;
        let whole = whole as i64;
        whole + i64::from(rest > 0.5 || (rest == 0.5 && whole % 2 != 0))
    }

    fn around(lower: f64, upper: f64, slack: f64) -> impl Fn(usize) -> Bounds {
        move |_| Bounds {
            lower,
            upper,
            slack,
        }
    }

    #[test]
    fn values_are_rounded_half_to_even() {
        for bits in [-3, 0, 1, 10] {
            let values: Vec<f64> = (-4000..4000).map(|at| f64::from(at) / 16.0).collect();
            let grid = Grid {
                fractional_bits: bits,
                lowest: -7,
                farthest: 300.0,
            };
            let mut elements = vec![0u64; values.len()];
            let bounds = around(-300.0, 300.0, 0.0);
            let faults = encode(&values, None, bounds, grid, &mut elements);
            assert_eq!(faults, Faults::default());
            for (value, element) in values.iter().zip(elements) {
                let scaled = value * 2f64.powi(bits);
                assert_eq!(
                    element as i64,
                    rounded(scaled) + 7,
                    "{value} with {bits} bits"
                );
            }
        }
    }

    #[test]
    fn large_values_are_those_of_one_by_one() {
        let edges = [2f64.powi(50), 2f64.powi(51), 2f64.powi(52), 2f64.powi(62)];
        for edge in edges {
            for value in [edge - 0.5, edge, edge + 0.5, 1.5 - edge, -edge] {
                let grid = Grid {
                    fractional_bits: 0,
                    lowest: i64::MIN,
                    farthest: 2f64.powi(62),
                };
                let (mut wide, mut narrow) = ([0u64], [0u32]);
                let bounds = || around(-(2f64.powi(62)), 2f64.powi(62), 0.0);
                encode(&[value], None, bounds(), grid, &mut wide);
                encode(&[value], None, bounds(), grid, &mut narrow);
                let expected = (rounded(value) as u64).wrapping_sub(i64::MIN as u64);
                assert_eq!(wide[0], expected, "{value}");
                assert_eq!(narrow[0], expected as u32, "{value}");
            }
        }
    }

    #[test]
    fn faults_name_the_first_one_of_each_kind() {
        let mut values = vec![0.0f32; 3 * BLOCK];
        values[BLOCK + 1] = 5.0;
        values[BLOCK + 9] = -5.0;
        values[2 * BLOCK + 3] = f32::NAN;
        values[3 * BLOCK - 1] = f32::INFINITY;
        let grid = Grid {
            fractional_bits: 1,
            lowest: -2,
            farthest: 1.0,
        };
        let mut elements = vec![0u32; values.len()];
        let faults = encode(&values, None, around(-1.0, 1.0, 0.25), grid, &mut elements);
        assert_eq!(faults.infinite, Some(2 * BLOCK + 3));
        assert_eq!(faults.outside, (3, Some(BLOCK + 1)));
        assert_eq!(elements[BLOCK + 1], 4);
        assert_eq!(elements[BLOCK + 9], 0);
        let map = Map {
            own: around(-2.0, 2.0, 0.25)(0),
            middle: 0.0,
            scale: 2.0,
            centre: 0.0,
            onto: around(-1.0, 1.0, 0.0)(0),
        };
        let bounds = around(-1.0, 1.0, 0.25);
        let faults = encode(&values, Some(&map), bounds, grid, &mut elements);
        assert_eq!(faults.outside_own, (3, Some(BLOCK + 1)));
        assert_eq!(faults.outside, (0, None));
    }

    fn check_packed<T: Element + PartialEq + std::fmt::Debug + Default>(width: usize) {
        for length in [0, 1, 2, 7, 100] {
            let packed: Vec<u8> = (0..length * width).map(|at| (at * 37 + 11) as u8).collect();
            let mut elements = vec![T::wrap(u64::MAX - 5); length];
            add_packed(&mut elements, &packed, width);
            for (at, element) in elements.iter().enumerate() {
                let mut expected = 0u64;
                for (position, byte) in packed[at * width..(at + 1) * width].iter().enumerate() {
                    expected += u64::from(*byte) << (8 * position);
                }
                assert_eq!(*element, T::wrap(expected.wrapping_sub(6)), "{width} bytes");
            }
        }
    }

    #[test]
    fn packed_elements_of_every_width() {
        (1..=4).for_each(check_packed::<u32>);
        (1..=8).for_each(check_packed::<u64>);
    }

    #[test]
    #[should_panic(expected = "packed")]
    fn packed_elements_of_another_length() {
        add_packed(&mut [0u32; 3], &[0; 11], 4);
    }

    #[test]
    fn averages_are_sums_divided() {
        let how = Average {
            bits: 24,
            offset: -90,
            weight: 3.0,
            fractional_bits: 4,
        };
        let elements = [0u32, 90, 91, 0xff00_0000 + 120];
        let mut values = [0.0; 4];
        assert!(average(&elements, how, |_| None, &mut values));
        assert_eq!(values, [-1.875, 0.0, 1.0 / 48.0, 10.0 / 16.0]);
        let within = |_| Some((-1.0, 0.5));
        assert!(average(&elements, how, within, &mut values));
        assert_eq!(values, [-1.0, 0.0, 1.0 / 48.0, 0.5]);
        let how = Average { bits: 64, ..how };
        let large = [(1u64 << 53) + 90];
        assert!(!average(&large, how, |_| None, &mut values[..1]));
        assert!(average(&[large[0] - 1], how, |_| None, &mut values[..1]));
    }
}
