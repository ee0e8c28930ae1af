//! The table of a distribution: its strips and tails, their weights, and thresholds for quick decisions.

use num_bigint::BigUint;

use super::bounds::Bounds;
use super::distribution::Distribution;
use super::error::NoiseError;

/// Strips end, and the tail begins, where 2^32 f is below this.
const TAIL_HEIGHT: u64 = 1 << 12;
/// Cells of the guide are these many high bits of a 32-bit choice.
const GUIDE_BITS: u32 = 12;
/// Fractional bits of the exponents that are kept.
const POINT: u64 = 48;
/// Spreads from 2^this on are refused: strips then need more than 46 bits.
const SPREAD_BITS: u64 = 101;

/// Meaning of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Strip,
    /// The tail of a side: pieces of 2^bits values.
    Tail(u32),
    /// Nothing: choose again.
    Nothing,
}

/// A strip, a tail, or the rest of 2^32 at the end.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Choices below this, and not below the end of the segment before, lead here.
    pub end: u64,
    /// A first word below this keeps any value of the strip: 2^64 mass / height, rounded down.
    pub sure: u64,
    /// The offset of the value nearest to the mode.
    pub first: i64,
    /// 0 where offsets rise from there, -1 where they fall.
    pub sign: i32,
    pub kind: Kind,
}

impl Segment {
    /// The offset so many steps away from the mode.
    #[inline(always)]
    pub fn at(&self, steps: u64) -> i64 {
        // Without a branch: the side is a coin that no processor predicts.
        let sign = i64::from(self.sign);
        self.first + ((steps as i64 ^ sign) - sign)
    }
}

/// Data of a segment for close decisions.
#[derive(Clone, Copy, Debug)]
pub struct Detail {
    pub height: u64,
    /// 2^64 times the mass of the first value over the height, rounded down; the real one is less than one more.
    pub top: u64,
    /// floor(2^48 times -ln f) of the first values of: the strip before (if any), this, the next and the one
    /// after that (if any). Real ones are less than two more.
    pub exponents: [Option<u64>; 4],
}

/// A distribution with all data for drawing from it.
pub struct Table {
    pub distribution: Distribution,
    /// Strips have 2^bits values.
    pub bits: u32,
    pub segments: Vec<Segment>,
    pub details: Vec<Detail>,
    /// A value is kept with probability `room` 2^32 f / (`total` height).
    pub room: BigUint,
    pub total: BigUint,
    guide: Vec<u16>,
}

/// One side of the mode before its heights are scaled.
struct Side {
    left: bool,
    /// floor(2^32 f) + 1 of the first value of each strip, at last of the tail.
    heights: Vec<u64>,
    tail_bits: u32,
}

impl Side {
    fn new(distribution: &Distribution, left: bool, bits: u32) -> Result<Self, NoiseError> {
        let mut heights = Vec::new();
        loop {
            let height = floor_mass(distribution, offset(left, heights.len(), bits))? + 1;
            heights.push(height);
            if height <= TAIL_HEIGHT {
                break;
            }
        }
        // Beyond the tail's first offset t from the side's start, f falls to a half in at most (t + 1) / 20
        // steps: it is log-concave, and below 2^-20 at t.
        let start = ((heights.len() as u128 - 1) << bits) + 1;
        let mut tail_bits = bits;
        while 20 << tail_bits < start {
            tail_bits += 1;
        }
        Ok(Self {
            left,
            heights,
            tail_bits,
        })
    }

    /// Returns the weight of the tail in strips: 1 + 1/2 + 1/4 + ... pieces.
    fn tail_times(&self, bits: u32) -> u64 {
        2 << (self.tail_bits - bits)
    }

    /// Returns height, weight in strips, and index of each segment.
    fn rough(&self, bits: u32) -> impl Iterator<Item = (u64, u64, usize)> {
        let last = self.heights.len() - 1;
        let times = self.tail_times(bits);
        self.heights
            .iter()
            .enumerate()
            .map(move |(index, &height)| (height, if index == last { times } else { 1 }, index))
    }
}

/// Returns the offset from the mode of the first value of strip `index` of a side.
fn offset(left: bool, index: usize, bits: u32) -> i128 {
    let distance = (index as i128) << bits;
    if left { -1 - distance } else { distance }
}

