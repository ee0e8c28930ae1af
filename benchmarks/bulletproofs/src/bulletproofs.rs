//! `bulletproofs BATCH REPEATS`: 64-bit range proofs of the crate bulletproofs, as its own benchmarks make and verify
//! them: generators made before, one value a proof; it verifies no batches, so BATCH proofs are verified one by one.
//! Medians; one thread.

use std::time::Instant;

use bulletproofs::{BulletproofGens, PedersenGens, RangeProof};
use dalek4::scalar::Scalar;
use merlin::Transcript;

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|argument| argument.parse().expect("BATCH REPEATS"))
        .collect();
    let [batch, repeats] = numbers[..] else {
        panic!("BATCH REPEATS");
    };
    let (pedersen, gens) = (PedersenGens::default(), BulletproofGens::new(64, 1));
    let start = || Transcript::new(b"bench");
    let (mut made, mut prove) = (vec![], vec![]);
    for number in 0..batch.max(repeats) as u64 {
        let value = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let blinding = Scalar::random(&mut rand::rngs::OsRng);
        let begun = Instant::now();
        let proof = RangeProof::prove_single(&gens, &pedersen, &mut start(), value, &blinding, 64);
        prove.push(begun.elapsed().as_secs_f64());
        made.push(proof.expect("a proof"));
    }
    let check = |number: usize| {
        let (proof, commitment) = &made[number];
        let begun = Instant::now();
        proof
            .verify_single(&gens, &pedersen, &mut start(), commitment, 64)
            .expect("valid");
        begun.elapsed().as_secs_f64()
    };
    let verify: Vec<f64> = (0..repeats).map(check).collect();
    let together = (0..batch).map(check).sum::<f64>() / batch as f64;
    let bytes = made[0].0.to_bytes();
    println!(
        "{{\"name\": \"bulletproofs\", \"version\": \"5.0.0\", \"checksum\": \"{:02x}{:02x}\", \"figures\": {{\
         \"prove\": {{\"unit\": \"s\", \"value\": {:e}}}, \"verify\": {{\"unit\": \"s\", \"value\": {:e}}}, \
         \"batch\": {{\"unit\": \"s\", \"value\": {:e}}}, \"bytes\": {{\"unit\": \"B\", \"value\": {}}}}}}}",
        bytes[5],
        bytes[6],
        median(prove),
        median(verify),
        together,
        bytes.len()
    );
}
