//! Digests of labels and MACs.

use super::shared::Secrets;
use crate::garble::{Block, LABEL};
use crate::stream_hash::{RUN, StreamHash};

/// Labels that are appended at once.
const CHUNK: usize = RUN / LABEL;

/// Returns the keyed hash of `count` labels, which `label` gives by their numbers.
pub(super) fn digest(key: &[u8; 32], count: usize, label: impl Fn(usize) -> Block) -> [u8; 32] {
    let mut hash = StreamHash::new(key);
    let mut buffer = Secrets::zeros(LABEL * CHUNK.min(count));
    for first in (0..count).step_by(CHUNK) {
        let filled = CHUNK.min(count - first);
        let bytes = &mut buffer[..LABEL * filled];
        for (number, to) in (first..).zip(bytes.as_chunks_mut::<LABEL>().0) {
            *to = label(number).to_le_bytes();
        }
        hash.update(bytes);
    }
    hash.digest()
}