/// floor(2^32 f)
fn floor_mass(distribution: &Distribution, offset: i128) -> Result<u64, NoiseError> {
    for bits in [96, 192, 384] {
        let Some(Bounds { low, high }) = distribution.mass(offset, bits) else {
            break;
        };
        let (low, high) = (low >> (bits - 32), high >> (bits - 32));
        if low == high {
            return low.try_into().map_err(|_| NoiseError::Beyond);
        }
    }
    let exact = distribution.exact(offset)?.ok_or(NoiseError::Beyond)?;
    ((exact.up << 32u8) / exact.down)
        .try_into()
        .map_err(|_| NoiseError::Beyond)
}

impl Table {
    /// Returns the table of `distribution`.
    pub fn new(distribution: Distribution) -> Result<Self, NoiseError> {
        let spread_bits = distribution.spread().bits();
        if spread_bits > SPREAD_BITS {
            return Err(NoiseError::Argument("the law is wider than 2^50"));
        }
        let bits = (spread_bits.saturating_sub(1) / 2).saturating_sub(4) as u32;
        let sides = [
            Side::new(&distribution, false, bits)?,
            Side::new(&distribution, true, bits)?,
        ];
        let rough = || sides.iter().flat_map(|side| side.rough(bits));
        let total: u128 = rough()
            .map(|(height, times, _)| u128::from(height) * u128::from(times))
            .sum();
        let room = (1u128 << 32) - rough().map(|(_, times, _)| u128::from(times)).sum::<u128>();
        let mut table = Self {
            distribution,
            bits,
            segments: Vec::new(),
            details: Vec::new(),
            room: BigUint::from(room),
            total: BigUint::from(total),
            guide: Vec::new(),
        };
        let mut end = 0;
        for side in &sides {
            let exponents = table.exponents(side);
            for (rough, times, index) in side.rough(bits) {
                let height = (u128::from(rough) * room / total) as u64 + 1;
                end += height * times;
                table.push(side, index, end, height, &exponents);
            }
        }
        table.segments.push(Segment {
            end: u64::MAX,
            sure: 0,
            first: 0,
            sign: 0,
            kind: Kind::Nothing,
        });
        table.guide = (0..1u64 << GUIDE_BITS)
            .map(|cell| {
                let choice = cell << (32 - GUIDE_BITS);
                table
                    .segments
                    .partition_point(|segment| segment.end <= choice) as u16
            })
            .collect();
        Ok(table)
    }

    /// floor(2^POINT (-ln f)) at the first value of each segment of a side; nothing where strips are single values.
    fn exponents(&self, side: &Side) -> Vec<Option<u64>> {
        (0..side.heights.len())
            .map(|index| {
                if self.bits == 0 {
                    return None;
                }
                let bounds = self
                    .distribution
                    .exponent(offset(side.left, index, self.bits), POINT + 16)?;
                (bounds.high <= &bounds.low + (1u32 << 16)).then_some(())?;
                (bounds.low >> 16u8).try_into().ok()
            })
            .collect()
    }

    fn push(
        &mut self,
        side: &Side,
        index: usize,
        end: u64,
        height: u64,
        exponents: &[Option<u64>],
    ) {
        let last = index + 1 == side.heights.len();
        let kind = if last {
            Kind::Tail(side.tail_bits)
        } else {
            Kind::Strip
        };
        let first = offset(side.left, index, self.bits);
        let top = self.retained(first, height);
        // The least mass of a strip is not below that of the next one's first value.
        let sure = match (last, self.bits) {
            (true, _) => 0,
            (false, 0) => top,
            (false, _) => self.retained(offset(side.left, index + 1, self.bits), height),
        };
        let at = |shift: usize| exponents.get((index + shift).checked_sub(1)?).copied()?;
        self.segments.push(Segment {
            end,
            sure,
            first: first as i64,
            sign: if side.left { -1 } else { 0 },
            kind,
        });
        self.details.push(Detail {
            height,
            top,
            exponents: [at(0), at(1), at(2), at(3)],
        });
    }

    /// Returns 2^64 times the probability to keep the value at `offset`, rounded down, perhaps by
    /// one too much.
    fn retained(&self, offset: i128, height: u64) -> u64 {
        let bits = 128;
        let low = match self.distribution.mass(offset, bits) {
            Some(bounds) => bounds.low,
            None => match self.distribution.exact(offset) {
                Ok(Some(exact)) => (exact.up << bits) / exact.down,
                _ => BigUint::ZERO,
            },
        };
        let scaled = ((low * &self.room) << 96u8) / (&self.total * height);
        (scaled >> bits).try_into().unwrap_or(0)
    }

