//! The extension sender: it holds Delta, is the base receiver, and draws the challenges.

use std::collections::VecDeque;

use zeroize::{Zeroize, Zeroizing};

use super::base::{self, Keys};
use super::column::{Row16, TILE};
use super::error::{OtError, expect_length};
use super::extension::{
    self, Chunk, Columns, DESTROYED, FULL, HEADER, MAX_PENDING, expect_room, transpose_rows,
};
use super::hash::hash;
use super::pads::PadHash;
use super::row::{Kernels, Row};
use super::streams::{Streams, apply};
use super::{labels, pprf};

enum State {
    /// Nothing has arrived.
    Start,
    /// The base transfers are answered; the trees' corrections are expected.
    Trees(Keys),
    /// Ready for chunks.
    Ready(Streams),
    Destroyed,
}

/// A chunk whose corrections have arrived and whose challenge is sent.
pub(super) struct Challenged {
    chunk: Chunk,
    point: [u8; 16],
    columns: Columns,
}

/// The sender of correlated, random and chosen transfers.
pub struct ExtensionSender {
    context: [u8; 32],
    k: usize,
    seed: Zeroizing<[u8; 32]>,
    delta: Zeroizing<Row>,
    next: u64,
    state: State,
    pub(super) challenged: VecDeque<Challenged>,
    spare: Vec<Columns>,
}

/// Returns the correlation of a sender with this seed.
pub(super) fn delta_of(context: &[u8; 32], seed: &[u8; 32]) -> Zeroizing<Row> {
    Zeroizing::new(hash(labels::DELTA, &[context, seed]))
}

/// Returns the correlation of a sender with this seed, with bit 0 replaced by `bit`.
fn fixed_delta_of(context: &[u8; 32], seed: &[u8; 32], bit: bool) -> Zeroizing<Row> {
    let mut delta: Zeroizing<Row> = Zeroizing::new(hash(labels::FIXED_DELTA, &[context, seed]));
    delta[0] = (delta[0] & !1) | u8::from(bit);
    delta
}

/// Returns the seed of a sender's base transfers.
pub(super) fn base_seed(context: &[u8; 32], seed: &[u8; 32]) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(hash(labels::SENDER_BASE, &[context, seed]))
}

/// Returns the challenge of a sender with this seed for the chunk from index `first`.
pub(super) fn challenge_of(context: &[u8; 32], seed: &[u8; 32], first: u64) -> [u8; 16] {
    hash(labels::CHALLENGE, &[context, seed, &first.to_be_bytes()])
}

/// Fills both pads of each transfer of a chunk, those for choice 0 first, which hold the rows q.
pub(super) fn fill_pads(context: &[u8; 32], first: u64, delta: &Row, pads: &mut [Row]) {
    let (zeros, ones) = pads.split_at_mut(pads.len() / 2);
    for (one, zero) in ones.iter_mut().zip(&*zeros) {
        for ((byte, other), delta) in one.iter_mut().zip(zero).zip(delta) {
            *byte = other ^ delta;
        }
    }
    let hash = PadHash::new(context);
    hash.apply(first, zeros);
    hash.apply(first, ones);
}

/// Returns 0xff if bit `column` of `delta` is set, else 0.
fn bit_mask(delta: &Row, column: usize) -> u8 {
    0u8.wrapping_sub(delta[column / 8] >> (column % 8) & 1)
}

impl ExtensionSender {
    /// Creates a setup; `seed` is uniformly random and used for nothing else.
    pub fn new(context: &[u8; 32], seed: &[u8; 32], k: usize) -> Result<Self, OtError> {
        let context = extension::setup_context(context, k)?;
        Ok(Self {
            context,
            k,
            seed: Zeroizing::new(*seed),
            delta: delta_of(&context, seed),
            next: 0,
            state: State::Start,
            challenged: VecDeque::new(),
            spare: Vec::new(),
        })
    }

    /// Creates a setup whose correlation has the bit 0 `bit`, which the receiver knows.
    pub fn with_bit(
        context: &[u8; 32],
        seed: &[u8; 32],
        k: usize,
        bit: bool,
    ) -> Result<Self, OtError> {
        let mut sender = Self::new(context, seed, k)?;
        sender.delta = fixed_delta_of(&sender.context, seed, bit);
        Ok(sender)
    }

