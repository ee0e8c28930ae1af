//! Base transfers over ristretto255: endemic 1-out-of-2 transfers of 16-byte keys, in a batch.
//!
//! Two-round Feistel POPF over a Diffie-Hellman key agreement whose first message serves the whole
//! batch [McQuoid, Rosulek, Roy: Batching Base Oblivious Transfers, Asiacrypt 2021]. With
//! F(x) = T + H(x, s xor H'(x, T)), the receiver sends (s, T) such that it knows the discrete
//! logarithm of F(choice); its order of queries to H fixes the one x that it can know.
//! H, H' and the key derivation are separated by context, first message and number of the transfer,
//! which is what makes the shared first message sound.
//!
//! H is twice RFC 9496's MAP of 32 hashed bytes. One map is not uniform, but a simulator can draw
//! preimages, and that is what the proof needs (`docs/proofs/ot.md`). Doubling permutes the group, and lets every
//! encoding be computed in a batch.

use std::ops::Range;

use curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoBasepointTable, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity;
use zeroize::Zeroizing;

use super::error::{OtError, expect_length};
use super::hash::{finish, hash, start};
use super::labels;
use super::row::KAPPA;
use crate::tuple_hash::TupleHash256;

/// Bytes of a group element.
const POINT: usize = 32;
/// Bytes of the Feistel string: three times the security parameter.
const STRING: usize = 48;
/// Bytes of randomness of a transfer: a scalar and a string.
const COINS: usize = 64 + STRING;
/// Bytes of the base receiver's message for each transfer.
pub const ENTRY: usize = STRING + POINT;
/// Most transfers of a batch: that many serve an extension.
pub const MAX_BASE: usize = KAPPA;

/// Multiplications of one point for which its table costs more than it saves.
const FEW: usize = 48;

/// The output of one base transfer.
pub type Key = [u8; 16];
/// Both keys of each transfer.
pub type KeyPairs = Zeroizing<Vec<[Key; 2]>>;
/// The chosen key of each transfer.
pub type Keys = Zeroizing<Vec<Key>>;

/// What a base receiver has sent for one transfer, as it is opened with one choice x.
#[derive(Clone)]
pub struct Opened {
    /// F(x), of which a receiver that chose x knows the discrete logarithm.
    point: RistrettoPoint,
    /// s xor H'(x, T), which a receiver that chose x has drawn.
    string: [u8; STRING],
}
/// Both openings of each transfer.
pub type OpenedPairs = Vec<[Opened; 2]>;

/// Hashes of one batch, with context and first message absorbed.
struct Hashes {
    point: TupleHash256,
    string: TupleHash256,
    key: TupleHash256,
}

impl Hashes {
    fn new(context: &[u8; 32], first: &[u8; POINT]) -> Self {
        let start = |label| start(label, &[context, first]);
        Self {
            point: start(labels::BASE_POINT),
            string: start(labels::BASE_STRING),
            key: start(labels::BASE_KEY),
        }
    }

    /// Returns half of H(number, x, string).
    fn half_point(&self, number: usize, x: u8, string: &[u8; STRING]) -> RistrettoPoint {
        RistrettoPoint::map_to_curve(finish(self.point.clone(), &[&[number as u8, x], string]))
    }

    /// Returns `string` xor H'(number, x, point).
    fn mix(
        &self,
        number: usize,
        x: u8,
        point: &[u8; POINT],
        string: &[u8; STRING],
    ) -> [u8; STRING] {
        let mut mixed: [u8; STRING] = finish(self.string.clone(), &[&[number as u8, x], point]);
        for (byte, other) in mixed.iter_mut().zip(string) {
            *byte ^= other;
        }
        mixed
    }

    fn key(&self, number: usize, x: u8, entry: &[u8], shared: &CompressedRistretto) -> Key {
        finish(
            self.key.clone(),
            &[&[number as u8, x], entry, shared.as_bytes()],
        )
    }
}

