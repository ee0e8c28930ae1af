//! Circuits, checked and compiled into the order in which they are garbled.
//!
//! Two orders are made of each circuit. `tiled` keeps the order of the file and serves tiles of two or
//! more instances. `single` serves tiles of one instance: gates are sorted by level (the greatest number
//! of AND gates on a path to them), within a level AND gates first, then by their place in the file; so
//! the AND gates of a level are independent of each other and adjacent: `runs`. In both, wires live in as few
//! slots as their lifetimes allow.

use std::fmt;

use super::runs::{GateSlots, Gates};
use super::step::Step;

/// The kind of a gate that gives `a ^ b`.
pub const XOR: u8 = 0;
/// The kind of a gate that gives `a & b`.
pub const AND: u8 = 1;
/// The kind of a gate that gives `!a`.
pub const INV: u8 = 2;
/// The kind of a gate that gives the constant `a`.
pub const EQ: u8 = 3;
/// The kind of a gate that gives a copy of `a`.
pub const EQW: u8 = 4;

/// Bound on AND gates: with more, the indices of half-gates would collide with those of outputs.
pub const MAX_GATES: usize = 1 << 31;
/// Bound on wires: they are numbered in 32 bits, and one number is reserved for "none".
pub const MAX_WIRES: usize = u32::MAX as usize;

const NONE: u32 = u32::MAX;

/// Reason for which a circuit, a parameter or a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

pub fn refuse<T>(text: String) -> Result<T, Refused> {
    Err(Refused(text))
}

/// One gate: `kind` of the wires `a` and `b` into `out`.
#[derive(Clone, Copy)]
pub struct Gate {
    /// One of `XOR`, `AND`, `INV`, `EQ` and `EQW`.
    pub kind: u8,
    /// The first operand: a wire, or the constant of an EQ gate.
    pub a: u32,
    /// The second operand; 0 where the kind has none.
    pub b: u32,
    /// The wire that the gate gives.
    pub out: u32,
}

/// A circuit in the order in which it is garbled and evaluated.
pub struct Program {
    pub steps: Vec<Step>,
    /// The gates that the steps `Xors` and `Ands` refer to.
    pub gates: Gates,
    pub slots: usize,
}

/// A checked and compiled circuit.
pub struct Circuit {
    pub(super) tiled: Program,
    pub(super) single: Program,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) ands: usize,
}

impl Circuit {
    /// The number of inputs: the wires from 0 on.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// The number of AND gates.
    pub fn ands(&self) -> usize {
        self.ands
    }

    /// The steps in the order of the file.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.tiled.steps
    }

    /// The slots that `steps` need.
    pub fn slots(&self) -> usize {
        self.tiled.slots
    }

    /// The slot of `single` that holds the offset: NOT is XOR with it.
    pub(super) fn offset_slot(&self) -> usize {
        self.inputs
    }

    /// Checks and compiles a circuit; errors name the gate and the bound.
    pub fn new(
        mut gates: Vec<Gate>,
        wires: usize,
        inputs: usize,
        mut outputs: Vec<u32>,
    ) -> Result<Self, Refused> {
        check(&gates, wires, inputs, &outputs)?;
        resolve_copies(&mut gates, wires, &mut outputs);
        let levels = levels(&gates, wires);
        let mut order: Vec<u32> = (0..gates.len() as u32).collect();
        // The index of a gate in the keys is its place among the AND gates of the file, in both orders.
        let mut index = vec![0; gates.len()];
        let mut ands = 0;
        for (gate, index) in gates.iter().zip(&mut index) {
            if gate.kind == AND {
                *index = ands;
                ands += 1;
            }
        }
        let compiler = Compiler {
            gates: &gates,
            index: &index,
            wires,
            inputs,
            outputs: &outputs,
        };
        let tiled = compiler.compile(&order, None);
        order.sort_by_key(|&g| {
            let gate = gates[g as usize];
            (levels[gate.out as usize], gate.kind != AND, g)
        });
        let single = compiler.compile(&order, Some(&levels));
        Ok(Self {
            tiled,
            single,
            inputs,
            outputs: outputs.len(),
            ands: ands as usize,
        })
    }
}

