//! Leaky triples, and the buckets that make triples of them.

use zeroize::{DefaultIsZeroes, Zeroizing};

use super::digest::digest;
use super::openings::Openings;
use super::shared::{Given, Octets, One, Public, Secrets, Shared};
use super::side::Side;
use crate::garble::{Block, Kernel, Keys, LABEL, mask, read_labels};

/// Triples whose hashes are computed together.
const BATCH: usize = 256;

/// Shared bits x, y and z with z = x y, one for each index.
#[derive(Default)]
pub struct Triples {
    pub(super) x: Shared,
    pub(super) y: Shared,
    pub(super) z: Shared,
}

impl Triples {
    fn with_room(count: usize) -> Self {
        Self {
            x: Shared::with_room(count),
            y: Shared::with_room(count),
            z: Shared::with_room(count),
        }
    }

    /// The number of triples.
    pub fn len(&self) -> usize {
        self.x.len()
    }

    /// Tells whether there are no triples.
    pub fn is_empty(&self) -> bool {
        self.x.is_empty()
    }

    /// Appends the triples of another group, and takes them away from it.
    pub fn append(&mut self, other: &mut Self) {
        let other = std::mem::take(other);
        if self.is_empty() {
            return *self = other;
        }
        // Room for both: what a vector that grows leaves behind would not be overwritten.
        let mut all = Self::with_room(self.len() + other.len());
        for part in [self as &Self, &other] {
            all.x.extend(&part.x);
            all.y.extend(&part.y);
            all.z.extend(&part.z);
        }
        *self = all;
    }
}

/// MACs of the shared bits x, y and rho of one leaky triple, then their keys, side by side: the shuffle takes them
/// from anywhere in memory. So aligned, each lies in two cache lines.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
struct Record([Octets; 6]);

impl DefaultIsZeroes for Record {}

impl Record {
    /// Returns a label by its number.
    fn label(&self, number: usize) -> Block {
        Block::from_le_bytes(self.0[number])
    }
}

/// Places, in the byte of a leaky triple, of the public bit d and of the bit that d hides; 0 to 2 are x, y and rho.
const D: u8 = 3;
const HIDDEN: u8 = 4;

/// The sum of a bit's MAC, its key, and the offset if the bit is 1.
fn of_other(one: One, delta: Block) -> Block {
    (delta & mask(Block::from(one.bit))) ^ one.key ^ one.mac
}

/// The leaky triples of a group, as one side holds them; the memory is kept for the next group.
pub struct Leaky {
    side: Side,
    delta: Zeroizing<Block>,
    start: Block,
    kernel: Kernel,
    records: Secrets<Record>,
    /// S, and what makes it L but for d.
    sums: Secrets<Block>,
    bits: Secrets<u8>,
    /// Of each bucket the sum of all x, the first y and the sum of all z.
    buckets: Triples,
    /// Each x that is multiplied by a difference.
    others: Shared,
    /// Memory for differences.
    spare: Shared,
}

impl Leaky {
    /// Returns the side without leaky triples.
    pub fn new(side: Side, delta: Block, start: Block, kernel: Kernel) -> Self {
        Self {
            side,
            delta: Zeroizing::new(delta),
            start,
            kernel,
            records: Secrets::zeros(0),
            sums: Secrets::zeros(0),
            bits: Secrets::zeros(0),
            buckets: Triples::default(),
            others: Shared::default(),
            spare: Shared::default(),
        }
    }

    /// The number of leaky triples.
    pub fn len(&self) -> usize {
        self.bits.len()
    }

    /// Tells whether there are no leaky triples.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// Takes the shared bits x of all leaky triples, y of all and rho of all; returns U of each, 16 bytes each.
    ///
    /// The first one has the number `first`. What earlier groups have left is replaced.
    pub fn begin(&mut self, first: u64, given: Given<'_>) -> Vec<u8> {
        let all = given.thirds();
        let count = all[0].len();
        self.records.make_room(count);
        self.sums.make_room(count);
        self.bits.make_room(count);
        let (own, other, delta) = (self.side.half(), 1 - self.side.half(), *self.delta);
        let mut sent = Vec::with_capacity(count);
        // Of each triple the key, the key with the offset, and the MAC.
        let (mut labels, mut lanes) = (Secrets::zeros(3 * BATCH), [0; BATCH]);
        for begin in (0..count).step_by(BATCH) {
            let length = BATCH.min(count - begin);
            let [x, y, rho] = all.map(|all| all.part(begin, length));
            let lanes = &mut lanes[..length];
            let [zeros, ones, macs] = thirds(&mut labels, length);
            read_labels(x.keys.as_flattened(), zeros);
            read_labels(x.macs.as_flattened(), macs);
            // Labels are moved one by one, here and in `divide`: what goes to memory by halves and comes back whole,
            // the processor waits for.
            let records = &mut self.records[begin..begin + length];
            for (index, Record(record)) in records.iter_mut().enumerate() {
                record[0] = x.macs[index];
                record[1] = y.macs[index];
                record[2] = rho.macs[index];
                record[3] = x.keys[index];
                record[4] = y.keys[index];
                record[5] = rho.keys[index];
            }
            for (one, zero) in ones.iter_mut().zip(&*zeros) {
                *one = zero ^ delta;
            }
            for (lane, number) in lanes.iter_mut().zip(first + begin as u64..) {
                *lane = self.start ^ (Block::from(number) << 1);
            }
            let keys = |half| Keys::Unique {
                lanes,
                pair: [half, 0],
            };
            self.kernel.hash(keys(own), [&mut *zeros, &mut *ones]);
            self.kernel.hash(keys(other), [&mut *macs]);
            let sums = &mut self.sums[begin..begin + length];
            let bits = &mut self.bits[begin..begin + length];
            sent.extend((0..length).map(|index| {
                let (x, y, rho) = (x.bits[index], y.at(index), rho.at(index));
                let c = of_other(y, delta);
                let of_rho = of_other(rho, delta);
                sums[index] = zeros[index] ^ macs[index] ^ (c & mask(Block::from(x))) ^ of_rho;
                let hidden = (of_rho & 1) as u8 ^ rho.bit;
                bits[index] = x | y.bit << 1 | rho.bit << 2 | hidden << HIDDEN;
                (zeros[index] ^ ones[index] ^ c).to_le_bytes()
            }));
        }
        sent.into_flattened()
    }

