//! Common part of garbler and evaluator: the plan of a run, and the walk through a circuit, tile by
//! tile.

use zeroize::{Zeroize, Zeroizing};

use super::block::Block;
use super::circuit::{Circuit, Program, Refused, refuse};
use super::kernel::Kernel;
use super::operands::{GATE, Keys, Wires};
use super::runs::Ands;
use super::step::Step;

/// Instances that may share the keys of a gate.
pub const MAX_TILE: usize = 4096;
/// Instances of all runs of one `start` are below this.
const MAX_INSTANCE: u64 = 1 << 48;
/// The half-gate number of the hash of output 0.
const OUTPUT_HASH: Block = 1 << 63;
/// Bytes of registers of a tile: about a second-level cache.
const CACHE: usize = 1024 * 1024;
/// Labels of inputs and outputs that a run holds at most: 64 GiB. Larger batches are done in
/// windows.
const MAX_LABELS: u128 = 1 << 32;
/// Slots from which tiles do not pay: larger circuits are garbled one instance at a time.
const MANY_SLOTS: usize = 1 << 16;

/// Sharing of keys between gates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// None: keys are unique to gate and instance.
    Unique,
    /// The instances of a tile share the keys of a gate.
    Tile,
}

/// Parameters of a run, equal on both sides.
#[derive(Clone)]
pub struct Plan {
    /// The beginning of all keys; uniform, from the transcript of the run.
    pub start: Block,
    /// Sharing of keys between gates.
    pub mode: Mode,
    /// Instances in a tile, 1 to `MAX_TILE`.
    pub tile: usize,
    /// Number of the first instance; a multiple of the tile.
    pub first: u64,
    /// The number of instances.
    pub instances: usize,
    /// The number of threads that one call may use.
    pub threads: usize,
    /// The kernel of this side.
    pub kernel: Kernel,
}

/// Returns the number of instances in a tile that keeps the registers of `circuit` in cache: 1, or
/// a power of two from 16 on.
pub fn suggest_tile(circuit: &Circuit, instances: usize) -> usize {
    let slots = circuit.tiled.slots.max(1);
    if instances < 16 || slots > MANY_SLOTS {
        return 1;
    }
    // More than 2048 is no faster; and a batch of some hundreds should keep a few threads busy.
    let fit = (CACHE / (size_of::<Block>() * slots)).clamp(16, MAX_TILE / 2);
    let share = (instances / 4).max(256);
    1 << fit.min(share).ilog2()
}

impl Plan {
    /// Refuses parameters out of range, and a window whose labels are too many.
    pub(super) fn check_labels(&self, circuit: &Circuit) -> Result<(), Refused> {
        let wires = (circuit.inputs + circuit.outputs) as u128;
        if wires * self.instances as u128 > MAX_LABELS {
            return refuse(format!(
                "n_instances: {} of {wires} inputs and outputs, more than 2**32 labels",
                self.instances
            ));
        }
        self.check()
    }

    /// Refuses parameters out of range.
    pub fn check(&self) -> Result<(), Refused> {
        if !(1..=MAX_TILE).contains(&self.tile) {
            return refuse(format!(
                "tile: {} instances, not between 1 and {MAX_TILE}",
                self.tile
            ));
        }
        if !self.first.is_multiple_of(self.tile as u64) {
            return refuse(format!(
                "first_instance: {}, not a multiple of the tile, {}",
                self.first, self.tile
            ));
        }
        match self.first.checked_add(self.instances as u64) {
            Some(end) if end <= MAX_INSTANCE && self.instances > 0 => Ok(()),
            _ => refuse(format!(
                "n_instances: {} from {}, not between 1 and 2**48 in all",
                self.instances, self.first
            )),
        }
    }

    pub(super) fn tiles(&self) -> usize {
        self.instances.div_ceil(self.tile)
    }

    pub(super) fn lanes(&self, tile: usize) -> usize {
        self.tile.min(self.instances - tile * self.tile)
    }

    /// Returns the number of the first instance of a tile.
    pub(super) fn number(&self, tile: usize) -> u64 {
        self.first + (tile * self.tile) as u64
    }

