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
    if count % 8 != 0 {
        *bytes.last_mut().unwrap() &= (1 << (count % 8)) - 1;
    }
    bytes
}

fn bit(choices: &[u8], number: usize) -> u8 {
    choices[number / 8] >> (number % 8) & 1
}

#[test]
fn correlated_rows_differ_by_delta() {
    for k in [2, 4] {
        let (mut sender, mut receiver) = setup(k);
        let delta = sender.delta().unwrap();
        for count in [1, 7, 128, 129, 8064, 8065, 8192, 20_000] {
            let x = choices(count);
            let corrections = receiver.extend(count, &x).unwrap();
            let challenge = sender.challenge(count, &corrections).unwrap();
            let (response, t) = receiver.correlated(&challenge).unwrap();
            let q = sender.correlated(&response).unwrap();
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
    for k in [2, 4] {
        let (mut sender, mut receiver) = setup(k);
        let x = choices(300);
        let corrections = receiver.extend(300, &x).unwrap();
        let challenge = sender.challenge(300, &corrections).unwrap();
        let (response, pads) = receiver.random(&challenge).unwrap();
        let pairs = sender.random(&response).unwrap();
        for (j, pair) in pairs.iter().enumerate() {
            assert_eq!(pads[j], pair[usize::from(bit(&x, j))]);
            assert_ne!(pair[0], pair[1]);
        }
    }
}

#[test]
fn rows_of_different_chunks_share_nothing() {
    let (mut sender, mut receiver) = setup(2);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let corrections = receiver.extend(200, &choices(200)).unwrap();
        let challenge = sender.challenge(200, &corrections).unwrap();
        let (response, _) = receiver.correlated(&challenge).unwrap();
        for row in sender.correlated(&response).unwrap() {
            assert!(seen.insert(row));
        }
    }
}

#[test]
fn a_flipped_response_ends_the_setup() {
    let (mut sender, mut receiver) = setup(4);
    let corrections = receiver.extend(10, &choices(10)).unwrap();
    let challenge = sender.challenge(10, &corrections).unwrap();
    let (mut response, _) = receiver.correlated(&challenge).unwrap();
    response[30] ^= 4;
    assert!(matches!(
        sender.correlated(&response),
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
                let corrections = receiver.extend(count, &x).unwrap();
                times[0].push(clock.elapsed().as_secs_f64());
                let clock = Instant::now();
                let challenge = sender.challenge(count, &corrections).unwrap();
                times[1].push(clock.elapsed().as_secs_f64());
                let clock = Instant::now();
                let (response, t) = receiver.correlated(&challenge).unwrap();
                times[2].push(clock.elapsed().as_secs_f64());
                let clock = Instant::now();
                let q = sender.correlated(&response).unwrap();
                times[3].push(clock.elapsed().as_secs_f64());
                std::hint::black_box((q, t));
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
