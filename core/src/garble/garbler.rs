//! The garbler: makes labels and offsets from a seed, and tables a buffer at a time.

use std::ops::Range;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::block::{Block, mask};
use super::circuit::{Circuit, Refused, refuse};
use super::inputs::{Inputs, LABEL, draw, read_labels, segments};
use super::kernel::Cipher;
use super::operands::{GATE, Keys, Wires};
use super::runs::Ands;
use super::tile::{self, Plan, Side};
use super::window::Window;

/// Keys from which the zero labels and offsets are derived.
struct Secrets {
    labels: Cipher,
    offsets: Cipher,
    given: Inputs,
}

impl Secrets {
    /// Writes the zero labels of input `input` of instances `from..from + to.len()`, counted within
    /// the run.
    fn zeros(&self, plan: &Plan, input: usize, from: usize, to: &mut [Block]) {
        if !self.given.get(plan, input, from, to) {
            draw(plan, &self.labels, input, from, to);
        }
    }

    fn deltas(&self, plan: &Plan, from: usize, to: &mut [Block]) {
        draw(plan, &self.offsets, 0, from, to);
        to.iter_mut().for_each(|block| *block |= 1);
    }
}

/// Garbling of gates into the front of a buffer.
struct Garbling<'s, 't> {
    secrets: &'s Secrets,
    tables: &'t mut [u8],
}

impl<'t> Garbling<'_, 't> {
    fn take(&mut self, bytes: usize) -> &'t mut [u8] {
        let (taken, rest) = std::mem::take(&mut self.tables).split_at_mut(bytes);
        self.tables = rest;
        taken
    }
}

impl<'t> Side for Garbling<'_, 't> {
    type Tables = &'t mut [u8];

    fn rest(self) -> &'t mut [u8] {
        self.tables
    }

    fn gates(&self) -> usize {
        self.tables.len() / GATE
    }

    fn input(&mut self, plan: &Plan, tile: usize, input: usize, to: &mut [Block]) {
        self.secrets.zeros(plan, input, tile * plan.tile, to);
    }

    fn inputs(&mut self, plan: &Plan, tile: usize, to: &mut [Block]) {
        let number = Block::from(plan.number(tile)) << 64;
        for (input, block) in to.iter_mut().enumerate() {
            *block = number | input as Block;
        }
        plan.kernel.encrypt(&self.secrets.labels, to);
        for (input, block) in to.chunks_exact_mut(1).enumerate() {
            self.secrets.given.get(plan, input, tile, block);
        }
    }

    fn and(
        &mut self,
        plan: &Plan,
        registers: &mut [Block],
        wires: Wires,
        keys: Keys<'_>,
        delta: &[Block],
    ) {
        let rows = self.take(GATE * wires.lanes).split_at_mut(16 * wires.lanes);
        plan.kernel
            .garble(registers, wires, keys, delta, rows.into());
    }

    fn and_run(&mut self, plan: &Plan, registers: &mut [Block], run: Ands<'_>, delta: Block) {
        let table = self.take(GATE * run.gates().len());
        plan.kernel.garble_run(registers, run, delta, table);
    }
}

/// One garbling of a circuit for many instances. All secrets in it are overwritten when dropped.
pub struct Garbler {
    window: Window,
    secrets: Secrets,
    started: bool,
}

