//! Hash under the labels of `labels`.

use crate::tuple_hash::TupleHash256;

/// Returns `N` bytes of TupleHash256 under `label`.
pub fn hash<const N: usize>(label: &str, parts: &[&[u8]]) -> [u8; N] {
    let mut output = [0; N];
    let mut hasher = TupleHash256::new(label.as_bytes());
    for part in parts {
        hasher.absorb(part);
    }
    hasher.finish(&mut output);
    output
}
