//! Openings of shared bits, each with the digest of its MACs.

use zeroize::Zeroizing;

use super::digest::digest;
use super::shared::Shared;
use crate::garble::{Block, mask};

/// Bits that are opened: this side's shares, with the digest of their MACs.
pub struct Openings {
    shared: Shared,
    delta: Zeroizing<Block>,
}

impl Openings {
    /// Opens `shared`.
    pub fn new(shared: Shared, delta: Block) -> Self {
        Self {
            shared,
            delta: Zeroizing::new(delta),
        }
    }

    /// Returns what was opened, whose memory can serve again.
    pub(super) fn into_shared(self) -> Shared {
        self.shared
    }

    /// This side's shares.
    pub fn bits(&self) -> &[u8] {
        &self.shared.bits
    }

    /// Returns the digest of this side's MACs under `key`.
    pub fn digest(&self, key: &[u8; 32]) -> [u8; 32] {
        let macs = &self.shared.macs;
        digest(key, macs.len(), |index| macs[index])
    }

    /// Returns the digest that the other side's MACs have under `key` if its shares are `bits`.
    pub fn expected(&self, bits: &[u8], key: &[u8; 32]) -> [u8; 32] {
        assert!(bits.len() == self.shared.len(), "openings");
        let keys = &self.shared.keys;
        digest(key, keys.len(), |index| {
            keys[index] ^ (*self.delta & mask(Block::from(bits[index])))
        })
    }
}