    /// Takes U of the other side, 16 bytes each; returns this side's bit d of each leaky triple.
    pub fn answer(&mut self, others: &[u8]) -> Vec<u8> {
        let (others, _) = others.as_chunks::<LABEL>();
        assert!(others.len() == self.len(), "U");
        let held = self.sums.iter_mut().zip(&self.bits[..]).zip(others);
        held.map(|((sum, bits), other)| {
            *sum ^= Block::from_le_bytes(*other) & mask(Block::from(bits & 1));
            ((*sum & 1) as u8 ^ bits >> HIDDEN) & 1
        })
        .collect()
    }

    /// Takes d, the sum of both sides' bits; returns the digest of L under `key`.
    pub fn finish(&mut self, d: &[u8], key: &[u8; 32]) -> [u8; 32] {
        assert!(d.len() == self.len(), "d");
        for (bits, d) in self.bits.iter_mut().zip(d) {
            *bits = *bits & !(1 << D) | d << D;
        }
        digest(key, self.len(), |index| {
            self.sums[index] ^ (*self.delta & mask(Block::from(d[index])))
        })
    }

    /// Divides the leaky triples into buckets; returns the bits by which the y of each bucket differ.
    ///
    /// `order` has the leaky triples of the first bucket first, `size` of each. The bits are d_1 to d_(B-1) of the
    /// first bucket first.
    pub fn divide(&mut self, order: &[u32], size: usize) -> Openings {
        assert!(
            size > 0 && order.len() == self.len() && order.len().is_multiple_of(size),
            "buckets"
        );
        let count = order.len() / size;
        self.others.make_room(count * (size - 1));
        let mut differences = std::mem::take(&mut self.spare);
        differences.make_room(count * (size - 1));
        self.buckets = Triples::with_room(count);
        let public = Public::new(self.side, *self.delta);
        let batch = size * (BATCH / size).max(1);
        let (mut near, mut of_near) = (Secrets::zeros(batch), Secrets::zeros(batch));
        let mut next = 0;
        for order in order.chunks(batch) {
            // Nothing is computed meanwhile: the machine waits for many records at once. Their order is public.
            let touched = order.iter().fold(0, |sum, &number| {
                let Record(record) = &self.records[number as usize];
                sum ^ record[0][0] ^ record[5][15]
            });
            std::hint::black_box(touched);
            for ((record, bits), &number) in near.iter_mut().zip(of_near.iter_mut()).zip(order) {
                *record = self.records[number as usize];
                *bits = self.bits[number as usize];
            }
            let records = near[..order.len()].chunks_exact(size);
            for (records, bits) in records.zip(of_near[..order.len()].chunks_exact(size)) {
                let ([first, records @ ..], [y_bits, bits @ ..]) = (records, bits) else {
                    unreachable!("a bucket has a triple");
                };
                let mut sums: [Block; 6] = std::array::from_fn(|number| first.label(number));
                let mut sum_bits = *y_bits;
                for (record, bits) in records.iter().zip(bits) {
                    self.others.bits[next] = bits & 1;
                    self.others.macs[next] = record.label(0);
                    self.others.keys[next] = record.label(3);
                    differences.bits[next] = (bits ^ y_bits) >> 1 & 1;
                    differences.macs[next] = record.label(1) ^ first.label(1);
                    differences.keys[next] = record.label(4) ^ first.label(4);
                    next += 1;
                    for (number, sum) in sums.iter_mut().enumerate() {
                        *sum ^= record.label(number);
                    }
                    sum_bits ^= bits;
                }
                let public = public.of(sum_bits >> D & 1);
                let Triples { x, y, z } = &mut self.buckets;
                x.push(sum_bits & 1, sums[0], sums[3]);
                y.push(y_bits >> 1 & 1, first.label(1), first.label(4));
                let z_bit = sum_bits >> 2 & 1 ^ public.bit;
                z.push(z_bit, sums[2] ^ public.mac, sums[5] ^ public.key);
            }
        }
        Openings::new(differences, *self.delta)
    }

    /// The number of differences.
    pub fn differences(&self) -> usize {
        self.others.len()
    }

    /// Returns one triple for each bucket, given the opened differences; takes the memory of what `divide` returned.
    pub fn combine(&mut self, differences: Openings, opened: &[u8]) -> Triples {
        assert!(opened.len() == self.others.len(), "differences");
        self.spare = differences.into_shared();
        let mut triples = std::mem::take(&mut self.buckets);
        let each = opened.len() / triples.len().max(1);
        for bucket in 0..triples.len() {
            let mut z = triples.z.at(bucket);
            let first = bucket * each;
            for (index, &bit) in (first..).zip(&opened[first..first + each]) {
                z = z.plus(self.others.at(index).times(bit));
            }
            triples.z.set(bucket, z);
        }
        triples
    }
}

/// Divides room for three arrays into those of `count` elements.
fn thirds(room: &mut [Block], count: usize) -> [&mut [Block]; 3] {
    let (first, rest) = room.split_at_mut(count);
    let (second, rest) = rest.split_at_mut(count);
    [first, second, &mut rest[..count]]
}
