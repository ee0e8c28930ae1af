//! The gates of a circuit of one instance, laid out for the kernels: runs of XOR gates, done in order, and
//! runs of AND gates that are independent of each other.

use std::ops::Range;

use super::Block;

/// The slots of one gate.
#[derive(Clone, Copy, Default, Debug)]
pub struct GateSlots {
    pub a: u32,
    pub b: u32,
    pub out: u32,
}

/// All gates of a circuit, in order. The fields are private to keep this true: `bound` is above every slot,
/// and each AND gate has its two half-gates.
#[derive(Default)]
pub struct Gates {
    xors: Vec<GateSlots>,
    ands: Vec<GateSlots>,
    halves: Vec<[u32; 2]>,
    bound: usize,
}

impl Gates {
    fn check(&mut self, gate: GateSlots) {
        let most = gate.a.max(gate.b).max(gate.out);
        self.bound = self.bound.max(most as usize + 1);
    }

    /// Adds an XOR gate; its place among the XOR gates.
    pub fn xor(&mut self, gate: GateSlots) -> usize {
        self.check(gate);
        self.xors.push(gate);
        self.xors.len() - 1
    }

    /// Adds AND gate `index` of the file; its place among the AND gates.
    pub fn and(&mut self, gate: GateSlots, index: u32) -> usize {
        self.check(gate);
        self.ands.push(gate);
        self.halves.push([2 * index, 2 * index + 1]);
        self.ands.len() - 1
    }

    pub fn xors(&self, places: Range<usize>) -> Xors<'_> {
        Xors {
            gates: &self.xors[places],
            bound: self.bound,
        }
    }

    /// Some AND gates; half-gate h has the key `base ^ h`.
    pub fn ands(&self, places: Range<usize>, base: Block) -> Ands<'_> {
        Ands {
            gates: &self.ands[places.clone()],
            halves: &self.halves[places],
            bound: self.bound,
            base,
        }
    }
}

#[derive(Clone, Copy)]
pub struct Xors<'a> {
    gates: &'a [GateSlots],
    bound: usize,
}

impl<'a> Xors<'a> {
    pub fn gates(&self) -> &'a [GateSlots] {
        self.gates
    }

    /// Above every slot.
    pub fn bound(&self) -> usize {
        self.bound
    }
}

#[derive(Clone, Copy)]
pub struct Ands<'a> {
    gates: &'a [GateSlots],
    halves: &'a [[u32; 2]],
    bound: usize,
    pub base: Block,
}

impl<'a> Ands<'a> {
    pub fn gates(&self) -> &'a [GateSlots] {
        self.gates
    }

    /// The numbers of the half-gates of each gate.
    pub fn halves(&self) -> &'a [[u32; 2]] {
        self.halves
    }

    /// Above every slot.
    pub fn bound(&self) -> usize {
        self.bound
    }
}
