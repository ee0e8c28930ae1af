//! The extension sender: it holds Delta, is the base receiver, and draws the challenges.

use zeroize::{Zeroize, Zeroizing};

use super::base::{self, Keys};
use super::check::ColumnHashes;
use super::extension::{self, Chunk, Columns, DESTROYED, HEADER};
use super::pads::PadHash;
use super::streams::{Row16, Streams, TILE, TILE_ROWS};
use super::transpose::transpose;
use super::{KAPPA, OtError, Row, expect_length, hash, labels, pprf};

enum State {
    /// Nothing has arrived.
    Start,
    /// The base transfers are answered; the trees' corrections are awaited.
    Trees(Keys),
    /// Ready for a chunk.
    Ready(Streams),
    /// Corrections are in, the challenge is out.
    Challenged(Streams, Chunk, [u8; 16]),
    Destroyed,
}

/// The sender of correlated, random and chosen transfers.
pub struct ExtensionSender {
    context: [u8; 32],
    k: usize,
    seed: Zeroizing<[u8; 32]>,
    delta: Zeroizing<Row>,
    next: u64,
    columns: Columns,
    state: State,
}

/// 0xff if bit `column` of `delta` is set, else 0.
fn bit_mask(delta: &Row, column: usize) -> u8 {
    0u8.wrapping_sub(delta[column / 8] >> (column % 8) & 1)
}

impl ExtensionSender {
    /// A fresh setup; `seed` is uniformly random and used for nothing else.
    pub fn new(context: &[u8; 32], seed: &[u8; 32], k: usize) -> Result<Self, OtError> {
        let context = extension::setup_context(context, k)?;
        Ok(Self {
            context,
            k,
            seed: Zeroizing::new(*seed),
            delta: Zeroizing::new(hash(labels::DELTA, &[&context, seed])),
            next: 0,
            columns: Columns::default(),
            state: State::Start,
        })
    }

    /// The correlation: column c of a receiver's row differs where bit c is set and the choice is 1.
    pub fn delta(&self) -> Result<Row, OtError> {
        match self.state {
            State::Destroyed => Err(OtError::State(DESTROYED)),
            _ => Ok(*self.delta),
        }
    }

    /// The index that the next chunk starts at.
    pub fn next_index(&self) -> u64 {
        self.next
    }

    fn destroy(&mut self) {
        self.state = State::Destroyed;
        self.delta.zeroize();
        self.seed.zeroize();
        self.columns = Columns::default();
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
        let seed: Zeroizing<[u8; 32]> = Zeroizing::new(hash(
            labels::SENDER_BASE,
            &[&self.context, self.seed.as_ref()],
        ));
        let choices = Zeroizing::new(pprf::base_choices(self.k, &self.delta));
        let outcome = base::respond(&self.context, &seed, &choices, first);
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
        let chunk = Chunk::new(self.next, count)?;
        let outcome = self.check_header(chunk, corrections);
        self.settle(outcome)?;
        let State::Ready(mut streams) = std::mem::replace(&mut self.state, State::Destroyed) else {
            return self.refuse("corrections are not awaited");
        };
        self.columns.resize(chunk.tiles());
        let (corrections, _) = corrections[HEADER..].as_chunks::<16>();
        let tiles = self.columns.tiles().iter_mut().take(chunk.tiles());
        for (tile, columns) in tiles.enumerate() {
            let position = chunk.position() + (tile * TILE) as u64;
            for (digit, columns) in columns.chunks_mut(self.k).enumerate() {
                streams.sums(digit, position, true, columns);
                let start = digit * chunk.blocks() + tile * TILE;
                let correction = &corrections[start..start + chunk.blocks_in(tile)];
                for (bit, column) in columns.iter_mut().enumerate() {
                    let mask = bit_mask(&self.delta, digit * self.k + bit);
                    let bytes = column.bytes_mut().iter_mut();
                    for (byte, other) in bytes.zip(correction.as_flattened()) {
                        *byte ^= other & mask;
                    }
                }
            }
        }
        let point: [u8; 16] = hash(
            labels::CHALLENGE,
            &[
                &self.context,
                self.seed.as_ref(),
                &chunk.first.to_be_bytes(),
            ],
        );
        self.next = chunk.next();
        self.state = State::Challenged(streams, chunk, point);
        let mut message = chunk.first.to_be_bytes().to_vec();
        message.extend_from_slice(&point);
        Ok(message)
    }

