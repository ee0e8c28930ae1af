//! Public multiples of public points [Pippenger 1976], in variable time.

use super::point::{Extended, Niels};

/// Most bits of a digit: the buckets of all windows of 64-bit words are 1 MB then, what a processor's
/// second-level cache holds.
const MOST_DIGIT_BITS: u32 = 11;

/// Sums of points by window and magnitude of a digit.
pub struct Buckets {
    /// Those of a window, of digits 1, 2, ..., one after the other.
    sums: Vec<Extended>,
    digit_bits: u32,
    windows: usize,
}

/// Returns the bits of a digit, and the windows, that take the fewest additions for `count` multiples.
fn split(bits: u32, count: usize) -> (u32, usize) {
    // Digits are -2^(c-1) to 2^(c-1), so the highest one has room for a carry.
    let windows = |digit: &u32| (bits + 1).div_ceil(*digit) as usize;
    let additions = |digit: &u32| windows(digit) * (count + (1 << digit));
    let digit_bits = (2..=MOST_DIGIT_BITS)
        .min_by_key(additions)
        .expect("a range");
    (digit_bits, windows(&digit_bits))
}

impl Buckets {
    /// Counts additions of 7 and of 8 multiplications, but for digits that are 0.
    pub fn additions(bits: u32, count: usize) -> [usize; 2] {
        let (digit_bits, windows) = split(bits, count);
        // Each bucket counts twice in `total`.
        [windows * count, windows << digit_bits]
    }

    /// Starts sums of `count` multiples by magnitudes of so many bits.
    pub fn new(bits: u32, count: usize) -> Self {
        let (digit_bits, windows) = split(bits, count);
        Self {
            sums: vec![Extended::IDENTITY; windows << (digit_bits - 1)],
            digit_bits,
            windows,
        }
    }

    /// Adds a point's multiple by `magnitude`, or subtracts it.
    pub fn add(&mut self, point: &Niels, magnitude: u64, subtract: bool) {
        let mut rest = magnitude;
        let half = 1 << (self.digit_bits - 1);
        let mut carry = 0;
        for buckets in self.sums.chunks_exact_mut(half) {
            let digit = carry + (rest as usize & (2 * half - 1));
            rest >>= self.digit_bits;
            carry = usize::from(digit > half);
            let distance = if digit > half {
                2 * half - digit
            } else {
                digit
            };
            if distance > 0 {
                let bucket = &mut buckets[distance - 1];
                *bucket = if subtract == (carry == 1) {
                    bucket.plus_niels(point)
                } else {
                    bucket.minus_niels(point)
                };
            }
        }
    }

    /// Returns the sum of all multiples.
    pub fn total(&self) -> Extended {
        let half = self.sums.len() / self.windows;
        let mut total = Extended::IDENTITY;
        for buckets in self.sums.chunks_exact(half).rev() {
            for _ in 0..self.digit_bits {
                total = total.double();
            }
            let mut running = Extended::IDENTITY;
            for bucket in buckets.iter().rev() {
                running = running.plus(&bucket.cached());
                total = total.plus(&running.cached());
            }
        }
        total
    }
}