impl Garbler {
    /// `seed` is fresh for each run: the first half makes labels, the second offsets.
    pub fn new(circuit: Arc<Circuit>, plan: Plan, seed: [Block; 2]) -> Result<Self, Refused> {
        Ok(Self {
            secrets: Secrets {
                labels: plan.kernel.cipher(seed[0]),
                offsets: plan.kernel.cipher(seed[1]),
                given: Inputs::new(circuit.inputs, plan.instances),
            },
            started: false,
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

    /// Returns the memory for an input's zero labels, given by the caller; only before the first
    /// table.
    pub fn give(&mut self, input: usize, instances: Range<usize>) -> Result<&mut [Block], Refused> {
        self.check_fresh()?;
        self.secrets.given.set(input, instances)
    }

    fn check_fresh(&self) -> Result<(), Refused> {
        if self.started {
            return refuse("zero labels: tables have been made".into());
        }
        Ok(())
    }

    /// Sets labels of these inputs whose active ones follow from `seed`, which the evaluator knows.
    ///
    /// `bits` holds 0 or 1 for each instance of the first wire, then of the next.
    pub fn open(&mut self, wires: &[u32], bits: &[u8], seed: Block) -> Result<(), Refused> {
        self.check_fresh()?;
        let (cipher, deltas) = (self.plan().kernel.cipher(seed), self.deltas());
        self.secrets.given.open(wires, cipher, Some((bits, deltas)))
    }

    /// Sets the zero labels of `wires`, from `index` on, to the first pads of random transfers, and
    /// turns the second pads into the corrections to the offsets.
    pub fn transfer(
        &mut self,
        wires: &[u32],
        index: usize,
        (first, second): (&[u8], &mut [u8]),
    ) -> Result<(), Refused> {
        let deltas = self.deltas();
        let instances = self.plan().instances;
        for part in segments(wires, instances, index, first.len() / LABEL) {
            let zeros = self.give(part.input, part.instances.clone())?;
            read_labels(&first[part.bytes.clone()], zeros);
            let (pads, _) = second[part.bytes].as_chunks_mut::<LABEL>();
            for ((pad, zero), delta) in pads.iter_mut().zip(zeros).zip(&deltas[part.instances]) {
                *pad = (Block::from_le_bytes(*pad) ^ *zero ^ delta).to_le_bytes();
            }
        }
        Ok(())
    }

    /// Turns the second pads of random transfers, of whole wires, into the corrections to the offsets.
    pub fn correct(&self, first: &[u8], second: &mut [u8]) {
        let deltas = self.deltas();
        let (first, second) = (
            first.as_chunks::<LABEL>().0,
            second.as_chunks_mut::<LABEL>().0,
        );
        for ((second, first), delta) in second.iter_mut().zip(first).zip(deltas.iter().cycle()) {
            let sum = Block::from_le_bytes(*first) ^ Block::from_le_bytes(*second) ^ delta;
            *second = sum.to_le_bytes();
        }
    }

    /// Exchanges both labels of `wires`, which have been given, where `bits` is 1; laid out as for `open`.
    pub fn flip(&mut self, wires: &[u32], bits: &[u8]) -> Result<(), Refused> {
        self.check_fresh()?;
        let deltas = self.deltas();
        self.secrets.given.flip(wires, bits, &deltas)
    }

    /// Writes the zero labels of an input, of every instance.
    pub fn zeros(&self, input: usize, to: &mut [Block]) {
        self.secrets.zeros(self.plan(), input, 0, to);
    }

    /// Returns the active labels of an input, of every instance, for its `bits`; `deltas` are the
    /// offsets.
    pub fn encode(&self, input: usize, bits: &[u8], deltas: &[Block]) -> Zeroizing<Vec<Block>> {
        let mut labels = Zeroizing::new(vec![0; self.plan().instances]);
        self.zeros(input, &mut labels);
        for ((label, &bit), delta) in labels.iter_mut().zip(bits).zip(deltas) {
            *label ^= delta & mask(Block::from(bit));
        }
        labels
    }

    /// Returns the offsets of every instance.
    pub fn deltas(&self) -> Zeroizing<Vec<Block>> {
        let mut deltas = Zeroizing::new(vec![0; self.plan().instances]);
        self.secrets.deltas(self.plan(), 0, &mut deltas);
        deltas
    }

    /// Tells whether all tables have been made.
    pub fn done(&self) -> bool {
        self.window.done()
    }

    /// Writes tables into the front of `buffer` and returns their length in bytes; 0 only at the
    /// end.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Refused> {
        if let Some(input) = self.secrets.given.missing(true) {
            return refuse(format!(
                "tables: input {input} has labels for some instances only"
            ));
        }
        self.started = true;
        let length = buffer.len();
        let mut rest = buffer;
        let Self {
            window, secrets, ..
        } = self;
        let secrets = &*secrets;
        let offsets = |plan: &Plan, from: usize, to: &mut [Block]| secrets.deltas(plan, from, to);
        while !window.done() {
            let gate = window.gate_bytes();
            if !window.under_way() && rest.len() >= window.tile_bytes() {
                rest = window.whole_tiles(rest, offsets, |tables| Garbling { secrets, tables });
            } else if rest.len() < gate {
                if rest.len() == length {
                    return refuse(format!(
                        "buffer: {length} bytes, less than a gate of a tile, {gate}"
                    ));
                }
                break;
            } else {
                rest = window.part_of_tile(rest, offsets, |tables| Garbling { secrets, tables });
            }
        }
        Ok(length - rest.len())
    }

    /// Returns the zero labels of an output, of every instance; the tables must be complete.
    pub fn output_zeros(&self, output: usize) -> Result<Zeroizing<Vec<Block>>, Refused> {
        if !self.done() {
            return refuse("outputs: tables are still to be made".into());
        }
        Ok(self.window.output(output))
    }

    /// Returns the hashes of both labels of an output of every instance: colour 0, then colour 1.
    pub fn output_hashes(&self, output: usize) -> Result<[Vec<Block>; 2], Refused> {
        let zeros = self.output_zeros(output)?;
        let deltas = self.deltas();
        let pairs = zeros.iter().zip(deltas.iter());
        let mut first: Vec<Block> = pairs
            .map(|(&zero, delta)| zero ^ (delta & mask(zero)))
            .collect();
        let mut second: Vec<Block> = first
            .iter()
            .zip(deltas.iter())
            .map(|(a, b)| a ^ b)
            .collect();
        // The labels in these vectors become hashes in place.
        tile::hash_output(self.plan(), output, &mut first);
        tile::hash_output(self.plan(), output, &mut second);
        Ok([first, second])
    }
}