    fn check_header(&self, chunk: Chunk, corrections: &[u8]) -> Result<(), OtError> {
        expect_length("corrections", corrections, chunk.corrections(self.k))?;
        if corrections[..HEADER] != chunk.header() {
            return Err(OtError::Peer(format!(
                "corrections: not of the {} transfers from index {}",
                chunk.count, chunk.first
            )));
        }
        Ok(())
    }

    /// Checks the response; `rows` becomes the rows q of the chunk's transfers.
    ///
    /// A vector that is used again spares the operating system from finding fresh pages.
    pub fn correlated(&mut self, response: &[u8], rows: &mut Vec<Row>) -> Result<(), OtError> {
        self.check(response, rows).map(|_| ())
    }

    /// Checks the response; `pads` becomes both pads of each of the chunk's transfers.
    ///
    /// The pads for choice 0 of all transfers come first, then those for choice 1.
    pub fn random(&mut self, response: &[u8], pads: &mut Vec<Row>) -> Result<(), OtError> {
        let chunk = self.check(response, pads)?;
        pads.extend_from_within(..);
        let (zeros, ones) = pads.split_at_mut(chunk.count);
        for row in ones.iter_mut() {
            for (byte, other) in row.iter_mut().zip(self.delta.iter()) {
                *byte ^= other;
            }
        }
        let hash = PadHash::new(&self.context);
        hash.apply(chunk.first, zeros);
        hash.apply(chunk.first, ones);
        Ok(())
    }

    fn check(&mut self, response: &[u8], rows: &mut Vec<Row>) -> Result<Chunk, OtError> {
        if !matches!(self.state, State::Challenged(..)) {
            return self.refuse("no response is awaited");
        }
        // Whatever goes wrong from here on leaves the setup destroyed.
        let State::Challenged(streams, chunk, point) =
            std::mem::replace(&mut self.state, State::Destroyed)
        else {
            return self.refuse("no response is awaited");
        };
        let outcome = self.check_chunk(chunk, &point, response, rows);
        self.settle(outcome)?;
        self.state = State::Ready(streams);
        Ok(chunk)
    }

    fn check_chunk(
        &mut self,
        chunk: Chunk,
        point: &[u8; 16],
        response: &[u8],
        rows: &mut Vec<Row>,
    ) -> Result<(), OtError> {
        expect_length("response", response, extension::RESPONSE)?;
        let (first, hashed) = response.split_at(8);
        if first != chunk.first.to_be_bytes() {
            return Err(OtError::Peer(format!(
                "response: not of the chunk from index {}",
                chunk.first
            )));
        }
        let (hashed, _) = hashed.as_chunks::<16>();
        let mut hashes = ColumnHashes::new(point, KAPPA, chunk.blocks());
        rows.clear();
        rows.resize(chunk.count, [0; 16]);
        let mut parts = rows.chunks_mut(TILE_ROWS);
        let tiles = self.columns.tiles().iter().take(chunk.tiles());
        for (tile, columns) in tiles.enumerate() {
            hashes.update(columns, chunk.blocks_in(tile));
            if let Some(part) = parts.next() {
                transpose(columns, part);
            }
        }
        let (choices, columns) = (&hashed[0], &hashed[1..]);
        let mut difference = 0;
        for (column, (hash, claimed)) in hashes.finish().iter().zip(columns).enumerate() {
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

/// Nonzero unless `hash == claimed ^ (choices & mask)`.
fn differs(hash: &Row16, claimed: &Row16, choices: &Row16, mask: u8) -> u8 {
    let terms = hash.iter().zip(claimed).zip(choices);
    terms.fold(0, |sum, ((hash, claimed), choice)| {
        sum | (hash ^ claimed ^ (choice & mask))
    })
}
