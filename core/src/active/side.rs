//! The two sides, and the keys of their hashes.

use crate::garble::Block;

/// One side of an evaluation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It makes the tables; bit 0 of its offset is 1.
    Garbler,
    /// It evaluates them; bit 0 of its offset is 0.
    Evaluator,
}

impl Side {
    /// Bit 0 of the offset.
    pub fn bit(self) -> Block {
        match self {
            Self::Garbler => 1,
            Self::Evaluator => 0,
        }
    }

    /// The place, within the two of a leaky triple, of the hashes of this side's keys.
    pub(super) fn half(self) -> Block {
        1 - self.bit()
    }
}

/// Place of the first half of the AND gate with number 0.
pub(super) const GATES: Block = 1 << 63;
