//! Labels as integers: the orthomorphism of the hash, and the mask of point-and-permute.

/// A label, an offset or an AES block: little-endian, so that bit 0 is the lowest bit of byte 0.
pub type Block = u128;

/// Applies the orthomorphism; L is the upper half of the integer (bytes 8 to 15).
pub fn sigma(label: Block) -> Block {
    label.rotate_left(64) ^ (label & !Block::from(u64::MAX))
}

/// Returns all ones if the lowest bit is 1, else zero.
pub fn mask(label: Block) -> Block {
    (label & 1).wrapping_neg()
}
