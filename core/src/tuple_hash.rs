//! TupleHash256 [NIST SP 800-185, section 5] over the cSHAKE256 of the `cshake` crate.

use cshake::CShake256;
use cshake::digest::{ExtendableOutput, Update, XofReader};

/// Returns the big-endian bytes of `value` without leading zeros, at least one of them.
fn significant_bytes(value: &[u8; 8]) -> &[u8] {
    let zeros = value.iter().take_while(|&&byte| byte == 0).count().min(7);
    &value[zeros..]
}

/// Absorbs `left_encode(value)` [SP 800-185, section 2.3.1] into `hasher`.
fn absorb_left_encoded(hasher: &mut CShake256, value: u64) {
    let bytes = value.to_be_bytes();
    let digits = significant_bytes(&bytes);
    hasher.update(&[digits.len() as u8]);
    hasher.update(digits);
}

/// Absorbs `right_encode(value)` [SP 800-185, section 2.3.1] into `hasher`.
fn absorb_right_encoded(hasher: &mut CShake256, value: u64) {
    let bytes = value.to_be_bytes();
    let digits = significant_bytes(&bytes);
    hasher.update(digits);
    hasher.update(&[digits.len() as u8]);
}

/// A TupleHash256 computation that takes its parts one by one.
#[derive(Clone)]
pub struct TupleHash256(CShake256);

impl TupleHash256 {
    /// Starts a tuple under the customisation string `custom`.
    pub fn new(custom: &[u8]) -> Self {
        Self(CShake256::new_with_function_name(b"TupleHash", custom))
    }

    /// Appends one part: `encode_string(part)`.
    pub fn absorb(&mut self, part: &[u8]) {
        self.begin(part.len() as u64);
        self.go_on(part);
    }

    /// Begins a part of `length` bytes, which `go_on` then appends piece by piece.
    pub fn begin(&mut self, length: u64) {
        absorb_left_encoded(&mut self.0, length * 8);
    }

    /// Appends a piece of the part that was begun.
    pub fn go_on(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Fills `output`; its length is bound into the hash.
    pub fn finish(mut self, output: &mut [u8]) {
        absorb_right_encoded(&mut self.0, output.len() as u64 * 8);
        self.0.finalize_xof().read(output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: [u8; 3] = [0x00, 0x01, 0x02];
    const SECOND: [u8; 6] = [0x10, 0x11, 0x12, 0x13, 0x14, 0x15];
    const THIRD: [u8; 9] = [0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28];

    fn hash(custom: &[u8], parts: &[&[u8]]) -> String {
        let mut hasher = TupleHash256::new(custom);
        for part in parts {
            hasher.absorb(part);
        }
        let mut output = [0u8; 64];
        hasher.finish(&mut output);
        output.iter().map(|byte| format!("{byte:02X}")).collect()
    }

    /// NIST, "TupleHash Samples", samples 4 to 6.
    #[test]
    fn nist_samples() {
        assert_eq!(
            hash(b"", &[&FIRST, &SECOND]),
            "CFB7058CACA5E668F81A12A20A2195CE97A925F1DBA3E7449A56F82201EC6073\
             11AC2696B1AB5EA2352DF1423BDE7BD4BB78C9AED1A853C78672F9EB23BBE194"
        );
        assert_eq!(
            hash(b"My Tuple App", &[&FIRST, &SECOND]),
            "147C2191D5ED7EFD98DBD96D7AB5A11692576F5FE2A5065F3E33DE6BBA9F3AA1\
             C4E9A068A289C61C95AAB30AEE1E410B0B607DE3620E24A4E3BF9852A1D4367E"
        );
        assert_eq!(
            hash(b"My Tuple App", &[&FIRST, &SECOND, &THIRD]),
            "45000BE63F9B6BFD89F54717670F69A9BC763591A4F05C50D68891A744BCC6E7\
             D6D5B5E82C018DA999ED35B0BB49C9678E526ABD8E85C13ED254021DB9E790CE"
        );
    }

    #[test]
    fn a_part_in_pieces_is_the_same_part() {
        let mut hasher = TupleHash256::new(b"");
        hasher.begin(9);
        hasher.go_on(&THIRD[..4]);
        hasher.go_on(&THIRD[4..]);
        let (mut whole, mut pieces) = ([0; 32], [0; 32]);
        hasher.finish(&mut pieces);
        let mut hasher = TupleHash256::new(b"");
        hasher.absorb(&THIRD);
        hasher.finish(&mut whole);
        assert_eq!(whole, pieces);
    }

    #[test]
    fn lengths_separate_the_parts() {
        assert_ne!(hash(b"", &[b"ab", b"c"]), hash(b"", &[b"a", b"bc"]));
        assert_ne!(hash(b"", &[b"ab"]), hash(b"", &[b"ab", b""]));
    }

    #[test]
    fn long_parts_use_longer_lengths() {
        for length in [31, 32, 8191, 8192, 2_097_152] {
            let part = vec![0x5a; length];
            assert_ne!(hash(b"", &[&part]), hash(b"", &[&part[1..]]));
        }
    }
}