    pub(super) fn program<'a>(&self, circuit: &'a Circuit) -> &'a Program {
        if self.tile == 1 {
            &circuit.single
        } else {
            &circuit.tiled
        }
    }

    /// Computes the part of the keys of a tile's lanes that does not depend on the gate.
    fn groups(&self, tile: usize, lanes: &mut Vec<Block>) {
        let number = self.number(tile);
        lanes.clear();
        match self.mode {
            Mode::Tile => lanes.push(self.start ^ Block::from(number / self.tile as u64) << 64),
            Mode::Unique => {
                let numbers = number..number + self.lanes(tile) as u64;
                lanes.extend(numbers.map(|n| self.start ^ Block::from(n) << 64));
            }
        }
    }

    fn keys<'a>(&self, groups: &'a [Block], pair: [Block; 2]) -> Keys<'a> {
        match self.mode {
            Mode::Tile => Keys::Shared(pair.map(|half| half ^ groups[0])),
            Mode::Unique => Keys::Unique {
                lanes: groups,
                pair,
            },
        }
    }
}

/// Interface of the differences between garbler and evaluator. Rows are taken from the front of a
/// side's buffer.
pub trait Side {
    type Tables;
    /// Returns the remaining tables.
    fn rest(self) -> Self::Tables;
    /// Returns the number of AND gates (of one lane) for which tables remain.
    fn gates(&self) -> usize;
    /// Writes the labels of input `input` of a tile to `to`.
    fn input(&mut self, plan: &Plan, tile: usize, input: usize, to: &mut [Block]);
    /// Writes the labels of all inputs of a tile of one lane to `to`.
    fn inputs(&mut self, plan: &Plan, tile: usize, to: &mut [Block]);
    /// Computes one AND gate of each lane; the rows are T_G of every lane, then T_E of every lane.
    fn and(
        &mut self,
        plan: &Plan,
        registers: &mut [Block],
        wires: Wires,
        keys: Keys<'_>,
        delta: &[Block],
    );
    /// Computes AND gates of one instance; T_G and T_E of each gate are side by side.
    fn and_run(&mut self, plan: &Plan, registers: &mut [Block], run: Ands<'_>, delta: Block);
}

/// State of the walk through one tile, and its registers, which are overwritten when dropped.
#[derive(Default)]
pub struct Walk {
    step: usize,
    registers: Vec<Block>,
    /// The offset of each lane; all zero for an evaluator.
    delta: Vec<Block>,
    groups: Vec<Block>,
    /// The AND gates of this step's run that are done.
    done: usize,
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.registers.zeroize();
        self.delta.zeroize();
    }
}

impl Walk {
    /// Goes to the start of a tile whose lanes have the offsets that `delta` writes.
    pub fn start(
        &mut self,
        plan: &Plan,
        circuit: &Circuit,
        tile: usize,
        delta: impl FnOnce(&mut [Block]),
    ) {
        let lanes = plan.lanes(tile);
        (self.step, self.done) = (0, 0);
        self.registers
            .resize(plan.program(circuit).slots * plan.tile, 0);
        self.delta.resize(lanes, 0);
        delta(&mut self.delta);
        plan.groups(tile, &mut self.groups);
        if plan.tile == 1 {
            self.registers[circuit.offset_slot()] = self.delta[0];
        }
    }

