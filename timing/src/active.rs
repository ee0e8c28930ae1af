//! Authenticated garbling as functions of a secret: the offset, and one side's shares with their MACs and keys.

use std::sync::Arc;

use smpc_core::active::{
    Evaluator, Garbler, Given, Leaky, Masks, Openings, Shared, Side, Triples, label_sums,
};
use smpc_core::garble::{AND, Circuit, Gate, INV, Kernel, XOR};

use crate::ot::Publish;

const INSTANCES: usize = 2;
const INPUTS: usize = 4;
const GATES: usize = 20;
const BUCKET: usize = 2;
/// Leaky triples: a bucket for each gate and instance.
const TRIPLES: usize = BUCKET * GATES * INSTANCES;
/// Bits that are shared: of triples, and masks of inputs and gates.
const BITS: usize = 3 * TRIPLES + (INPUTS + GATES) * INSTANCES;
/// Bytes of the offset, and of each bit with its MAC and its key.
pub const SECRET: usize = 16 + 33 * BITS;
const KEY: [u8; 32] = [3; 32];
const START: u128 = 5;

fn circuit() -> Arc<Circuit> {
    let gate = |number: u32| Gate {
        kind: [AND, XOR, AND, INV][number as usize % 4],
        a: number,
        b: if number % 4 == 3 { 0 } else { number + 1 },
        out: INPUTS as u32 + number,
    };
    let gates = (0..2 * GATES as u32).map(gate).collect();
    Arc::new(Circuit::new(gates, 2 * GATES + INPUTS, INPUTS, vec![43, 42]).expect("a circuit"))
}

/// What is opened, which is public then, and the digests of both sides.
fn opened(openings: &Openings, all: &mut Vec<u8>, publish: Publish<'_>) {
    publish(openings.bits());
    all.extend(openings.digest(&KEY));
    all.extend(openings.expected(&vec![1; openings.bits().len()], &KEY));
}

/// The triples and masks of a side, and all that they are opened with.
fn masks(secret: &[u8], side: Side, kernel: Kernel, publish: Publish<'_>) -> (Masks, Vec<u8>) {
    let (delta, rest) = secret.split_at(16);
    let delta = u128::from_le_bytes(delta.try_into().expect("16 bytes")) & !1 | side.bit();
    let bits: Vec<u8> = rest[..BITS].iter().map(|byte| byte & 1).collect();
    let (labels, _) = rest[BITS..].as_chunks::<16>();
    let (macs, keys) = labels.split_at(BITS);
    let mut first = 0;
    let mut given = |count: usize| {
        let range = first..first + count;
        first += count;
        Given {
            bits: &bits[range.clone()],
            macs: &macs[range.clone()],
            keys: &keys[range],
        }
    };
    let mut leaky = Leaky::new(side, delta, START, kernel);
    let mut all = leaky.begin(0, given(3 * TRIPLES));
    publish(&all);
    let d = leaky.answer(&[0x3c; 16 * TRIPLES]);
    publish(&d);
    all.extend(leaky.finish(&d, &KEY));
    let order: Vec<u32> = (0..TRIPLES as u32).rev().collect();
    let differences = leaky.divide(&order, BUCKET);
    opened(&differences, &mut all, publish);
    let bits = differences.bits().to_vec();
    let triples: Triples = leaky.combine(differences, &bits);
    let [inputs, gates] = [INPUTS, GATES].map(|count| Shared::from(given(count * INSTANCES)));
    let mut masks = Masks::new(side, delta, circuit(), INSTANCES, inputs, gates);
    let sums = masks.open(&triples);
    opened(&sums, &mut all, publish);
    masks.multiply(&triples, sums.bits());
    opened(&masks.open_outputs(), &mut all, publish);
    let weights: Vec<u64> = (0..BITS as u64).map(|number| number << 56 | 0x3c).collect();
    all.extend(label_sums(macs, &weights).as_flattened());
    (masks, all)
}

/// All that the garbler computes, with every kernel that this processor runs.
pub fn garbler(secret: &[u8], publish: Publish<'_>) -> Vec<u8> {
    let mut made = Vec::new();
    for kernel in Kernel::available() {
        let (masks, mut all) = masks(secret, Side::Garbler, kernel, publish);
        let masked = vec![1; INPUTS * INSTANCES];
        let mut garbler = Garbler::new(masks, kernel, START, 0, masked);
        let (tables, bits) = garbler.tables(9);
        let values = vec![1; GATES * INSTANCES];
        all.extend(garbler.expected(&values, &KEY));
        let (macs, outputs) = garbler.answer(&values, &KEY);
        all.extend([&tables[..], &bits, &macs, &outputs].concat());
        made.extend(all);
    }
    made
}

/// All that the evaluator computes, under public tables.
pub fn evaluator(secret: &[u8], publish: Publish<'_>) -> Vec<u8> {
    let mut made = Vec::new();
    for kernel in Kernel::available() {
        let (masks, mut all) = masks(secret, Side::Evaluator, kernel, publish);
        let masked = vec![1; INPUTS * INSTANCES];
        let evaluator = Evaluator::new(masks, kernel, START, 0, masked);
        let tables = vec![0x3c; 32 * GATES * INSTANCES];
        let bits = vec![1; GATES * INSTANCES];
        let evaluated = evaluator.evaluate(9, &tables, &bits, [&KEY, &KEY]);
        all.extend([&evaluated.values[..], &evaluated.outputs].concat());
        all.extend([evaluated.labels, evaluated.macs].concat());
        made.extend(all);
    }
    made
}
