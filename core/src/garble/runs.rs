//! The gates of a circuit of one instance in the layout of the kernels: runs of XOR gates, done in
//! order, and runs of independent AND gates.

use std::ops::Range;

use super::block::Block;
use super::step::Step;

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
    /// Level of the last AND gate.
    level: u32,
}

impl Gates {
    fn check(&mut self, gate: GateSlots) {
        let most = gate.a.max(gate.b).max(gate.out);
        self.bound = self.bound.max(most as usize + 1);
    }

    /// Adds an XOR gate, to the last of `steps` or to a new one.
    pub fn xor(&mut self, gate: GateSlots, steps: &mut Vec<Step>) {
        self.check(gate);
        let first = self.xors.len() as u32;
        self.xors.push(gate);
        match steps.last_mut() {
            Some(Step::Xors { end, .. }) => *end += 1,
            _ => steps.push(Step::Xors {
                first,
                end: first + 1,
            }),
        }
    }

    /// Adds AND gate `index` of the file, to the last of `steps` if that is of its level, or to a new one.
    pub fn and(&mut self, gate: GateSlots, index: u32, level: u32, steps: &mut Vec<Step>) {
        self.check(gate);
        let first = self.ands.len() as u32;
        self.ands.push(gate);
        self.halves.push([2 * index, 2 * index + 1]);
        match steps.last_mut() {
            Some(Step::Ands { end, .. }) if self.level == level => *end += 1,
            _ => steps.push(Step::Ands {
                first,
                end: first + 1,
            }),
        }
        self.level = level;
    }

    pub fn xors(&self, indices: Range<usize>) -> Xors<'_> {
        Xors {
            gates: &self.xors[indices],
            bound: self.bound,
        }
    }

    /// Returns some AND gates; half-gate h has the key `base ^ h`.
    pub fn ands(&self, indices: Range<usize>, base: Block) -> Ands<'_> {
        Ands {
            gates: &self.ands[indices.clone()],
            halves: &self.halves[indices],
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

    /// Returns a number above every slot.
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

    /// Returns a number above every slot.
    pub fn bound(&self) -> usize {
        self.bound
    }
}
