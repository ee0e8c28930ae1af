//! Hostile encodings of commitments: our decoder and dalek's refuse the same bytes, and find the same elements.

use arbitrary::{Result, Unstructured};
use curve25519_dalek::ristretto::CompressedRistretto;

use super::field::BYTES;
use super::generators::Family;
use super::ristretto::{decode, encode};
use crate::fuzz::{mutate, run};

/// Arbitrary bytes, or those of a generator, with a few of them changed.
fn encoding(input: &mut Unstructured<'_>) -> Result<[u8; BYTES]> {
    let mut bytes = match input.int_in_range(0..=3)? {
        0 => Family::values()
            .encoded(input.int_in_range(0..=15)?)
            .to_vec(),
        1 => {
            let mut bytes = vec![0xff; BYTES];
            (bytes[0], bytes[BYTES - 1]) = (input.arbitrary()?, input.arbitrary()?);
            bytes
        }
        _ => {
            let mut bytes: [u8; BYTES] = input.arbitrary()?;
            // Half of all even integers below p are encodings.
            bytes[0] &= 0xfe;
            bytes[BYTES - 1] &= 0x7f;
            bytes.to_vec()
        }
    };
    if input.ratio(1, 4)? {
        mutate(input, &mut bytes)?;
        bytes.resize(BYTES, 0);
    }
    Ok(bytes.try_into().expect("32 bytes"))
}

#[test]
fn commitments() {
    run("vector-commitments", 20, 80, |input| {
        let bytes = encoding(input)?;
        let expected = CompressedRistretto(bytes).decompress();
        match (decode(&bytes), expected) {
            (None, None) => {}
            (Some(point), Some(element)) => {
                assert_eq!(encode(&point.extended()), bytes);
                let sum = point.extended().plus_niels(&point.niels()).double();
                let element = element + element;
                assert_eq!(encode(&sum), (element + element).compress().to_bytes());
            }
            (_, expected) => panic!("{bytes:?}: {expected:?} expected"),
        }
        Ok(())
    });
}
