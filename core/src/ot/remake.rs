//! The sender's part of a setup made again by the receiver, which has been given the sender's seed.
//!
//! The receiver has both keys of each base transfer, all leaves and its rows t, so it computes what the sender
//! has without a multiplication of points, a tree or a stream: q = t xor choice * Delta
//! (`protocols/covert/README.md`). Its own messages it made itself.

use zeroize::{Zeroizing, optimization_barrier};

use super::base::{self, OpenedPairs};
use super::column::Row16;
use super::error::OtError;
use super::extension::{Chunk, expect_room};
use super::pprf;
use super::row::Row;
use super::sender::{base_seed, challenge_of, delta_of, fill_pads};

/// A message of the sender's that does not follow from its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deviation {
    /// The response of the base transfers.
    BaseResponse,
    /// The challenge.
    Challenge,
}

/// What a receiver keeps of a setup and of the last chunk.
#[derive(Default)]
pub struct Record {
    openings: OpenedPairs,
    answered: Option<Answered>,
}

/// A chunk whose challenge is answered.
struct Answered {
    chunk: Chunk,
    point: [u8; 16],
    /// The choices in blocks of 128.
    choices: Zeroizing<Vec<Row16>>,
    /// The rows t.
    rows: Vec<Row>,
}

impl Drop for Answered {
    /// Overwrites the rows, without the loop over bytes of `Zeroizing`: there may be a megabyte.
    fn drop(&mut self) {
        self.rows.fill([0; 16]);
        optimization_barrier(self.rows.as_slice());
    }
}

impl Record {
    /// Keeps the openings of the base response.
    pub fn setup(&mut self, openings: OpenedPairs) {
        self.openings = openings;
    }

    /// Keeps a chunk, its challenge, choices and rows.
    pub fn chunk(
        &mut self,
        chunk: Chunk,
        point: [u8; 16],
        choices: Zeroizing<Vec<Row16>>,
        rows: &[Row],
    ) {
        self.answered = Some(Answered {
            chunk,
            point,
            choices,
            rows: rows.to_vec(),
        });
    }

    /// Returns the number of transfers of the chunk, 0 if there is none.
    pub fn count(&self) -> usize {
        self.answered
            .as_ref()
            .map_or(0, |answered| answered.chunk.count)
    }

    /// Does `ExtensionReceiver::remake`.
    pub fn remake(
        &self,
        context: &[u8; 32],
        k: usize,
        seed: &[u8; 32],
        pads: &mut [Row],
    ) -> Result<Option<Deviation>, OtError> {
        let Some(answered) = &self.answered else {
            return Err(OtError::State("no challenge was answered"));
        };
        let first = answered.chunk.first;
        expect_room("pads", pads.len(), 2 * answered.chunk.count)?;
        let delta = delta_of(context, seed);
        let choices = Zeroizing::new(pprf::base_choices(k, &delta));
        let base = base_seed(context, seed);
        if !base::follows(context, &base, &choices, &self.openings) {
            return Ok(Some(Deviation::BaseResponse));
        }
        if challenge_of(context, seed, first) != answered.point {
            return Ok(Some(Deviation::Challenge));
        }
        let chosen = answered.choices.as_flattened();
        for (number, (pad, row)) in pads.iter_mut().zip(answered.rows.iter()).enumerate() {
            let mask = 0u8.wrapping_sub(chosen[number / 8] >> (number % 8) & 1);
            for ((byte, other), delta) in pad.iter_mut().zip(row).zip(delta.iter()) {
                *byte = other ^ delta & mask;
            }
        }
        fill_pads(context, first, &delta, pads);
        Ok(None)
    }
}
