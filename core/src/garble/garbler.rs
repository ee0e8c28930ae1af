//! The garbler: labels and offsets from a seed, tables a buffer at a time.

use std::ops::Range;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::circuit::{Circuit, Refused, refuse};
use super::kernel::{Cipher, Keys, Wires};
use super::tile::{self, GATE, Plan, Side, Walk};
use super::{Block, mask};

/// Zero labels of some inputs that the caller gave, input by input.
struct Given {
    inputs: Range<usize>,
    labels: Zeroizing<Vec<Block>>,
}

/// Where the zero labels and offsets come from.
struct Secrets {
    labels: Cipher,
    offsets: Cipher,
    given: Vec<Given>,
}

impl Secrets {
    /// The zero labels of input `input` of instances `from..from + to.len()`, counted within the run.
    fn zeros(&self, plan: &Plan, input: usize, from: usize, to: &mut [Block]) {
        if let Some(given) = self
            .given
            .iter()
            .find(|given| given.inputs.contains(&input))
        {
            let start = (input - given.inputs.start) * plan.instances + from;
            to.copy_from_slice(&given.labels[start..start + to.len()]);
            return;
        }
        for (block, number) in to.iter_mut().zip(plan.first + from as u64..) {
            *block = Block::from(number) << 64 | input as Block;
        }
        plan.kernel.encrypt(&self.labels, to);
    }

    fn deltas(&self, plan: &Plan, from: usize, to: &mut [Block]) {
        for (block, number) in to.iter_mut().zip(plan.first + from as u64..) {
            *block = Block::from(number) << 64;
        }
        plan.kernel.encrypt(&self.offsets, to);
        to.iter_mut().for_each(|block| *block |= 1);
    }
}

/// Garbles into the front of a buffer.
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

impl Side for Garbling<'_, '_> {
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
        for given in &self.secrets.given {
            for input in given.inputs.clone() {
                let zero = &mut to[input..=input];
                self.secrets.zeros(plan, input, tile, zero);
            }
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

    fn and_group(
        &mut self,
        plan: &Plan,
        registers: &mut [Block],
        wires: Wires,
        keys: Keys<'_>,
        delta: &[Block],
    ) {
        let mut rows = [[0; 16 * tile::GROUP]; 2];
        let [generator, evaluator] = &mut rows;
        let [generator, evaluator] = [generator, evaluator].map(|row| &mut row[..16 * wires.lanes]);
        plan.kernel
            .garble(registers, wires, keys, delta, [generator, evaluator]);
        for (gate, row) in self
            .take(GATE * wires.lanes)
            .chunks_exact_mut(GATE)
            .zip(generator.chunks_exact(16).zip(evaluator.chunks_exact(16)))
        {
            gate[..16].copy_from_slice(row.0);
            gate[16..].copy_from_slice(row.1);
        }
    }
}

/// One garbling of a circuit for many instances. Everything secret in it is overwritten when dropped.
pub struct Garbler {
    circuit: Arc<Circuit>,
    plan: Plan,
    secrets: Secrets,
    /// Zero labels of the outputs, tile by tile.
    outputs: Zeroizing<Vec<Block>>,
    tile: usize,
    started: bool,
    /// The tile that is under way, if one is.
    walk: Option<Walk>,
    spare: Vec<Walk>,
}

impl Garbler {
    /// `seed` is fresh for each run: the first half makes labels, the second offsets.
    pub fn new(circuit: Arc<Circuit>, plan: Plan, seed: [Block; 2]) -> Result<Self, Refused> {
        plan.check_labels(&circuit)?;
        Ok(Self {
            secrets: Secrets {
                labels: plan.kernel.cipher(seed[0]),
                offsets: plan.kernel.cipher(seed[1]),
                given: Vec::new(),
            },
            outputs: tile::zeroed(circuit.outputs * plan.instances)?,
            tile: 0,
            started: false,
            walk: None,
            spare: Vec::new(),
            circuit,
            plan,
        })
    }

