//! Integers of a stated width: the elements of committed vectors.

use subtle::ConstantTimeEq;

use super::error::CommitmentError;
use super::limits::MAX_LENGTH;

/// The integers of a vector.
#[derive(Clone, Copy)]
pub enum Integers<'a> {
    /// From 0 to 256^width - 1.
    Unsigned(&'a [u64]),
    /// From -256^width / 2 to 256^width / 2 - 1.
    Signed(&'a [i64]),
}

/// Integers with their width in bytes, 1 to 8, which is public.
#[derive(Clone, Copy)]
pub struct Elements<'a> {
    integers: Integers<'a>,
    bits: u32,
}

/// Returns the bits of a width in bytes; refuses one out of range.
pub fn bits_of(width: usize) -> Result<u32, CommitmentError> {
    if (1..=8).contains(&width) {
        return Ok(8 * width as u32);
    }
    Err(CommitmentError::Argument(format!(
        "width: {width} bytes, not between 1 and 8"
    )))
}

impl<'a> Elements<'a> {
    /// Refuses a width or a number of integers out of range; looks at no integer.
    pub fn new(integers: Integers<'a>, width: usize) -> Result<Self, CommitmentError> {
        let bits = bits_of(width)?;
        let elements = Self { integers, bits };
        let length = elements.length();
        if !(1..=MAX_LENGTH).contains(&length) {
            return Err(CommitmentError::Argument(format!(
                "vector: {length} elements, not between 1 and {MAX_LENGTH}"
            )));
        }
        Ok(elements)
    }

    pub(super) fn length(&self) -> usize {
        match self.integers {
            Integers::Unsigned(all) => all.len(),
            Integers::Signed(all) => all.len(),
        }
    }

    /// Bits of an element; with a sign the highest one counts negatively.
    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    pub(super) fn signed(&self) -> bool {
        matches!(self.integers, Integers::Signed(_))
    }

    /// Returns the two's complement of an element; 0 past the end.
    #[inline]
    pub(super) fn word(&self, index: usize) -> u64 {
        match self.integers {
            Integers::Unsigned(all) => all.get(index).copied().unwrap_or(0),
            Integers::Signed(all) => all.get(index).map_or(0, |&element| element as u64),
        }
    }

    /// Returns the magnitude of an element, and whether it is negative.
    pub(super) fn magnitude(&self, index: usize) -> (u64, bool) {
        match self.integers {
            Integers::Unsigned(all) => (all[index], false),
            Integers::Signed(all) => (all[index].unsigned_abs(), all[index] < 0),
        }
    }

    /// Returns what is left of an element above its width: 0 if it is in range.
    fn beyond(&self, index: usize) -> u64 {
        let half = u64::from(self.signed()) << (self.bits - 1);
        let moved = self.word(index).wrapping_add(half);
        moved.checked_shr(self.bits).unwrap_or(0)
    }

    /// Refuses elements out of range, in constant time but for the refusal, which does not say which.
    #[inline(never)]
    pub(super) fn expect_secret_in_range(&self) -> Result<(), CommitmentError> {
        let all = (0..self.length()).fold(0, |all, index| all | self.beyond(index));
        if all.ct_eq(&0).into() {
            return Ok(());
        }
        Err(CommitmentError::Argument(format!(
            "elements: one is not {}",
            self.range()
        )))
    }

    /// Refuses elements out of range, in variable time.
    pub(super) fn expect_public_in_range(&self) -> Result<(), CommitmentError> {
        match (0..self.length()).find(|&index| self.beyond(index) != 0) {
            None => Ok(()),
            Some(index) => Err(CommitmentError::Statement(format!(
                "totals: number {index} is not {}",
                self.range()
            ))),
        }
    }

    fn range(&self) -> String {
        if self.signed() {
            let half = self.bits - 1;
            format!("between -2**{half} and 2**{half} - 1")
        } else {
            format!("below 2**{}", self.bits)
        }
    }
}
