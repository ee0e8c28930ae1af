//! The domain-separation labels of oblivious transfer: each is the customisation string of one use.

/// The caller's context and the field size: the context of everything else.
pub const SETUP: &str = "smpc-dp/1/ot-setup";
/// The base sender's scalar.
pub const BASE_SCALAR: &str = "smpc-dp/1/ot-base-scalar";
/// The base receiver's scalars and Feistel strings.
pub const BASE_COINS: &str = "smpc-dp/1/ot-base-coins";
/// The group hash H of the Feistel function.
pub const BASE_POINT: &str = "smpc-dp/1/ot-base-point";
/// The string hash H' of the Feistel function.
pub const BASE_STRING: &str = "smpc-dp/1/ot-base-string";
/// The output keys of base transfers.
pub const BASE_KEY: &str = "smpc-dp/1/ot-base-key";
/// The extension sender's correlation, from its seed.
pub const DELTA: &str = "smpc-dp/1/ot-delta";
/// The extension sender's correlation whose bit 0 is fixed, from its seed.
pub const FIXED_DELTA: &str = "smpc-dp/1/ot-active-delta";
/// The extension sender's seed for its base transfers.
pub const SENDER_BASE: &str = "smpc-dp/1/ot-sender-base";
/// The extension sender's challenges.
pub const CHALLENGE: &str = "smpc-dp/1/ot-challenge";
/// One node's children in a tree.
pub const TREE: &str = "smpc-dp/1/ot-tree";
/// A leaf's stream key and its check string.
pub const LEAF: &str = "smpc-dp/1/ot-leaf";
/// All check strings of one tree.
pub const TREE_CHECK: &str = "smpc-dp/1/ot-tree-check";
/// The permutation's key in the pads of random transfers.
pub const PAD: &str = "smpc-dp/1/ot-pad";