    /// Continues until the tile is complete (true) or the side has no more tables (false).
    pub fn go(
        &mut self,
        plan: &Plan,
        circuit: &Circuit,
        tile: usize,
        side: &mut impl Side,
        outputs: &mut [Block],
    ) -> bool {
        let Program { steps, gates, .. } = plan.program(circuit);
        let lanes = plan.lanes(tile);
        let at = |slot: u32| slot as usize * lanes;
        while let Some(&step) = steps.get(self.step) {
            match step {
                Step::And { .. } if side.gates() < lanes => return false,
                Step::Ands { first, end } => {
                    let from = first as usize + self.done;
                    let to = (end as usize).min(from + side.gates());
                    let run = gates.ands(from..to, self.groups[0]);
                    side.and_run(plan, &mut self.registers, run, self.delta[0]);
                    if to < end as usize {
                        self.done += to - from;
                        return false;
                    }
                    self.done = 0;
                }
                Step::And { a, b, out, index } => {
                    let wires = Wires {
                        a: at(a),
                        b: at(b),
                        out: at(out),
                        lanes,
                    };
                    let half = 2 * Block::from(index);
                    let keys = plan.keys(&self.groups, [half, half + 1]);
                    side.and(plan, &mut self.registers, wires, keys, &self.delta);
                }
                Step::Xors { first, end } => {
                    let run = gates.xors(first as usize..end as usize);
                    plan.kernel.xor_run(&mut self.registers, run);
                }
                Step::Xor { a, b, out } => {
                    let wires = Wires {
                        a: at(a),
                        b: at(b),
                        out: at(out),
                        lanes,
                    };
                    plan.kernel.xor(&mut self.registers, wires);
                }
                Step::Not { a, out } => {
                    for lane in 0..lanes {
                        self.registers[at(out) + lane] =
                            self.registers[at(a) + lane] ^ self.delta[lane];
                    }
                }
                Step::Constant { value, out } => {
                    let zero = &mut self.registers[at(out)..at(out) + lanes];
                    if value {
                        zero.copy_from_slice(&self.delta[..lanes]);
                    } else {
                        zero.fill(0);
                    }
                }
                Step::Input { input, out } => {
                    let to = &mut self.registers[at(out)..at(out) + lanes];
                    side.input(plan, tile, input as usize, to);
                }
                Step::Inputs => side.inputs(plan, tile, &mut self.registers[..circuit.inputs]),
                Step::Output { a, output } => {
                    let output = output as usize * lanes;
                    outputs[output..output + lanes]
                        .copy_from_slice(&self.registers[at(a)..at(a) + lanes]);
                }
            }
            self.step += 1;
        }
        true
    }
}

/// Allocates memory for so many labels.
pub fn room(count: usize) -> Result<Zeroizing<Vec<Block>>, Refused> {
    let mut labels = Zeroizing::new(Vec::new());
    if labels.try_reserve_exact(count).is_err() {
        return refuse(format!("labels: no memory for {count}"));
    }
    Ok(labels)
}

/// Returns the number of bytes of tables of a tile.
pub fn tile_bytes(plan: &Plan, circuit: &Circuit, tile: usize) -> usize {
    GATE * circuit.ands * plan.lanes(tile)
}

/// Does every job with a walk of its thread; `walks` keeps their memory for the next time.
pub fn on_threads<J: Send>(
    threads: usize,
    walks: &mut Vec<Walk>,
    jobs: Vec<J>,
    work: impl Fn(&mut Walk, J) + Sync,
) {
    let threads = threads.min(jobs.len());
    walks.resize_with(walks.len().max(threads), Walk::default);
    if threads <= 1 {
        return jobs.into_iter().for_each(|job| work(&mut walks[0], job));
    }
    let share = jobs.len().div_ceil(threads);
    let mut jobs = jobs.into_iter();
    std::thread::scope(|scope| {
        for walk in walks.iter_mut() {
            let mine: Vec<J> = jobs.by_ref().take(share).collect();
            let work = &work;
            scope.spawn(move || mine.into_iter().for_each(|job| work(walk, job)));
        }
    });
}

/// Returns one output of every instance, from labels that are stored tile by tile.
pub fn output(plan: &Plan, circuit: &Circuit, stored: &[Block], output: usize) -> Vec<Block> {
    let mut labels = Vec::with_capacity(plan.instances);
    for tile in 0..plan.tiles() {
        let lanes = plan.lanes(tile);
        let start = tile * plan.tile * circuit.outputs + output * lanes;
        labels.extend_from_slice(&stored[start..start + lanes]);
    }
    labels
}

/// Replaces the labels of output `output` of every instance by their hashes.
pub fn hash_output(plan: &Plan, output: usize, labels: &mut [Block]) {
    let mut groups = Vec::new();
    let pair = [OUTPUT_HASH + output as Block; 2];
    for (tile, labels) in labels.chunks_mut(plan.tile).enumerate() {
        plan.groups(tile, &mut groups);
        plan.kernel.hash(plan.keys(&groups, pair), [labels]);
    }
}
