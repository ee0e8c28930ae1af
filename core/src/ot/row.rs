//! The size of the correlation, its rows, and the choice of kernels that work on them.

/// Base transfers of a setup, bits of the correlation, bits of a hashed column.
pub const KAPPA: usize = 128;

/// A transfer's row: bit c belongs to column c of the correlation.
pub type Row = [u8; 16];

/// Version of a kernel; all give the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernels {
    /// The best instructions of the machine.
    Fastest,
    /// The instructions of every machine.
    Portable,
}
