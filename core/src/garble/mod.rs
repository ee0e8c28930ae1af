//! Half-gates garbling [Zahur, Rosulek, Evans 2015] with free XOR and point-and-permute.
//!
//! **Hash.** H(x, i) = E_i(sigma(x)) ^ sigma(x), E being AES-128 under the key i and
//! sigma(L || R) = (L ^ R) || L on the halves of a label, a linear orthomorphism: both sigma and
//! x -> sigma(x) ^ x are permutations. This is the construction, and the re-keying, of [Guo, Katz, Wang,
//! Weng, Yu, "Better Concrete Security for Half-Gates Garbling (in the Multi-Instance Setting)", CRYPTO
//! 2020]; sigma is that of [Guo, Katz, Wang, Yu, "Efficient and Secure Multiparty Computation from
//! Fixed-Key Block Ciphers", S&P 2020]. The notion is the former's multi-instance tweakable circular
//! correlation robustness (miTCCR): for independent offsets of min-entropy rho, (w, i, b) ->
//! H(R ^ w, i) ^ b R is pseudorandom for whoever never asks for both values of b. Without sigma the
//! equation of one garbled gate can be solved for the offset (`tests/reference/garble_twin.py` does it).
//!
//! **Keys.** Half-gate h of group g has the key start ^ (g << 64 | h): h is 2 j for the generator's half
//! of AND gate j (its place among the AND gates of the circuit as written), 2 j + 1 for the evaluator's,
//! 2^63 + k for the hash of output k. The group is the instance (`unique`) or the tile (`tile`). The
//! caller makes `start` from the run's transcript; keys are public.
//!
//! **Bound.** In the ideal cipher model an adversary with p cipher queries against q oracle queries (one
//! for each half-gate and each hashed output of each instance: the label that it does not hold), of which
//! at most mu have any one key, has advantage at most 2 mu p / 2^rho + (mu - 1) q / 2^rho with rho = 127
//! (the lowest bit of an offset is 1). The proof is short: it can tell only if a cipher query meets the
//! input or the output of an oracle's call under the same key (at most mu such calls, each met with
//! probability at most 2^-rho, because w -> sigma(R ^ w) is a bijection of R and so is the sum
//! sigma(R ^ w) ^ b R: here the orthomorphism is needed), or if two calls under one key meet (at most
//! q (mu - 1) / 2 pairs, on either side). With one run per `start`: `unique` has mu = 1, so
//! 2 p / 2^127; `tile` has mu <= T, T = 4096, so 2 T p / 2^127 + (T - 1) q / 2^127, about 12 bits less. A
//! smaller tile costs less, and the tile is chosen by the cache. Starts are uniform, drawn by the garbler
//! when nobody can steer them any more, so keys of differing runs meet by chance alone: with Q keys in all,
//! m + 1 runs have one in common with probability at most Q^(m+1) / ((m+1)! 2^(128 m)), and otherwise
//! mu <= m (`unique`) or m T (`tile`); `docs/proofs/garbling.md` has numbers. Labels and offsets come from AES-128 in
//! counter mode: one term of s^2 / 2^129 more for s labels of one seed. Active labels of the garbler's inputs
//! may come from a public seed (`Garbler::open`): they do not depend on its bits, and the evaluator has them.
//!
//! **Order of the tables.** Tile by tile; in a tile, gate by gate: in a tile of two or more instances, in
//! the order of the circuit, T_G of every instance and then T_E of every instance; in a tile of one
//! instance, level by level (`circuit`), T_G and T_E of each gate. 32 bytes for each AND gate and instance.
//!
//! Nothing here branches on a secret or addresses memory by one: selections are masks.

mod block;
mod circuit;
mod evaluator;
mod garbler;
mod inputs;
mod kernel;
mod list;
mod operands;
mod portable;
mod runs;
#[cfg(target_arch = "x86_64")]
mod simd;
#[cfg(target_arch = "x86_64")]
mod simd_runs;
mod step;
mod tile;
mod window;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod rates;
#[cfg(test)]
mod tests;

pub use block::Block;
pub(crate) use block::mask;
pub use circuit::{AND, Circuit, EQ, EQW, Gate, INV, Refused, XOR};
pub use evaluator::Evaluator;
pub use garbler::Garbler;
pub use inputs::{LABEL, read_labels, write_labels};
pub use kernel::Kernel;
pub use list::{List, check_opened};
pub use operands::GATE;
pub(crate) use operands::Keys;
pub(crate) use step::Step;
pub use tile::{MAX_TILE, Mode, Plan, hash_output, suggest_tile};
