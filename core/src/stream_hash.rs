//! A keyed BLAKE3 over a stream: the core of the `blake3` crate.

use zeroize::{Zeroize, Zeroizing};

/// Bytes of a key.
pub const KEY: usize = blake3::KEY_LEN;

/// Bytes that are hashed at once: 16 chunks of BLAKE3, side by side. It does so from multiples of them on alone.
pub const RUN: usize = 1 << 14;

/// The hash of all bytes appended so far.
pub struct StreamHash {
    hash: blake3::Hasher,
    /// What was appended after the last whole run.
    waiting: Zeroizing<Vec<u8>>,
}

impl StreamHash {
    /// Starts a hash under `key`.
    pub fn new(key: &[u8; KEY]) -> Self {
        Self {
            hash: blake3::Hasher::new_keyed(key),
            waiting: Zeroizing::default(),
        }
    }

    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        if !self.waiting.is_empty() {
            rest = self.wait(rest);
            if self.waiting.len() == RUN {
                self.hash.update(&self.waiting);
                self.waiting.clear();
            }
        }
        let (runs, rest) = rest.split_at(rest.len() / RUN * RUN);
        self.hash.update(runs);
        self.wait(rest);
    }

    /// Keeps bytes up to the end of the run; returns those after it.
    fn wait<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (now, later) = bytes.split_at(bytes.len().min(RUN - self.waiting.len()));
        // A vector that grows would leave what may be secret behind.
        if self.waiting.capacity() < self.waiting.len() + now.len() {
            self.waiting.reserve_exact(RUN);
        }
        self.waiting.extend_from_slice(now);
        later
    }

    /// Returns the hash of all bytes appended; more may follow.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = self.hash.clone();
        hash.update(&self.waiting);
        let digest = *hash.finalize().as_bytes();
        hash.zeroize();
        digest
    }
}

/// The hasher keeps the last bytes that are no whole block.
impl Drop for StreamHash {
    fn drop(&mut self) {
        self.hash.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first two of the official test vectors of BLAKE3: the inputs are empty and one zero byte.
    #[test]
    fn known_answers() {
        let key = b"whats the Elvish word for friend";
        let mut hash = StreamHash::new(key);
        assert_eq!(hash.digest()[..8], 0x92b2_b756_04ed_3c76_u64.to_be_bytes());
        hash.update(&[0]);
        assert_eq!(hash.digest()[..8], 0x6d7878df_ff2f4856_u64.to_be_bytes());
    }

    /// However the stream is cut, its hash is that of the crate.
    #[test]
    fn streams_in_parts() {
        let bytes: Vec<u8> = (0..5 * RUN).map(|at| (at % 251) as u8).collect();
        for parts in [
            &[0, 1, RUN - 1, RUN, 2 * RUN + 7][..],
            &[RUN + 1, 3, RUN - 5, 2 * RUN],
            &[5, RUN / 2, RUN / 2, 18, 3 * RUN],
        ] {
            let (mut hash, mut rest) = (StreamHash::new(&[9; KEY]), &bytes[..]);
            for &length in parts {
                let (part, after) = rest.split_at(length);
                hash.update(part);
                rest = after;
                let so_far = &bytes[..bytes.len() - rest.len()];
                assert_eq!(
                    hash.digest(),
                    *blake3::keyed_hash(&[9; KEY], so_far).as_bytes()
                );
            }
        }
    }
}
