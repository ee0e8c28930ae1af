use super::*;

pub fn setup(k: usize) -> (ExtensionSender, ExtensionReceiver) {
    let mut sender = ExtensionSender::new(&[7; 32], &[1; 32], k).unwrap();
    let (mut receiver, first) = ExtensionReceiver::new(&[7; 32], &[2; 32], k).unwrap();
    let response = sender.respond(&first).unwrap();
    let corrections = receiver.finish_setup(&response).unwrap();
    sender.finish_setup(&corrections).unwrap();
    (sender, receiver)
}

/// The corrections of a chunk.
pub fn extend(receiver: &mut ExtensionReceiver, count: usize, choices: &[u8]) -> Vec<u8> {
    let mut corrections = vec![0; receiver.corrections(count).unwrap()];
    receiver.extend(count, choices, &mut corrections).unwrap();
    corrections
}

/// A chunk of correlated transfers: the rows t and q.
fn correlated(
    sender: &mut ExtensionSender,
    receiver: &mut ExtensionReceiver,
    count: usize,
    choices: &[u8],
) -> (Vec<Row>, Vec<Row>) {
    let (mut t, mut q) = (vec![[0; 16]; count], vec![[0; 16]; count]);
    let corrections = extend(receiver, count, choices);
    let challenge = sender.challenge(count, &corrections).unwrap();
    let response = receiver.correlated(&challenge, &mut t).unwrap();
    sender.correlated(&response, &mut q).unwrap();
    (t, q)
}

fn assert_right(t: &[Row], q: &[Row], delta: &Row, choices: &[u8]) {
    for (j, (t, q)) in t.iter().zip(q).enumerate() {
        let mask = 0u8.wrapping_sub(bit(choices, j));
        let expected: Row = std::array::from_fn(|i| q[i] ^ delta[i] & mask);
        assert_eq!(*t, expected, "transfer {j}");
    }
}

pub fn choices(count: usize) -> Vec<u8> {
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
    for k in [2, 4] {
        let (mut sender, mut receiver) = setup(k);
        let delta = sender.delta().unwrap();
        for count in [1, 7, 128, 129, 8064, 8065, 8192, 20_000] {
            let x = choices(count);
            let (t, q) = correlated(&mut sender, &mut receiver, count, &x);
            assert_eq!(sender.next_index(), receiver.next_index());
            assert_right(&t, &q, &delta, &x);
        }
    }
}

/// Chunks on their way at once, of different sizes, each with its own challenge.
#[test]
fn chunks_in_flight() {
    let (mut sender, mut receiver) = setup(4);
    let delta = sender.delta().unwrap();
    let counts = [300, 9000, 1, 129];
    let corrections = counts.map(|count| extend(&mut receiver, count, &choices(count)));
    let full = Err(OtError::State(extension::FULL));
    assert_eq!(receiver.extend(1, &[0], &mut []), full);
    let challenges =
        std::array::from_fn::<_, 4, _>(|i| sender.challenge(counts[i], &corrections[i]).unwrap());
    assert_eq!(sender.challenge(1, &[]).map(|_| ()), full);
    for (count, challenge) in counts.into_iter().zip(&challenges) {
        assert_eq!([receiver.awaited(), sender.awaited()], [count; 2]);
        let (mut t, mut q) = (vec![[0; 16]; count], vec![[0; 16]; count]);
        let response = receiver.correlated(challenge, &mut t).unwrap();
        sender.correlated(&response, &mut q).unwrap();
        assert_right(&t, &q, &delta, &choices(count));
        let others = challenges
            .iter()
            .filter(|other| other[8..] == challenge[8..]);
        assert_eq!(others.count(), 1);
    }
    assert_eq!([receiver.awaited(), sender.awaited()], [0; 2]);
}

#[test]
fn a_failed_check_ends_the_chunks_in_flight() {
    let (mut sender, mut receiver) = setup(2);
    let first = extend(&mut receiver, 5, &[1]);
    let second = extend(&mut receiver, 5, &[1]);
    let challenge = sender.challenge(5, &first).unwrap();
    sender.challenge(5, &second).unwrap();
    let mut rows = [[0; 16]; 5];
    let mut response = receiver.correlated(&challenge, &mut rows).unwrap();
    response[8] ^= 1;
    assert!(matches!(
        sender.correlated(&response, &mut rows),
        Err(OtError::Peer(_))
    ));
    assert_eq!(rows, [[0; 16]; 5]);
    assert_eq!(
        sender.correlated(&response, &mut rows),
        Err(OtError::State(extension::DESTROYED))
    );
}

#[test]
fn random_pads_agree_and_the_other_is_different() {
    for k in [2, 4] {
        let (mut sender, mut receiver) = setup(k);
        let x = choices(300);
        let (mut t, mut q) = ([[0; 16]; 300], [[0; 16]; 600]);
        let corrections = extend(&mut receiver, 300, &x);
        let challenge = sender.challenge(300, &corrections).unwrap();
        let response = receiver.random(&challenge, &mut t).unwrap();
        assert!(matches!(
            sender.random(&response, &mut q[..599]),
            Err(OtError::Argument(_))
        ));
        sender.random(&response, &mut q).unwrap();
        for (j, pad) in t.iter().enumerate() {
            assert_eq!(*pad, q[j + 300 * usize::from(bit(&x, j))]);
            assert_ne!(q[j], q[j + 300]);
        }
    }
}