    /// Returns the hashed context of the setup, which both sides have.
    pub fn context(&self) -> &[u8; 32] {
        &self.context
    }

    /// Returns the correlation: column c of a receiver's row differs where bit c is set and the
    /// choice is 1.
    pub fn delta(&self) -> Result<Row, OtError> {
        match self.state {
            State::Destroyed => Err(OtError::State(DESTROYED)),
            _ => Ok(*self.delta),
        }
    }

    /// Returns the index at which the next chunk starts.
    pub fn next_index(&self) -> u64 {
        self.next
    }

    /// Returns the number of transfers of the chunk whose response is expected next, 0 if there is
    /// none.
    pub fn awaited(&self) -> usize {
        self.challenged.front().map_or(0, |next| next.chunk.count)
    }

    fn destroy(&mut self) {
        self.state = State::Destroyed;
        self.delta.zeroize();
        self.seed.zeroize();
        self.challenged.clear();
        self.spare.clear();
    }

    /// Passes a step's outcome on, and ends the setup if the peer is at fault.
    fn settle<T>(&mut self, outcome: Result<T, OtError>) -> Result<T, OtError> {
        if matches!(outcome, Err(OtError::Peer(_))) {
            self.destroy();
        }
        outcome
    }

    /// Refuses a step that the state does not allow.
    fn refuse<T>(&self, reason: &'static str) -> Result<T, OtError> {
        Err(OtError::State(match self.state {
            State::Destroyed => DESTROYED,
            _ => reason,
        }))
    }

    /// Answers the receiver's first message with the base response.
    pub fn respond(&mut self, first: &[u8]) -> Result<Vec<u8>, OtError> {
        if !matches!(self.state, State::Start) {
            return self.refuse("the base transfers were already answered");
        }
        let seed = base_seed(&self.context, &self.seed);
        let choices = Zeroizing::new(pprf::base_choices(self.k, &self.delta));
        let outcome = base::respond(
            &self.context,
            &seed,
            choices.as_ref(),
            first,
            extension::threads(),
        );
        let (message, keys) = self.settle(outcome)?;
        self.state = State::Trees(keys);
        Ok(message)
    }

    /// Checks the trees' corrections; afterwards the setup is ready.
    pub fn finish_setup(&mut self, corrections: &[u8]) -> Result<(), OtError> {
        let State::Trees(keys) = &self.state else {
            return self.refuse("the trees' corrections are not awaited");
        };
        let outcome = pprf::puncture(&self.context, self.k, &self.delta, keys, corrections);
        let leaves = self.settle(outcome)?;
        self.state = State::Ready(Streams::new(self.k, &leaves));
        Ok(())
    }

    /// Takes the corrections of a chunk of `count` transfers and returns the challenge.
    ///
    /// The challenge is a function of the secret seed and the first index: the receiver cannot know
    /// it before, and there is only one for a chunk.
    pub fn challenge(&mut self, count: usize, corrections: &[u8]) -> Result<Vec<u8>, OtError> {
        if !matches!(self.state, State::Ready(_)) {
            return self.refuse("corrections are not awaited");
        }
        if self.challenged.len() == MAX_PENDING {
            return self.refuse(FULL);
        }
        let chunk = Chunk::new(self.next, count)?;
        let outcome = self.check_header(chunk, corrections);
        self.settle(outcome)?;
        let State::Ready(streams) = &mut self.state else {
            return self.refuse("corrections are not awaited");
        };
        let (corrections, _) = corrections[HEADER..].as_chunks::<16>();
        let mut columns = self.spare.pop().unwrap_or_default();
        columns.resize(chunk.tiles());
        let tiles = columns.tiles().iter_mut().take(chunk.tiles());
        for (tile, columns) in tiles.enumerate() {
            streams.seek(chunk.position() + (tile * TILE) as u64);
            let inside = chunk.blocks_in(tile);
            for (digit, columns) in columns.chunks_mut(self.k).enumerate() {
                streams.sums(digit, inside, true, columns);
                let start = digit * chunk.blocks() + tile * TILE;
                let correction = &corrections[start..start + inside];
                for (bit, column) in columns.iter_mut().enumerate() {
                    let mask = bit_mask(&self.delta, digit * self.k + bit);
                    apply(column.bytes_mut(), correction.as_flattened(), mask);
                }
            }
        }
        let point = challenge_of(&self.context, &self.seed, chunk.first);
        self.next = chunk.next();
        self.challenged.push_back(Challenged {
            chunk,
            point,
            columns,
        });
        let mut message = chunk.first.to_be_bytes().to_vec();
        message.extend_from_slice(&point);
        Ok(message)
    }

