use std::sync::Arc;

use super::block::{Block, mask, sigma};
use super::circuit::{AND, Circuit, EQ, EQW, Gate, INV, XOR};
use super::evaluator::Evaluator;
use super::garbler::Garbler;
use super::kernel::Kernel;
use super::operands::{Keys, Wires};
use super::runs::{GateSlots, Gates};
use super::tile::{Mode, Plan, suggest_tile};

/// A small generator with a fixed seed: xorshift64*.
pub struct Fixed(pub u64);

impl Fixed {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn block(&mut self) -> Block {
        Block::from(self.next()) << 64 | Block::from(self.next())
    }

    fn blocks(&mut self, count: usize) -> Vec<Block> {
        (0..count).map(|_| self.block()).collect()
    }
}

fn random_circuit(
    fixed: &mut Fixed,
    inputs: usize,
    count: usize,
    outputs: usize,
) -> (Vec<Gate>, usize, Vec<u32>) {
    let mut gates = Vec::new();
    for number in 0..count {
        let wires = inputs + number;
        let kind = [XOR, AND, XOR, AND, INV, EQ, EQW][fixed.below(if wires == 0 { 1 } else { 7 })];
        let kind = if wires == 0 { EQ } else { kind };
        let two = kind == XOR || kind == AND;
        gates.push(Gate {
            kind,
            a: fixed.below(if kind == EQ { 2 } else { wires }) as u32,
            b: if two { fixed.below(wires) as u32 } else { 0 },
            out: wires as u32,
        });
    }
    let wires = inputs + count;
    let outputs = (0..outputs).map(|_| fixed.below(wires) as u32).collect();
    (gates, wires, outputs)
}

pub fn plain(gates: &[Gate], wires: usize, inputs: &[bool], outputs: &[u32]) -> Vec<bool> {
    let mut values = inputs.to_vec();
    values.resize(wires, false);
    for gate in gates {
        let a = values[if gate.kind == EQ { 0 } else { gate.a as usize }];
        values[gate.out as usize] = match gate.kind {
            XOR => a ^ values[gate.b as usize],
            AND => a & values[gate.b as usize],
            INV => !a,
            EQ => gate.a == 1,
            _ => a,
        };
    }
    outputs.iter().map(|&wire| values[wire as usize]).collect()
}

pub fn plan(mode: Mode, tile: usize, instances: usize, threads: usize, kernel: Kernel) -> Plan {
    Plan {
        start: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        mode,
        tile,
        first: 3 * tile as u64,
        instances,
        threads,
        kernel,
    }
}

/// Garbles in buffers of `chunk` bytes; the tables.
fn tables(garbler: &mut Garbler, chunk: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while !garbler.done() {
        let mut buffer = vec![0; chunk];
        let written = garbler.fill(&mut buffer).unwrap();
        all.extend_from_slice(&buffer[..written]);
    }
    all
}

/// Garbles and evaluates; the tables, and the outputs' bits, output by output.
pub fn run(
    circuit: &Arc<Circuit>,
    plan: &Plan,
    bits: &[Vec<bool>],
    chunks: [usize; 2],
) -> (Vec<u8>, Vec<Vec<bool>>) {
    let mut garbler = Garbler::new(circuit.clone(), plan.clone(), [5, 6]).unwrap();
    let mut evaluator = Evaluator::new(circuit.clone(), plan.clone()).unwrap();
    let deltas = garbler.deltas();
    for (input, bits) in bits.iter().enumerate() {
        let labels = evaluator.set(input, 0..plan.instances).unwrap();
        garbler.zeros(input, labels);
        for ((label, &bit), delta) in labels.iter_mut().zip(bits).zip(deltas.iter()) {
            *label ^= delta & mask(Block::from(bit));
        }
    }
    let tables = tables(&mut garbler, chunks[0].max(32 * plan.tile));
    evaluator.feed(&[]).unwrap();
    for piece in tables.chunks(chunks[1]) {
        evaluator.feed(piece).unwrap();
    }
    let outputs = (0..circuit.outputs)
        .map(|output| {
            let active = evaluator.output(output).unwrap();
            let zeros = garbler.output_zeros(output).unwrap();
            let pairs = active.iter().zip(zeros.iter()).zip(deltas.iter());
            pairs
                .map(|((&active, &zero), &delta)| {
                    assert!(active == zero || active == zero ^ delta);
                    (active ^ zero) & 1 == 1
                })
                .collect()
        })
        .collect();
    (tables, outputs)
}

#[test]
fn sigma_is_an_orthomorphism() {
    // Linear, and both maps have no kernel: their 128 images of a basis are independent.
    for map in [sigma as fn(Block) -> Block, |x| sigma(x) ^ x] {
        let mut rows: Vec<Block> = (0..128).map(|bit| map(1 << bit)).collect();
        let mut rank = 0;
        for bit in 0..128 {
            if let Some(pivot) = (rank..128).find(|&row| rows[row] >> bit & 1 == 1) {
                rows.swap(rank, pivot);
                for row in rank + 1..128 {
                    rows[row] ^= rows[rank] & mask(rows[row] >> bit);
                }
                rank += 1;
            }
        }
        assert_eq!(rank, 128);
        let (x, y) = (0x1234 << 70 | 0x99, 0xffff << 60 | 0x1357);
        assert_eq!(map(x) ^ map(y), map(x ^ y));
    }
}