    pub fn circuit(&self) -> &Circuit {
        &self.circuit
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Sets the zero labels of some inputs, input by input; only before the first table.
    pub fn give(
        &mut self,
        inputs: Range<usize>,
        labels: Zeroizing<Vec<Block>>,
    ) -> Result<(), Refused> {
        if self.started {
            return refuse("zero labels: tables have been made".into());
        }
        let overlaps =
            |given: &Given| given.inputs.start < inputs.end && inputs.start < given.inputs.end;
        if self.secrets.given.iter().any(overlaps) {
            return refuse("zero labels: an input was given before".into());
        }
        self.secrets.given.push(Given { inputs, labels });
        Ok(())
    }

    /// The zero labels of an input, of every instance.
    pub fn zeros(&self, input: usize, to: &mut [Block]) {
        self.secrets.zeros(&self.plan, input, 0, to);
    }

    /// The offsets of every instance.
    pub fn deltas(&self) -> Zeroizing<Vec<Block>> {
        let mut deltas = Zeroizing::new(vec![0; self.plan.instances]);
        self.secrets.deltas(&self.plan, 0, &mut deltas);
        deltas
    }

    pub fn done(&self) -> bool {
        self.tile == self.plan.tiles()
    }

    /// Writes tables into the front of `buffer` and returns how many bytes; 0 only at the end.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Refused> {
        self.started = true;
        let length = buffer.len();
        let mut rest = buffer;
        while !self.done() {
            let whole = tile::tile_bytes(&self.plan, &self.circuit, self.tile);
            let gate = GATE * self.plan.lanes(self.tile);
            if self.walk.is_none() && rest.len() >= whole {
                rest = self.whole_tiles(rest);
            } else if rest.len() < gate {
                if rest.len() == length {
                    return refuse(format!(
                        "buffer: {length} bytes, less than a gate of a tile, {gate}"
                    ));
                }
                break;
            } else {
                rest = self.part_of_tile(rest);
            }
        }
        Ok(length - rest.len())
    }

    /// Garbles the tiles that fit, on all threads.
    fn whole_tiles<'b>(&mut self, mut rest: &'b mut [u8]) -> &'b mut [u8] {
        let Self {
            circuit,
            plan,
            secrets,
            outputs,
            tile,
            spare,
            ..
        } = self;
        let mut outputs = &mut outputs[*tile * plan.tile * circuit.outputs..];
        let mut jobs = Vec::new();
        let mut next = *tile;
        while next < plan.tiles() && tile::tile_bytes(plan, circuit, next) <= rest.len() {
            let tables = rest
                .split_off_mut(..tile::tile_bytes(plan, circuit, next))
                .unwrap_or_default();
            let stored = outputs
                .split_off_mut(..circuit.outputs * plan.lanes(next))
                .unwrap_or_default();
            jobs.push((next, tables, stored));
            next += 1;
        }
        tile::on_threads(plan.threads, spare, jobs, |walk, (tile, tables, stored)| {
            walk.start(plan, circuit, tile, |to| {
                secrets.deltas(plan, tile * plan.tile, to);
            });
            let mut side = Garbling { secrets, tables };
            walk.go(plan, circuit, tile, &mut side, stored);
        });
        *tile = next;
        rest
    }

    /// Goes on in the tile that is under way, or begins one that does not fit.
    fn part_of_tile<'b>(&mut self, rest: &'b mut [u8]) -> &'b mut [u8] {
        let Self {
            circuit,
            plan,
            secrets,
            outputs,
            tile,
            walk: under_way,
            spare,
            ..
        } = self;
        let mut walk = under_way.take().unwrap_or_else(|| {
            let mut walk = spare.pop().unwrap_or_default();
            walk.start(plan, circuit, *tile, |to| {
                secrets.deltas(plan, *tile * plan.tile, to);
            });
            walk
        });
        let before = *tile * plan.tile * circuit.outputs;
        let stored = &mut outputs[before..before + circuit.outputs * plan.lanes(*tile)];
        let mut side = Garbling {
            secrets,
            tables: rest,
        };
        let done = walk.go(plan, circuit, *tile, &mut side, stored);
        let rest = side.tables;
        if done {
            spare.push(walk);
            *tile += 1;
        } else {
            *under_way = Some(walk);
        }
        rest
    }

    /// The zero labels of an output, of every instance; the tables must be done.
    pub fn output_zeros(&self, output: usize) -> Result<Zeroizing<Vec<Block>>, Refused> {
        if !self.done() {
            return refuse("outputs: tables are still to be made".into());
        }
        Ok(Zeroizing::new(tile::output(
            &self.plan,
            &self.circuit,
            &self.outputs,
            output,
        )))
    }

    /// The hashes of both labels of an output of every instance: that of colour 0, that of colour 1.
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
        tile::hash_output(&self.plan, output, &mut first);
        tile::hash_output(&self.plan, output, &mut second);
        Ok([first, second])
    }
}
