//! Drawing: samples in order within blocks, blocks over threads.

use num_bigint::BigUint;

use super::distribution::{Distribution, Rational};
use super::error::NoiseError;
use super::table::{Kind, Table, below};
use super::words::{Streams, Words};

/// Samples of one block, which has a stream of its own.
pub const BLOCK: usize = 4096;
/// Greatest number of halvings of a tail's height.
const PIECES: u64 = 4096;

/// Kind of a sample.
pub enum Sampler {
    /// Always the same.
    Constant(i64),
    /// 1 with probability exp(-x): whether the first word is below, at or above the threshold decides.
    Bernoulli {
        distribution: Distribution,
        threshold: u64,
    },
    /// An offset from the mode, plus `origin`.
    Single { table: Table, origin: i64 },
    /// The difference of two independent values.
    Difference(Table),
}

impl Sampler {
    /// 1 with probability exp(-x), else 0.
    pub fn bernoulli(x: Rational) -> Result<Self, NoiseError> {
        if x.up == BigUint::ZERO {
            return Ok(Self::Constant(1));
        }
        let distribution = Distribution::geometric(x);
        let bounds = distribution.mass(1, 128).ok_or(NoiseError::Beyond)?;
        let threshold = (bounds.low >> 64u8)
            .try_into()
            .map_err(|_| NoiseError::Beyond)?;
        Ok(Self::Bernoulli {
            distribution,
            threshold,
        })
    }

    /// Fills `samples`, the samples of a call from its beginning, over `threads` threads.
    pub fn fill(
        &self,
        streams: &Streams,
        samples: &mut [i64],
        threads: usize,
    ) -> Result<(), NoiseError> {
        let blocks = samples.len().div_ceil(BLOCK);
        let share = blocks.div_ceil(threads.max(1)).max(1);
        if share >= blocks {
            return self.fill_blocks(streams, 0, samples);
        }
        std::thread::scope(|scope| {
            let parts: Vec<_> = samples
                .chunks_mut(share * BLOCK)
                .enumerate()
                .map(|(part, samples)| {
                    scope.spawn(move || self.fill_blocks(streams, part * share, samples))
                })
                .collect();
            parts.into_iter().try_for_each(|part| match part.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    fn fill_blocks(
        &self,
        streams: &Streams,
        first: usize,
        samples: &mut [i64],
    ) -> Result<(), NoiseError> {
        for (number, block) in samples.chunks_mut(BLOCK).enumerate() {
            let mut words =
                streams.words((first + number) as u64, self.words_expected(block.len()));
            self.fill_block(&mut words, block)?;
        }
        Ok(())
    }

    fn words_expected(&self, samples: usize) -> usize {
        match self {
            Self::Constant(_) => 0,
            Self::Bernoulli { .. } => samples,
            Self::Single { .. } => 2 * samples + samples / 16 + 2,
            Self::Difference(_) => 4 * samples + samples / 8 + 4,
        }
    }

    fn fill_block(&self, words: &mut Words<'_>, block: &mut [i64]) -> Result<(), NoiseError> {
        match self {
            Self::Constant(value) => block.fill(*value),
            Self::Bernoulli {
                distribution,
                threshold,
            } => {
                for sample in block {
                    *sample = i64::from(bernoulli(distribution, *threshold, words)?);
                }
            }
            Self::Single { table, origin } => {
                for sample in block {
                    let offset = draw(table, words)?;
                    *sample = offset.checked_add(*origin).ok_or(NoiseError::Beyond)?;
                }
            }
            Self::Difference(table) => {
                for sample in block {
                    let (one, other) = (draw(table, words)?, draw(table, words)?);
                    *sample = one.checked_sub(other).ok_or(NoiseError::Beyond)?;
                }
            }
        }
        Ok(())
    }
}

/// Draws a bit; the threshold is floor(2^64 exp(-x)), or one less.
#[inline(always)]
fn bernoulli(
    distribution: &Distribution,
    threshold: u64,
    words: &mut Words<'_>,
) -> Result<bool, NoiseError> {
    let word = words.next();
    if word.abs_diff(threshold) > 1 {
        return Ok(word < threshold);
    }
    let one = BigUint::from(1u8);
    below(distribution, 1, (&one, &one), word, || words.next())
}

/// Draws the offset from the mode of one value.
#[inline(always)]
fn draw(table: &Table, words: &mut Words<'_>) -> Result<i64, NoiseError> {
    loop {
        let mut word = words.next();
        let index = table.choose(word >> 32);
        let segment = &table.segments[index];
        match segment.kind {
            Kind::Strip => {}
            Kind::Nothing => continue,
            Kind::Tail(bits) => match tail(table, index, bits, words)? {
                Some(offset) => return Ok(offset),
                None => continue,
            },
        }
        if table.bits > 32 {
            word = words.next();
        }
        let steps = word & ((1 << table.bits) - 1);
        let offset = segment.at(steps);
        let word = words.next();
        if word < segment.sure || close(table, index, steps, offset, word, words)? {
            return Ok(offset);
        }
    }
}

/// Tells whether a value is kept whose first word is not below the strip's certain threshold.
#[cold]
#[inline(never)]
fn close(
    table: &Table,
    index: usize,
    steps: u64,
    offset: i64,
    word: u64,
    words: &mut Words<'_>,
) -> Result<bool, NoiseError> {
    let detail = &table.details[index];
    if let Some((retained, lost)) = detail.thresholds(steps, table.bits) {
        if word < retained {
            return Ok(true);
        }
        if word >= lost {
            return Ok(false);
        }
    }
    let up = &table.room << 32u8;
    let down = &table.total * detail.height;
    below(
        &table.distribution,
        i128::from(offset),
        (&up, &down),
        word,
        || words.next(),
    )
}

/// Draws a value of a tail, or None if it is not kept.
#[cold]
#[inline(never)]
fn tail(
    table: &Table,
    index: usize,
    bits: u32,
    words: &mut Words<'_>,
) -> Result<Option<i64>, NoiseError> {
    let mut piece = 0u64;
    loop {
        let word = words.next();
        piece += u64::from(word.leading_zeros());
        if word != 0 {
            break;
        }
        if piece >= PIECES {
            return Err(NoiseError::Beyond);
        }
    }
    let steps = words.next() & ((1 << bits) - 1);
    let distance = (i128::from(piece) << bits) + i128::from(steps);
    let segment = &table.segments[index];
    let sign = i128::from(segment.sign);
    let offset = i128::from(segment.first) + ((distance ^ sign) - sign);
    let up = &table.room << (32 + piece);
    let down = &table.total * table.details[index].height;
    let word = words.next();
    if below(&table.distribution, offset, (&up, &down), word, || {
        words.next()
    })? {
        i64::try_from(offset)
            .map(Some)
            .map_err(|_| NoiseError::Beyond)
    } else {
        Ok(None)
    }
}
