//! Garbling as functions of a secret.

use std::sync::Arc;

use smpc_core::garble::{AND, Block, Circuit, Garbler, Gate, INV, Kernel, Mode, Plan, XOR};

const INSTANCES: usize = 8;

fn garbler(seed: &[u8], tile: usize) -> Garbler {
    let gate = |number: u32| Gate {
        kind: [AND, XOR, AND, INV][number as usize % 4],
        a: number,
        b: if number % 4 == 3 { 0 } else { number + 1 },
        out: 4 + number,
    };
    let gates = (0..40).map(gate).collect();
    let circuit = Circuit::new(gates, 44, 4, vec![43, 42]).expect("a circuit");
    let plan = Plan {
        start: 5,
        mode: Mode::Tile,
        tile,
        first: 0,
        instances: INSTANCES,
        threads: 1,
        kernel: Kernel::available()[0],
    };
    let (halves, _) = seed.as_chunks::<16>();
    let seed = [
        Block::from_le_bytes(halves[0]),
        Block::from_le_bytes(halves[1]),
    ];
    Garbler::new(Arc::new(circuit), plan, seed).expect("a garbler")
}

/// The tables under a secret seed, and what decodes the outputs.
pub fn tables(seed: &[u8], tile: usize) -> Vec<u8> {
    let mut garbler = garbler(seed, tile);
    let mut tables = vec![0; 1 << 16];
    let length = garbler.fill(&mut tables).expect("tables");
    assert!(garbler.done());
    tables.truncate(length);
    for hash in garbler.output_hashes(0).expect("all tables").concat() {
        tables.extend_from_slice(&hash.to_le_bytes());
    }
    tables
}

/// The zero labels of inputs whose bits are secret.
pub fn inputs(secret: &[u8]) -> Vec<u8> {
    let mut garbler = garbler(&[7; 32], 1);
    let bits: Vec<u8> = secret[..2 * INSTANCES]
        .iter()
        .map(|byte| byte & 1)
        .collect();
    garbler.open(&[0, 1], &bits, 9).expect("labels");
    let mut labels = vec![0; INSTANCES];
    garbler.zeros(0, &mut labels);
    labels
        .iter()
        .flat_map(|label| label.to_le_bytes())
        .collect()
}
