//! Authenticated garbling [Katz, Ranellucci, Rosulek, Wang, CRYPTO 2018]: what one side of an evaluation computes.
//!
//! `protocols/active/README.md` is the specification, with the names used here. Transfers, commitments and the
//! order of messages are the caller's; here are the arrays: leaky triples and their buckets (`triples`), the
//! gates of a circuit (`garbler`, `evaluator`), and sums of output labels (`sums`). Both sides have one offset for everything, so each place, of
//! which the key of a hash is made, is used once.
//!
//! Nothing here branches on a secret or addresses memory by one: selections are masks. The shuffle of the
//! buckets is public.

mod digest;
mod evaluator;
mod garbler;
mod masks;
mod openings;
mod shared;
mod shuffle;
mod side;
mod sums;
mod triples;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use evaluator::{Evaluated, Evaluator};
pub use garbler::Garbler;
pub use masks::Masks;
pub use openings::Openings;
pub use shared::{Given, Octets, Shared};
pub use shuffle::shuffled;
pub use side::Side;
pub use sums::{SUMS, label_sums};
pub use triples::{Leaky, Triples};
