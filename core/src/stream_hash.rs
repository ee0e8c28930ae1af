//! A keyed BLAKE3 over a stream: the core of the `blake3` crate.

/// Bytes of a key.
pub const KEY: usize = blake3::KEY_LEN;

/// The hash of all bytes appended so far.
pub struct StreamHash(blake3::Hasher);

impl StreamHash {
    /// Starts a hash under `key`.
    pub fn new(key: &[u8; KEY]) -> Self {
        Self(blake3::Hasher::new_keyed(key))
    }

    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of all bytes appended; more may follow.
    pub fn digest(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
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
}
