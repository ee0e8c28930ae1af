//! Inputs of the kernels: keys and operands of many lanes, and the size of a gate's table.

use super::block::Block;

/// Bytes of table for an AND gate of one instance.
pub const GATE: usize = 32;

/// The AES keys of the two half-gates of every lane.
#[derive(Clone, Copy)]
pub enum Keys<'a> {
    /// One pair of keys for all lanes.
    Shared([Block; 2]),
    /// Lane `i` has the keys `lanes[i] ^ pair[0]` and `lanes[i] ^ pair[1]`.
    Unique {
        lanes: &'a [Block],
        pair: [Block; 2],
    },
}

impl Keys<'_> {
    /// The pair of keys of one lane.
    pub fn of(&self, lane: usize) -> [Block; 2] {
        match self {
            Self::Shared(pair) => *pair,
            Self::Unique { lanes, pair } => pair.map(|key| key ^ lanes[lane]),
        }
    }
}

/// Positions of the operands of `lanes` gates among the registers. Operands are equal or disjoint.
#[derive(Clone, Copy)]
pub struct Wires {
    pub a: usize,
    pub b: usize,
    pub out: usize,
    pub lanes: usize,
}

impl Wires {
    /// Panics unless every operand lies within `length` registers and `keys` has a key for each lane.
    pub fn check(&self, length: usize, keys: &Keys<'_>) {
        let most = self.a.max(self.b).max(self.out);
        assert!(most <= length && self.lanes <= length - most, "operands");
        if let Keys::Unique { lanes, .. } = keys {
            assert!(lanes.len() >= self.lanes, "keys");
        }
    }
}
