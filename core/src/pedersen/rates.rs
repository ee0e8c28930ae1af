//! Measurements, run by hand: `cargo test --release --lib -- --ignored --nocapture --test-threads=1 pedersen::rates`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::{MultiscalarMul, VartimeMultiscalarMul};
use rand_xoshiro::rand_core::RngCore;

use super::generators::Family;
use super::point::Extended;
use super::tests::random;
use super::*;

const RUNS: usize = 7;

/// Returns the least of some runs' seconds: other processes only add to it.
fn least(mut run: impl FnMut()) -> f64 {
    let runs = (0..RUNS).map(|_| {
        let clock = Instant::now();
        run();
        clock.elapsed().as_secs_f64()
    });
    runs.fold(f64::INFINITY, f64::min)
}

/// Nanoseconds of an addition of dalek, of ours of 7 and of 8 multiplications, and of one multiplication's share.
///
/// Sums alternate, as those of windows and buckets do.
fn additions() -> [f64; 3] {
    const COUNT: usize = 200_000;
    let per = |seconds: f64| seconds / COUNT as f64 * 1e9;
    let summand = Family::values().point(1);
    let (niels, cached) = (summand.niels(), summand.extended().cached());
    let element = RistrettoPoint::from_uniform_bytes(&[7; 64]);
    let mut elements = [element; 8];
    let mut sums = [Extended::IDENTITY; 8];
    [
        per(least(|| {
            for index in 0..COUNT {
                elements[index % 8] += black_box(element);
            }
            black_box(&elements);
        })),
        per(least(|| {
            for index in 0..COUNT {
                sums[index % 8] = sums[index % 8].plus_niels(black_box(&niels));
            }
            black_box(&sums);
        })),
        per(least(|| {
            for index in 0..COUNT {
                sums[index % 8] = sums[index % 8].plus(black_box(&cached));
            }
            black_box(&sums);
        })),
    ]
}

/// Multiplications in the field for an element of a commitment: `table.rs` counts them.
fn multiplications(width: usize) -> f64 {
    // Two sums and differences of stored points, two summands, four sums and differences, eight summands; the sum
    // of all points.
    let table = 2 * 14 + 2 + 4 * 14 + 8;
    (table + 8 * (8 * width + 1)) as f64 / 4.0
}

fn all_blocks(count: usize) -> Vec<Arc<Block>> {
    let block = |number| Arc::new(Block::read(number, &make_block(number, 2).unwrap()).unwrap());
    (0..count).map(block).collect()
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let [dalek, seven, eight] = additions();
    println!("ns an addition: dalek {dalek:.0}, 7 multiplications {seven:.0}, 8 {eight:.0}");
    let blocks = all_blocks(25);
    let mut random = random(9);
    for count in [10_000, 100_000] {
        for width in [2, 4, 6, 8] {
            let words: Vec<u64> = (0..count)
                .map(|_| random.next_u64() >> (64 - 8 * width))
                .collect();
            let elements = Elements::new(Integers::Unsigned(&words), width).unwrap();
            let blinding = Scalar::from(5u64);
            let mut commitment = [0; 32];
            let [alone, both] = [1, 2].map(|threads| {
                least(|| commitment = commit(&blocks, &elements, &blinding, threads).unwrap())
            });
            let counted = multiplications(width) / 8.0;
            let bound = counted * eight * count as f64 / 1e9;
            let [check_alone, check_both] = [1, 2].map(|threads| {
                least(|| {
                    let commitments = [commitment];
                    assert!(check(&blocks, &elements, &blinding, &commitments, threads).unwrap());
                })
            });
            println!(
                "{count} of {width} bytes: commit {:.1} ms, two threads {:.1} ms; {counted:.1} additions an element, {:.2} of their time; check {:.1} ms, two threads {:.1} ms",
                alone * 1e3,
                both * 1e3,
                alone / bound,
                check_alone * 1e3,
                check_both * 1e3
            );
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn parts() {
    let make = least(|| {
        black_box(make_block(0, 1).unwrap());
    });
    let both = least(|| {
        black_box(make_block(0, 2).unwrap());
    });
    let bytes = make_block(0, 2).unwrap();
    let read = least(|| {
        black_box(Block::read(0, &bytes).unwrap());
    });
    let encoded: Vec<[u8; 32]> = (0..1000)
        .map(|index| Family::values().encoded(index))
        .collect();
    let decode = least(|| {
        for bytes in &encoded {
            black_box(super::ristretto::decode(bytes));
        }
    });
    println!(
        "a block: made in {:.1} ms, by two threads {:.1} ms, read in {:.2} ms; a point decoded in {:.1} us",
        make * 1e3,
        both * 1e3,
        read * 1e3,
        decode * 1e3
    );
}

/// What dalek takes for the same sums, on one thread.
#[test]
#[ignore = "a measurement"]
fn dalek() {
    for count in [10_000, 100_000] {
        let points: Vec<RistrettoPoint> = (0..count as u32)
            .map(|index| {
                let mut wide = [3; 64];
                wide[..4].copy_from_slice(&index.to_be_bytes());
                RistrettoPoint::from_uniform_bytes(&wide)
            })
            .collect();
        let mut random = random(9);
        let scalars: Vec<Scalar> = (0..count)
            .map(|_| Scalar::from(random.next_u64() >> 32))
            .collect();
        let constant = least(|| {
            black_box(RistrettoPoint::multiscalar_mul(&scalars, &points));
        });
        let variable = least(|| {
            black_box(RistrettoPoint::vartime_multiscalar_mul(&scalars, &points));
        });
        println!(
            "{count} of 4 bytes by dalek: constant time {:.1} ms, variable time {:.1} ms",
            constant * 1e3,
            variable * 1e3
        );
    }
}