    /// Returns the segment of a 32-bit choice.
    #[inline(always)]
    pub fn choose(&self, choice: u64) -> usize {
        let mut index = usize::from(self.guide[(choice >> (32 - GUIDE_BITS)) as usize]);
        while self.segments[index].end <= choice {
            index += 1;
        }
        index
    }
}

impl Detail {
    /// Thresholds for the first word at `steps` of 2^bits steps into the strip: below the first the value is
    /// kept, from the second on it is not. None where they are not worth having.
    pub fn thresholds(&self, steps: u64, bits: u32) -> Option<(u64, u64)> {
        let [before, here, next, after] = self.exponents;
        let (here, next) = (i128::from(here?), i128::from(next?));
        let (steps, width) = (i128::from(steps), 1i128 << bits);
        // -ln f is convex: between two points it is below their chord, elsewhere above it.
        let high = (((next + 2 - here) * steps) >> bits) + 1;
        let mut low = 0;
        if let Some(before) = before {
            low = low.max(((here - i128::from(before) - 2) * steps) >> bits);
        }
        if let Some(after) = after {
            let rest = (((i128::from(after) + 2 - next) * (width - steps)) >> bits) + 1;
            low = low.max(next - here - 2 - rest);
        }
        let (low, high) = (u64::try_from(low).ok()?, u64::try_from(high).ok()?);
        if high >= 1 << POINT {
            return None;
        }
        let (least, most) = (exp_neg_fixed(high).0, exp_neg_fixed(low).1);
        let below = (u128::from(self.top) * u128::from(least)) >> 60;
        let above = (((u128::from(self.top) + 2) * u128::from(most)) >> 60) + 1;
        Some((below as u64, u64::try_from(above).unwrap_or(u64::MAX)))
    }
}

/// Returns bounds on 2^60 exp(-x / 2^48) for x < 2^48, 2^22 apart.
fn exp_neg_fixed(x: u64) -> (u64, u64) {
    let y = u128::from(x << (60 - POINT));
    let (mut term, mut sum) = (1u64 << 60, 1i64 << 60);
    for n in 1..=14 {
        term = ((u128::from(term) * y) >> 60) as u64 / n;
        sum += if n % 2 == 1 {
            -(term as i64)
        } else {
            term as i64
        };
    }
    // Fifteen roundings of less than two units each, and a rest below 2^60 / 15!, less than 2^20.
    let slack = 1 << 21;
    ((sum - slack).max(0) as u64, (sum + slack) as u64)
}

/// Tells whether the uniform number whose first word is `word` is below 2^`extra` `room` 2^32 f /
/// (`total` height), reading more words from `next` where they are needed.
pub fn below(
    distribution: &Distribution,
    offset: i128,
    factor: (&BigUint, &BigUint),
    word: u64,
    mut next: impl FnMut() -> u64,
) -> Result<bool, NoiseError> {
    let (up, down) = factor;
    let mut number = BigUint::from(word);
    let mut read = 64u64;
    // The factor may be large: it undoes how small the mass is.
    let extra = up.bits().saturating_sub(down.bits());
    let mut precision = read + extra + 64;
    loop {
        // The number read so far against 2^read factor f, all times 2^precision and the denominator.
        let reach = &number + 1u8;
        match distribution.mass(offset, precision) {
            Some(Bounds { low, high }) if precision < 4096 + extra => {
                let edge = |mass: BigUint| (mass * up) << read;
                let scaled = |number: &BigUint| (number * down) << precision;
                let (low, high) = (edge(low), edge(high));
                if scaled(&reach) <= low {
                    return Ok(true);
                }
                if scaled(&number) >= high {
                    return Ok(false);
                }
                // The mass is not 0 here, however small: its bound from above is not.
                let above = number == BigUint::ZERO || scaled(&number) < low;
                if above && high < scaled(&reach) {
                    number = (number << 64u8) + next();
                    read += 64;
                    precision = precision.max(read + extra + 64);
                } else {
                    precision *= 2;
                }
            }
            _ => {
                let exact = distribution.exact(offset)?.ok_or(NoiseError::Beyond)?;
                let edge = (exact.up * up) << read;
                let scaled = &exact.down * down;
                if &reach * &scaled <= edge {
                    return Ok(true);
                }
                if &number * &scaled >= edge {
                    return Ok(false);
                }
                number = (number << 64u8) + next();
                read += 64;
            }
        }
    }
}
