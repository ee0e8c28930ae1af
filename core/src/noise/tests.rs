//! Tests of parts that the public interface does not expose: enclosures, streams, and close
//! decisions.

use num_bigint::{BigInt, BigUint};

use super::bounds::{Bounds, exp_neg, ln_ratio};
use super::distribution::{Distribution, Rational};
use super::draw::{BLOCK, Sampler};
use super::factorial::{ln_factorial_ratio, product};
use super::table::{Kind, Table, below};
use super::words::Streams;

fn rational(up: u64, down: u64) -> Rational {
    Rational::new(up.into(), down.into())
}

fn distributions() -> Vec<Distribution> {
    vec![
        Distribution::gaussian(rational(1, 3)),
        Distribution::gaussian(rational(10_000, 1)),
        Distribution::laplace(rational(700, 3)),
        Distribution::geometric(rational(1, 500)),
        Distribution::poisson(rational(3, 1)),
        Distribution::poisson(rational(99_999, 7)),
        Distribution::binomial(1_000_000u64.into(), rational(1, 3)),
        Distribution::binomial(3u64.into(), rational(1, 2)),
    ]
}

/// exp(-ln(up / down)) is down / up.
#[test]
fn exponentials_undo_logarithms() {
    for (up, down) in [
        (3u64, 2u64),
        (7, 7),
        (1 << 40, 3),
        (1_000_003, 1_000_000),
        (5, 1),
    ] {
        let log = ln_ratio(&up.into(), &down.into(), 200);
        assert!(&log.high - &log.low < BigInt::from(4), "{up} / {down}");
        let log = Bounds {
            low: BigUint::try_from(log.low.max(BigInt::ZERO)).unwrap(),
            high: BigUint::try_from(log.high).unwrap(),
        };
        let Bounds { low, high } = exp_neg(&log, 200, 180);
        let exact = (BigUint::from(down) << 180u8) / up;
        assert!(low <= exact && exact <= high, "{up} / {down}");
        assert!(&high - &low < BigUint::from(8u8), "{up} / {down}: too wide");
    }
}

#[test]
fn factorial_ratios_enclose_the_product() {
    for (a, b) in [
        (64u64, 65u64),
        (100, 400),
        (400, 100),
        (5000, 5000),
        (90_000, 90_321),
    ] {
        let (small, large) = (a.min(b), a.max(b));
        let point = 140;
        let bounds = ln_factorial_ratio(&a.into(), &b.into(), point).unwrap();
        let power = BigUint::from(a).pow((large - small) as u32);
        let ratio = product(&small.into(), &large.into());
        let exact = if b > a {
            ln_ratio(&ratio, &power, point)
        } else {
            ln_ratio(&power, &ratio, point)
        };
        assert!(
            bounds.low <= exact.high && exact.low <= bounds.high,
            "{a}, {b}"
        );
        assert!(
            &bounds.high - &bounds.low < BigInt::from(100),
            "{a}, {b}: too wide"
        );
    }
}

/// Every height is at least the mass of every value below it, and the weights fit.
#[test]
fn heights_cover_the_masses() {
    for distribution in distributions() {
        let table = Table::new(distribution).unwrap();
        let mut end = 0;
        for (segment, detail) in table.segments.iter().zip(&table.details) {
            let (pieces, step) = match segment.kind {
                Kind::Tail(bits) => (6, 1i128 << bits),
                _ => (1, 0),
            };
            let step = if segment.sign < 0 { -step } else { step };
            for piece in 0..pieces {
                let offset = i128::from(segment.first) + piece * step;
                let high = match table.distribution.mass(offset, 256) {
                    Some(bounds) => bounds.high,
                    None => {
                        let exact = table.distribution.exact(offset).unwrap().unwrap();
                        (exact.up << 256u32) / exact.down + 1u8
                    }
                };
                let mass = (high * &table.room) << (32 + piece as u64);
                let height = (&table.total * detail.height) << 256u32;
                assert!(mass <= height, "{:?} at {offset}", table.distribution);
            }
            assert!(segment.end > end);
            end = segment.end;
        }
        assert!(end <= 1 << 32);
        assert!(
            end > (1 << 32) - (1 << 13),
            "{:?}: {end}",
            table.distribution
        );
    }
}

