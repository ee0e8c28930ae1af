//! The evaluator: takes active labels and tables in pieces, returns active labels.

use std::ops::Range;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::block::{Block, mask};
use super::circuit::{Circuit, Refused, refuse};
use super::inputs::{Inputs, LABEL, read_labels, segments};
use super::operands::{GATE, Keys, Wires};
use super::runs::Ands;
use super::tile::{Plan, Side};
use super::window::Window;

/// Evaluation of gates from the front of a piece of the tables.
struct Evaluation<'i, 't> {
    inputs: &'i Inputs,
    tables: &'t [u8],
}

impl<'t> Evaluation<'_, 't> {
    fn take(&mut self, bytes: usize) -> &'t [u8] {
        let (taken, rest) = self.tables.split_at(bytes);
        self.tables = rest;
        taken
    }
}

impl<'t> Side for Evaluation<'_, 't> {
    type Tables = &'t [u8];

    fn rest(self) -> &'t [u8] {
        self.tables
    }

    fn gates(&self) -> usize {
        self.tables.len() / GATE
    }

    fn input(&mut self, plan: &Plan, tile: usize, input: usize, to: &mut [Block]) {
        // `feed` has seen that it is set.
        self.inputs.get(plan, input, tile * plan.tile, to);
    }

    fn inputs(&mut self, plan: &Plan, tile: usize, to: &mut [Block]) {
        for (input, label) in to.chunks_exact_mut(1).enumerate() {
            self.input(plan, tile, input, label);
        }
    }

    fn and(
        &mut self,
        plan: &Plan,
        registers: &mut [Block],
        wires: Wires,
        keys: Keys<'_>,
        _delta: &[Block],
    ) {
        let rows = self.take(GATE * wires.lanes).split_at(16 * wires.lanes);
        plan.kernel.evaluate(registers, wires, keys, rows.into());
    }

    fn and_run(&mut self, plan: &Plan, registers: &mut [Block], run: Ands<'_>, _delta: Block) {
        let table = self.take(GATE * run.gates().len());
        plan.kernel.evaluate_run(registers, run, table);
    }
}

/// One evaluation of a circuit for many instances. Labels in it are overwritten when dropped.
pub struct Evaluator {
    window: Window,
    inputs: Inputs,
    /// Bytes of tables that have not been fed yet.
    remaining: u64,
    /// The beginning of a gate's table whose rest has not been fed yet.
    carry: Vec<u8>,
}

impl Evaluator {
    /// Creates an evaluation without labels and tables.
    pub fn new(circuit: Arc<Circuit>, plan: Plan) -> Result<Self, Refused> {
        Ok(Self {
            inputs: Inputs::new(circuit.inputs, plan.instances),
            remaining: (GATE * circuit.ands) as u64 * plan.instances as u64,
            carry: Vec::new(),
            window: Window::new(circuit, plan)?,
        })
    }

    /// The circuit.
    pub fn circuit(&self) -> &Circuit {
        &self.window.circuit
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.window.plan
    }

    /// Bytes of tables that have not been fed yet.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the memory for an input's active labels; each instance once, and in order.
    pub fn set(&mut self, input: usize, instances: Range<usize>) -> Result<&mut [Block], Refused> {
        self.inputs.set(input, instances)
    }

    /// Draws the active labels of these inputs from the garbler's public seed.
    pub fn open(&mut self, wires: &[u32], seed: Block) -> Result<(), Refused> {
        let cipher = self.plan().kernel.cipher(seed);
        self.inputs.open(wires, cipher, None)
    }

    /// Sets the labels of `wires`, from `index` on, from random transfers: the pads that `choices`
    /// (0 or 1) chose, and the garbler's corrections, all of which are read.
    pub fn transfer(
        &mut self,
        wires: &[u32],
        index: usize,
        choices: &[u8],
        pads: &[u8],
        corrections: &[u8],
    ) -> Result<(), Refused> {
        let instances = self.plan().instances;
        for part in segments(wires, instances, index, choices.len()) {
            let labels = self.set(part.input, part.instances)?;
            read_labels(&pads[part.bytes.clone()], labels);
            let (sums, _) = corrections[part.bytes].as_chunks::<LABEL>();
            let choices = &choices[part.labels];
            for ((label, sum), &choice) in labels.iter_mut().zip(sums).zip(choices) {
                *label ^= Block::from_le_bytes(*sum) & mask(Block::from(choice));
            }
        }
        Ok(())
    }

    /// Evaluates the gates whose tables are complete with `data`.
    pub fn feed(&mut self, mut data: &[u8]) -> Result<(), Refused> {
        if let Some(input) = self.inputs.missing(false) {
            return refuse(format!("tables: input {input} has no labels yet"));
        }
        if data.len() as u64 > self.remaining {
            return refuse(format!(
                "tables: {} bytes where {} are due",
                data.len(),
                self.remaining
            ));
        }
        self.remaining -= data.len() as u64;
        let Self {
            window,
            inputs,
            carry,
            ..
        } = self;
        let inputs = &*inputs;
        let offsets = |_: &Plan, _: usize, to: &mut [Block]| to.fill(0);
        while !window.done() {
            if !carry.is_empty() {
                let gate = window.gate_bytes();
                let missing = (gate - carry.len()).min(data.len());
                carry.extend_from_slice(&data[..missing]);
                data = &data[missing..];
                if carry.len() < gate {
                    break;
                }
                window.part_of_tile(&carry[..], offsets, |tables| Evaluation { inputs, tables });
                carry.clear();
            } else if !window.under_way() && data.len() >= window.tile_bytes() {
                data = window.whole_tiles(data, offsets, |tables| Evaluation { inputs, tables });
            } else if data.is_empty() {
                break;
            } else {
                data = window.part_of_tile(data, offsets, |tables| Evaluation { inputs, tables });
                if window.under_way() {
                    carry.extend_from_slice(data);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the active labels of an output, of every instance; all tables must have been fed.
    pub fn output(&self, output: usize) -> Result<Zeroizing<Vec<Block>>, Refused> {
        if !self.window.done() {
            return refuse(format!(
                "outputs: {} bytes of tables are still to come",
                self.remaining
            ));
        }
        Ok(self.window.output(output))
    }
}