fn check(gates: &[Gate], wires: usize, inputs: usize, outputs: &[u32]) -> Result<(), Refused> {
    if wires > MAX_WIRES {
        return refuse(format!("wires: {wires}, more than {MAX_WIRES}"));
    }
    if gates.len() > MAX_GATES {
        return refuse(format!("gates: {}, more than {MAX_GATES}", gates.len()));
    }
    if inputs > wires {
        return refuse(format!("inputs: {inputs} of {wires} wires"));
    }
    // A wire is given by an input or by one gate: so more wires than this cannot all be used.
    if wires > inputs + gates.len() {
        return refuse(format!(
            "wires: {wires}, more than {inputs} inputs and {} gates give",
            gates.len()
        ));
    }
    let mut given = vec![false; wires];
    given[..inputs].fill(true);
    for (number, gate) in gates.iter().enumerate() {
        let operands: &[u32] = match gate.kind {
            XOR | AND => &[gate.a, gate.b],
            INV | EQW => &[gate.a],
            EQ if gate.a > 1 => {
                return refuse(format!("gate {number}: constant {}, not 0 or 1", gate.a));
            }
            EQ => &[],
            kind => return refuse(format!("gate {number}: kind {kind}, not between 0 and 4")),
        };
        if operands.len() < 2 && gate.b != 0 {
            return refuse(format!(
                "gate {number}: second operand {} of a gate that has none, not 0",
                gate.b
            ));
        }
        for &wire in operands {
            if wire as usize >= wires {
                return refuse(format!("gate {number}: wire {wire} of {wires}"));
            }
            if !given[wire as usize] {
                return refuse(format!(
                    "gate {number}: wire {wire} is used before it is given"
                ));
            }
        }
        if gate.out as usize >= wires {
            return refuse(format!("gate {number}: wire {} of {wires}", gate.out));
        }
        if std::mem::replace(&mut given[gate.out as usize], true) {
            return refuse(format!("gate {number}: wire {} is given twice", gate.out));
        }
    }
    for (number, &wire) in outputs.iter().enumerate() {
        if !given.get(wire as usize).is_some_and(|&given| given) {
            return refuse(format!("output {number}: wire {wire} is not given"));
        }
    }
    if outputs.len() > MAX_GATES {
        return refuse(format!("outputs: {}, more than {MAX_GATES}", outputs.len()));
    }
    Ok(())
}

/// Replaces the output of every EQW gate by its input.
fn resolve_copies(gates: &mut Vec<Gate>, wires: usize, outputs: &mut [u32]) {
    if gates.iter().all(|gate| gate.kind != EQW) {
        return;
    }
    let mut origin: Vec<u32> = (0..wires as u32).collect();
    for gate in gates.iter_mut() {
        if gate.kind != EQ {
            gate.a = origin[gate.a as usize];
            gate.b = origin[gate.b as usize];
        }
        if gate.kind == EQW {
            origin[gate.out as usize] = gate.a;
        }
    }
    gates.retain(|gate| gate.kind != EQW);
    for wire in outputs {
        *wire = origin[*wire as usize];
    }
}

/// Returns the level of every wire.
fn levels(gates: &[Gate], wires: usize) -> Vec<u32> {
    let mut level = vec![0u32; wires];
    for gate in gates {
        level[gate.out as usize] = match gate.kind {
            AND => level[gate.a as usize].max(level[gate.b as usize]) + 1,
            XOR => level[gate.a as usize].max(level[gate.b as usize]),
            INV => level[gate.a as usize],
            _ => 0,
        };
    }
    level
}

struct Compiler<'a> {
    gates: &'a [Gate],
    index: &'a [u32],
    wires: usize,
    inputs: usize,
    outputs: &'a [u32],
}

/// Slots in use, and the wires in them.
struct Slots {
    of: Vec<u32>,
    uses: Vec<u32>,
    free: Vec<u32>,
    count: u32,
}

impl Slots {
    fn take(&mut self, wire: u32) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        });
        self.of[wire as usize] = slot;
        if self.uses[wire as usize] == 0 {
            self.free.push(slot);
        }
        slot
    }

    /// Returns the slot of `wire`, which becomes free after its last use.
    fn read(&mut self, wire: u32) -> u32 {
        let slot = self.of[wire as usize];
        self.uses[wire as usize] -= 1;
        if self.uses[wire as usize] == 0 {
            self.free.push(slot);
        }
        slot
    }
}

