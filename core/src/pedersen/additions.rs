//! The additions of points that commitments and checks take: counted, and made for a benchmark.
//!
//! A pair of numbers stands for so many additions of 7 multiplications in the field (of a point in affine
//! coordinates, or each of a sum and a difference) and so many of 8 (of any other point).

use std::hint::black_box;

use super::buckets::Buckets;
use super::elements::bits_of;
use super::error::CommitmentError;
use super::generators::Family;
use super::point::Extended;
use super::table::Windows;

/// Counts the additions of a commitment to so many elements of `width` bytes each.
pub fn commit_additions(length: usize, width: usize) -> Result<[usize; 2], CommitmentError> {
    Ok(Windows::additions(bits_of(width)?, length))
}

/// Counts the additions of a check of so many totals of `width` bytes each, on one thread.
pub fn check_additions(length: usize, width: usize) -> Result<[usize; 2], CommitmentError> {
    Ok(Buckets::additions(bits_of(width)?, length))
}

/// Makes so many additions. Sums alternate, as those of windows and buckets do.
pub fn make_additions([seven, eight]: [usize; 2]) {
    let summand = Family::values().point(1);
    let (niels, cached) = (summand.niels(), summand.extended().cached());
    let mut sums = [Extended::IDENTITY; 8];
    for index in 0..seven {
        sums[index % 8] = sums[index % 8].plus_niels(black_box(&niels));
    }
    for index in 0..eight {
        sums[index % 8] = sums[index % 8].plus(black_box(&cached));
    }
    black_box(&sums);
}
