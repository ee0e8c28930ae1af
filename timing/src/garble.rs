//! Garbling as functions of a secret.

use std::sync::Arc;

use smpc_core::garble::{
    AND, Block, Circuit, Evaluator, Garbler, Gate, INV, Kernel, List, Mode, Plan, XOR,
};
use smpc_core::stream_hash::StreamHash;

const INSTANCES: usize = 8;
const INPUTS: usize = 4;
/// Bytes of the active labels of all inputs.
pub const LABELS: usize = 16 * INPUTS * INSTANCES;

/// Bytes of a seed, of pads of a mask, and of the bits of two places.
pub const LIST: usize = 32 + (16 + 2) * INSTANCES;

fn circuit() -> Arc<Circuit> {
    let gate = |number: u32| Gate {
        kind: [AND, XOR, AND, INV][number as usize % 4],
        a: number,
        b: if number % 4 == 3 { 0 } else { number + 1 },
        out: 4 + number,
    };
    let gates = (0..40).map(gate).collect();
    Arc::new(Circuit::new(gates, 44, INPUTS, vec![43, 42]).expect("a circuit"))
}

/// Every mode, with every kernel that this processor runs.
fn plans(tile: usize) -> impl Iterator<Item = Plan> {
    let plan = move |mode, kernel| Plan {
        start: 5,
        mode,
        tile,
        first: 0,
        instances: INSTANCES,
        threads: 1,
        kernel,
    };
    Kernel::available()
        .into_iter()
        .flat_map(move |kernel| [Mode::Tile, Mode::Unique].map(|mode| plan(mode, kernel)))
}

fn garbler(seed: &[u8], plan: Plan) -> Garbler {
    let (halves, _) = seed.as_chunks::<16>();
    let seed = [
        Block::from_le_bytes(halves[0]),
        Block::from_le_bytes(halves[1]),
    ];
    Garbler::new(circuit(), plan, seed).expect("a garbler")
}

fn blocks(bytes: &[u8]) -> impl Iterator<Item = Block> {
    bytes
        .as_chunks::<16>()
        .0
        .iter()
        .copied()
        .map(Block::from_le_bytes)
}

fn bytes(blocks: &[Block]) -> impl Iterator<Item = u8> {
    blocks.iter().flat_map(|block| block.to_le_bytes())
}

/// The tables under a secret seed, and what decodes the outputs.
pub fn tables(seed: &[u8], tile: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for plan in plans(tile) {
        let mut garbler = garbler(seed, plan);
        let mut tables = vec![0; 1 << 16];
        let length = garbler.fill(&mut tables).expect("tables");
        assert!(garbler.done());
        all.extend_from_slice(&tables[..length]);
        let hashes = garbler.output_hashes(0).expect("all tables");
        all.extend(bytes(&hashes.concat()));
    }
    all
}

/// The output labels of secret active labels, under public tables.
pub fn outputs(labels: &[u8], tile: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for plan in plans(tile) {
        let mut evaluator = Evaluator::new(circuit(), plan).expect("an evaluator");
        for (input, labels) in labels.chunks(LABELS / INPUTS).enumerate() {
            let to = evaluator.set(input, 0..INSTANCES).expect("an input");
            to.iter_mut()
                .zip(blocks(labels))
                .for_each(|(to, label)| *to = label);
        }
        let tables = vec![0x3c; evaluator.remaining() as usize];
        evaluator.feed(&tables).expect("tables");
        all.extend(bytes(&evaluator.output(0).expect("all tables")));
    }
    all
}

/// The zero labels of inputs whose bits are secret, and the active labels of an input with a public seed.
pub fn inputs(secret: &[u8]) -> Vec<u8> {
    let plan = plans(1).next().expect("the portable kernel");
    let mut garbler = garbler(&[7; 32], plan);
    let bits: Vec<u8> = secret.iter().map(|byte| byte & 1).collect();
    let (opened, encoded) = bits.split_at(2 * INSTANCES);
    garbler.open(&[0, 1], opened, 9).expect("labels");
    let mut labels = vec![0; INSTANCES];
    garbler.zeros(0, &mut labels);
    labels.extend(garbler.encode(2, encoded, &garbler.deltas()).iter());
    bytes(&labels).collect()
}

/// The hashes of a label list under a secret seed and secret pads, and its active labels for secret bits.
pub fn list(secret: &[u8]) -> Vec<u8> {
    let (seed, rest) = secret.split_at(32);
    let (pads, bits) = rest.split_at(16 * INSTANCES);
    let bits: Vec<u8> = bits.iter().map(|byte| byte & 1).collect();
    let mut all = Vec::new();
    for plan in plans(4) {
        let garbler = garbler(seed, plan);
        let list = List::new(&garbler, &[0, 2], pads, 9);
        let mut hash = StreamHash::new(&[1; 32]);
        list.digest(&mut hash);
        all.extend(hash.digest());
        let mut opened = vec![0; 64 * INSTANCES];
        list.open(&bits, &mut opened);
        all.extend(opened);
        let mut sums = pads.to_vec();
        garbler.correct(pads, &mut sums);
        all.extend(sums);
    }
    all
}
