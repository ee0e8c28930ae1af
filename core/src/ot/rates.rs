//! Measurements, run by hand: `cargo test --release --lib -- --ignored --nocapture --test-threads=1 ot::rates`.

use std::time::Instant;

use super::tests::{choices, setup};
use super::*;

/// Limits the kernels as the module of Python does.
fn limit() {
    if let Ok(name) = std::env::var("SMPC_DP_KERNELS") {
        crate::instructions::limit(&name).unwrap();
    }
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    limit();
    use curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE;
    use curve25519_dalek::{ristretto::RistrettoPoint, scalar::Scalar};
    let mut base = Vec::new();
    let mut matched = Vec::new();
    let mut variable = Vec::new();
    let point = RistrettoPoint::from_uniform_bytes(&[9; 64]);
    let scalar = Scalar::from_bytes_mod_order([77; 32]);
    for _ in 0..15 {
        let clock = Instant::now();
        let (sender, first) = base::BaseSender::start(&[0; 32], &[1; 32]);
        let (message, keys) = base::respond(&[0; 32], &[2; 32], &[1; KAPPA], &first, 1).unwrap();
        let (pairs, _) = sender.finish(KAPPA, &message, 1).unwrap();
        base.push(clock.elapsed().as_secs_f64());
        assert_eq!(pairs[5][1], keys[5]);
        let clock = Instant::now();
        for _ in 0..3 * KAPPA {
            std::hint::black_box(std::hint::black_box(&point) * std::hint::black_box(&scalar));
        }
        let three = clock.elapsed().as_secs_f64();
        for _ in 0..=KAPPA {
            std::hint::black_box(std::hint::black_box(&scalar) * RISTRETTO_BASEPOINT_TABLE);
        }
        matched.push(clock.elapsed().as_secs_f64());
        variable.push(three * 513.0 / 384.0);
    }
    let (base, matched, variable) = (median(base), median(matched), median(variable));
    println!(
        "base {:.2} ms; 384 variable + 129 fixed {:.2} ms, ratio {:.2}; 513 variable {:.2} ms, ratio {:.2}",
        base * 1e3,
        matched * 1e3,
        base / matched,
        variable * 1e3,
        base / variable
    );
    for k in [2, 4] {
        let clock = Instant::now();
        let (mut sender, mut receiver) = setup(k);
        println!("k {k}: setup {:.2} ms", clock.elapsed().as_secs_f64() * 1e3);
        for count in [1 << 14, 1 << 17, 1 << 20] {
            let x = choices(count);
            let mut corrections = vec![0; receiver.corrections(count).unwrap()];
            let (mut t, mut q) = (vec![[0; 16]; count], vec![[0; 16]; count]);
            let mut times: [Vec<f64>; 4] = Default::default();
            for _ in 0..15 {
                let clock = Instant::now();
                receiver.extend(count, &x, &mut corrections).unwrap();
                times[0].push(clock.elapsed().as_secs_f64());
                let clock = Instant::now();
                let challenge = sender.challenge(count, &corrections).unwrap();
                times[1].push(clock.elapsed().as_secs_f64());
                let clock = Instant::now();
                let response = receiver.correlated(&challenge, &mut t).unwrap();
                times[2].push(clock.elapsed().as_secs_f64());
                let clock = Instant::now();
                sender.correlated(&response, &mut q).unwrap();
                times[3].push(clock.elapsed().as_secs_f64());
                std::hint::black_box((&q, &t));
            }
            let [extend, challenge, answer, finish] =
                times.map(|runs| median(runs) / count as f64 * 1e9);
            println!(
                "k {k}, {count}: ns per transfer: receiver {extend:.2} + {answer:.2}, sender {challenge:.2} + {finish:.2}; M/s {:.1} and {:.1}",
                1e3 / (extend + answer),
                1e3 / (challenge + finish)
            );
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn parts() {
    limit();
    use crate::ot::column::{Column, TILE, TILE_ROWS};
    let columns = Box::new([Column::ZERO; KAPPA]);
    let mut rows = vec![[0; 16]; TILE_ROWS];
    let (mut a, mut b) = (vec![], vec![]);
    for _ in 0..200 {
        let clock = Instant::now();
        transpose::transpose(Kernels::Fastest, std::hint::black_box(&columns), &mut rows);
        a.push(clock.elapsed().as_secs_f64());
        let mut hashes = check::ColumnHashes::new(Kernels::Fastest, &[3; 16], KAPPA, TILE);
        let clock = Instant::now();
        hashes.update(std::hint::black_box(&*columns), TILE);
        b.push(clock.elapsed().as_secs_f64());
        std::hint::black_box((&rows, hashes.finish().len()));
    }
    println!(
        "transpose {:.2} hash {:.2} ns",
        median(a) / 8192.0 * 1e9,
        median(b) / 8192.0 * 1e9
    );
}

/// Wall-clock rate with each side on its own thread, `depth` chunks on their way.
fn threaded(k: usize, depth: usize, count: usize, chunks: usize) -> f64 {
    use std::sync::mpsc::channel;
    let (mut sender, mut receiver) = setup(k);
    let (to_sender, at_sender) = channel::<Vec<u8>>();
    let (give_back, given_back) = channel::<Vec<u8>>();
    let (to_receiver, at_receiver) = channel::<Vec<u8>>();
    let (respond, responses) = channel::<Vec<u8>>();
    let x = choices(count);
    for _ in 0..depth {
        give_back
            .send(vec![0; receiver.corrections(count).unwrap()])
            .unwrap();
    }
    let clock = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut rows = vec![[0; 16]; count];
            for round in 0..chunks + depth {
                if round >= depth {
                    let challenge = at_receiver.recv().unwrap();
                    respond
                        .send(receiver.correlated(&challenge, &mut rows).unwrap())
                        .unwrap();
                }
                if round < chunks {
                    let mut message = given_back.recv().unwrap();
                    receiver.extend(count, &x, &mut message).unwrap();
                    to_sender.send(message).unwrap();
                }
            }
        });
        let mut rows = vec![[0; 16]; count];
        for round in 0..chunks + depth {
            if round >= depth {
                let response = responses.recv().unwrap();
                sender.correlated(&response, &mut rows).unwrap();
            }
            if round < chunks {
                let corrections = at_sender.recv().unwrap();
                let challenge = sender.challenge(count, &corrections).unwrap();
                let _ = give_back.send(corrections);
                to_receiver.send(challenge).unwrap();
            }
        }
    });
    (chunks * count) as f64 / clock.elapsed().as_secs_f64() / 1e6
}

#[test]
#[ignore = "a measurement"]
fn wall_clock() {
    limit();
    for k in [2, 4] {
        for depth in [1, 2, 3, 4] {
            for blocks in [128, 256, 512, 1024, 2048] {
                let count = 128 * (blocks - 1);
                let chunks = 200 * 512 / blocks;
                let runs = (0..5).map(|_| threaded(k, depth, count, chunks)).collect();
                println!(
                    "k {k}, {depth} of {count}: {:.1} M transfers/s",
                    median(runs)
                );
            }
        }
    }
}