    pub(super) fn check_header(&self, chunk: Chunk, corrections: &[u8]) -> Result<(), OtError> {
        expect_length("corrections", corrections, chunk.corrections(self.k))?;
        if corrections[..HEADER] != chunk.header() {
            return Err(OtError::Peer(format!(
                "corrections: not of the {} transfers from index {}",
                chunk.count, chunk.first
            )));
        }
        Ok(())
    }

    /// Checks the response of the oldest chunk that expects one.
    ///
    /// `rows`, one for each of its `awaited` transfers, become the rows q.
    pub fn correlated(&mut self, response: &[u8], rows: &mut [Row]) -> Result<(), OtError> {
        self.check(response, rows.len(), rows).map(|_| ())
    }

    /// Checks the response as `correlated`; `pads` become both pads of each transfer.
    ///
    /// The pads for choice 0 of all transfers come first, then those for choice 1.
    pub fn random(&mut self, response: &[u8], pads: &mut [Row]) -> Result<(), OtError> {
        let half = self.awaited().min(pads.len());
        let (zeros, ones) = pads.split_at_mut(half);
        let chunk = self.check(response, ones.len(), zeros)?;
        fill_pads(&self.context, chunk.first, &self.delta, pads);
        Ok(())
    }

    /// Checks the response, fills `rows`; `room` is that of the caller's array, for one value a transfer.
    fn check(&mut self, response: &[u8], room: usize, rows: &mut [Row]) -> Result<Chunk, OtError> {
        let Some(Challenged { chunk, .. }) = self.challenged.front() else {
            return self.refuse("no response is awaited");
        };
        let chunk = *chunk;
        expect_room("rows", room, chunk.count)?;
        let Some(mut challenged) = self.challenged.pop_front() else {
            return self.refuse("no response is awaited");
        };
        let outcome = self.check_chunk(&mut challenged, response, rows);
        self.settle(outcome)?;
        self.spare.push(challenged.columns);
        Ok(chunk)
    }

    pub(super) fn check_chunk(
        &self,
        challenged: &mut Challenged,
        response: &[u8],
        rows: &mut [Row],
    ) -> Result<(), OtError> {
        let chunk = challenged.chunk;
        expect_length("response", response, extension::RESPONSE)?;
        let (first, hashed) = response.split_at(8);
        if first != chunk.first.to_be_bytes() {
            return Err(OtError::Peer(format!(
                "response: not of the chunk from index {}",
                chunk.first
            )));
        }
        let (hashed, _) = hashed.as_chunks::<16>();
        let (choices, columns) = (&hashed[0], &hashed[1..]);
        let hashes = transpose_rows(
            Kernels::Fastest,
            chunk,
            &challenged.point,
            challenged.columns.tiles(),
            rows,
        );
        let mut difference = 0;
        for (column, (hash, claimed)) in hashes.iter().zip(columns).enumerate() {
            difference |= differs(hash, claimed, choices, bit_mask(&self.delta, column));
        }
        if std::hint::black_box(difference) != 0 {
            rows.as_flattened_mut().zeroize();
            return Err(OtError::Peer(
                "response: the consistency check failed".into(),
            ));
        }
        Ok(())
    }
}

/// Returns nonzero unless `hash == claimed ^ (choices & mask)`.
fn differs(hash: &Row16, claimed: &Row16, choices: &Row16, mask: u8) -> u8 {
    let terms = hash.iter().zip(claimed).zip(choices);
    terms.fold(0, |sum, ((hash, claimed), choice)| {
        sum | (hash ^ claimed ^ (choice & mask))
    })
}
