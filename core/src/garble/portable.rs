//! The kernel for every machine: the `aes` crate does the rounds, which is constant-time in software too.

use aes::Aes128Enc;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

use super::block::{Block, mask, sigma};
use super::operands::{GATE, Keys, Wires};
use super::runs::{Ands, Xors};

/// Lanes whose blocks are encrypted together.
const BATCH: usize = 16;

pub fn expand(key: Block) -> Aes128Enc {
    Aes128Enc::new(&key.to_le_bytes().into())
}

pub fn encrypt(cipher: &Aes128Enc, blocks: &mut [Block]) {
    let mut bytes = [aes::Block::default(); 2 * BATCH];
    for chunk in blocks.chunks_mut(2 * BATCH) {
        let bytes = &mut bytes[..chunk.len()];
        for (to, from) in bytes.iter_mut().zip(chunk.iter()) {
            *to = from.to_le_bytes().into();
        }
        cipher.encrypt_blocks(bytes);
        for (to, from) in chunk.iter_mut().zip(bytes.iter()) {
            *to = Block::from_le_bytes((*from).into());
        }
    }
}

/// Hashes `blocks`, which holds `per_lane` blocks of each lane from `first` on, with key `half`.
fn hash_half(keys: &Keys<'_>, half: usize, first: usize, per_lane: usize, blocks: &mut [Block]) {
    blocks.iter_mut().for_each(|block| *block = sigma(*block));
    let mut encrypted = [0; 2 * BATCH];
    let encrypted = &mut encrypted[..blocks.len()];
    encrypted.copy_from_slice(blocks);
    match keys {
        Keys::Shared(pair) => encrypt(&expand(pair[half]), encrypted),
        Keys::Unique { .. } => {
            for (lane, blocks) in encrypted.chunks_mut(per_lane).enumerate() {
                encrypt(&expand(keys.of(first + lane)[half]), blocks);
            }
        }
    }
    for (block, encrypted) in blocks.iter_mut().zip(encrypted.iter()) {
        *block ^= *encrypted;
    }
}

/// The `lane`-th block of a row.
fn row_at(row: &[u8], lane: usize) -> Block {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&row[16 * lane..16 * lane + 16]);
    Block::from_le_bytes(bytes)
}

pub fn garble(
    registers: &mut [Block],
    wires: Wires,
    keys: Keys<'_>,
    delta: &[Block],
    rows: [&mut [u8]; 2],
) {
    for first in (0..wires.lanes).step_by(BATCH) {
        let count = BATCH.min(wires.lanes - first);
        let mut hashes = [[0; 2 * BATCH]; 2];
        for (half, operand) in [wires.a, wires.b].into_iter().enumerate() {
            for lane in 0..count {
                let zero = registers[operand + first + lane];
                hashes[half][2 * lane] = zero;
                hashes[half][2 * lane + 1] = zero ^ delta[first + lane];
            }
            hash_half(&keys, half, first, 2, &mut hashes[half][..2 * count]);
        }
        for lane in 0..count {
            let at = first + lane;
            let (a, b) = (registers[wires.a + at], registers[wires.b + at]);
            let [a0, a1] = [hashes[0][2 * lane], hashes[0][2 * lane + 1]];
            let [b0, b1] = [hashes[1][2 * lane], hashes[1][2 * lane + 1]];
            let generator = a0 ^ a1 ^ (delta[at] & mask(b));
            let evaluator = b0 ^ b1 ^ a;
            registers[wires.out + at] =
                a0 ^ (generator & mask(a)) ^ b0 ^ ((evaluator ^ a) & mask(b));
            rows[0][16 * at..16 * at + 16].copy_from_slice(&generator.to_le_bytes());
            rows[1][16 * at..16 * at + 16].copy_from_slice(&evaluator.to_le_bytes());
        }
    }
}

