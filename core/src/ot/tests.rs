use std::time::Instant;

use super::*;

fn setup(k: usize) -> (ExtensionSender, ExtensionReceiver) {
    let mut sender = ExtensionSender::new(&[7; 32], &[1; 32], k).unwrap();
    let (mut receiver, first) = ExtensionReceiver::new(&[7; 32], &[2; 32], k).unwrap();
    let response = sender.respond(&first).unwrap();
    let corrections = receiver.finish_setup(&response).unwrap();
    sender.finish_setup(&corrections).unwrap();
    (sender, receiver)
}

fn choices(count: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..count.div_ceil(8))
        .map(|i| (i * 37 + 11) as u8)
        .collect();
    if !count.is_multiple_of(8) {
        *bytes.last_mut().unwrap() &= (1 << (count % 8)) - 1;
    }
    bytes
}

fn bit(choices: &[u8], number: usize) -> u8 {
    choices[number / 8] >> (number % 8) & 1
}

#[test]
fn correlated_rows_differ_by_delta() {
    let (mut corrections, mut t, mut q) = (Vec::new(), Vec::new(), Vec::new());
    for k in [2, 4] {
        let (mut sender, mut receiver) = setup(k);
        let delta = sender.delta().unwrap();
        for count in [1, 7, 128, 129, 8064, 8065, 8192, 20_000] {
            let x = choices(count);
            receiver.extend(count, &x, &mut corrections).unwrap();
            let challenge = sender.challenge(count, &corrections).unwrap();
            let response = receiver.correlated(&challenge, &mut t).unwrap();
            sender.correlated(&response, &mut q).unwrap();
            assert_eq!(sender.next_index(), receiver.next_index());
            for j in 0..count {
                let mask = 0u8.wrapping_sub(bit(&x, j));
                let expected: Row = std::array::from_fn(|i| q[j][i] ^ delta[i] & mask);
                assert_eq!(t[j], expected, "k {k}, {count} transfers, number {j}");
            }
        }
    }
}

#[test]
fn random_pads_agree_and_the_other_is_different() {
    let (mut corrections, mut t, mut q) = (Vec::new(), Vec::new(), Vec::new());
    for k in [2, 4] {
        let (mut sender, mut receiver) = setup(k);
        let x = choices(300);
        receiver.extend(300, &x, &mut corrections).unwrap();
        let challenge = sender.challenge(300, &corrections).unwrap();
        let response = receiver.random(&challenge, &mut t).unwrap();
        sender.random(&response, &mut q).unwrap();
        for (j, pad) in t.iter().enumerate() {
            assert_eq!(*pad, q[j + 300 * usize::from(bit(&x, j))]);
            assert_ne!(q[j], q[j + 300]);
        }
    }
}

#[test]
fn rows_of_different_chunks_share_nothing() {
    let (mut corrections, mut t, mut q) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sender, mut receiver) = setup(2);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        receiver
            .extend(200, &choices(200), &mut corrections)
            .unwrap();
        let challenge = sender.challenge(200, &corrections).unwrap();
        let response = receiver.correlated(&challenge, &mut t).unwrap();
        sender.correlated(&response, &mut q).unwrap();
        for row in &q {
            assert!(seen.insert(*row));
        }
    }
}

#[test]
fn a_flipped_response_ends_the_setup() {
    let (mut corrections, mut t, mut q) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sender, mut receiver) = setup(4);
    receiver.extend(10, &choices(10), &mut corrections).unwrap();
    let challenge = sender.challenge(10, &corrections).unwrap();
    let mut response = receiver.correlated(&challenge, &mut t).unwrap();
    response[30] ^= 4;
    assert!(matches!(
        sender.correlated(&response, &mut q),
        Err(OtError::Peer(_))
    ));
    assert_eq!(
        sender.challenge(10, &corrections),
        Err(OtError::State(extension::DESTROYED))
    );
    assert!(sender.delta().is_err());
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

/// Run by hand: `cargo test --release -- --ignored --nocapture ot::tests::speed`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let (mut corrections, mut t, mut q) = (Vec::new(), Vec::new(), Vec::new());
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
        let (message, keys) = base::respond(&[0; 32], &[2; 32], &[1; KAPPA], &first).unwrap();
        let pairs = sender.finish(&message).unwrap();
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
    use crate::ot::streams::{Column, TILE, TILE_ROWS};
    let columns = Box::new([Column::ZERO; KAPPA]);
    let mut rows = vec![[0; 16]; TILE_ROWS];
    let (mut a, mut b) = (vec![], vec![]);
    for _ in 0..200 {
        let clock = Instant::now();
        transpose::transpose(std::hint::black_box(&columns), &mut rows);
        a.push(clock.elapsed().as_secs_f64());
        let mut hashes = check::ColumnHashes::new(&[3; 16], KAPPA, TILE);
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

/// Wall-clock rate with each side on its own thread, over `setups` setups in turn.
fn threaded(k: usize, setups: usize, count: usize, rounds: usize) -> f64 {
    use std::sync::mpsc::channel;
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = (0..setups).map(|_| setup(k)).unzip();
    let (to_sender, at_sender) = channel::<Vec<u8>>();
    let (to_receiver, at_receiver) = channel::<Vec<u8>>();
    let x = choices(count);
    let clock = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut rows = Vec::new();
            for receiver in &mut receivers {
                let mut message = Vec::new();
                receiver.extend(count, &x, &mut message).unwrap();
                to_sender.send(message).unwrap();
            }
            for round in 0..rounds {
                for receiver in &mut receivers {
                    let challenge = at_receiver.recv().unwrap();
                    let response = receiver.correlated(&challenge, &mut rows).unwrap();
                    to_sender.send(response).unwrap();
                    if round + 1 < rounds {
                        let mut message = Vec::new();
                        receiver.extend(count, &x, &mut message).unwrap();
                        to_sender.send(message).unwrap();
                    }
                }
            }
        });
        let mut rows = Vec::new();
        for sender in &mut senders {
            let corrections = at_sender.recv().unwrap();
            let challenge = sender.challenge(count, &corrections).unwrap();
            to_receiver.send(challenge).unwrap();
        }
        for round in 0..rounds {
            for sender in &mut senders {
                let response = at_sender.recv().unwrap();
                sender.correlated(&response, &mut rows).unwrap();
                if round + 1 < rounds {
                    let corrections = at_sender.recv().unwrap();
                    let challenge = sender.challenge(count, &corrections).unwrap();
                    to_receiver.send(challenge).unwrap();
                }
            }
        }
    });
    (setups * rounds * count) as f64 / clock.elapsed().as_secs_f64() / 1e6
}

/// Run by hand, like `speed`.
#[test]
#[ignore = "a measurement"]
fn wall_clock() {
    for k in [2, 4] {
        for setups in [1, 2] {
            let runs = (0..9).map(|_| threaded(k, setups, 1 << 16, 200)).collect();
            println!("k {k}, {setups} setups: {:.1} M transfers/s", median(runs));
        }
    }
}
