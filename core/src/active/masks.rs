//! The masks of all wires, and the product of the masks of the inputs of each AND gate.

use std::sync::Arc;

use zeroize::{DefaultIsZeroes, Zeroizing};

use super::openings::Openings;
use super::shared::{One, Public, Secrets, Shared};
use super::side::Side;
use super::triples::Triples;
use crate::garble::{Block, Circuit, Step};

/// Instances that go through the circuit together: all their wires stay in the cache.
pub(super) const LANES: usize = 64;

/// The masks of a block of instances, as one side holds them.
pub struct Masks {
    pub(super) side: Side,
    pub(super) delta: Zeroizing<Block>,
    pub(super) circuit: Arc<Circuit>,
    pub(super) instances: usize,
    /// Masks of the input wires, wire by wire, each of all instances.
    pub(super) inputs: Shared,
    /// Masks of the outputs of the AND gates, gate by gate, each of all instances.
    pub(super) gates: Shared,
    /// Products of the masks of the inputs of the AND gates, after `multiply`.
    pub(super) products: Shared,
    /// Masks of the output wires, after `open`.
    pub(super) outputs: Shared,
}

impl Masks {
    /// Takes the masks of the input wires and of the AND gates; those of one side's inputs are 0 to the other.
    pub fn new(
        side: Side,
        delta: Block,
        circuit: Arc<Circuit>,
        instances: usize,
        inputs: Shared,
        gates: Shared,
    ) -> Self {
        assert!(inputs.len() == circuit.inputs() * instances, "input masks");
        assert!(gates.len() == circuit.ands() * instances, "masks");
        Self {
            side,
            delta: Zeroizing::new(delta),
            instances,
            inputs,
            gates,
            products: Shared::default(),
            outputs: Shared::zeros(circuit.outputs() * instances),
            circuit,
        }
    }

    /// Goes through the circuit in the order of the file, with `LANES` instances at a time.
    ///
    /// `and` gets the number of the gate and instance, and the masks of both inputs.
    pub(super) fn walk<T: DefaultIsZeroes>(
        &self,
        input: impl Fn(usize) -> T,
        constant: impl Fn(u8) -> T,
        add: impl Fn(T, T) -> T,
        negated: impl Fn(T) -> T,
        mut and: impl FnMut(usize, &[T], &[T], &mut [T]),
        mut output: impl FnMut(usize, &[T]),
    ) {
        let n = self.instances;
        // Labels of both values of a wire give the offset away: all are overwritten at the end.
        let mut registers = Secrets::zeros(self.circuit.slots() * n.min(LANES));
        let mut operands = (Secrets::zeros(LANES), Secrets::zeros(LANES));
        for first in (0..n).step_by(LANES) {
            let lanes = LANES.min(n - first);
            let slot = |slot: u32| slot as usize * lanes..(slot as usize + 1) * lanes;
            let position = |number: u32| number as usize * n + first;
            for step in self.circuit.steps() {
                match *step {
                    Step::Input { input: wire, out } => {
                        for (index, to) in (position(wire)..).zip(&mut registers[slot(out)]) {
                            *to = input(index);
                        }
                    }
                    Step::Constant { value, out } => {
                        registers[slot(out)].fill(constant(u8::from(value)))
                    }
                    Step::Not { a, out } => {
                        for (a, out) in slot(a).zip(slot(out)) {
                            registers[out] = negated(registers[a]);
                        }
                    }
                    Step::Xor { a, b, out } => {
                        for ((a, b), out) in slot(a).zip(slot(b)).zip(slot(out)) {
                            registers[out] = add(registers[a], registers[b]);
                        }
                    }
                    Step::And { a, b, out, index } => {
                        let (of_a, of_b) = (&mut operands.0[..lanes], &mut operands.1[..lanes]);
                        of_a.copy_from_slice(&registers[slot(a)]);
                        of_b.copy_from_slice(&registers[slot(b)]);
                        and(position(index), of_a, of_b, &mut registers[slot(out)]);
                    }
                    Step::Output { a, output: number } => {
                        output(position(number), &registers[slot(a)])
                    }
                    Step::Inputs | Step::Xors { .. } | Step::Ands { .. } => {
                        unreachable!("steps of one instance")
                    }
                }
            }
        }
    }

    /// Returns the sums that are opened, f and g of each gate and instance, and sets the masks of the outputs.
    pub fn open(&mut self, triples: &Triples) -> Openings {
        let public = Public::new(self.side, *self.delta);
        let mut opened = Shared::zeros(2 * self.gates.len());
        let mut outputs = std::mem::take(&mut self.outputs);
        assert!(triples.len() >= self.gates.len(), "triples");
        self.walk(
            |position| self.inputs.at(position),
            |value| public.of(value),
            One::plus,
            |one| one.plus(public.of(1)),
            |first, a, b, out| {
                for (index, (a, b)) in (first..).zip(a.iter().zip(b)) {
                    opened.set(2 * index, a.plus(triples.x.at(index)));
                    opened.set(2 * index + 1, b.plus(triples.y.at(index)));
                }
                for (index, out) in (first..).zip(out) {
                    *out = self.gates.at(index);
                }
            },
            |first, masks| {
                for (index, one) in (first..).zip(masks) {
                    outputs.set(index, *one);
                }
            },
        );
        self.outputs = outputs;
        Openings::new(opened, *self.delta)
    }

    /// Makes the products of the masks, given the opened sums.
    pub fn multiply(&mut self, triples: &Triples, opened: &[u8]) {
        assert!(opened.len() == 2 * self.gates.len(), "openings");
        let public = Public::new(self.side, *self.delta);
        let mut products = Shared::zeros(self.gates.len());
        for (index, sums) in opened.chunks_exact(2).enumerate() {
            let (f, g) = (sums[0], sums[1]);
            let product = triples.z.at(index).plus(triples.y.at(index).times(f));
            let product = product.plus(triples.x.at(index).times(g));
            products.set(index, product.plus(public.of(f & g)));
        }
        self.products = products;
    }

    /// The number of input wires of all instances.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The number of AND gates of all instances.
    pub fn gates(&self) -> usize {
        self.gates.len()
    }

    /// Tells whether the products are made.
    pub fn multiplied(&self) -> bool {
        self.products.len() == self.gates.len()
    }

    /// Returns the masks of the outputs, to be opened.
    pub fn open_outputs(&self) -> Openings {
        Openings::new(self.outputs.clone(), *self.delta)
    }

    /// The shared masks of the outputs, wire by wire, each of all instances.
    pub fn outputs(&self) -> &Shared {
        &self.outputs
    }
}
