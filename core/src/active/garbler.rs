//! The garbler: tables, and its side of the check of the masked values.

use zeroize::DefaultIsZeroes;

use super::digest::digest;
use super::masks::{LANES, Masks};
use super::shared::{One, Secrets};
use super::side::GATES;
use crate::garble::{Block, Kernel, Keys, LABEL, mask};

/// The labels of a block of instances at the garbler.
pub struct Garbler {
    masks: Masks,
    kernel: Kernel,
    start: Block,
    first: u64,
    /// Zero labels of the outputs of the AND gates.
    zeros: Secrets<Block>,
    /// Masked values of the input wires.
    masked: Vec<u8>,
}

/// A label of masked value 0, and the sum of the key of the other share and of the offset if this share is 1.
#[derive(Clone, Copy, Default)]
struct Wire {
    zero: Block,
    half: Block,
}

impl DefaultIsZeroes for Wire {}

/// A masked value, and the MAC on this side's share of the wire's mask.
#[derive(Clone, Copy, Default)]
struct Masked {
    value: u8,
    mac: Block,
}

impl DefaultIsZeroes for Masked {}

/// Hashes labels under the keys of a gate.
///
/// The first half of each of `labels` is hashed under its first key, the other under its second; both are of
/// `lanes` instances, whose numbers begin at `first`.
pub(super) fn hash<const H: usize>(
    kernel: Kernel,
    start: Block,
    first: u64,
    lanes: usize,
    labels: [&mut [Block]; H],
) {
    let mut keys = [0; 2 * LANES];
    let keys = &mut keys[..2 * lanes];
    let (of_a, of_b) = keys.split_at_mut(lanes);
    for ((a, b), number) in of_a.iter_mut().zip(of_b).zip(first..) {
        *a = start ^ GATES ^ (Block::from(number) << 1);
        *b = *a ^ 1;
    }
    let keys = Keys::Unique {
        lanes: keys,
        pair: [0; 2],
    };
    kernel.hash(keys, labels);
}

/// Returns the public active labels of all inputs, wire by wire, whose bit 0 is the masked value.
pub(super) fn labels(kernel: Kernel, seed: Block, masked: &[u8], instances: usize) -> Vec<Block> {
    let cipher = kernel.cipher(seed);
    let mut labels: Vec<Block> = (0..masked.len())
        .map(|position| ((position % instances) as Block) << 64 | (position / instances) as Block)
        .collect();
    kernel.encrypt(&cipher, &mut labels);
    for (label, &value) in labels.iter_mut().zip(masked) {
        *label = (*label & !1) | Block::from(value);
    }
    labels
}

impl Garbler {
    /// Takes the masks with their products and the masked values of all input wires; `first` is the number of the
    /// first AND gate and instance, `start` the first key.
    pub fn new(masks: Masks, kernel: Kernel, start: Block, first: u64, masked: Vec<u8>) -> Self {
        assert!(masked.len() == masks.inputs.len(), "masked values");
        assert!(masks.products.len() == masks.gates.len(), "products");
        Self {
            zeros: Secrets::zeros(masks.gates.len()),
            masks,
            kernel,
            start,
            first,
            masked,
        }
    }

