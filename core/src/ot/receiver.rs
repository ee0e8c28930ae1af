//! The extension receiver: it chooses, is the base sender, and answers the challenges.

use std::collections::VecDeque;

use zeroize::Zeroizing;

use super::base::BaseSender;
use super::check::hash_blocks;
use super::column::{Row16, TILE};
use super::error::{OtError, expect_length};
use super::extension::{
    self, CHALLENGE, Chunk, Columns, DESTROYED, FULL, HEADER, MAX_PENDING, expect_room,
    transpose_rows,
};
use super::pads::PadHash;
use super::pprf;
use super::remake::{Deviation, Record};
use super::row::{KAPPA, Kernels, Row};
use super::streams::{Streams, correct};

enum State {
    /// The first message is sent; the base response is expected.
    Base(BaseSender),
    /// Ready for chunks.
    Ready(Streams),
    Destroyed,
}

/// A chunk whose corrections are sent and whose challenge is expected.
struct Committed {
    chunk: Chunk,
    /// The choices in blocks of 128, the hiding ones last.
    choices: Zeroizing<Vec<Row16>>,
    columns: Columns,
}

/// The receiver of correlated, random and chosen transfers.
pub struct ExtensionReceiver {
    context: [u8; 32],
    k: usize,
    next: u64,
    state: State,
    committed: VecDeque<Committed>,
    spare: Vec<Columns>,
    record: Option<Record>,
}

impl ExtensionReceiver {
    /// Returns the hashed context of the setup, which both sides have.
    pub fn context(&self) -> &[u8; 32] {
        &self.context
    }

    /// Creates a setup and its first message; `seed` is uniformly random and used for nothing else.
    pub fn new(context: &[u8; 32], seed: &[u8; 32], k: usize) -> Result<(Self, Vec<u8>), OtError> {
        let context = extension::setup_context(context, k)?;
        let (base, message) = BaseSender::start(&context, seed);
        let receiver = Self {
            context,
            k,
            next: 0,
            state: State::Base(base),
            committed: VecDeque::new(),
            spare: Vec::new(),
            record: None,
        };
        Ok((receiver, message))
    }

    /// Keeps what `remake` needs, from now on.
    pub fn keep_record(&mut self) {
        self.record = Some(Record::default());
    }

    /// Returns the number of transfers of the recorded chunk, 0 if there is none.
    pub fn recorded(&self) -> usize {
        self.record.as_ref().map_or(0, Record::count)
    }

    /// Makes the sender's part of the setup and of the chunk that was answered last again, from its seed.
    ///
    /// If the base response and the challenge that came are those of a sender with this seed, `pads`, two for
    /// each transfer, become its pads as by `ExtensionSender::random`; else the first that is not is returned.
    pub fn remake(&self, seed: &[u8; 32], pads: &mut [Row]) -> Result<Option<Deviation>, OtError> {
        match &self.record {
            Some(record) => record.remake(&self.context, self.k, seed, pads),
            None => Err(OtError::State("no record is kept")),
        }
    }

    /// Returns the index at which the next chunk starts.
    pub fn next_index(&self) -> u64 {
        self.next
    }

    /// Returns the number of transfers of the chunk whose challenge is expected next, 0 if there is
    /// none.
    pub fn awaited(&self) -> usize {
        self.committed.front().map_or(0, |next| next.chunk.count)
    }

