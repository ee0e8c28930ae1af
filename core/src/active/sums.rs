//! Sums of labels by public weights, with which an aggregator's output is checked.

use super::shared::{Octets, Secrets};
use crate::garble::{Block, LABEL};

/// Bits of a weight, and sums.
pub const SUMS: usize = u64::BITS as usize;
/// Bytes of a weight, and values of a byte.
const BYTES: usize = SUMS / 8;
const VALUES: usize = 256;

/// Returns, as bytes, for each bit of the weights, the lowest first, the XOR of the labels whose weight has it.
///
/// Labels are secret; weights are public, and address the tables. For each byte of the weights labels are summed by
/// its value first: eight sums a label, in 32 kB, in the place of sixty-four.
pub fn label_sums(labels: &[Octets], weights: &[u64]) -> [Octets; SUMS] {
    assert!(labels.len() == weights.len(), "weights");
    let mut by_value = Secrets::<Block>::zeros(BYTES * VALUES);
    let (tables, _) = by_value.as_chunks_mut::<VALUES>();
    for (label, weight) in labels.iter().zip(weights) {
        let label = Block::from_le_bytes(*label);
        for (table, byte) in tables.iter_mut().zip(weight.to_le_bytes()) {
            table[usize::from(byte)] ^= label;
        }
    }
    let mut sums = [[0; LABEL]; SUMS];
    for (index, sum) in sums.iter_mut().enumerate() {
        let chosen = (0..VALUES).filter(|value| value >> (index % 8) & 1 == 1);
        let table = &tables[index / 8];
        *sum = chosen
            .fold(0, |sum, value| sum ^ table[value])
            .to_le_bytes();
    }
    sums
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};

    use super::label_sums;
    use crate::garble::LABEL;

    #[test]
    fn each_sum_is_that_of_its_bit() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(46);
        // Also none, and weights of all bits and of none.
        for count in [0, 1, 2, 1000] {
            let mut labels = vec![[0; LABEL]; count];
            labels.iter_mut().for_each(|label| random.fill_bytes(label));
            let mut weights: Vec<u64> = (0..count).map(|_| random.next_u64()).collect();
            for (weight, value) in weights.iter_mut().zip([u64::MAX, 0]) {
                *weight = value;
            }
            let sums = label_sums(&labels, &weights);
            for (bit, sum) in sums.iter().enumerate() {
                let mut expected = [0; LABEL];
                for (label, weight) in labels.iter().zip(&weights) {
                    for (to, byte) in expected.iter_mut().zip(label) {
                        *to ^= byte * (weight >> bit & 1) as u8;
                    }
                }
                assert_eq!(*sum, expected, "{count} labels, bit {bit}");
            }
        }
    }
}
