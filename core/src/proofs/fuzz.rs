//! Hostile encodings, claims and proofs.

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE;
use curve25519_dalek::scalar::Scalar;

use super::batch::{Item, find_false};
use super::commit::{self, Opening};
use super::edges::{self, Claims, Edges};
use super::encode::{self, ELEMENT, Element};
use super::noise::{Noise, Secret};
use super::norm::Norm;
use super::range::Range;
use crate::fuzz::{mutate, run};

/// The group's order, little-endian [RFC 9496, section 4.4].
const ORDER: Element = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

static POINTS: LazyLock<Vec<Element>> = LazyLock::new(|| {
    let point = |i: u64| {
        (&Scalar::from(i) * RISTRETTO_BASEPOINT_TABLE)
            .compress()
            .to_bytes()
    };
    (0..64).map(point).collect()
});

/// `scalar` and the group's order: another encoding of the same number, which is not canonical.
fn plus_order(scalar: &Element) -> Element {
    let mut carry = 0;
    std::array::from_fn(|i| {
        let sum = u16::from(scalar[i]) + u16::from(ORDER[i]) + carry;
        carry = sum >> 8;
        sum as u8
    })
}

/// Arbitrary bytes, or those of an element with a few of them changed.
fn element(input: &mut Unstructured<'_>) -> Result<Element> {
    let mut element = *input.choose(&POINTS)?;
    match input.int_in_range(0..=7)? {
        0 => {}
        1 => element[input.choose_index(ELEMENT)?] ^= 1 << input.int_in_range(0..=7)?,
        2 => element = plus_order(&element),
        3 => {
            let high = input.arbitrary::<u8>()?;
            element = [0xff; ELEMENT];
            element[0] = input.arbitrary()?;
            element[ELEMENT - 1] = high;
        }
        _ => element = input.arbitrary()?,
    }
    Ok(element)
}

#[test]
fn points() {
    run("points", 1, 48, |input| {
        let bytes = element(input)?;
        if let Ok(point) = encode::point("point", &bytes) {
            assert_eq!(point.compress().to_bytes(), bytes);
        }
        Ok(())
    });
}

#[test]
fn scalars() {
    run("scalars", 1, 48, |input| {
        let bytes = element(input)?;
        let below = bytes.iter().rev().lt(ORDER.iter().rev());
        match encode::scalar("scalar", &bytes) {
            Ok(scalar) => assert!(below && scalar.to_bytes() == bytes),
            Err(_) => assert!(!below),
        }
        Ok(())
    });
}

#[test]
fn packed() {
    run("packed", 1, 130, |input| {
        let bytes = input.bytes(input.len())?;
        match edges::parties(bytes) {
            Ok(parties) => {
                let packed: Vec<u8> = parties
                    .iter()
                    .flat_map(|party| party.to_le_bytes())
                    .collect();
                assert_eq!(packed, bytes);
            }
            Err(_) => assert!(!bytes.len().is_multiple_of(2)),
        }
        match edges::elements(bytes) {
            Ok(elements) => assert_eq!(elements.as_flattened(), bytes),
            Err(_) => assert!(!bytes.len().is_multiple_of(ELEMENT)),
        }
        Ok(())
    });
}

/// Claims about edges are refused, or have the sum of the edges that count; the fold never fails.
#[test]
fn claims() {
    let fold = Edges::new(vec![true, false, true, true], true).unwrap();
    run("claims", 1, 256, |input| {
        let count = input.int_in_range(0..=3)?;
        let mut claim = Claims {
            party: input.int_in_range(0..=6)?,
            neighbours: vec![],
            edges: vec![],
            others: vec![],
        };
        for _ in 0..count {
            claim.neighbours.push(input.int_in_range(0..=6)?);
            claim.edges.push(element(input)?);
        }
        if input.ratio(1, 8)? {
            claim.others.push(element(input)?);
        }
        if input.ratio(1, 16)? {
            claim.neighbours.pop();
        }
        let canonical = |bytes: &Element| encode::point("point", bytes).is_ok();
        let good = (1..=4).contains(&claim.party)
            && claim.neighbours.len() == claim.edges.len()
            && claim.neighbours.iter().all(|peer| (1..=4).contains(peer))
            && claim.edges.iter().chain(&claim.others).all(canonical);
        let counted = claim
            .neighbours
            .iter()
            .zip(&claim.edges)
            .filter(|(peer, _)| **peer != 2);
        let expected: Vec<Element> = counted.map(|(_, edge)| *edge).collect();
        let sums = fold.take(std::slice::from_ref(&claim));
        assert_eq!(sums.len(), 1);
        match &sums[0] {
            Ok(sum) => {
                assert!(good);
                let total = commit::combine(&expected, &[]).unwrap();
                assert_eq!(total.compress().to_bytes(), *sum);
            }
            Err(_) => assert!(!good),
        }
        Ok(())
    });
}

/// A true statement: its public parts, and the proof.
struct True {
    pieces: Vec<Vec<u8>>,
    item: fn(&[Vec<u8>]) -> Option<Item>,
}

fn array(bytes: &[u8]) -> Option<Element> {
    bytes.try_into().ok()
}

fn blinding(seed: u8) -> Scalar {
    Scalar::from_bytes_mod_order([seed; 32])
}