#[test]
fn rows_of_different_chunks_share_nothing() {
    let (mut sender, mut receiver) = setup(2);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let (_, q) = correlated(&mut sender, &mut receiver, 200, &choices(200));
        assert!(q.into_iter().all(|row| seen.insert(row)));
    }
}

#[test]
fn a_flipped_response_ends_the_setup() {
    let mut rows = [[0; 16]; 10];
    let (mut sender, mut receiver) = setup(4);
    let corrections = extend(&mut receiver, 10, &choices(10));
    let challenge = sender.challenge(10, &corrections).unwrap();
    let mut response = receiver.correlated(&challenge, &mut rows).unwrap();
    response[30] ^= 4;
    assert!(matches!(
        sender.correlated(&response, &mut rows),
        Err(OtError::Peer(_))
    ));
    assert_eq!(
        sender.challenge(10, &corrections),
        Err(OtError::State(extension::DESTROYED))
    );
    assert!(sender.delta().is_err());
}

/// A chunk between a recording receiver and a sender with the seed [1; 32]: the receiver, and the sender's pads.
fn recorded(k: usize, count: usize, change: bool) -> (ExtensionReceiver, Vec<Row>) {
    let mut sender = ExtensionSender::new(&[7; 32], &[1; 32], k).unwrap();
    let (mut receiver, first) = ExtensionReceiver::new(&[7; 32], &[2; 32], k).unwrap();
    receiver.keep_record();
    let response = sender.respond(&first).unwrap();
    let corrections = receiver.finish_setup(&response).unwrap();
    sender.finish_setup(&corrections).unwrap();
    let extension = extend(&mut receiver, count, &choices(count));
    let mut challenge = sender.challenge(count, &extension).unwrap();
    challenge[23] ^= u8::from(change);
    let (mut chosen, mut pads) = (vec![[0; 16]; count], vec![[0; 16]; 2 * count]);
    let response = receiver.random(&challenge, &mut chosen).unwrap();
    if !change {
        sender.random(&response, &mut pads).unwrap();
    }
    (receiver, pads)
}

#[test]
fn a_receiver_makes_the_senders_pads_again() {
    for k in [2, 4] {
        for count in [1, 130, 9000] {
            let (receiver, pads) = recorded(k, count, false);
            let mut made = vec![[0; 16]; 2 * count];
            assert_eq!(receiver.remake(&[1; 32], &mut made), Ok(None));
            assert_eq!(made, pads);
        }
    }
}

#[test]
fn a_sender_that_does_not_follow_its_seed_is_noticed() {
    let mut made = vec![[0; 16]; 14];
    let (receiver, _) = recorded(4, 7, false);
    let base = Ok(Some(Deviation::BaseResponse));
    assert_eq!(receiver.remake(&[3; 32], &mut made), base);
    let (receiver, _) = recorded(4, 7, true);
    let challenge = Ok(Some(Deviation::Challenge));
    assert_eq!(receiver.remake(&[1; 32], &mut made), challenge);
    assert!(matches!(
        receiver.remake(&[1; 32], &mut made[1..]),
        Err(OtError::Argument(_))
    ));
    let (_, receiver) = setup(4);
    assert!(matches!(
        receiver.remake(&[1; 32], &mut made),
        Err(OtError::State(_))
    ));
}

/// Of a base response in which one transfer is another seed's: a point with its string, or the string alone.
#[test]
fn a_base_response_that_differs_in_one_transfer_is_noticed() {
    for (number, bytes) in [
        (0, 0..80),
        (77, 0..80),
        (127, 0..80),
        (5, 0..48),
        (127, 47..48),
    ] {
        let mut sender = ExtensionSender::new(&[7; 32], &[1; 32], 4).unwrap();
        let mut other = ExtensionSender::new(&[7; 32], &[3; 32], 4).unwrap();
        let (mut receiver, first) = ExtensionReceiver::new(&[7; 32], &[2; 32], 4).unwrap();
        receiver.keep_record();
        let mut response = sender.respond(&first).unwrap();
        let range = 80 * number + bytes.start..80 * number + bytes.end;
        let others = other.respond(&first).unwrap();
        assert_ne!(response[range.clone()], others[range.clone()]);
        response[range.clone()].copy_from_slice(&others[range]);
        receiver.finish_setup(&response).unwrap();
        extend(&mut receiver, 1, &[1]);
        receiver.random(&[0; 24], &mut [[0; 16]]).unwrap();
        let base = Ok(Some(Deviation::BaseResponse));
        assert_eq!(receiver.remake(&[1; 32], &mut [[0; 16]; 2]), base);
    }
}
