//! `bulletproofs_plus BATCH REPEATS`: 64-bit range proofs of the crate tari_bulletproofs_plus, as its own benchmarks
//! make and verify them: generators made before, one value a proof. Medians; one thread.

use std::time::Instant;

use dalek5::scalar::Scalar;
use tari_bulletproofs_plus::commitment_opening::CommitmentOpening;
use tari_bulletproofs_plus::generators::pedersen_gens::ExtensionDegree;
use tari_bulletproofs_plus::range_parameters::RangeParameters;
use tari_bulletproofs_plus::range_proof::{RangeProof, VerifyAction};
use tari_bulletproofs_plus::range_statement::RangeStatement;
use tari_bulletproofs_plus::range_witness::RangeWitness;
use tari_bulletproofs_plus::ristretto::{
    RistrettoRangeProof, create_pedersen_gens_with_extension_degree,
};
use tari_merlin::Transcript;

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
    let gens = create_pedersen_gens_with_extension_degree(ExtensionDegree::DefaultPedersen);
    let parameters = RangeParameters::init(64, 1, gens).expect("parameters");
    let case = |number: u64| {
        let value = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let blinding = Scalar::from(number + 1).invert();
        let commitment = parameters
            .pc_gens()
            .commit(&Scalar::from(value), &[blinding])
            .expect("a commitment");
        let witness =
            RangeWitness::init(vec![CommitmentOpening::new(value, vec![blinding])]).expect("a witness");
        let statement = RangeStatement::init(parameters.clone(), vec![commitment], vec![None], None)
            .expect("a statement");
        (statement, witness)
    };
    let start = || Transcript::new(b"bench");
    let (mut statements, mut proofs, mut prove) = (vec![], vec![], vec![]);
    for number in 0..batch.max(repeats) as u64 {
        let (statement, witness) = case(number);
        let begun = Instant::now();
        let proof = RistrettoRangeProof::prove(&mut start(), &statement, &witness).expect("a proof");
        prove.push(begun.elapsed().as_secs_f64());
        statements.push(statement);
        proofs.push(proof);
    }
    let check = |from: usize, to: usize| {
        let mut transcripts: Vec<_> = (from..to).map(|_| start()).collect();
        let begun = Instant::now();
        RangeProof::verify_batch(
            &mut transcripts,
            &statements[from..to],
            &proofs[from..to],
            VerifyAction::VerifyOnly,
        )
        .expect("valid");
        begun.elapsed().as_secs_f64()
    };
    let verify = (0..repeats).map(|number| check(number, number + 1)).collect();
    let together = check(0, batch) / batch as f64;
    let bytes = proofs[0].to_bytes();
    println!(
        "{{\"name\": \"tari_bulletproofs_plus\", \"version\": \"0.5.3\", \"checksum\": \"{:02x}{:02x}\", \"figures\": {{\
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
