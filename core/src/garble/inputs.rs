//! Labels of inputs: zero labels at the garbler, active ones at the evaluator.

use std::ops::Range;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::block::{Block, mask};
use super::circuit::{Refused, refuse};
use super::kernel::Cipher;
use super::tile::{self, Plan};

/// Bytes of a label.
pub const LABEL: usize = size_of::<Block>();

/// Reads labels from bytes, as many as both sides have.
pub fn read_labels(bytes: &[u8], to: &mut [Block]) {
    let (labels, _) = bytes.as_chunks::<LABEL>();
    for (to, label) in to.iter_mut().zip(labels) {
        *to = Block::from_le_bytes(*label);
    }
}

/// Writes labels to bytes, as many as both sides have.
pub fn write_labels(labels: &[Block], to: &mut [u8]) {
    let (to, _) = to.as_chunks_mut::<LABEL>();
    for (to, label) in to.iter_mut().zip(labels) {
        *to = label.to_le_bytes();
    }
}

/// Instances of one input, and the positions of their labels in a chunk.
pub struct Segment {
    pub input: usize,
    pub instances: Range<usize>,
    pub labels: Range<usize>,
    pub bytes: Range<usize>,
}

/// Divides labels `index..index + count` of `wires`, each of `instances`, wire by wire.
pub fn segments(
    wires: &[u32],
    instances: usize,
    index: usize,
    count: usize,
) -> impl Iterator<Item = Segment> {
    let end = index + count;
    let first = index / instances;
    wires[first..]
        .iter()
        .zip(first..)
        .map(move |(&wire, number)| {
            let start = number * instances;
            let (from, to) = (index.max(start), end.min(start + instances));
            let labels = from - index..to - index;
            Segment {
                input: wire as usize,
                instances: from - start..to - start,
                bytes: LABEL * labels.start..LABEL * labels.end,
                labels,
            }
        })
        .take(end.div_ceil(instances) - first)
}

/// Draws labels from a key: AES-128 of the number of the instance and of the input.
pub fn draw(plan: &Plan, cipher: &Cipher, input: usize, from: usize, to: &mut [Block]) {
    for (block, number) in to.iter_mut().zip(plan.first + from as u64..) {
        *block = Block::from(number) << 64 | input as Block;
    }
    plan.kernel.encrypt(cipher, to);
}

/// Source of the labels of one input.
enum Row {
    Unset,
    /// They are stored, of the instances from the first on.
    Stored(Zeroizing<Vec<Block>>),
    /// They are drawn from a key that both sides know. The garbler's bits make zero labels of active ones;
    /// the evaluator has none.
    Open(Arc<Cipher>, Zeroizing<Vec<u8>>),
}

/// The labels of all inputs. Memory is taken when they are set, and overwritten when dropped.
pub struct Inputs {
    instances: usize,
    rows: Vec<Row>,
    /// The garbler's offsets, for the inputs that are open.
    offsets: Zeroizing<Vec<Block>>,
}

impl Inputs {
    pub fn new(inputs: usize, instances: usize) -> Self {
        Self {
            instances,
            rows: (0..inputs).map(|_| Row::Unset).collect(),
            offsets: Zeroizing::default(),
        }
    }

    /// Returns the memory for the next labels of an input; each instance once, and in order.
    pub fn set(&mut self, input: usize, instances: Range<usize>) -> Result<&mut [Block], Refused> {
        let row = &mut self.rows[input];
        if let Row::Unset = row {
            *row = Row::Stored(tile::room(self.instances)?);
        }
        match row {
            Row::Stored(labels) if labels.len() == instances.start => {
                labels.resize(instances.end, 0);
                Ok(&mut labels[instances])
            }
            _ => refuse(format!("labels: input {input} has its labels")),
        }
    }

    /// Exchanges both labels of `wires`, which are set, where `bits` is 1: 0 or 1 for each instance of the first
    /// wire, then of the next; `deltas` are the offsets.
    pub fn flip(&mut self, wires: &[u32], bits: &[u8], deltas: &[Block]) -> Result<(), Refused> {
        for (&wire, bits) in wires.iter().zip(bits.chunks(self.instances)) {
            match &mut self.rows[wire as usize] {
                Row::Stored(labels) if labels.len() == self.instances => {
                    for ((label, delta), &bit) in labels.iter_mut().zip(deltas).zip(bits) {
                        *label ^= delta & mask(Block::from(bit));
                    }
                }
                _ => return refuse(format!("labels: input {wire} does not have all of its own")),
            }
        }
        Ok(())
    }

    /// Draws the active labels of `wires` from a key; `bits` are the garbler's, wire by wire, with its offsets.
    pub fn open(
        &mut self,
        wires: &[u32],
        cipher: Cipher,
        bits: Option<(&[u8], Zeroizing<Vec<Block>>)>,
    ) -> Result<(), Refused> {
        let cipher = Arc::new(cipher);
        let (bits, offsets) = bits.unwrap_or_default();
        self.offsets = offsets;
        let mut bits = bits.chunks(self.instances);
        for &wire in wires {
            let Row::Unset = self.rows[wire as usize] else {
                return refuse(format!("labels: input {wire} has its labels"));
            };
            let mine = bits.next().unwrap_or_default();
            self.rows[wire as usize] = Row::Open(cipher.clone(), Zeroizing::new(mine.to_vec()));
        }
        Ok(())
    }

    /// Writes the labels of an input for instances from `from` on; false if it is not set.
    pub fn get(&self, plan: &Plan, input: usize, from: usize, to: &mut [Block]) -> bool {
        match &self.rows[input] {
            Row::Stored(labels) if labels.len() == self.instances => {
                to.copy_from_slice(&labels[from..from + to.len()]);
            }
            Row::Open(cipher, bits) => {
                draw(plan, cipher, input, from, to);
                let bits = bits.iter().zip(self.offsets.iter()).skip(from);
                for (label, (&bit, offset)) in to.iter_mut().zip(bits) {
                    *label ^= offset & mask(Block::from(bit));
                }
            }
            _ => return false,
        }
        true
    }

    /// Returns the first input that is not set for all instances, or among those set at all
    /// (`begun`).
    pub fn missing(&self, begun: bool) -> Option<usize> {
        self.rows.iter().position(|row| match row {
            Row::Unset => !begun,
            Row::Stored(labels) => labels.len() < self.instances,
            Row::Open(..) => false,
        })
    }
}
