//! The public shuffle of leaky triples into buckets.

use crate::keystream::{Mask, add_keystreams};

/// Words of the stream that are made at once.
const WORDS: usize = 1024;

/// Tells whether a word is below the largest multiple of `below` up to 2^64.
fn is_fair(word: u64, below: u64) -> bool {
    // 2^64 mod `below`: so many of the largest words are left out. Fewer than `below` are: most words need no division.
    word <= u64::MAX - below || word <= u64::MAX - (u64::MAX % below + 1) % below
}

/// Returns the numbers from 0 to `count` - 1 in the order that `key` draws: the shuffle of Fisher and Yates with
/// words of the AES-256-CTR stream, little-endian; a word that would favour small numbers is left out.
pub fn shuffled(count: usize, key: &[u8; 32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    let (mut words, mut next, mut offset) = ([0u64; WORDS], WORDS, 0);
    for last in (1..count).rev() {
        let below = last as u64 + 1;
        let word = loop {
            if next == WORDS {
                words.fill(0);
                let mask = Mask {
                    key,
                    subtract: false,
                };
                add_keystreams(&mut words, &[mask], offset, 1);
                (next, offset) = (0, offset + WORDS as u64);
            }
            next += 1;
            if is_fair(words[next - 1], below) {
                break words[next - 1];
            }
        };
        order.swap(last, (word % below) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::{is_fair, shuffled};

    #[test]
    fn the_largest_words_are_left_out() {
        // 2^64 mod 10 is 6, mod 8 is 0.
        assert!(is_fair(u64::MAX - 6, 10) && !is_fair(u64::MAX - 5, 10));
        assert!(is_fair(u64::MAX, 8) && is_fair(u64::MAX - 11, 10));
    }

    #[test]
    fn every_order_is_drawn_equally_often() {
        // 6,000 draws of 6 orders: each 868 to 1,132 times but for 6e-6 in all.
        let mut counts = std::collections::HashMap::new();
        for seed in 0..6000u32 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&seed.to_le_bytes());
            *counts.entry(shuffled(3, &key)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (868..=1132).contains(count)));
    }

    #[test]
    fn more_words_than_are_made_at_once() {
        let mut order = shuffled(5000, &[1; 32]);
        order.sort_unstable();
        assert!(order.into_iter().eq(0..5000));
    }
}