#[test]
fn kernels_agree() {
    let mut fixed = Fixed(1);
    for lanes in [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 67, 200] {
        let registers = fixed.blocks(3 * lanes + 5);
        let delta: Vec<Block> = fixed.blocks(lanes).iter().map(|delta| delta | 1).collect();
        let own = fixed.blocks(lanes);
        let pair = [fixed.block(), fixed.block()];
        for keys in [Keys::Shared(pair), Keys::Unique { lanes: &own, pair }] {
            // The output in a place of its own, and in that of an operand.
            for out in [2 * lanes + 5, 0, lanes] {
                let wires = Wires {
                    a: 0,
                    b: lanes,
                    out,
                    lanes,
                };
                let results: Vec<_> = Kernel::available()
                    .into_iter()
                    .map(|kernel| {
                        let mut rows = [vec![0; 16 * lanes], vec![0; 16 * lanes]];
                        let [generator, evaluator] = &mut rows;
                        let mut garbled = registers.clone();
                        kernel.garble(&mut garbled, wires, keys, &delta, [generator, evaluator]);
                        let mut evaluated = registers.clone();
                        kernel.evaluate(&mut evaluated, wires, keys, [&rows[0], &rows[1]]);
                        let mut sum = registers.clone();
                        kernel.xor(&mut sum, wires);
                        let mut hashed = registers[..lanes].to_vec();
                        kernel.hash(keys, [&mut hashed]);
                        let mut pairs = registers[..2 * lanes].to_vec();
                        let (zeros, ones) = pairs.split_at_mut(lanes);
                        kernel.hash(keys, [&mut *zeros, ones]);
                        assert_eq!(*zeros, hashed);
                        let mut encrypted = registers.clone();
                        kernel.encrypt(&kernel.cipher(pair[0]), &mut encrypted);
                        (rows, garbled, evaluated, sum, pairs, hashed, encrypted)
                    })
                    .collect();
                for result in &results[1..] {
                    assert_eq!(*result, results[0], "{lanes} lanes, out at {out}");
                }
            }
        }
    }
}

/// AND gates on the first 50 slots, none of which an earlier gate has written; some share an output's slot.
fn independent(fixed: &mut Fixed, count: usize) -> Gates {
    let (mut gates, mut steps) = (Gates::default(), Vec::new());
    for index in 0..count as u32 {
        let slots = GateSlots {
            a: fixed.below(50) as u32,
            b: fixed.below(50) as u32,
            out: 50 + index / 2,
        };
        gates.and(slots, fixed.below(1 << 31) as u32, 1, &mut steps);
        let slots = GateSlots {
            out: fixed.below(100) as u32,
            ..slots
        };
        gates.xor(slots, &mut steps);
    }
    gates
}

#[test]
fn kernels_agree_on_runs() {
    let mut fixed = Fixed(6);
    for count in 1..60 {
        let gates = independent(&mut fixed, count);
        let registers = fixed.blocks(100);
        let (base, delta) = (fixed.block(), fixed.block() | 1);
        let run = gates.ands(0..count, base);
        let results: Vec<_> = Kernel::available()
            .into_iter()
            .map(|kernel| {
                let mut table = vec![0; 32 * count];
                let mut garbled = registers.clone();
                kernel.garble_run(&mut garbled, run, delta, &mut table);
                let mut evaluated = registers.clone();
                kernel.evaluate_run(&mut evaluated, run, &table);
                let mut sums = registers.clone();
                kernel.xor_run(&mut sums, gates.xors(0..count));
                (table, garbled, evaluated, sums)
            })
            .collect();
        for result in &results[1..] {
            assert_eq!(*result, results[0], "{count} gates");
        }
        // Gate by gate it is the same, and the same as one lane of a tile.
        for kernel in Kernel::available() {
            let mut labels = registers.clone();
            for index in 0..count {
                let run = gates.ands(index..index + 1, base);
                let gate = run.gates()[0];
                let mut one = vec![labels[gate.a as usize], labels[gate.b as usize], 0];
                let mut rows = [[0; 16]; 2];
                let [generator, evaluator] = &mut rows;
                let wires = Wires {
                    a: 0,
                    b: 1,
                    out: 2,
                    lanes: 1,
                };
                let keys = Keys::Shared(run.halves()[0].map(|half| base ^ Block::from(half)));
                kernel.garble(&mut one, wires, keys, &[delta], [generator, evaluator]);
                let mut table = [0; 32];
                kernel.garble_run(&mut labels, run, delta, &mut table);
                assert_eq!(table, *rows.as_flattened());
                assert_eq!(table, results[0].0[32 * index..][..32]);
                assert_eq!(labels[gate.out as usize], one[2]);
            }
            assert_eq!(labels, results[0].1);
        }
    }
}

