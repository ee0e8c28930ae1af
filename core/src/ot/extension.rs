//! Common part of both sides of the extension: sizes, limits, the layout of chunks.
//!
//! A chunk of n transfers takes B = ceil(n / 128) + 1 blocks of 128 rows; the last block hides the
//! response to the check and is never used. The transfers' indices are 128 times the position of the
//! chunk's first block onwards: position and index are one counter, and it only grows.

use zeroize::{Zeroizing, optimization_barrier};

use super::check::ColumnHashes;
use super::column::{Column, Row16, TILE, TILE_ROWS};
use super::error::OtError;
use super::hash::hash;
use super::labels;
use super::row::{KAPPA, Kernels, Row};
use super::transpose::transpose;

/// Most transfers of one chunk.
pub const MAX_CHUNK: usize = 1 << 22;
/// Indices below this may be used in one setup; the bounds in `docs/proofs/ot.md` are for this many.
pub const MAX_INDEX: u64 = 1 << 36;
/// Chunks whose check may be outstanding at once: they bound the memory.
pub const MAX_PENDING: usize = 4;
/// Greatest number of threads: starting more costs more than they gain.
const MAX_THREADS: usize = 4;
/// Bytes of the header of corrections: first index and number of transfers.
pub const HEADER: usize = 16;
/// Bytes of a challenge: first index and the point of evaluation.
pub const CHALLENGE: usize = 8 + 16;
/// Bytes of a response: first index, hash of the choices, hashes of the columns.
pub const RESPONSE: usize = 8 + 16 + KAPPA * 16;

/// Error of a full pipeline.
pub const FULL: &str = "four chunks are on their way, no more may be";
/// Error of a destroyed setup.
pub const DESTROYED: &str = "the setup was destroyed by an earlier failure";

/// Returns the number of threads for a setup's base transfers: the peer can only wait meanwhile.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MAX_THREADS))
}

/// Returns the context of a setup: a hash of the caller's and the field size.
pub fn setup_context(context: &[u8; 32], k: usize) -> Result<[u8; 32], OtError> {
    if k != 2 && k != 4 {
        return Err(OtError::Argument(format!("k: {k}, not 2 or 4")));
    }
    Ok(hash(labels::SETUP, &[context, &[k as u8]]))
}

/// Position of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The first transfer's index.
    pub first: u64,
    /// The number of transfers.
    pub count: usize,
}

impl Chunk {
    /// Returns the chunk of `count` transfers from index `first`, if the limits allow it.
    pub fn new(first: u64, count: usize) -> Result<Self, OtError> {
        if !(1..=MAX_CHUNK).contains(&count) {
            return Err(OtError::Argument(format!(
                "count: {count}, not between 1 and {MAX_CHUNK}"
            )));
        }
        let chunk = Self { first, count };
        if chunk.next() > MAX_INDEX {
            return Err(OtError::Argument(format!(
                "count: {count} more transfers from index {first} exceed the {MAX_INDEX} of one setup"
            )));
        }
        Ok(chunk)
    }

    /// Blocks of 128 rows, the hiding one included.
    pub fn blocks(self) -> usize {
        self.count.div_ceil(128) + 1
    }

    /// Position of the first block in the leaves' streams.
    pub fn position(self) -> u64 {
        self.first / 128
    }

    /// The index after the chunk.
    pub fn next(self) -> u64 {
        self.first + self.blocks() as u64 * 128
    }

    /// Tiles that the chunk covers.
    pub fn tiles(self) -> usize {
        self.blocks().div_ceil(TILE)
    }

    /// Blocks of the chunk in tile `tile`.
    pub fn blocks_in(self, tile: usize) -> usize {
        (self.blocks() - tile * TILE).min(TILE)
    }

    /// Bytes of the corrections.
    pub fn corrections(self, k: usize) -> usize {
        HEADER + KAPPA / k * self.blocks() * 16
    }

    /// The header of the corrections.
    pub fn header(self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&self.first.to_be_bytes());
        header[8..].copy_from_slice(&(self.count as u64).to_be_bytes());
        header
    }
}

/// Checks the length of a buffer of the caller.
pub fn expect_room(name: &str, have: usize, expected: usize) -> Result<(), OtError> {
    if have == expected {
        return Ok(());
    }
    Err(OtError::Argument(format!(
        "{name}: room for {have}, not {expected}"
    )))
}

/// A chunk's columns, tile after tile; the memory is kept for another chunk.
#[derive(Default)]
pub struct Columns(Vec<Column>);

impl Columns {
    /// Room for `tiles` tiles, with whatever content.
    pub fn resize(&mut self, tiles: usize) {
        let length = tiles * KAPPA;
        if length > self.0.len() {
            // Grown in place of being copied: what is there is not needed, and must not be left behind.
            self.zeroize();
            self.0 = vec![Column::ZERO; length];
        }
    }

    /// Overwrites all content, without the crate's loop over bytes: there may be megabytes.
    fn zeroize(&mut self) {
        self.0.fill(Column::ZERO);
        optimization_barrier(self.0.as_slice());
    }

    /// The columns of each tile.
    pub fn tiles(&mut self) -> &mut [[Column; KAPPA]] {
        self.0.as_chunks_mut().0
    }
}

impl Drop for Columns {
    fn drop(&mut self) {
        self.zeroize();
    }
}

/// Turns a chunk's columns into its rows, and returns the hashes of the columns under `challenge`.
pub fn transpose_rows(
    kernels: Kernels,
    chunk: Chunk,
    challenge: &[u8; 16],
    tiles: &[[Column; KAPPA]],
    rows: &mut [Row],
) -> Zeroizing<Vec<Row16>> {
    let mut hashes = ColumnHashes::new(kernels, challenge, KAPPA, chunk.blocks());
    let mut parts = rows.chunks_mut(TILE_ROWS);
    for (tile, columns) in tiles.iter().take(chunk.tiles()).enumerate() {
        hashes.update(columns, chunk.blocks_in(tile));
        if let Some(part) = parts.next() {
            transpose(kernels, columns, part);
        }
    }
    hashes.finish()
}

/// `turn` of blocks of 128 rows, each holding its 16 bytes of every column in order.
pub fn transpose_blocks(
    kernels: Kernels,
    challenge: &[u8; 16],
    blocks: &[[u8; KAPPA * 16]],
    rows: &mut [Row],
) -> Result<Zeroizing<Vec<Row16>>, OtError> {
    let chunk = Chunk::new(0, rows.len())?;
    let mut columns = Columns::default();
    columns.resize(chunk.tiles());
    for (number, block) in blocks.iter().enumerate().take(chunk.blocks()) {
        let (parts, _) = block.as_chunks::<16>();
        for (column, part) in columns.tiles()[number / TILE].iter_mut().zip(parts) {
            column.blocks[number % TILE] = *part;
        }
    }
    Ok(transpose_rows(
        kernels,
        chunk,
        challenge,
        columns.tiles(),
        rows,
    ))
}
