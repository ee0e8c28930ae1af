//! Secret multiples of public points, without a branch or an address that depends on them.
//!
//! With the bits b_i of x, and t_i = 2 b_i - 1, which is 1 or -1, 2 x = sum of t_i 2^i + 2^n - 1. Bit i of four
//! elements so selects one of the 16 points +-G_0 +- G_1 +- G_2 +- G_3, up to its sign one of the eight in a
//! table. It is added to the sum of window i; at the end, once, 2 C = sum of 2^i (window i) + (2^n - 1) S, where S
//! is the sum of all points; and C is (l + 1) / 2 times this.
//!
//! Multiplications in the field for each element of n bits, by the elements that share a table:
//!
//! | elements | entries | for the table | for windows | n = 16 | 32 | 64 |
//! |---|---|---|---|---|---|---|
//! | 3 | 4 | 14.7 | 8 (n + 1) / 3 | 60 | 103 | 188 |
//! | 4 | 8 | 23.5 | 8 (n + 1) / 4 | 58 | 90 | 154 |
//! | 5 | 16 | 41 | 8 (n + 1) / 5 | 68 | 94 | 145 |
//!
//! Signed windows of 3 bits of one element at a time, with a table of 4 multiples, take 115 for n = 32, those of
//! 4 bits 130. Tables of four are the best or nearly so at every width; tables of five need scans of twice as
//! many entries.

use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroize;

use super::point::{Cached, Extended, Niels};

/// Elements that share a table.
pub const TOGETHER: usize = 4;
const ENTRIES: usize = 1 << (TOGETHER - 1);

/// The points G_0 +- G_1 +- G_2 +- G_3; bit k - 1 of an index says that G_k is subtracted.
struct Table([[u64; Cached::WORDS]; ENTRIES]);

impl Table {
    /// Returns the table and G_0 + G_1 + G_2 + G_3.
    fn new(points: &[Niels; TOGETHER]) -> (Self, Cached) {
        let left = points[0].plus_and_minus(&points[1]);
        let right = points[2].plus_and_minus(&points[3]);
        let [alike, crossed] = right.map(|point| point.cached());
        let mut entries = [[0; Cached::WORDS]; ENTRIES];
        let mut sum = None;
        for (index, point) in left.iter().enumerate() {
            let [plus, minus] = point.plus_and_minus(&alike);
            let first = plus.cached();
            sum.get_or_insert(first);
            entries[index] = first.words();
            entries[index | 6] = minus.cached().words();
            let [plus, minus] = point.plus_and_minus(&crossed);
            entries[index | 4] = plus.cached().words();
            entries[index | 2] = minus.cached().words();
        }
        let sum = sum.expect("two points");
        (Self(entries), sum)
    }

    /// Returns an entry, or its negative, reading all of them.
    #[inline]
    fn select(&self, index: u64, negative: Choice) -> Cached {
        let mut words = [0; Cached::WORDS];
        for (number, entry) in self.0.iter().enumerate() {
            let mask = u64::from(index.ct_eq(&(number as u64)).unwrap_u8()).wrapping_neg();
            for (word, part) in words.iter_mut().zip(entry) {
                *word |= part & mask;
            }
        }
        Cached::from_words(&words).negated_if(negative)
    }
}

/// The sums of windows, and of all points. Erased when it is dropped.
pub struct Windows {
    windows: Vec<Extended>,
    all: Extended,
}

impl Windows {
    /// Counts additions of 7 and of 8 multiplications for so many elements.
    pub fn additions(bits: u32, count: usize) -> [usize; 2] {
        let tables = count.div_ceil(TOGETHER);
        // Sums and differences: two of pairs of points, four of pairs of these.
        [tables * 2 * (2 + 4), tables * (bits as usize + 1)]
    }

    /// Starts sums of elements of so many bits.
    pub fn new(bits: u32) -> Self {
        Self {
            windows: vec![Extended::IDENTITY; bits as usize],
            all: Extended::IDENTITY,
        }
    }

    /// Adds the multiples of four points by secret words, of which the lowest bits count.
    pub fn add(&mut self, points: &[Niels; TOGETHER], words: [u64; TOGETHER]) {
        let (table, sum) = Table::new(points);
        self.all = self.all.plus(&sum);
        let [first, others @ ..] = words;
        let others = others.map(|word| word ^ first);
        for (bit, window) in self.windows.iter_mut().enumerate() {
            let differs = |k: usize| (others[k] >> bit & 1) << k;
            let index = differs(0) | differs(1) | differs(2);
            let negative = Choice::from((!first >> bit & 1) as u8);
            *window = window.plus(&table.select(index, negative));
        }
    }

    /// Adds the sums of other elements of as many bits.
    pub fn merge(&mut self, other: &Self) {
        for (window, more) in self.windows.iter_mut().zip(&other.windows) {
            *window = window.plus(&more.cached());
        }
        self.all = self.all.plus(&other.all.cached());
    }

    /// Returns twice the sum of all multiples; with a sign, the highest bit counts negatively.
    pub fn twice(&self, signed: bool) -> Extended {
        let all = self.all.cached();
        let minus_all = all.negated_if(Choice::from(1));
        let mut highest = if signed {
            // sum t_i 2^i (i < n - 1) - t_(n-1) 2^(n-1) - 1
            Extended::IDENTITY
        } else {
            // sum t_i 2^i + 2^n - 1
            Extended::IDENTITY.plus(&all)
        };
        for (bit, window) in self.windows.iter().enumerate().rev() {
            let negative = signed && bit + 1 == self.windows.len();
            let window = window.cached().negated_if(Choice::from(u8::from(negative)));
            highest = highest.double().plus(&window);
        }
        highest.plus(&minus_all)
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.windows.zeroize();
    }
}

/// (l + 1) / 2, little-endian.
const HALF: [u8; 32] = [
    0xf7, 0xe9, 0x7a, 0x2e, 0x8d, 0x31, 0x09, 0x2c, 0x6b, 0xce, 0x7b, 0x51, 0xef, 0x7c, 0x6f, 0x0a,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x08,
];

/// Returns half of an element of the group. The factor is public: its bits decide what is added.
pub fn half(point: &Extended) -> Extended {
    let summand = point.cached();
    let bits = HALF
        .iter()
        .rev()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    bits.fold(Extended::IDENTITY, |sum, bit| {
        let sum = sum.double();
        if bit == 1 { sum.plus(&summand) } else { sum }
    })
}