#[test]
#[should_panic(expected = "operands")]
fn runs_stay_within_the_registers() {
    let mut gates = Gates::default();
    gates.xor(GateSlots { a: 0, b: 7, out: 1 }, &mut Vec::new());
    Kernel::available()[0].xor_run(&mut [0; 7], gates.xors(0..1));
}

#[test]
fn random_circuits_give_their_values() {
    let mut fixed = Fixed(2);
    let kernels = Kernel::available();
    for round in 0..60 {
        let inputs = fixed.below(12) + usize::from(round % 10 != 0);
        let count = fixed.below(120);
        let outputs = if inputs + count == 0 {
            0
        } else {
            fixed.below(10)
        };
        let (gates, wires, outputs) = random_circuit(&mut fixed, inputs, count, outputs);
        let circuit = Circuit::new(gates.clone(), wires, inputs, outputs.clone()).unwrap();
        let circuit = Arc::new(circuit);
        let instances = 1 + fixed.below(40);
        let tile = [1, 2, 3, 8, 16, 64][fixed.below(6)];
        let mode = [Mode::Unique, Mode::Tile][fixed.below(2)];
        let bits: Vec<Vec<bool>> = (0..inputs)
            .map(|_| (0..instances).map(|_| fixed.below(2) == 1).collect())
            .collect();
        let mut expected = vec![Vec::new(); outputs.len()];
        for instance in 0..instances {
            let inputs: Vec<bool> = bits.iter().map(|bits| bits[instance]).collect();
            let values = plain(&gates, wires, &inputs, &outputs);
            expected
                .iter_mut()
                .zip(values)
                .for_each(|(to, value)| to.push(value));
        }
        let base = plan(mode, tile, instances, 1, kernels[0]);
        let (reference, values) = run(&circuit, &base, &bits, [1 << 20, 1 << 20]);
        assert_eq!(values, expected);
        for &kernel in &kernels {
            let plan = plan(mode, tile, instances, 1 + fixed.below(3), kernel);
            let chunks = [fixed.below(9000), 1 + fixed.below(5000)];
            let (tables, values) = run(&circuit, &plan, &bits, chunks);
            assert_eq!(tables, reference, "{kernel:?} {mode:?} tile {tile}");
            assert_eq!(values, expected);
        }
    }
}

#[test]
fn windows_of_a_run_are_the_run() {
    let mut fixed = Fixed(3);
    let (gates, wires, outputs) = random_circuit(&mut fixed, 8, 100, 5);
    let circuit = Arc::new(Circuit::new(gates, wires, 8, outputs).unwrap());
    for mode in [Mode::Unique, Mode::Tile] {
        let kernel = *Kernel::available().last().unwrap();
        let whole = Plan {
            first: 0,
            ..plan(mode, 4, 30, 2, kernel)
        };
        let expected = tables(
            &mut Garbler::new(circuit.clone(), whole.clone(), [5, 6]).unwrap(),
            999,
        );
        let mut all = Vec::new();
        for (first, instances) in [(0, 12), (12, 4), (16, 14)] {
            let plan = Plan {
                first,
                instances,
                ..whole.clone()
            };
            all.extend(tables(
                &mut Garbler::new(circuit.clone(), plan, [5, 6]).unwrap(),
                777,
            ));
        }
        assert_eq!(all, expected);
    }
}

#[test]
fn given_labels_are_used() {
    let gate = Gate {
        kind: AND,
        a: 0,
        b: 1,
        out: 2,
    };
    let circuit = Arc::new(Circuit::new(vec![gate], 3, 2, vec![1, 2]).unwrap());
    for tile in [1, 4] {
        let plan = plan(Mode::Tile, tile, 6, 1, Kernel::available()[0]);
        let mut garbler = Garbler::new(circuit.clone(), plan.clone(), [5, 6]).unwrap();
        let before = tables(
            &mut Garbler::new(circuit.clone(), plan, [5, 6]).unwrap(),
            192,
        );
        let labels: Vec<Block> = (100..106).collect();
        garbler.give(1, 0..2).unwrap().copy_from_slice(&labels[..2]);
        assert!(garbler.fill(&mut [0; 192]).is_err());
        garbler.give(1, 2..6).unwrap().copy_from_slice(&labels[2..]);
        assert!(garbler.give(1, 0..6).is_err());
        assert_ne!(tables(&mut garbler, 192), before);
        assert!(garbler.give(0, 0..6).is_err());
        assert_eq!(*garbler.output_zeros(0).unwrap(), labels);
    }
}

#[test]
fn slots_are_reused() {
    let gates = (0..1000)
        .map(|i| Gate {
            kind: if i % 3 == 0 { AND } else { XOR },
            a: i,
            b: i + 1,
            out: i + 2,
        })
        .collect();
    let circuit = Circuit::new(gates, 1002, 2, vec![1001]).unwrap();
    // One of the single instance's is the offset's.
    assert!(circuit.tiled.slots <= 3 && circuit.single.slots <= 4);
    assert_eq!(suggest_tile(&circuit, 15), 1);
    assert_eq!(suggest_tile(&circuit, 5000), 1024);
    assert_eq!(suggest_tile(&circuit, 50_000), 2048);
}
