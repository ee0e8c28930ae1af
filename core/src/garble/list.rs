//! Lists of labels to which a garbler commits: the hash of both labels of each position, and one label opened.
//!
//! `protocols/covert/README.md` specifies the label list of a copy. A position is a wire of all instances; its
//! labels are hashed as those of an output with its number, under a start of the list. The last positions are
//! masks: their labels are the zero labels xor a pad.

use zeroize::Zeroizing;

use super::block::{Block, mask};
use super::garbler::Garbler;
use super::inputs::{LABEL, write_labels};
use super::tile::{Plan, hash_output};
use crate::stream_hash::StreamHash;

/// Bytes of hashes that are hashed at once.
const CHUNK: usize = 1 << 16;

/// Hashes in the order of the list, gathered for the hash of the whole.
struct Gathered<'h> {
    hash: &'h mut StreamHash,
    bytes: Vec<u8>,
}

impl<'h> Gathered<'h> {
    fn new(hash: &'h mut StreamHash) -> Self {
        Self {
            hash,
            bytes: Vec::with_capacity(CHUNK),
        }
    }

    fn add(&mut self, first: &[Block], second: &[Block]) {
        for (first, second) in first.iter().zip(second) {
            self.bytes.extend_from_slice(&first.to_le_bytes());
            self.bytes.extend_from_slice(&second.to_le_bytes());
        }
        if self.bytes.len() >= CHUNK {
            self.end();
        }
    }

    fn end(&mut self) {
        self.hash.update(&self.bytes);
        self.bytes.clear();
    }
}

/// The list of a garbler: positions are `wires`, the last ones masks, whose pads are `pads`, wire by wire.
pub struct List<'a> {
    garbler: &'a Garbler,
    plan: Plan,
    wires: &'a [u32],
    pads: &'a [u8],
    own: usize,
    deltas: Zeroizing<Vec<Block>>,
}

impl<'a> List<'a> {
    /// `start` is that of the keys of the list; `pads` are of whole wires.
    pub fn new(garbler: &'a Garbler, wires: &'a [u32], pads: &'a [u8], start: Block) -> Self {
        let plan = Plan {
            start,
            ..garbler.plan().clone()
        };
        Self {
            own: wires.len() - pads.len() / (LABEL * plan.instances),
            deltas: garbler.deltas(),
            garbler,
            plan,
            wires,
            pads,
        }
    }

    /// Returns the labels of 0 of a position.
    fn zeros(&self, position: usize) -> Zeroizing<Vec<Block>> {
        let mut labels = Zeroizing::new(vec![0; self.plan.instances]);
        self.garbler
            .zeros(self.wires[position] as usize, &mut labels);
        if let Some(number) = position.checked_sub(self.own) {
            let bytes = LABEL * self.plan.instances;
            let (pads, _) = self.pads[number * bytes..][..bytes].as_chunks::<LABEL>();
            for (label, pad) in labels.iter_mut().zip(pads) {
                *label ^= Block::from_le_bytes(*pad);
            }
        }
        labels
    }

    /// Appends the hashes of both labels of each position: of own ones colour 0 first, of masks that of 0.
    pub fn digest(&self, hash: &mut StreamHash) {
        let mut gathered = Gathered::new(hash);
        let mut second = Zeroizing::new(vec![0; self.plan.instances]);
        for position in 0..self.wires.len() {
            let mut first = self.zeros(position);
            let own = Block::from(position < self.own);
            for ((first, second), delta) in first.iter_mut().zip(&mut *second).zip(&*self.deltas) {
                *first ^= delta & mask(*first & own);
                *second = *first ^ delta;
            }
            hash_output(&self.plan, position, &mut first);
            hash_output(&self.plan, position, &mut second);
            gathered.add(&first, &second);
        }
        gathered.end();
    }

    /// Writes the active label of each position for `bits`, and the hash of its sibling, 32 bytes together.
    pub fn open(&self, bits: &[u8], to: &mut [u8]) {
        let instances = self.plan.instances;
        let mut siblings = Zeroizing::new(vec![0; instances]);
        let positions = to.chunks_exact_mut(2 * LABEL * instances);
        for ((position, to), bits) in positions.enumerate().zip(bits.chunks_exact(instances)) {
            let mut active = self.zeros(position);
            let both = active.iter_mut().zip(&mut *siblings);
            for (((active, sibling), delta), &bit) in both.zip(&*self.deltas).zip(bits) {
                *active ^= delta & mask(Block::from(bit));
                *sibling = *active ^ delta;
            }
            hash_output(&self.plan, position, &mut siblings);
            let (to, _) = to.as_chunks_mut::<LABEL>();
            for (to, (active, sibling)) in to.chunks_exact_mut(2).zip(active.iter().zip(&*siblings))
            {
                to[0] = active.to_le_bytes();
                to[1] = sibling.to_le_bytes();
            }
        }
    }
}

/// Appends what `List::digest` does, from what `List::open` wrote: `opened`, and the `bits` of the masks, which are
/// the last positions. The active labels are written to `labels`.
pub fn check_opened(
    plan: &Plan,
    opened: &[u8],
    bits: &[u8],
    labels: &mut [u8],
    hash: &mut StreamHash,
) {
    let instances = plan.instances;
    let positions = labels.len() / (LABEL * instances);
    let own = positions - bits.len() / instances;
    let mut gathered = Gathered::new(hash);
    let (mut first, mut second) = (vec![0; instances], vec![0; instances]);
    let rows = opened.chunks_exact(2 * LABEL * instances);
    let rows = rows.zip(labels.chunks_exact_mut(LABEL * instances));
    for (position, (opened, labels)) in rows.enumerate() {
        let (opened, _) = opened.as_chunks::<LABEL>();
        for ((opened, first), second) in opened.chunks_exact(2).zip(&mut first).zip(&mut second) {
            *first = Block::from_le_bytes(opened[0]);
            *second = Block::from_le_bytes(opened[1]);
        }
        write_labels(&first, labels);
        hash_output(plan, position, &mut first);
        let (active, _) = labels.as_chunks::<LABEL>();
        let bits = position
            .checked_sub(own)
            .map(|number| &bits[number * instances..]);
        for (number, (first, second)) in first.iter_mut().zip(&mut second).enumerate() {
            let choice = bits.map_or(active[number][0], |bits| bits[number]);
            let swapped = (*first ^ *second) & mask(Block::from(choice));
            *first ^= swapped;
            *second ^= swapped;
        }
        gathered.add(&first, &second);
    }
    gathered.end();
}