    /// Returns the tables, 32 bytes for each gate and instance, and the bit of each.
    ///
    /// `seed` is that of the public active labels.
    pub fn tables(&mut self, seed: Block) -> (Vec<u8>, Vec<u8>) {
        let (masks, n) = (&self.masks, self.masks.instances);
        let delta = *masks.delta;
        let half = |one: One| one.key ^ (delta & mask(Block::from(one.bit)));
        let active = labels(self.kernel, seed, &self.masked, n);
        let mut tables = vec![0; 32 * masks.gates.len()];
        let mut bits = vec![0; masks.gates.len()];
        let zeros = &mut self.zeros;
        let mut hashes = Secrets::zeros(4 * LANES);
        masks.walk(
            |position| Wire {
                zero: active[position] ^ (delta & mask(Block::from(self.masked[position]))),
                half: half(masks.inputs.at(position)),
            },
            // A constant has the masked value 0 and itself as mask, of which the garbler has the key.
            |value| Wire {
                zero: 0,
                half: delta & mask(Block::from(value)),
            },
            |a, b| Wire {
                zero: a.zero ^ b.zero,
                half: a.half ^ b.half,
            },
            |a| Wire {
                zero: a.zero,
                half: a.half ^ delta,
            },
            |first, a, b, out| {
                let lanes = a.len();
                let (low, high) = hashes[..4 * lanes].split_at_mut(2 * lanes);
                for (lane, (a, b)) in a.iter().zip(b).enumerate() {
                    (low[lane], low[lanes + lane]) = (a.zero, b.zero);
                    (high[lane], high[lanes + lane]) = (a.zero ^ delta, b.zero ^ delta);
                }
                hash(
                    self.kernel,
                    self.start,
                    self.first + first as u64,
                    lanes,
                    [&mut *low, &mut *high],
                );
                let ((a0, b0), (a1, b1)) = (low.split_at(lanes), high.split_at(lanes));
                // Of each gate the rows T of all instances, then the rows V.
                let gate = &mut tables[32 * n * (first / n)..32 * n * (first / n + 1)];
                let (left, right) = gate.as_chunks_mut::<LABEL>().0.split_at_mut(n);
                let (left, right) = (&mut left[first % n..], &mut right[first % n..]);
                for lane in 0..lanes {
                    let index = first + lane;
                    let t = a0[lane] ^ a1[lane] ^ b[lane].half;
                    let v = b0[lane] ^ b1[lane] ^ a[lane].half ^ a[lane].zero;
                    let own = half(masks.gates.at(index));
                    let sum = a0[lane] ^ b0[lane] ^ own ^ half(masks.products.at(index));
                    (left[lane], right[lane]) = (t.to_le_bytes(), v.to_le_bytes());
                    bits[index] = (sum & 1) as u8;
                    zeros[index] = sum & !1;
                    out[lane] = Wire {
                        zero: sum & !1,
                        half: own,
                    };
                }
            },
            |_, _| (),
        );
        (tables, bits)
    }

    /// Returns the digest under `key` that the active labels have if the gates' masked values are `values`.
    pub fn expected(&self, values: &[u8], key: &[u8; 32]) -> [u8; 32] {
        assert!(values.len() == self.zeros.len(), "masked values");
        digest(key, values.len(), |index| {
            self.zeros[index] ^ (*self.masks.delta & mask(Block::from(values[index])))
        })
    }

    /// Returns the digest under `key` of the MACs on this side's shares of the checks, and the outputs' masked
    /// values. `values` are the gates' masked values, whose labels were verified.
    pub fn answer(&self, values: &[u8], key: &[u8; 32]) -> ([u8; 32], Vec<u8>) {
        let masks = &self.masks;
        let mut macs = Secrets::zeros(masks.gates.len());
        let mut outputs = vec![0; masks.outputs.len()];
        masks.walk(
            |position| Masked {
                value: self.masked[position],
                mac: masks.inputs.macs[position],
            },
            |_| Masked::default(),
            |a, b| Masked {
                value: a.value ^ b.value,
                mac: a.mac ^ b.mac,
            },
            |a| a,
            |first, a, b, out| {
                for (index, ((a, b), out)) in (first..).zip(a.iter().zip(b).zip(out)) {
                    let of_b = b.mac & mask(Block::from(a.value));
                    let of_a = a.mac & mask(Block::from(b.value));
                    let mac = masks.gates.macs[index];
                    macs[index] = of_b ^ of_a ^ mac ^ masks.products.macs[index];
                    *out = Masked {
                        value: values[index],
                        mac,
                    };
                }
            },
            |first, wires| {
                for (to, wire) in outputs[first..].iter_mut().zip(wires) {
                    *to = wire.value;
                }
            },
        );
        (digest(key, macs.len(), |index| macs[index]), outputs)
    }

    /// The masks.
    pub fn masks(&self) -> &Masks {
        &self.masks
    }
}