impl Compiler<'_> {
    /// Compiles the gates in `order`. With `levels` all inputs are loaded first, the offset's slot
    /// follows, and gates are in runs; no run of AND gates is longer than a level.
    fn compile(&self, order: &[u32], levels: Option<&[u32]>) -> Program {
        let mut slots = Slots {
            of: vec![NONE; self.wires],
            uses: vec![0; self.wires],
            free: Vec::new(),
            count: 0,
        };
        // The places of each output wire among the outputs, as chained lists.
        let mut first = vec![NONE; self.wires];
        let mut next = vec![NONE; self.outputs.len()];
        for (output, &wire) in self.outputs.iter().enumerate().rev() {
            next[output] = std::mem::replace(&mut first[wire as usize], output as u32);
            slots.uses[wire as usize] += 1;
        }
        for gate in self.gates.iter().filter(|gate| gate.kind != EQ) {
            slots.uses[gate.a as usize] += 1;
            if gate.kind != INV {
                slots.uses[gate.b as usize] += 1;
            }
        }
        let mut steps = Vec::with_capacity(order.len() + self.inputs + self.outputs.len() + 1);
        let store = |steps: &mut Vec<Step>, slots: &mut Slots, wire: u32| {
            let mut output = first[wire as usize];
            while output != NONE {
                let a = slots.read(wire);
                steps.push(Step::Output { a, output });
                output = next[output as usize];
            }
        };
        if levels.is_some() {
            // Every input gets a slot of its own, used or not, so that the slots are in order.
            slots.of[..self.inputs].copy_from_slice(&Vec::from_iter(0..self.inputs as u32));
            slots.count = self.inputs as u32 + 1;
            steps.push(Step::Inputs);
            (0..self.inputs as u32).for_each(|wire| store(&mut steps, &mut slots, wire));
        }
        let mut gates = Gates::default();
        for &number in order {
            let gate = self.gates[number as usize];
            let operands: &[u32] = match gate.kind {
                EQ => &[],
                INV => &[gate.a],
                _ => &[gate.a, gate.b],
            };
            for &wire in operands {
                if slots.of[wire as usize] == NONE {
                    let out = slots.take(wire);
                    steps.push(Step::Input { input: wire, out });
                    store(&mut steps, &mut slots, wire);
                }
            }
            if let Some(levels) = levels
                && gate.kind != EQ
            {
                let a = slots.read(gate.a);
                let b = match gate.kind {
                    INV => self.inputs as u32,
                    _ => slots.read(gate.b),
                };
                let out = slots.take(gate.out);
                let index = GateSlots { a, b, out };
                if gate.kind == AND {
                    let level = levels[gate.out as usize];
                    gates.and(index, self.index[number as usize], level, &mut steps);
                } else {
                    gates.xor(index, &mut steps);
                }
                continue;
            }
            steps.push(match gate.kind {
                EQ => Step::Constant {
                    value: gate.a == 1,
                    out: slots.take(gate.out),
                },
                INV => Step::Not {
                    a: slots.read(gate.a),
                    out: slots.take(gate.out),
                },
                kind => {
                    let (a, b) = (slots.read(gate.a), slots.read(gate.b));
                    let out = slots.take(gate.out);
                    let index = self.index[number as usize];
                    if kind == AND {
                        Step::And { a, b, out, index }
                    } else {
                        Step::Xor { a, b, out }
                    }
                }
            });
            // Stored at once in a tile; but AND gates of a level stay adjacent.
            if levels.is_none() {
                store(&mut steps, &mut slots, gate.out);
            }
        }
        for wire in 0..self.inputs as u32 {
            if slots.of[wire as usize] == NONE && first[wire as usize] != NONE {
                let out = slots.take(wire);
                steps.push(Step::Input { input: wire, out });
                store(&mut steps, &mut slots, wire);
            }
        }
        if levels.is_some() {
            for gate in self.gates {
                store(&mut steps, &mut slots, gate.out);
            }
        }
        Program {
            steps,
            gates,
            slots: slots.count as usize,
        }
    }
}
