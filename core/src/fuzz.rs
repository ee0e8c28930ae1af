//! Runs fuzz targets on numbered inputs: input `i` of a target is always the same bytes.
//!
//! `cargo test` runs the first inputs of each target. With `FUZZ_INPUTS=N` each target runs its first N inputs
//! (a costly one fewer), from where the file `FUZZ_STATE/TARGET.count` says that the last run ended; `make fuzz` does that. A panic
//! prints the number of its input, and `FUZZ_ONLY=NUMBER` runs that input alone.

use std::path::PathBuf;

use arbitrary::{Result, Unstructured};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use crate::shamir;

/// Inputs of a cheap target in a test run, and the fewest of any target.
const INPUTS: u64 = 200;
const FEWEST: u64 = 4;
/// Inputs between two writes of the count.
const RETAINED: u64 = 1 << 14;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a whole number"))
}

/// Prints the number of the input that panics.
struct Trace<'a> {
    target: &'a str,
    number: u64,
}

impl Drop for Trace<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: input {} panics", self.target, self.number);
        }
    }
}

/// File in which the count of a target is kept between runs.
struct Count(Option<PathBuf>);

impl Count {
    fn read(&self) -> u64 {
        let text = self
            .0
            .as_ref()
            .and_then(|file| std::fs::read_to_string(file).ok());
        text.map_or(0, |text| text.trim().parse().expect("a count"))
    }

    fn write(&self, done: u64) {
        if let Some(file) = &self.0 {
            std::fs::write(file, format!("{done}\n")).expect("the folder of counts can be written");
        }
    }
}

/// Runs `target` on inputs of up to `longest` bytes, a `cost`-th of those of a cheap target. A target returns
/// `Err` where the bytes do not suffice.
pub fn run(
    name: &str,
    cost: u64,
    longest: usize,
    mut target: impl FnMut(&mut Unstructured<'_>) -> Result<()>,
) {
    let folder = std::env::var_os("FUZZ_STATE");
    let count = Count(folder.map(|folder| PathBuf::from(folder).join(format!("{name}.count"))));
    let (first, end) = match variable("FUZZ_ONLY") {
        Some(number) => (number, number + 1),
        None => {
            let inputs = variable("FUZZ_INPUTS").unwrap_or(INPUTS);
            (count.read(), (inputs / cost).max(FEWEST))
        }
    };
    let name_hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut buffer = vec![0; longest];
    let mut trace = Trace {
        target: name,
        number: first,
    };
    for number in first..end {
        trace.number = number;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(name_hash ^ number);
        let length = longest - (random.next_u64() % 4 * (longest as u64 / 8)) as usize;
        random.fill_bytes(&mut buffer[..length]);
        // Too few bytes for a target's choices are an input like any other.
        let _ = target(&mut Unstructured::new(&buffer[..length]));
        if (number + 1).is_multiple_of(RETAINED) {
            count.write(number + 1);
        }
    }
    count.write(end.max(first));
}

/// Changes `bytes` in one of the ways in which a hostile peer's bytes may differ from honest ones.
pub fn mutate(input: &mut Unstructured<'_>, bytes: &mut Vec<u8>) -> Result<()> {
    for _ in 0..input.int_in_range(1..=3)? {
        if bytes.is_empty() {
            bytes.push(input.arbitrary()?);
        }
        let index = input.choose_index(bytes.len())?;
        match input.int_in_range(0..=7)? {
            0 => bytes[index] ^= 1 << input.int_in_range(0..=7)?,
            1 => bytes[index] = input.arbitrary()?,
            2 => bytes[index] = *input.choose(&[0, 1, 0x7f, 0x80, 0xec, 0xed, 0xff])?,
            3 => bytes.truncate(index),
            4 => bytes.push(input.arbitrary()?),
            5 => {
                let other = input.choose_index(bytes.len())?;
                bytes.swap(index, other);
            }
            6 => {
                // One element of 16 or 32 bytes in the place of another.
                let size = *input.choose(&[16, 32])?;
                let elements = bytes.len() / size;
                if elements > 1 {
                    let from = input.choose_index(elements)? * size;
                    let to = input.choose_index(elements)? * size;
                    bytes.copy_within(from..from + size, to);
                }
            }
            _ => {
                let end = bytes.len().min(index + 32);
                bytes[index..end].fill(*input.choose(&[0, 0xff])?);
            }
        }
    }
    Ok(())
}

/// Shares of any lengths at any points are refused, or give a secret independent of their order.
#[test]
fn shares() {
    run("shares", 1, 160, |input| {
        let count = input.int_in_range(0..=5)?;
        let width = *input.choose(&[0, 1, 15, 16, 16, 16, 16, 17, 32])?;
        let small = input.arbitrary()?;
        let transpose_rows = input.int_in_range(0..=15)?;
        let mut xs: Vec<u16> = Vec::new();
        let mut shares: Vec<&[u8]> = Vec::new();
        for _ in 0..count {
            let x = input.arbitrary::<u16>()?;
            xs.push(if small { x % 8 } else { x });
            let longer = input.ratio(1, 32)?;
            shares.push(input.bytes(width + usize::from(longer))?);
        }
        if input.ratio(1, 32)? {
            xs.pop();
        }
        let width = shares.first().map_or(0, |share| share.len());
        let alike = shares.iter().all(|share| share.len() == width);
        let mut distinct = xs.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let good = width > 0
            && width.is_multiple_of(16)
            && alike
            && xs.len() == shares.len()
            && distinct.len() == xs.len()
            && !distinct.contains(&0);
        match shamir::combine(&xs, &shares) {
            Ok(secret) => {
                assert!(good && secret.len() == width);
                if transpose_rows == 0 {
                    xs.reverse();
                    shares.reverse();
                    assert_eq!(shamir::combine(&xs, &shares), Ok(secret));
                }
            }
            Err(_) => assert!(!good),
        }
        Ok(())
    });
}
