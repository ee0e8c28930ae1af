//! The labels of inputs that somebody set: zero labels at the garbler, active ones at the evaluator.

use std::ops::Range;

use zeroize::Zeroizing;

use super::Block;
use super::circuit::{Refused, refuse};
use super::tile;

pub const LABEL: usize = size_of::<Block>();

pub fn read_labels(bytes: &[u8], to: &mut [Block]) {
    let (labels, _) = bytes.as_chunks::<LABEL>();
    for (to, label) in to.iter_mut().zip(labels) {
        *to = Block::from_le_bytes(*label);
    }
}

pub fn write_labels(labels: &[Block], to: &mut [u8]) {
    let (to, _) = to.as_chunks_mut::<LABEL>();
    for (to, label) in to.iter_mut().zip(labels) {
        *to = label.to_le_bytes();
    }
}

/// Some instances of one input, and where their labels are among those that a chunk brings.
pub struct Segment {
    pub input: usize,
    pub instances: Range<usize>,
    pub labels: Range<usize>,
    pub bytes: Range<usize>,
}

/// Cuts `place..place + count` of the labels of `wires`, each of `instances`, wire by wire.
pub fn segments(
    wires: &[u32],
    instances: usize,
    place: usize,
    count: usize,
) -> impl Iterator<Item = Segment> {
    let end = place + count;
    let first = place / instances;
    wires[first..]
        .iter()
        .zip(first..)
        .map(move |(&wire, number)| {
            let start = number * instances;
            let (from, to) = (place.max(start), end.min(start + instances));
            let labels = from - place..to - place;
            Segment {
                input: wire as usize,
                instances: from - start..to - start,
                bytes: LABEL * labels.start..LABEL * labels.end,
                labels,
            }
        })
        .take(end.div_ceil(instances) - first)
}

/// Labels, input by input. Memory is taken when the first is set, and overwritten when dropped.
pub struct Inputs {
    instances: usize,
    labels: Zeroizing<Vec<Block>>,
    /// Of each input, for how many instances it is set, from the first on.
    filled: Vec<usize>,
}

impl Inputs {
    pub fn new(inputs: usize, instances: usize) -> Self {
        Self {
            instances,
            labels: Zeroizing::default(),
            filled: vec![0; inputs],
        }
    }

    /// Where the next labels of an input go; each instance once, and in order.
    pub fn set(&mut self, input: usize, instances: Range<usize>) -> Result<&mut [Block], Refused> {
        if self.filled[input] != instances.start {
            return refuse(format!("labels: input {input} has its labels"));
        }
        if self.labels.is_empty() {
            self.labels = tile::zeroed(self.filled.len() * self.instances)?;
        }
        self.filled[input] = instances.end;
        let start = input * self.instances;
        Ok(&mut self.labels[start + instances.start..start + instances.end])
    }

    /// The labels of `count` instances of an input from `from` on, if it is set.
    pub fn get(&self, input: usize, from: usize, count: usize) -> Option<&[Block]> {
        let start = input * self.instances + from;
        (self.filled[input] == self.instances).then(|| &self.labels[start..start + count])
    }

    /// The first input that is not set.
    pub fn missing(&self) -> Option<usize> {
        self.filled
            .iter()
            .position(|&filled| filled < self.instances)
    }

    /// The first input that is set for some instances only.
    pub fn half_set(&self) -> Option<usize> {
        self.filled
            .iter()
            .position(|filled| (1..self.instances).contains(filled))
    }
}
