//! Hash under the labels of `labels`.

use crate::tuple_hash::TupleHash256;

/// Returns `N` bytes of TupleHash256 under `label`.
pub fn hash<const N: usize>(label: &str, parts: &[&[u8]]) -> [u8; N] {
    finish(start(label, &[]), parts)
}

/// Returns the hash under `label` with its first `parts` absorbed, to be cloned: what is common is hashed once.
pub fn start(label: &str, parts: &[&[u8]]) -> TupleHash256 {
    let mut hasher = TupleHash256::new(label.as_bytes());
    for part in parts {
        hasher.absorb(part);
    }
    hasher
}

/// Returns `N` bytes of the hash that continues `started` with `parts`.
pub fn finish<const N: usize>(mut started: TupleHash256, parts: &[&[u8]]) -> [u8; N] {
    for part in parts {
        started.absorb(part);
    }
    let mut output = [0; N];
    started.finish(&mut output);
    output
}