/// Returns the group element that `bytes` canonically encode, if it is not the identity.
pub(super) fn decode(name: &str, bytes: &[u8; POINT]) -> Result<RistrettoPoint, OtError> {
    let point = CompressedRistretto(*bytes)
        .decompress()
        .ok_or_else(|| OtError::Peer(format!("{name}: not the encoding of a group element")))?;
    if point == RistrettoPoint::identity() {
        return Err(OtError::Peer(format!("{name}: the identity")));
    }
    Ok(point)
}

/// The side that learns both keys.
pub struct BaseSender {
    context: [u8; 32],
    scalar: Zeroizing<Scalar>,
    first: [u8; POINT],
}

impl BaseSender {
    /// Starts a batch; the second value is the message to the base receiver, 32 bytes.
    pub fn start(context: &[u8; 32], seed: &[u8; 32]) -> (Self, Vec<u8>) {
        let wide = Zeroizing::new(hash(labels::BASE_SCALAR, &[context, seed]));
        let scalar = Zeroizing::new(Scalar::from_bytes_mod_order_wide(&wide));
        let first = (&*scalar * RISTRETTO_BASEPOINT_TABLE).compress().to_bytes();
        let sender = Self {
            context: *context,
            scalar,
            first,
        };
        (sender, first.to_vec())
    }

    /// Returns both keys of each of `count` transfers, from the base receiver's message, on
    /// `threads` threads, and both openings of the message.
    pub fn finish(
        &self,
        count: usize,
        message: &[u8],
        threads: usize,
    ) -> Result<(KeyPairs, OpenedPairs), OtError> {
        expect_length("base response", message, count * ENTRY)?;
        let (entries, _) = message.as_chunks::<ENTRY>();
        let half = Zeroizing::new(*self.scalar * Scalar::from(2u8).invert());
        let hashes = Hashes::new(&self.context, &self.first);
        let parts = on_threads(count, threads, |range| {
            finish_part(&hashes, &half, range.start, &entries[range])
        });
        let mut pairs = Zeroizing::new(Vec::with_capacity(count));
        let mut openings = Vec::with_capacity(count);
        for part in parts {
            let (keys, opened) = part?;
            pairs.extend_from_slice(&keys);
            openings.extend(opened);
        }
        Ok((pairs, openings))
    }
}

/// Returns both keys and both openings of the transfers from number `first` on; `half` is half of the
/// sender's scalar.
fn finish_part(
    hashes: &Hashes,
    half: &Scalar,
    first: usize,
    entries: &[[u8; ENTRY]],
) -> Result<(KeyPairs, OpenedPairs), OtError> {
    let mut halves = Zeroizing::new(Vec::with_capacity(2 * entries.len()));
    let mut openings = Vec::with_capacity(entries.len());
    for (number, entry) in (first..).zip(entries) {
        let (string, point) = split(entry);
        let decoded = decode(&format!("base response: point {number}"), point)?;
        let opened = [0, 1].map(|x| {
            let string = hashes.mix(number, x, point, string);
            let hashed = hashes.half_point(number, x, &string);
            let point = decoded + hashed + hashed;
            Opened { point, string }
        });
        halves.extend(opened.iter().map(|opened| opened.point * half));
        openings.push(opened);
    }
    let shared = Zeroizing::new(RistrettoPoint::double_and_compress_batch(halves.iter()));
    let (shared_pairs, _) = shared.as_chunks::<2>();
    let pairs = (first..).zip(entries).zip(shared_pairs);
    let keys = pairs
        .map(|((number, entry), [zero, one])| {
            [
                hashes.key(number, 0, entry, zero),
                hashes.key(number, 1, entry, one),
            ]
        })
        .collect();
    Ok((Zeroizing::new(keys), openings))
}

