//! Every label of the commitments and proofs: hashes of generators, and the steps of merlin transcripts.
//!
//! A label's meaning, and with it what is appended under it, never changes: a new meaning is a new label.

/// TupleHash256 of a generator: family, index (4 bytes, big-endian).
pub const GENERATOR: &str = "smpc-dp/1/proofs-generator";
/// TupleHash256 of a batch's seed and the number of an equation: the equation's weight.
pub const WEIGHT: &str = "smpc-dp/1/proofs-weight";
/// TupleHash256 of an auditor's seed and the two ends of an edge, the lesser first (2 bytes, big-endian each).
pub const EDGE_WEIGHT: &str = "smpc-dp/1/proofs-edge-weight";

/// Families of generators.
pub const FAMILY_VALUE: &str = "value";
pub const FAMILY_LEFT: &str = "left";
pub const FAMILY_RIGHT: &str = "right";
pub const FAMILY_BLINDING: &str = "blinding";
pub const FAMILY_PRODUCT: &str = "product";
pub const FAMILY_NORM: &str = "norm";

/// The transcript of one proof; then the caller's digest and the kind of statement.
pub const PROOF: &[u8] = b"smpc-dp/1/proof";
pub const CONTEXT: &[u8] = b"context";
pub const KIND: &[u8] = b"kind";
pub const KIND_RANGE: &[u8] = b"range";
/// A range for each coordinate: `low` and `high` are those of all, one after the other.
pub const KIND_BOX: &[u8] = b"box";
pub const KIND_NOISE: &[u8] = b"noise";
pub const KIND_NORM: &[u8] = b"norm";

/// Parts of statements; numbers of values are 16 bytes, little-endian.
pub const LENGTH: &[u8] = b"length";
pub const LOW: &[u8] = b"low";
pub const HIGH: &[u8] = b"high";
pub const BITS_EACH: &[u8] = b"bits-each";
pub const COINS: &[u8] = b"coins";
pub const BOUND: &[u8] = b"bound";

/// Commitments.
pub const VALUES: &[u8] = b"values";
pub const BITS: &[u8] = b"bits";
pub const SQUARES: &[u8] = b"squares";
pub const NORM: &[u8] = b"norm";

/// Challenges of the arguments.
pub const Y: &[u8] = b"y";
pub const Z: &[u8] = b"z";
pub const RHO: &[u8] = b"rho";
pub const TAU: &[u8] = b"tau";

/// The inner-product argument.
pub const ROUND_L: &[u8] = b"L";
pub const ROUND_R: &[u8] = b"R";
pub const ROUND: &[u8] = b"round";
pub const LAST_A: &[u8] = b"A";
pub const LAST_B: &[u8] = b"B";
pub const LAST: &[u8] = b"last";

/// Secrets that the prover's nonces are bound to.
pub const WITNESS: &[u8] = b"witness";