pub fn evaluate(registers: &mut [Block], wires: Wires, keys: Keys<'_>, rows: [&[u8]; 2]) {
    for first in (0..wires.lanes).step_by(BATCH) {
        let count = BATCH.min(wires.lanes - first);
        let mut hashes = [[0; BATCH]; 2];
        for (half, operand) in [wires.a, wires.b].into_iter().enumerate() {
            let labels = &registers[operand + first..operand + first + count];
            hashes[half][..count].copy_from_slice(labels);
            hash_half(&keys, half, first, 1, &mut hashes[half][..count]);
        }
        let [of_a, of_b] = hashes;
        for (lane, (of_a, of_b)) in of_a.into_iter().zip(of_b).take(count).enumerate() {
            let at = first + lane;
            let (a, b) = (registers[wires.a + at], registers[wires.b + at]);
            registers[wires.out + at] = of_a
                ^ (row_at(rows[0], at) & mask(a))
                ^ of_b
                ^ ((row_at(rows[1], at) ^ a) & mask(b));
        }
    }
}

pub fn xor(registers: &mut [Block], wires: Wires) {
    for lane in 0..wires.lanes {
        registers[wires.out + lane] = registers[wires.a + lane] ^ registers[wires.b + lane];
    }
}

/// Calls `work` for at most `BATCH` gates of a run at a time, on registers with their operands,
/// keys and index in the run; stores the output labels.
fn in_batches(
    registers: &mut [Block],
    run: Ands<'_>,
    mut work: impl FnMut(&mut [Block], Wires, Keys<'_>, usize),
) {
    let halves = run.halves().chunks(BATCH);
    for (batch, (gates, halves)) in run.gates().chunks(BATCH).zip(halves).enumerate() {
        let (mut labels, mut lanes) = ([0; 3 * BATCH], [0; BATCH]);
        for (lane, (gate, half)) in gates.iter().zip(halves).enumerate() {
            labels[lane] = registers[gate.a as usize];
            labels[BATCH + lane] = registers[gate.b as usize];
            lanes[lane] = run.base ^ Block::from(half[0]);
        }
        let wires = Wires {
            a: 0,
            b: BATCH,
            out: 2 * BATCH,
            lanes: gates.len(),
        };
        // The second half-gate's number is the first's, which is even, and one.
        let keys = Keys::Unique {
            lanes: &lanes,
            pair: [0, 1],
        };
        work(&mut labels, wires, keys, batch * BATCH);
        for (gate, label) in gates.iter().zip(&labels[2 * BATCH..]) {
            registers[gate.out as usize] = *label;
        }
    }
}

pub fn garble_run(registers: &mut [Block], run: Ands<'_>, delta: Block, table: &mut [u8]) {
    in_batches(registers, run, |labels, wires, keys, index| {
        let mut rows = [[0; 16 * BATCH]; 2];
        let [generator, evaluator] = &mut rows;
        garble(labels, wires, keys, &[delta; BATCH], [generator, evaluator]);
        let table = &mut table[GATE * index..][..GATE * wires.lanes];
        for (lane, gate) in table.chunks_exact_mut(GATE).enumerate() {
            gate[..16].copy_from_slice(&rows[0][16 * lane..16 * lane + 16]);
            gate[16..].copy_from_slice(&rows[1][16 * lane..16 * lane + 16]);
        }
    });
}

pub fn evaluate_run(registers: &mut [Block], run: Ands<'_>, table: &[u8]) {
    in_batches(registers, run, |labels, wires, keys, index| {
        let mut rows = [[0; 16 * BATCH]; 2];
        let table = &table[GATE * index..][..GATE * wires.lanes];
        for (lane, gate) in table.chunks_exact(GATE).enumerate() {
            rows[0][16 * lane..16 * lane + 16].copy_from_slice(&gate[..16]);
            rows[1][16 * lane..16 * lane + 16].copy_from_slice(&gate[16..]);
        }
        evaluate(labels, wires, keys, [&rows[0], &rows[1]]);
    });
}

pub fn xor_run(registers: &mut [Block], run: Xors<'_>) {
    for gate in run.gates() {
        registers[gate.out as usize] = registers[gate.a as usize] ^ registers[gate.b as usize];
    }
}

pub fn hash<const H: usize>(keys: Keys<'_>, labels: [&mut [Block]; H], lanes: usize) {
    for labels in labels {
        for (batch, blocks) in labels[..lanes].chunks_mut(BATCH).enumerate() {
            hash_half(&keys, 0, batch * BATCH, 1, blocks);
        }
    }
}