/// The quick thresholds never contradict the exact decision.
#[test]
fn thresholds_agree_with_the_exact_decision() {
    for distribution in distributions() {
        let table = Table::new(distribution).unwrap();
        let up = &table.room << 32u8;
        for (segment, detail) in table.segments.iter().zip(&table.details).step_by(7) {
            if segment.kind != Kind::Strip {
                continue;
            }
            let down = &table.total * detail.height;
            let last = (1u64 << table.bits) - 1;
            for steps in [0, last / 3, last / 2, last] {
                let offset = i128::from(segment.at(steps));
                let exact = |word: u64| {
                    below(&table.distribution, offset, (&up, &down), word, || {
                        panic!("not undecided")
                    })
                    .unwrap()
                };
                if segment.sure > 0 {
                    assert!(
                        exact(segment.sure - 1),
                        "{:?} at {offset}",
                        table.distribution
                    );
                }
                if let Some((retained, lost)) = detail.thresholds(steps, table.bits) {
                    assert!(retained <= lost);
                    assert!(exact(retained - 1), "{:?} at {offset}", table.distribution);
                    assert!(
                        lost == u64::MAX || !exact(lost),
                        "{:?} at {offset}",
                        table.distribution
                    );
                }
            }
        }
    }
}

/// A word that leaves the decision open is followed by another; a rational edge is met exactly.
#[test]
fn undecided_words_are_followed_by_others() {
    let distribution = Distribution::geometric(rational(1, 1));
    let one = BigUint::from(1u8);
    let threshold: u64 = (distribution.mass(1, 128).unwrap().low >> 64u8)
        .try_into()
        .unwrap();
    let decide = |word: u64, more: &[u64]| {
        let mut more = more.iter().copied();
        let decided = below(&distribution, 1, (&one, &one), word, || {
            more.next().unwrap()
        })
        .unwrap();
        assert!(more.next().is_none(), "words are left");
        decided
    };
    assert!(decide(threshold - 1, &[]));
    assert!(!decide(threshold + 1, &[]));
    assert!(decide(threshold, &[0]));
    assert!(!decide(threshold, &[u64::MAX]));

    // Masses far below what a word resolves: exp(-100) is about 2^-144, exp(-10^9) is nothing.
    for (x, more, retained) in [
        (100, [0, 1 << 47].as_slice(), true),
        (100, &[0, 1 << 49], false),
        (100, &[1], false),
        (1_000_000_000, &[0, 0, 0, 1], false),
    ] {
        let distribution = Distribution::geometric(rational(x, 1));
        let mut words = more.iter().copied();
        let decided = below(&distribution, 1, (&one, &one), 0, || words.next().unwrap()).unwrap();
        assert_eq!(decided, retained, "{x}, {more:?}");
        assert!(words.next().is_none(), "words are left");
    }

    // Binomial of 2 halves: the mass beside the mode is exactly 1/2.
    let distribution = Distribution::binomial(2u8.into(), rational(1, 2));
    let half = 1u64 << 63;
    let decide =
        |word| below(&distribution, 1, (&one, &one), word, || panic!("undecided")).unwrap();
    assert!(decide(half - 1));
    assert!(!decide(half));
}

#[test]
fn threads_and_length_do_not_matter() {
    let streams = Streams::new(&[7; 32]);
    let sampler = Sampler::Difference(Table::new(Distribution::poisson(rational(500, 3))).unwrap());
    let mut expected = vec![0; 5 * BLOCK + 77];
    sampler.fill(&streams, &mut expected, 1).unwrap();
    for (length, threads) in [
        (expected.len(), 2),
        (expected.len(), 5),
        (BLOCK + 3, 2),
        (1, 4),
        (0, 2),
    ] {
        let mut samples = vec![0; length];
        sampler.fill(&streams, &mut samples, threads).unwrap();
        assert_eq!(samples, expected[..length]);
    }
}

/// Words are the cipher's blocks, two each, whatever the batches.
#[test]
fn streams_do_not_depend_on_batches() {
    let streams = Streams::new(&[3; 32]);
    let read = |expected: usize| -> Vec<u64> {
        let mut words = streams.words(5, expected);
        (0..1000).map(|_| words.next()).collect()
    };
    assert_eq!(read(1), read(1000));
    assert_eq!(read(0), read(17));
    assert_ne!(read(1)[..2], streams_of_other_block(&streams));
}

fn streams_of_other_block(streams: &Streams) -> [u64; 2] {
    let mut words = streams.words(6, 2);
    [words.next(), words.next()]
}
