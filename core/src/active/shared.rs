//! Authenticated bits, as one side holds them.

use std::ops::{Deref, DerefMut};

use zeroize::{DefaultIsZeroes, optimization_barrier};

use super::side::Side;
use crate::garble::{Block, LABEL, mask, read_labels};

/// Overwrites secrets, and what larger ones before them have left in their memory, in one pass; the loops of the
/// `zeroize` crate go byte by byte, and there are megabytes.
fn wipe<T: DefaultIsZeroes>(secrets: &mut Vec<T>) {
    secrets.clear();
    secrets.resize(secrets.capacity(), T::default());
    optimization_barrier(secrets.as_slice());
}

/// Gives secrets another number, with whatever content.
fn make_room<T: DefaultIsZeroes>(secrets: &mut Vec<T>, count: usize) {
    if count > secrets.capacity() {
        // A vector that grows would leave them behind.
        wipe(secrets);
        *secrets = vec![T::default(); count];
    }
    secrets.resize(count, T::default());
}

/// Secrets, overwritten when they are dropped.
pub(super) struct Secrets<T: DefaultIsZeroes>(Vec<T>);

impl<T: DefaultIsZeroes> Secrets<T> {
    /// Returns `count` zeros.
    pub fn zeros(count: usize) -> Self {
        Self(vec![T::default(); count])
    }

    /// Changes the number to `count`, with whatever content.
    pub fn make_room(&mut self, count: usize) {
        make_room(&mut self.0, count);
    }
}

impl<T: DefaultIsZeroes> Deref for Secrets<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: DefaultIsZeroes> DerefMut for Secrets<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: DefaultIsZeroes> Drop for Secrets<T> {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// A label as bytes.
pub type Octets = [u8; LABEL];

/// Shares in a caller's memory: bits, 0 or 1, with MACs and keys.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// This side's share of each bit.
    pub bits: &'a [u8],
    /// The MAC on each share of this side.
    pub macs: &'a [Octets],
    /// The key of each share of the other side.
    pub keys: &'a [Octets],
}

impl Given<'_> {
    /// The number of bits.
    pub fn len(&self) -> usize {
        self.bits.len()
    }

    /// Tells whether there are no bits.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// Panics unless there are a MAC and a key for each bit.
    pub(super) fn check(&self) {
        let count = self.len();
        assert!(
            self.macs.len() == count && self.keys.len() == count,
            "shares"
        );
    }

    /// Returns x, y and rho of all leaky triples, which follow each other.
    pub(super) fn thirds(&self) -> [Self; 3] {
        self.check();
        assert!(self.len().is_multiple_of(3), "triples");
        let count = self.len() / 3;
        [0, 1, 2].map(|third| self.part(third * count, count))
    }

    /// Returns `count` bits from `first` on.
    pub(super) fn part(&self, first: usize, count: usize) -> Self {
        Self {
            bits: &self.bits[first..first + count],
            macs: &self.macs[first..first + count],
            keys: &self.keys[first..first + count],
        }
    }

    /// Returns one bit.
    pub(super) fn at(&self, index: usize) -> One {
        One {
            bit: self.bits[index],
            mac: Block::from_le_bytes(self.macs[index]),
            key: Block::from_le_bytes(self.keys[index]),
        }
    }
}

/// The label with this number among bytes.
pub(super) fn label(bytes: &[u8], index: usize) -> Block {
    let mut label = [0; LABEL];
    label.copy_from_slice(&bytes[LABEL * index..LABEL * index + LABEL]);
    Block::from_le_bytes(label)
}

/// Shares of bits: this side's, with the MACs on them, and the keys of the other side's MACs.
///
/// The MAC on a share is the other side's key of it, plus the other side's offset if the share is 1.
#[derive(Clone, Default)]
pub struct Shared {
    /// This side's share of each bit, 0 or 1.
    pub bits: Vec<u8>,
    /// The MAC on each share of this side.
    pub macs: Vec<Block>,
    /// The key of each share of the other side.
    pub keys: Vec<Block>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        wipe(&mut self.bits);
        wipe(&mut self.macs);
        wipe(&mut self.keys);
    }
}

impl From<Given<'_>> for Shared {
    fn from(given: Given<'_>) -> Self {
        given.check();
        let mut shared = Self::zeros(given.len());
        shared.bits.copy_from_slice(given.bits);
        read_labels(given.macs.as_flattened(), &mut shared.macs);
        read_labels(given.keys.as_flattened(), &mut shared.keys);
        shared
    }
}

impl Shared {
    /// Returns `count` shared bits that are 0 to both sides.
    pub fn zeros(count: usize) -> Self {
        Self {
            bits: vec![0; count],
            macs: vec![0; count],
            keys: vec![0; count],
        }
    }

    /// Changes the number of bits to `count`, with whatever content.
    pub(super) fn make_room(&mut self, count: usize) {
        make_room(&mut self.bits, count);
        make_room(&mut self.macs, count);
        make_room(&mut self.keys, count);
    }

    /// The number of bits.
    pub fn len(&self) -> usize {
        self.bits.len()
    }

    /// Tells whether there are no bits.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// Returns one bit.
    pub(super) fn at(&self, index: usize) -> One {
        One {
            bit: self.bits[index],
            mac: self.macs[index],
            key: self.keys[index],
        }
    }

    /// Replaces one bit.
    pub(super) fn set(&mut self, index: usize, one: One) {
        self.bits[index] = one.bit;
        self.macs[index] = one.mac;
        self.keys[index] = one.key;
    }

    /// Appends one bit.
    pub(super) fn push(&mut self, bit: u8, mac: Block, key: Block) {
        self.bits.push(bit);
        self.macs.push(mac);
        self.keys.push(key);
    }

    /// Appends bits, for which there is room.
    pub(super) fn extend(&mut self, other: &Self) {
        self.bits.extend_from_slice(&other.bits);
        self.macs.extend_from_slice(&other.macs);
        self.keys.extend_from_slice(&other.keys);
    }

    /// Returns room for `count` bits.
    pub(super) fn with_room(count: usize) -> Self {
        Self {
            bits: Vec::with_capacity(count),
            macs: Vec::with_capacity(count),
            keys: Vec::with_capacity(count),
        }
    }
}

/// One shared bit.
#[derive(Clone, Copy, Default)]
pub(super) struct One {
    pub bit: u8,
    pub mac: Block,
    pub key: Block,
}

impl DefaultIsZeroes for One {}

impl One {
    /// The sum of two shared bits.
    pub fn plus(self, other: Self) -> Self {
        Self {
            bit: self.bit ^ other.bit,
            mac: self.mac ^ other.mac,
            key: self.key ^ other.key,
        }
    }

    /// The product with a public bit.
    pub fn times(self, public: u8) -> Self {
        let factor = mask(Block::from(public));
        Self {
            bit: self.bit & public,
            mac: self.mac & factor,
            key: self.key & factor,
        }
    }
}

/// What a side adds to a shared bit to add the public bit 1: the evaluator to its share, the garbler to its key.
#[derive(Clone, Copy)]
pub(super) struct Public {
    one: One,
}

impl Public {
    pub fn new(side: Side, delta: Block) -> Self {
        let garbler = mask(side.bit());
        Self {
            one: One {
                bit: 1 ^ side.bit() as u8,
                mac: 0,
                key: delta & garbler,
            },
        }
    }

    /// The public bit `bit` as a shared one.
    pub fn of(self, bit: u8) -> One {
        self.one.times(bit)
    }
}
