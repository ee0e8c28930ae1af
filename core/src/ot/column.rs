//! The columns of a tile.

/// Blocks of 128 rows that are processed together: a column's part is 1 KiB, all columns 128 KiB.
pub const TILE: usize = 64;
/// Rows of a tile.
pub const TILE_ROWS: usize = TILE * 128;

/// A column's part in a tile.
///
/// Aligned to cache lines, and one line longer than a power of two: the same row of all columns would
/// otherwise fall into a few sets of the cache.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Column {
    pub blocks: [Row16; TILE],
    padding: [u8; 64],
}

impl Column {
    pub const ZERO: Self = Self {
        blocks: [[0; 16]; TILE],
        padding: [0; 64],
    };

    /// The bytes of all blocks.
    pub fn bytes(&self) -> &[u8] {
        self.blocks.as_flattened()
    }

    /// The bytes of all blocks.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.blocks.as_flattened_mut()
    }
}

/// 128 bits of a column.
pub type Row16 = [u8; 16];