/// Returns the results of `work` on the numbers of `count` transfers, divided into a range for each
/// thread; in order.
fn on_threads<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(Range<usize>) -> T + Sync,
) -> Vec<T> {
    let share = count.div_ceil(threads.clamp(1, count.max(1)));
    let range = |start| start..count.min(start + share);
    let work = &work;
    std::thread::scope(|scope| {
        let others: Vec<_> = (share..count)
            .step_by(share)
            .map(|start| scope.spawn(move || work(range(start))))
            .collect();
        let first = work(range(0));
        let others = others.into_iter().map(|other| {
            let ended = other.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        std::iter::once(first).chain(others).collect()
    })
}

fn split(entry: &[u8; ENTRY]) -> (&[u8; STRING], &[u8; POINT]) {
    let (string, rest) = entry.split_first_chunk().expect("48 of 80 bytes");
    (string, rest.first_chunk().expect("the other 32 bytes"))
}

/// Returns the coins of a base receiver for each transfer.
fn draw(context: &[u8; 32], seed: &[u8; 32]) -> Zeroizing<[[u8; COINS]; KAPPA]> {
    let coins = Zeroizing::new(hash::<{ KAPPA * COINS }>(
        labels::BASE_COINS,
        &[context, seed],
    ));
    let (coins, _) = coins.as_chunks();
    Zeroizing::new(*coins.first_chunk().expect("coins of all transfers"))
}

/// Returns scalar and string of a transfer's coins.
fn parts(coin: &[u8; COINS]) -> (Zeroizing<Scalar>, &[u8; STRING]) {
    let (wide, string) = coin.split_first_chunk().expect("64 of 112 bytes");
    let scalar = Zeroizing::new(Scalar::from_bytes_mod_order_wide(wide));
    (scalar, string.first_chunk().expect("the other 48 bytes"))
}

/// Tells whether `openings` are of the message that a base receiver with this seed and these choices sends.
///
/// F(x) and string determine s and T, and they are the receiver's where F(x) = 2 b G and the string is r. The
/// time depends on the choices, which the caller has been given with the seed.
pub fn follows(
    context: &[u8; 32],
    seed: &[u8; 32],
    choices: &[u8; KAPPA],
    openings: &[[Opened; 2]],
) -> bool {
    let coins = draw(context, seed);
    let sent = openings.iter().zip(coins.iter()).zip(choices);
    openings.len() == KAPPA
        && sent.fold(true, |all, ((opened, coin), &choice)| {
            let (scalar, string) = parts(coin);
            let half = &*scalar * RISTRETTO_BASEPOINT_TABLE;
            let opened = &opened[usize::from(choice)];
            all & (opened.point == half + half) & (opened.string == *string)
        })
}

/// Returns the base receiver's message and its keys, for at most `MAX_BASE` choice bits `choices` (0
/// or 1 each), on `threads` threads.
pub fn respond(
    context: &[u8; 32],
    seed: &[u8; 32],
    choices: &[u8],
    first: &[u8],
    threads: usize,
) -> Result<(Vec<u8>, Keys), OtError> {
    expect_length("base message", first, POINT)?;
    let first: &[u8; POINT] = first.first_chunk().expect("the length was checked");
    let peer = decode("base message", first)?;
    let hashes = Hashes::new(context, first);
    let coins = draw(context, seed);
    let table = (choices.len() > FEW).then(|| RistrettoBasepointTable::create(&peer));
    let share = |scalar: &Scalar| match &table {
        Some(table) => scalar * table,
        None => peer * scalar,
    };
    let parts = on_threads(choices.len(), threads, |range| {
        let (coins, choices) = (&coins[range.clone()], &choices[range.clone()]);
        respond_part(&hashes, &share, range.start, coins, choices)
    });
    let mut message = Vec::with_capacity(choices.len() * ENTRY);
    let mut keys = Zeroizing::new(Vec::with_capacity(choices.len()));
    for (part, chosen) in parts {
        message.extend_from_slice(&part);
        keys.extend_from_slice(&chosen);
    }
    Ok((message, keys))
}

/// Returns message and keys of the transfers from number `start` on.
fn respond_part(
    hashes: &Hashes,
    share: &impl Fn(&Scalar) -> RistrettoPoint,
    start: usize,
    coins: &[[u8; COINS]],
    choices: &[u8],
) -> (Vec<u8>, Keys) {
    let mut half_points = Zeroizing::new(Vec::with_capacity(coins.len()));
    let mut half_shared = Zeroizing::new(Vec::with_capacity(coins.len()));
    for (number, (coin, &choice)) in (start..).zip(coins.iter().zip(choices)) {
        let (scalar, string) = parts(coin);
        half_points
            .push(&*scalar * RISTRETTO_BASEPOINT_TABLE - hashes.half_point(number, choice, string));
        half_shared.push(share(&scalar));
    }
    let points = RistrettoPoint::double_and_compress_batch(half_points.iter());
    let shared = Zeroizing::new(RistrettoPoint::double_and_compress_batch(
        half_shared.iter(),
    ));
    let mut message = Vec::with_capacity(coins.len() * ENTRY);
    let mut keys = Zeroizing::new(Vec::with_capacity(coins.len()));
    for (index, (coin, &choice)) in coins.iter().zip(choices).enumerate() {
        let number = start + index;
        let string = coin.last_chunk().expect("48 of 112 bytes");
        let point = points[index].as_bytes();
        message.extend_from_slice(&hashes.mix(number, choice, point, string));
        message.extend_from_slice(point);
        let entry = &message[index * ENTRY..];
        keys.push(hashes.key(number, choice, entry, &shared[index]));
    }
    (message, keys)
}

/// Returns the context of base transfers that no extension follows.
fn lone_context(context: &[u8; 32]) -> [u8; 32] {
    hash(labels::SETUP, &[context, &[0]])
}

/// Returns the first message of base transfers without an extension, 32 bytes.
#[must_use]
pub fn base_first(context: &[u8; 32], seed: &[u8; 32]) -> Vec<u8> {
    BaseSender::start(&lone_context(context), seed).1
}

/// Returns both keys of each of `count` base transfers without an extension, at most `MAX_BASE`;
/// `seed` is that of `base_first`.
pub fn base_pairs(
    context: &[u8; 32],
    seed: &[u8; 32],
    count: usize,
    response: &[u8],
) -> Result<KeyPairs, OtError> {
    if !(1..=MAX_BASE).contains(&count) {
        return Err(OtError::Argument(format!(
            "count: {count}, not 1 to {MAX_BASE}"
        )));
    }
    let (sender, _) = BaseSender::start(&lone_context(context), seed);
    sender.finish(count, response, 1).map(|(pairs, _)| pairs)
}

/// Returns the response to the first message of base transfers without an extension, 80 bytes for
/// each choice (0 or 1, at most `MAX_BASE`), and the chosen keys.
pub fn base_respond(
    context: &[u8; 32],
    seed: &[u8; 32],
    choices: &[u8],
    first: &[u8],
) -> Result<(Vec<u8>, Keys), OtError> {
    if choices.is_empty() || choices.len() > MAX_BASE || choices.iter().any(|choice| *choice > 1) {
        return Err(OtError::Argument(format!(
            "choices: not 1 to {MAX_BASE} bits"
        )));
    }
    respond(&lone_context(context), seed, choices, first, 1)
}

/// Computes both sides of a setup's base transfers in this thread, for the benchmark.
pub fn base_transfers(seed: &[u8; 32]) -> Result<(), OtError> {
    let (sender, first) = BaseSender::start(seed, seed);
    let choices: [u8; KAPPA] = std::array::from_fn(|number| seed[number / 8] >> (number % 8) & 1);
    let (response, keys) = respond(seed, seed, &choices, &first, 1)?;
    let (pairs, _) = sender.finish(KAPPA, &response, 1)?;
    let mut fitting = pairs.iter().zip(&*keys).zip(choices);
    if fitting.all(|((pair, key), choice)| pair[usize::from(choice)] == *key) {
        return Ok(());
    }
    Err(OtError::Peer("the keys do not fit".into()))
}