    fn destroy(&mut self) {
        self.state = State::Destroyed;
        self.committed.clear();
        self.spare.clear();
        self.record = None;
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

    /// Takes the base response and returns the trees' corrections; afterwards the setup is ready.
    pub fn finish_setup(&mut self, response: &[u8]) -> Result<Vec<u8>, OtError> {
        let State::Base(base) = &self.state else {
            return self.refuse("the base response is not awaited");
        };
        let outcome = base.finish(KAPPA, response, extension::threads());
        let (keys, openings) = self.settle(outcome)?;
        if let Some(record) = &mut self.record {
            record.setup(openings);
        }
        let (leaves, message) = pprf::plant(&self.context, self.k, &keys);
        self.state = State::Ready(Streams::new(self.k, &leaves));
        Ok(message)
    }

    /// Commits to the choices of a chunk: bit j of `choices` is that of the j-th of `count` transfers.
    ///
    /// `message`, of `Chunk::corrections` bytes, becomes the corrections. Bits after the last transfer's
    /// are refused unless they are 0.
    pub fn extend(
        &mut self,
        count: usize,
        choices: &[u8],
        message: &mut [u8],
    ) -> Result<(), OtError> {
        if !matches!(self.state, State::Ready(_)) {
            return self.refuse("the setup is not ready for a chunk");
        }
        if self.committed.len() == MAX_PENDING {
            return self.refuse(FULL);
        }
        let chunk = Chunk::new(self.next, count)?;
        if choices.len() != count.div_ceil(8) {
            return Err(OtError::Argument(format!(
                "choices: {} bytes, not {} for {count} transfers",
                choices.len(),
                count.div_ceil(8)
            )));
        }
        if !count.is_multiple_of(8) && choices[count / 8] >> (count % 8) != 0 {
            return Err(OtError::Argument(format!(
                "choices: a bit after the {count} transfers is set"
            )));
        }
        expect_room("corrections", message.len(), chunk.corrections(self.k))?;
        let State::Ready(streams) = &mut self.state else {
            return self.refuse("the setup is not ready for a chunk");
        };
        let blocks = chunk.blocks();
        let mut padded = Zeroizing::new(vec![[0; 16]; blocks]);
        padded.as_flattened_mut()[..choices.len()].copy_from_slice(choices);
        let (header, corrections) = message.split_at_mut(HEADER);
        header.copy_from_slice(&chunk.header());
        let (corrections, _) = corrections.as_chunks_mut::<16>();
        let mut columns = self.spare.pop().unwrap_or_default();
        columns.resize(chunk.tiles());
        let tiles = columns.tiles().iter_mut().take(chunk.tiles());
        for (tile, columns) in tiles.enumerate() {
            streams.seek(chunk.position() + (tile * TILE) as u64);
            let inside = chunk.blocks_in(tile);
            for (digit, columns) in columns.chunks_mut(self.k).enumerate() {
                let sum = streams.sums(digit, inside, false, columns);
                if digit == 0 && (tile + 1) * TILE >= blocks {
                    // The hiding block's choices are the first digit's own sum: uniform to the sender.
                    padded[blocks - 1] = sum.blocks[inside - 1];
                }
                let start = digit * blocks + tile * TILE;
                let output = corrections[start..start + inside].as_flattened_mut();
                let choices = padded[tile * TILE..tile * TILE + inside].as_flattened();
                correct(output, sum.bytes(), choices);
            }
        }
        self.next = chunk.next();
        self.committed.push_back(Committed {
            chunk,
            choices: padded,
            columns,
        });
        Ok(())
    }

    /// Returns the bytes of the corrections of the next chunk, if it has `count` transfers.
    pub fn corrections(&self, count: usize) -> Result<usize, OtError> {
        Ok(Chunk::new(self.next, count)?.corrections(self.k))
    }

    /// Answers the challenge of the oldest chunk that awaits one with the response.
    ///
    /// `rows`, one for each of its `awaited` transfers, become t = q xor choice * Delta.
    pub fn correlated(&mut self, challenge: &[u8], rows: &mut [Row]) -> Result<Vec<u8>, OtError> {
        self.answer(challenge, rows).map(|(_, response)| response)
    }

    /// Answers the challenge as `correlated`; `pads` become the chosen pad of each transfer.
    pub fn random(&mut self, challenge: &[u8], pads: &mut [Row]) -> Result<Vec<u8>, OtError> {
        let (chunk, response) = self.answer(challenge, pads)?;
        PadHash::new(&self.context).apply(chunk.first, pads);
        Ok(response)
    }

    fn answer(&mut self, challenge: &[u8], rows: &mut [Row]) -> Result<(Chunk, Vec<u8>), OtError> {
        let Some(Committed { chunk, .. }) = self.committed.front() else {
            return self.refuse("no challenge is awaited");
        };
        let chunk = *chunk;
        expect_room("rows", rows.len(), chunk.count)?;
        let outcome = check_challenge(chunk, challenge);
        let point = self.settle(outcome)?;
        let Some(mut committed) = self.committed.pop_front() else {
            return self.refuse("no challenge is awaited");
        };
        let hashes = transpose_rows(
            Kernels::Fastest,
            chunk,
            &point,
            committed.columns.tiles(),
            rows,
        );
        let mut response = Vec::with_capacity(extension::RESPONSE);
        response.extend_from_slice(&chunk.first.to_be_bytes());
        response.extend_from_slice(&hash_blocks(&point, &committed.choices));
        response.extend(hashes.as_flattened());
        self.spare.push(committed.columns);
        if let Some(record) = &mut self.record {
            record.chunk(chunk, point, committed.choices, rows);
        }
        Ok((chunk, response))
    }
}

/// Returns the challenge's point of evaluation.
pub(super) fn check_challenge(chunk: Chunk, challenge: &[u8]) -> Result<[u8; 16], OtError> {
    expect_length("challenge", challenge, CHALLENGE)?;
    let (first, point) = challenge.split_at(8);
    if first != chunk.first.to_be_bytes() {
        return Err(OtError::Peer(format!(
            "challenge: not of the chunk from index {}",
            chunk.first
        )));
    }
    Ok(*point.first_chunk().expect("16 bytes after the index"))
}
