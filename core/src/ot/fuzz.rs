//! Hostile messages of a transfer's peer.

use super::base::{self, BaseSender};
use super::extension::{CHALLENGE, Chunk};
use super::receiver::check_challenge;
use super::tests::{choices, extend, setup};
use super::*;
use crate::fuzz::{mutate, run};

#[test]
fn base_points() {
    run("base_points", 1, 40, |input| {
        let bytes: [u8; 32] = input.arbitrary()?;
        if let Ok(point) = base::decode("point", &bytes) {
            assert!(point.compress().to_bytes() == bytes && bytes != [0; 32]);
        }
        Ok(())
    });
}

/// A changed response is refused, or gives keys: nothing in it is checked but lengths and encodings.
#[test]
fn base_responses() {
    let (sender, first) = BaseSender::start(&[7; 32], &[1; 32]);
    let (message, _) = base::respond(&[7; 32], &[2; 32], &[1; KAPPA], &first, 1).unwrap();
    run("base_responses", 1, 96, |input| {
        let mut changed = message.clone();
        // Points that are valid cost time only: most inputs end at the first one.
        if input.ratio(1023, 1024)? {
            let bytes: [u8; 32] = input.arbitrary()?;
            changed[48..80].copy_from_slice(&bytes);
            if base::decode("point", &bytes).is_ok() {
                return Ok(());
            }
        }
        mutate(input, &mut changed)?;
        match sender.finish(KAPPA, &changed, 1) {
            Ok((pairs, _)) => {
                assert_eq!((changed.len(), pairs.len()), (KAPPA * base::ENTRY, KAPPA))
            }
            Err(error) => assert!(matches!(error, OtError::Peer(_))),
        }
        Ok(())
    });
}

/// A change of the trees' corrections is found, unless it is in those that the path does not use.
///
/// Nothing is decoded here but the length: as with proofs, what is fuzzed is a check, which takes its time.
#[test]
fn tree_corrections() {
    let base: base::KeyPairs = zeroize::Zeroizing::new(
        (0..KAPPA)
            .map(|i| [[i as u8; 16], [!(i as u8); 16]])
            .collect(),
    );
    let delta = [0x5a; 16];
    let context = [7; 32];
    let bits = pprf::base_choices(4, &delta);
    let keys: base::Keys = zeroize::Zeroizing::new(
        base.iter()
            .zip(bits)
            .map(|(pair, bit)| pair[usize::from(bit)])
            .collect(),
    );
    let (_, message) = pprf::plant(&context, 4, &base);
    let leaves = pprf::puncture(&context, 4, &delta, &keys, &message).unwrap();
    run("tree_corrections", 100, 64, |input| {
        let mut changed = message.clone();
        mutate(input, &mut changed)?;
        match pprf::puncture(&context, 4, &delta, &keys, &changed) {
            Ok(got) => assert!(changed.len() == message.len() && *got == *leaves),
            Err(error) => assert!(changed != message && matches!(error, OtError::Peer(_))),
        }
        Ok(())
    });
}

#[test]
fn challenges() {
    let chunk = Chunk::new(0x1234 << 7, 300).unwrap();
    run("challenges", 1, 64, |input| {
        let mut message = chunk.first.to_be_bytes().to_vec();
        message.extend_from_slice(&input.arbitrary::<[u8; 16]>()?);
        mutate(input, &mut message)?;
        let good = message.len() == CHALLENGE && message[..8] == chunk.first.to_be_bytes();
        match check_challenge(chunk, &message) {
            Ok(point) => assert!(good && point == message[8..]),
            Err(error) => assert!(!good && matches!(error, OtError::Peer(_))),
        }
        Ok(())
    });
}

#[test]
fn chunk_corrections() {
    let (sender, _) = setup(4);
    let chunk = Chunk::new(0, 1).unwrap();
    let mut message = vec![0; chunk.corrections(4)];
    message[..16].copy_from_slice(&chunk.header());
    run("chunk_corrections", 1, 64, |input| {
        // The body may be anything: its length and the header are what is checked here.
        let mut changed = message[..32].to_vec();
        mutate(input, &mut changed)?;
        let shorter = changed.len();
        changed.resize(
            if shorter == 32 {
                message.len()
            } else {
                shorter
            },
            0,
        );
        let good = changed.len() == message.len() && changed[..16] == message[..16];
        assert_eq!(sender.check_header(chunk, &changed).is_ok(), good);
        Ok(())
    });
}

/// Every change of a response to the consistency check is found.
#[test]
fn chunk_responses() {
    let (mut sender, mut receiver) = setup(4);
    let corrections = extend(&mut receiver, 10, &choices(10));
    let challenge = sender.challenge(10, &corrections).unwrap();
    let mut rows = [[0; 16]; 10];
    let response = receiver.correlated(&challenge, &mut rows).unwrap();
    let mut challenged = sender.challenged.pop_front().unwrap();
    assert_eq!(
        sender.check_chunk(&mut challenged, &response, &mut rows),
        Ok(())
    );
    run("chunk_responses", 1, 64, |input| {
        let mut changed = response.clone();
        mutate(input, &mut changed)?;
        if changed != response {
            let mut rows = [[0; 16]; 10];
            let outcome = sender.check_chunk(&mut challenged, &changed, &mut rows);
            assert!(matches!(outcome, Err(OtError::Peer(_))));
            assert_eq!(rows, [[0; 16]; 10]);
        }
        Ok(())
    });
}
