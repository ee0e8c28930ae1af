//! The kernel for every machine: the `aes` crate does the rounds, which is constant-time in software too.

use aes::Aes128Enc;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

use super::kernel::{Keys, Wires};
use super::{Block, mask, sigma};

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

pub fn hash(keys: Keys<'_>, labels: &mut [Block]) {
    for (batch, blocks) in labels.chunks_mut(BATCH).enumerate() {
        hash_half(&keys, 0, batch * BATCH, 1, blocks);
    }
}
