//! The evaluator: active labels in, tables a piece at a time, active labels out.

use std::ops::Range;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::Block;
use super::circuit::{Circuit, Refused, refuse};
use super::kernel::{Keys, Wires};
use super::tile::{self, GATE, Plan, Side, Walk};

/// Evaluates from the front of a piece of the tables.
struct Evaluation<'i, 't> {
    /// Active labels, input by input.
    inputs: &'i [Block],
    tables: &'t [u8],
}

impl<'t> Evaluation<'_, 't> {
    fn take(&mut self, bytes: usize) -> &'t [u8] {
        let (taken, rest) = self.tables.split_at(bytes);
        self.tables = rest;
        taken
    }
}

impl Side for Evaluation<'_, '_> {
    fn gates(&self) -> usize {
        self.tables.len() / GATE
    }

    fn input(&mut self, plan: &Plan, tile: usize, input: usize, to: &mut [Block]) {
        let start = input * plan.instances + tile * plan.tile;
        to.copy_from_slice(&self.inputs[start..start + to.len()]);
    }

    fn inputs(&mut self, plan: &Plan, tile: usize, to: &mut [Block]) {
        for (input, label) in to.iter_mut().enumerate() {
            *label = self.inputs[input * plan.instances + tile];
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

    fn and_group(
        &mut self,
        plan: &Plan,
        registers: &mut [Block],
        wires: Wires,
        keys: Keys<'_>,
        _delta: &[Block],
    ) {
        let mut rows = [[0; 16 * tile::GROUP]; 2];
        let gates = self.take(GATE * wires.lanes).chunks_exact(GATE);
        for (lane, gate) in gates.enumerate() {
            rows[0][16 * lane..16 * lane + 16].copy_from_slice(&gate[..16]);
            rows[1][16 * lane..16 * lane + 16].copy_from_slice(&gate[16..]);
        }
        let [generator, evaluator] = &rows;
        let rows = [generator, evaluator].map(|row| &row[..16 * wires.lanes]);
        plan.kernel.evaluate(registers, wires, keys, rows);
    }
}

/// One evaluation of a circuit for many instances. Labels in it are overwritten when dropped.
pub struct Evaluator {
    circuit: Arc<Circuit>,
    plan: Plan,
    inputs: Zeroizing<Vec<Block>>,
    /// Which inputs have their labels.
    set: Vec<bool>,
    /// Active labels of the outputs, tile by tile.
    outputs: Zeroizing<Vec<Block>>,
    tile: usize,
    /// Bytes of table that are still to come.
    remaining: u64,
    /// The start of a gate whose rest is still to come.
    carry: Vec<u8>,
    walk: Option<Walk>,
    spare: Vec<Walk>,
}

impl Evaluator {
    pub fn new(circuit: Arc<Circuit>, plan: Plan) -> Result<Self, Refused> {
        plan.check_labels(&circuit)?;
        Ok(Self {
            inputs: tile::zeroed(circuit.inputs * plan.instances)?,
            set: vec![false; circuit.inputs],
            outputs: tile::zeroed(circuit.outputs * plan.instances)?,
            tile: 0,
            remaining: (GATE * circuit.ands) as u64 * plan.instances as u64,
            carry: Vec::new(),
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

    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Where the labels of `inputs` go, input by input; each input once.
    pub fn set(&mut self, inputs: Range<usize>) -> Result<&mut [Block], Refused> {
        if let Some(input) = inputs.clone().find(|&input| self.set[input]) {
            return refuse(format!("labels: input {input} has its labels"));
        }
        self.set[inputs.clone()].fill(true);
        let instances = self.plan.instances;
        Ok(&mut self.inputs[inputs.start * instances..inputs.end * instances])
    }

    /// Evaluates the gates whose tables are complete with `data`.
    pub fn feed(&mut self, mut data: &[u8]) -> Result<(), Refused> {
        if let Some(input) = self.set.iter().position(|&set| !set) {
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
        while self.tile < self.plan.tiles() {
            let whole = tile::tile_bytes(&self.plan, &self.circuit, self.tile);
            if !self.carry.is_empty() {
                let gate = GATE * self.plan.lanes(self.tile);
                let missing = (gate - self.carry.len()).min(data.len());
                self.carry.extend_from_slice(&data[..missing]);
                data = &data[missing..];
                if self.carry.len() < gate {
                    break;
                }
                let carry = std::mem::take(&mut self.carry);
                self.part_of_tile(&carry);
            } else if self.walk.is_none() && data.len() >= whole {
                data = self.whole_tiles(data);
            } else if data.is_empty() {
                break;
            } else {
                data = self.part_of_tile(data);
                if self.walk.is_some() {
                    self.carry.extend_from_slice(data);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Evaluates the tiles whose tables are complete, on all threads.
    fn whole_tiles<'b>(&mut self, mut data: &'b [u8]) -> &'b [u8] {
        let Self {
            circuit,
            plan,
            inputs,
            outputs,
            tile,
            spare,
            ..
        } = self;
        let mut outputs = &mut outputs[*tile * plan.tile * circuit.outputs..];
        let mut jobs = Vec::new();
        let mut next = *tile;
        while next < plan.tiles() && tile::tile_bytes(plan, circuit, next) <= data.len() {
            let (tables, rest) = data.split_at(tile::tile_bytes(plan, circuit, next));
            data = rest;
            let stored = outputs
                .split_off_mut(..circuit.outputs * plan.lanes(next))
                .unwrap_or_default();
            jobs.push((next, tables, stored));
            next += 1;
        }
        tile::on_threads(plan.threads, spare, jobs, |walk, (tile, tables, stored)| {
            walk.start(plan, circuit, tile, |delta| delta.fill(0));
            let mut side = Evaluation { inputs, tables };
            walk.go(plan, circuit, tile, &mut side, stored);
        });
        *tile = next;
        data
    }

    /// Goes on in the tile that is under way, or begins one; returns what is left of `data`.
    fn part_of_tile<'b>(&mut self, data: &'b [u8]) -> &'b [u8] {
        let Self {
            circuit,
            plan,
            inputs,
            outputs,
            tile,
            walk: under_way,
            spare,
            ..
        } = self;
        let mut walk = under_way.take().unwrap_or_else(|| {
            let mut walk = spare.pop().unwrap_or_default();
            walk.start(plan, circuit, *tile, |delta| delta.fill(0));
            walk
        });
        let before = *tile * plan.tile * circuit.outputs;
        let stored = &mut outputs[before..before + circuit.outputs * plan.lanes(*tile)];
        let mut side = Evaluation {
            inputs,
            tables: data,
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

    /// The active labels of an output, of every instance; all tables must have been fed.
    pub fn output(&self, output: usize) -> Result<Zeroizing<Vec<Block>>, Refused> {
        if self.tile < self.plan.tiles() {
            return refuse(format!(
                "outputs: {} bytes of tables are still to come",
                self.remaining
            ));
        }
        Ok(Zeroizing::new(tile::output(
            &self.plan,
            &self.circuit,
            &self.outputs,
            output,
        )))
    }
}