fn commitment(values: &[i128], seed: u8) -> Vec<u8> {
    commit::commit(values, &blinding(seed))
        .compress()
        .to_bytes()
        .to_vec()
}

/// Two true statements of each kind: parts of one are put into the other.
fn statements() -> Vec<[True; 2]> {
    let opening = |seed: u8| True {
        pieces: vec![
            commitment(&[i128::from(seed), -5], seed),
            blinding(seed).to_bytes().to_vec(),
            vec![seed],
        ],
        item: |pieces| {
            Some(Item::Opening(Opening {
                plus: vec![array(&pieces[0])?],
                minus: vec![],
                values: vec![i128::from(<[u8; 1]>::try_from(&pieces[2][..]).ok()?[0]), -5],
                blinding: array(&pieces[1])?,
            }))
        },
    };
    let range = |seed: u8| {
        let values = [i128::from(seed % 7), -3];
        let proof = Range::new(2, &[-3], &[9]).unwrap().prove(
            &[seed; 32],
            &values,
            &blinding(seed),
            &[1; 32],
        );
        True {
            pieces: vec![vec![seed; 32], commitment(&values, seed), proof.unwrap()],
            item: |pieces| {
                Some(Item::Range {
                    range: Range::new(2, &[-3], &[9]).ok()?,
                    context: array(&pieces[0])?,
                    commitment: array(&pieces[1])?,
                    proof: pieces[2].clone(),
                })
            },
        }
    };
    let norm = |seed: u8| {
        let values = [i128::from(seed % 3), 2, 0];
        let proof = Norm::new(3, 9)
            .unwrap()
            .prove(&[seed; 32], &values, &blinding(seed), &[1; 32]);
        True {
            pieces: vec![vec![seed; 32], commitment(&values, seed), proof.unwrap()],
            item: |pieces| {
                Some(Item::Norm {
                    norm: Norm::new(3, 9).ok()?,
                    context: array(&pieces[0])?,
                    commitment: array(&pieces[1])?,
                    proof: pieces[2].clone(),
                })
            },
        }
    };
    let noise = |seed: u8| {
        let secret = Secret::new(Noise::new(2, 8).unwrap(), &[seed, 0x5a], &[seed; 64]).unwrap();
        let coins = vec![0xa7, seed];
        let (noise, proof) = secret
            .prove(&[seed; 32], &coins, &blinding(seed), &[1; 32])
            .unwrap();
        True {
            pieces: vec![
                vec![seed; 32],
                secret.commitment().to_vec(),
                noise.to_vec(),
                coins,
                proof,
            ],
            item: |pieces| {
                Some(Item::Noise {
                    noise: Noise::new(2, 8).ok()?,
                    context: array(&pieces[0])?,
                    secret_commitment: array(&pieces[1])?,
                    noise_commitment: array(&pieces[2])?,
                    coins: (pieces[3].len() == 2).then(|| pieces[3].clone())?,
                    proof: pieces[4].clone(),
                })
            },
        }
    };
    vec![
        [opening(3), opening(4)],
        [range(3), range(4)],
        [norm(3), norm(4)],
        [noise(3), noise(4)],
    ]
}

/// Changes one piece of a statement, elementwise where it has elements.
fn forge(input: &mut Unstructured<'_>, piece: &mut Vec<u8>, other: &[u8]) -> Result<()> {
    let elements = piece.len() / ELEMENT;
    if elements == 0 || input.ratio(1, 4)? {
        return mutate(input, piece);
    }
    let index = input.choose_index(elements)?;
    let (all, _) = piece.as_chunks_mut::<ELEMENT>();
    let (others, _) = other.as_chunks::<ELEMENT>();
    match input.int_in_range(0..=7)? {
        0 => all[index] = others[index],
        1 => all[index] = others[input.choose_index(others.len())?],
        2 => all[index] = plus_order(&all[index]),
        3 => {
            all[index] = [0; ELEMENT];
            all[index][0] = input.int_in_range(0..=2)?;
        }
        4 => all.swap(index, input.choose_index(elements)?),
        5 => all[index] = *input.choose(&POINTS)?,
        6 => {
            if let Some(scalar) = Scalar::from_canonical_bytes(all[index]).into_option() {
                all[index] = (-scalar).to_bytes();
            }
        }
        _ => piece.truncate(index * ELEMENT),
    }
    Ok(())
}

/// No changed statement or proof verifies, whatever is exchanged, negated or reordered.
#[test]
fn proofs() {
    let kinds = statements();
    let [openings, ranges, norms, noises] = &kinds[..] else {
        unreachable!()
    };
    for statement in kinds.iter().flatten() {
        let item = (statement.item)(&statement.pieces).unwrap();
        assert_eq!(find_false(&[item], 1), Ok(vec![]));
    }
    for (name, [first, second]) in [
        ("openings", openings),
        ("ranges", ranges),
        ("norms", norms),
        ("noises", noises),
    ] {
        run(name, 1000, 160, |input| {
            let mut pieces = first.pieces.clone();
            for _ in 0..input.int_in_range(1..=2)? {
                let index = input.choose_index(pieces.len())?;
                forge(input, &mut pieces[index], &second.pieces[index])?;
            }
            if pieces != first.pieces
                && let Some(item) = (first.item)(&pieces)
            {
                assert_eq!(find_false(&[item], 1), Ok(vec![0]), "{name}: {pieces:?}");
            }
            Ok(())
        });
    }
}
