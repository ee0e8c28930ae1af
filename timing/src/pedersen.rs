//! Commitments to vectors as functions of a secret.

use std::sync::{Arc, LazyLock};

use smpc_core::curve25519_dalek::scalar::Scalar;
use smpc_core::pedersen::{Block, Elements, Integers, commit, make_block};

/// Not a multiple of the number that shares a table.
const ELEMENTS: usize = 7;
/// Wide bytes of a blinding, and the elements.
pub const SECRET: usize = 64 + 8 * ELEMENTS;

static BLOCKS: LazyLock<Vec<Arc<Block>>> = LazyLock::new(|| {
    let bytes = make_block(0, 1).expect("a block");
    vec![Arc::new(Block::read(0, &bytes).expect("this block"))]
});

/// Commitments to the same bytes with and without signs, in 2 and in 8 bytes an element.
pub fn commitments(secret: &[u8]) -> Vec<u8> {
    let (wide, rest) = secret.split_first_chunk().expect("64 bytes");
    let blinding = Scalar::from_bytes_mod_order_wide(wide);
    let (bytes, _) = rest.as_chunks::<8>();
    let mut all = Vec::new();
    for width in [2, 8] {
        let unused = 64 - 8 * width as u32;
        let words: Vec<u64> = bytes
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes) >> unused)
            .collect();
        let values: Vec<i64> = bytes
            .iter()
            .map(|bytes| i64::from_le_bytes(*bytes) >> unused)
            .collect();
        for integers in [Integers::Unsigned(&words), Integers::Signed(&values)] {
            let elements = Elements::new(integers, width).expect("elements");
            all.extend(commit(&BLOCKS, &elements, &blinding, 1).expect("a commitment"));
        }
    }
    all
}
