//! Every label of vector commitments. A label's meaning never changes: a new meaning is a new label.

/// TupleHash256 of a generator: family, index (4 bytes, big-endian).
pub const GENERATOR: &str = "smpc-dp/1/vector-generator";
/// TupleHash256 of a block's number (4 bytes, big-endian): the key of the block's digest.
pub const BLOCK: &str = "smpc-dp/1/vector-block";

/// Families of generators.
pub const FAMILY_VALUE: &str = "value";
pub const FAMILY_BLINDING: &str = "blinding";
