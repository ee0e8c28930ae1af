//! The evaluator: active labels, and its side of the check of the masked values.

use zeroize::DefaultIsZeroes;

use super::digest::digest;
use super::garbler::{hash, labels};
use super::masks::{LANES, Masks};
use super::shared::{One, Secrets, label};
use crate::garble::{Block, Kernel, mask};

/// The active labels of a block of instances at the evaluator.
pub struct Evaluator {
    masks: Masks,
    kernel: Kernel,
    start: Block,
    first: u64,
    /// Masked values of the input wires.
    masked: Vec<u8>,
}

/// What the evaluator tells of the gates, and what it must be answered.
pub struct Evaluated {
    /// Masked values of the gates' outputs, gate by gate, each of all instances.
    pub values: Vec<u8>,
    /// The digest of their active labels.
    pub labels: [u8; 32],
    /// The digest of the garbler's MACs if every gate is right.
    pub macs: [u8; 32],
    /// Masked values of the outputs.
    pub outputs: Vec<u8>,
}

/// An active label, and the evaluator's share of the wire's mask.
#[derive(Clone, Copy, Default)]
struct Wire {
    label: Block,
    one: One,
}

impl DefaultIsZeroes for Wire {}

impl Evaluator {
    /// Takes the masks with their products and the masked values of all input wires, as the garbler does.
    pub fn new(masks: Masks, kernel: Kernel, start: Block, first: u64, masked: Vec<u8>) -> Self {
        assert!(masked.len() == masks.inputs.len(), "masked values");
        assert!(masks.products.len() == masks.gates.len(), "products");
        Self {
            masks,
            kernel,
            start,
            first,
            masked,
        }
    }

    /// Evaluates `tables` and their `bits`; the digests are made under the two `keys`.
    pub fn evaluate(
        &self,
        seed: Block,
        tables: &[u8],
        bits: &[u8],
        keys: [&[u8; 32]; 2],
    ) -> Evaluated {
        let (masks, n) = (&self.masks, self.masks.instances);
        assert!(
            tables.len() == 32 * masks.gates.len() && bits.len() == masks.gates.len(),
            "tables"
        );
        let active = labels(self.kernel, seed, &self.masked, n);
        let [mut of_labels, mut of_macs] = [(); 2].map(|()| Secrets::zeros(masks.gates.len()));
        let mut values = vec![0; masks.gates.len()];
        let mut outputs = vec![0; masks.outputs.len()];
        let mut hashes = Secrets::zeros(2 * LANES);
        masks.walk(
            |position| Wire {
                label: active[position],
                one: masks.inputs.at(position),
            },
            |value| Wire {
                label: 0,
                one: One {
                    bit: value,
                    ..One::default()
                },
            },
            |a, b| Wire {
                label: a.label ^ b.label,
                one: a.one.plus(b.one),
            },
            |a| Wire {
                label: a.label,
                one: One {
                    bit: a.one.bit ^ 1,
                    ..a.one
                },
            },
            |first, a, b, out| {
                let lanes = a.len();
                for (lane, (a, b)) in a.iter().zip(b).enumerate() {
                    (hashes[lane], hashes[lanes + lane]) = (a.label, b.label);
                }
                let hashes = &mut hashes[..2 * lanes];
                hash(
                    self.kernel,
                    self.start,
                    self.first + first as u64,
                    lanes,
                    [&mut *hashes],
                );
                let (of_a, of_b) = hashes.split_at(lanes);
                let gate = &tables[32 * n * (first / n)..32 * n * (first / n + 1)];
                let (left, right) = gate.split_at(16 * n);
                for lane in 0..lanes {
                    let (index, instance) = (first + lane, first % n + lane);
                    let (a, b) = (a[lane], b[lane]);
                    let (own, product) = (masks.gates.at(index), masks.products.at(index));
                    let sum = of_a[lane]
                        ^ of_b[lane]
                        ^ own.mac
                        ^ product.mac
                        ^ (mask(a.label) & (label(left, instance) ^ b.one.mac))
                        ^ (mask(b.label) & (label(right, instance) ^ a.one.mac ^ a.label));
                    let active = sum ^ Block::from(bits[index]);
                    let (x, y, value) =
                        ((a.label & 1) as u8, (b.label & 1) as u8, (active & 1) as u8);
                    // The garbler's share of the check is this side's, and what the masked values say.
                    let check = b.one.times(x).plus(a.one.times(y)).plus(own).plus(product);
                    let share = check.bit ^ (x & y) ^ value;
                    of_macs[index] = check.key ^ (*masks.delta & mask(Block::from(share)));
                    of_labels[index] = active;
                    values[index] = value;
                    out[lane] = Wire {
                        label: active,
                        one: own,
                    };
                }
            },
            |first, wires| {
                for (to, wire) in outputs[first..].iter_mut().zip(wires) {
                    *to = (wire.label & 1) as u8;
                }
            },
        );
        Evaluated {
            values,
            labels: digest(keys[0], of_labels.len(), |index| of_labels[index]),
            macs: digest(keys[1], of_macs.len(), |index| of_macs[index]),
            outputs,
        }
    }

    /// The masks.
    pub fn masks(&self) -> &Masks {
        &self.masks
    }
}
