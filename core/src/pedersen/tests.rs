//! The group law, commitments and checks against curve25519-dalek.

use std::sync::{Arc, LazyLock};

use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::VartimeMultiscalarMul;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::block::digest;
use super::generators::Family;
use super::*;

pub fn random(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// The first `count` blocks.
pub fn blocks(count: usize) -> Vec<Arc<Block>> {
    static BLOCKS: LazyLock<Vec<Arc<Block>>> = LazyLock::new(|| {
        let block = |number| Block::read(number, &make_block(number, 2).unwrap()).unwrap();
        (0..2).map(|number| Arc::new(block(number))).collect()
    });
    BLOCKS[..count].to_vec()
}

fn generator(index: usize) -> RistrettoPoint {
    CompressedRistretto(Family::values().encoded(index as u32))
        .decompress()
        .unwrap()
}

fn blinding_generator() -> RistrettoPoint {
    CompressedRistretto(Family::blinding().encoded(0))
        .decompress()
        .unwrap()
}

/// The commitment as dalek computes it.
fn expected(integers: &[i128], blinding: &Scalar) -> [u8; 32] {
    let scalar = |&integer: &i128| {
        let magnitude = Scalar::from(integer.unsigned_abs());
        if integer < 0 { -magnitude } else { magnitude }
    };
    let scalars = integers.iter().map(scalar).chain([*blinding]);
    let points = (0..integers.len())
        .map(generator)
        .chain([blinding_generator()]);
    RistrettoPoint::vartime_multiscalar_mul(scalars, points)
        .compress()
        .to_bytes()
}

fn random_scalar(random: &mut Xoshiro256PlusPlus) -> Scalar {
    let mut wide = [0; 64];
    random.fill_bytes(&mut wide);
    Scalar::from_bytes_mod_order_wide(&wide)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As `verify/smpc_dp_verify/ristretto.py` computes them in plain integers.
#[test]
fn generators_are_known() {
    let known = [
        (
            0,
            "80e451d49bb3377681b452dce1e5b26463b07432c207120785963ff88b424b1b",
        ),
        (
            1,
            "9a49f42ffd78312fc765296bdaea2ff51cd1e05293817187b809404ebcdd8406",
        ),
        (
            4096,
            "0081bd0281cf9d54e633904365f79c40720832cb6e4874002d8757cfa1222b5d",
        ),
        (
            1_048_575,
            "aa6b62a1be970ba3f8ce82bcf9e485db1dc33cf388246df58d4870e4dee0b129",
        ),
    ];
    for (index, encoding) in known {
        assert_eq!(hexadecimal(&Family::values().encoded(index)), encoding);
    }
    assert_eq!(
        hexadecimal(&Family::blinding().encoded(0)),
        "700abec0bda753851379bf88991ea36c33323cb6b6aa1b05e26511cb2e9b440f"
    );
}

/// The least and greatest integers of a width, and some between.
fn integers(count: usize, width: usize, signed: bool, random: &mut impl RngCore) -> Vec<i128> {
    let range = 1i128 << (8 * width);
    let least = if signed { -range / 2 } else { 0 };
    let mut result: Vec<i128> = (0..count)
        .map(|_| least + (i128::from(random.next_u64()) & (range - 1)))
        .collect();
    for (to, extreme) in result.iter_mut().step_by(3).zip([
        least,
        least + range - 1,
        0,
        1,
        least + range / 2 - 1,
        least + range / 2,
    ]) {
        *to = extreme;
    }
    result
}

/// Calls `with` with the integers as elements of a width.
fn with_elements<T>(
    integers: &[i128],
    width: usize,
    signed: bool,
    with: impl FnOnce(&Elements<'_>) -> T,
) -> T {
    let words: Vec<u64> = integers.iter().map(|&integer| integer as u64).collect();
    let values: Vec<i64> = integers.iter().map(|&integer| integer as i64).collect();
    let integers = if signed {
        Integers::Signed(&values)
    } else {
        Integers::Unsigned(&words)
    };
    with(&Elements::new(integers, width).unwrap())
}

fn commit_to(
    integers: &[i128],
    width: usize,
    signed: bool,
    blinding: &Scalar,
    threads: usize,
) -> [u8; 32] {
    with_elements(integers, width, signed, |elements| {
        commit(&blocks(2), elements, blinding, threads).unwrap()
    })
}

#[test]
fn commitments_are_those_of_dalek() {
    let mut random = random(2);
    for width in 1..=8 {
        for signed in [false, true] {
            for count in [1, 2, 3, 4, 5, 19, 34] {
                let integers = integers(count, width, signed, &mut random);
                let blinding = match count {
                    2 => Scalar::ZERO,
                    3 => -Scalar::ONE,
                    _ => random_scalar(&mut random),
                };
                let expected = expected(&integers, &blinding);
                for threads in [1, 2] {
                    let commitment = commit_to(&integers, width, signed, &blinding, threads);
                    assert_eq!(commitment, expected, "{integers:?}, {width}, {signed}");
                }
                with_elements(&integers, width, signed, |elements| {
                    let check = |blinding: &Scalar| {
                        check(&blocks(1), elements, blinding, &[expected], 1).unwrap()
                    };
                    assert!(check(&blinding), "{integers:?}, {width}, {signed}");
                    assert!(!check(&(blinding + Scalar::ONE)));
                });
            }
        }
    }
}

#[test]
fn commitments_cross_blocks() {
    let mut random = random(3);
    for count in [4095, 4096, 4097] {
        for threads in [1, 2] {
            let integers = integers(count, 2, false, &mut random);
            let blinding = random_scalar(&mut random);
            let commitment = commit_to(&integers, 2, false, &blinding, threads);
            assert_eq!(commitment, expected(&integers, &blinding));
            let checked = with_elements(&integers, 2, false, |totals| {
                check(&blocks(2), totals, &blinding, &[commitment], threads)
            });
            assert_eq!(checked, Ok(true));
        }
    }
}

#[test]
fn only_the_true_totals_are_accepted() {
    let (width, parties) = (4, 5);
    let mut random = random(4);
    let count = 70;
    let inputs: Vec<Vec<i128>> = (0..parties)
        .map(|_| {
            (0..count)
                .map(|_| i128::from(random.next_u64() >> 36))
                .collect()
        })
        .collect();
    let blindings: Vec<Scalar> = (0..parties).map(|_| random_scalar(&mut random)).collect();
    let commitments: Vec<[u8; 32]> = inputs
        .iter()
        .zip(&blindings)
        .map(|(input, blinding)| commit_to(input, width, false, blinding, 1))
        .collect();
    let totals: Vec<i128> = (0..count)
        .map(|index| inputs.iter().map(|input| input[index]).sum())
        .collect();
    let blinding: Scalar = blindings.iter().sum();
    let accepts = |totals: &[i128], width, blinding: &Scalar, commitments: &[[u8; 32]]| {
        let results = [1, 2].map(|threads| {
            with_elements(totals, width, false, |totals| {
                check(&blocks(1), totals, blinding, commitments, threads)
            })
        });
        assert_eq!(results[0], results[1]);
        results[0].clone()
    };
    assert_eq!(accepts(&totals, width, &blinding, &commitments), Ok(true));
    assert_eq!(accepts(&totals, 8, &blinding, &commitments), Ok(true));
    for (index, by) in [(0, 1), (69, -1), (33, 1 << 31), (1, 1 << 32)] {
        let mut wrong = totals.clone();
        wrong[index] += by;
        assert_eq!(accepts(&wrong, 8, &blinding, &commitments), Ok(false));
    }
    let mut wrong = totals.clone();
    wrong[1] += 1 << 32;
    let reason = "totals: number 1 is not below 2**32".to_owned();
    let refused = Err(CommitmentError::Statement(reason));
    assert_eq!(accepts(&wrong, width, &blinding, &commitments), refused);
    wrong = totals.clone();
    wrong.swap(0, 1);
    assert_eq!(accepts(&wrong, width, &blinding, &commitments), Ok(false));
    let one_more = [&totals[..], &[1]].concat();
    assert_eq!(
        accepts(&one_more, width, &blinding, &commitments),
        Ok(false)
    );
    let other = blinding - Scalar::ONE;
    assert_eq!(accepts(&totals, width, &other, &commitments), Ok(false));
    let missing = &commitments[1..];
    assert_eq!(accepts(&totals, width, &blinding, missing), Ok(false));
    let twice = [&commitments[..], &commitments[..1]].concat();
    assert_eq!(accepts(&totals, width, &blinding, &twice), Ok(false));
    assert_eq!(accepts(&totals, width, &blinding, &[]), Ok(false));
    for number in 0..parties {
        let mut malformed = commitments.clone();
        malformed[number][31] |= 0x80;
        let reason = format!("commitments: number {number} is not the encoding of a group element");
        assert_eq!(
            accepts(&totals, width, &blinding, &malformed),
            Err(CommitmentError::Statement(reason))
        );
    }
}

/// Long vectors have digits of other lengths.
#[test]
fn checks_of_all_digit_lengths_agree_with_dalek() {
    let mut random = random(5);
    for (count, width) in [(1, 8), (100, 1), (700, 8), (3000, 3), (4097, 8)] {
        for signed in [false, true] {
            let totals = integers(count, width, signed, &mut random);
            let commitment = expected(&totals, &Scalar::ONE);
            let checked = with_elements(&totals, width, signed, |totals| {
                check(&blocks(2), totals, &Scalar::ONE, &[commitment], 2)
            });
            assert_eq!(checked, Ok(true), "{count} of {width} bytes");
        }
    }
}

#[test]
fn arguments_out_of_range_are_refused() {
    let argument = |reason: &str| Err(CommitmentError::Argument(reason.to_owned()));
    let new = |integers, width| Elements::new(integers, width).map(drop);
    let one = Integers::Unsigned(&[1]);
    assert_eq!(new(one, 0), argument("width: 0 bytes, not between 1 and 8"));
    assert_eq!(new(one, 9), argument("width: 9 bytes, not between 1 and 8"));
    let many = vec![0; MAX_LENGTH + 1];
    let none = "vector: 0 elements, not between 1 and 1048576";
    assert_eq!(new(Integers::Signed(&[]), 8), argument(none));
    let beyond = "vector: 1048577 elements, not between 1 and 1048576";
    assert_eq!(new(Integers::Unsigned(&many), 8), argument(beyond));
    let commit = |integers: Integers<'_>, width, threads| {
        let elements = Elements::new(integers, width).unwrap();
        commit(&blocks(1), &elements, &Scalar::ONE, threads).map(drop)
    };
    let reason = "vector: 4097 elements, and generators for 4096";
    assert_eq!(
        commit(Integers::Unsigned(&many[..4097]), 8, 1),
        argument(reason)
    );
    assert_eq!(commit(one, 1, 0), argument("threads: 0, not 1 or 2"));
    assert_eq!(commit(one, 1, 3), argument("threads: 3, not 1 or 2"));
    for (width, beyond) in [(1, 256), (4, 1 << 32), (7, 1 << 56), (7, u64::MAX)] {
        let reason = format!("elements: one is not below 2**{}", 8 * width);
        let refused = commit(Integers::Unsigned(&[1, beyond]), width, 1);
        assert_eq!(refused, argument(&reason));
    }
    for (width, beyond) in [(1, 128), (1, -129), (4, 1 << 31), (7, i64::MIN)] {
        let bits = 8 * width - 1;
        let reason = format!("elements: one is not between -2**{bits} and 2**{bits} - 1");
        let refused = commit(Integers::Signed(&[1, beyond]), width, 1);
        assert_eq!(refused, argument(&reason));
    }
}

#[test]
fn only_this_block_is_read() {
    let bytes = make_block(1, 1).unwrap();
    assert_eq!(bytes, make_block(1, 2).unwrap());
    assert!(Block::read(1, &bytes).is_ok());
    let damaged = |reason: &str| Some(CommitmentError::Damaged(reason.to_owned()));
    let other = "block 0: not the generators of this version";
    assert_eq!(Block::read(0, &bytes).err(), damaged(other));
    let cut = "block 1: 393215 bytes, not 393216";
    assert_eq!(Block::read(1, &bytes[1..]).err(), damaged(cut));
    let altered = "block 1: not the generators of this version";
    for index in [0, 200_000, BLOCK_BYTES - 1] {
        let mut bytes = bytes.clone();
        bytes[index] ^= 0x10;
        assert_eq!(Block::read(1, &bytes).err(), damaged(altered));
    }
    let beyond = CommitmentError::Argument("block: 256, not below 256".to_owned());
    assert_eq!(Block::read(256, &bytes).err(), Some(beyond.clone()));
    assert_eq!(make_block(256, 1), Err(beyond));
}

/// Makes `digests.bin` anew: `cargo test --release --lib -- --ignored write_digests`. The digests change only
/// with the label of the generators.
#[test]
#[ignore = "writes a file of the sources"]
fn write_digests() {
    let all = (0..BLOCKS).flat_map(|number| digest(number, &make_block(number, 2).unwrap()));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/pedersen/digests.bin");
    std::fs::write(file, all.collect::<Vec<u8>>()).unwrap();
}
