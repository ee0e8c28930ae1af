//! Half-gates over vectors of lanes, written once for every vector width.
//!
//! Everything here is inlined into the entry points of `x86`, which turn the instructions on. Keys are
//! expanded with AESENCLAST, not AESKEYGENASSIST: it is as fast as a round, and wide. No vector function
//! is called in a closure that goes through the standard library: it would be compiled without them.

#![allow(unsafe_code)]

use super::block::Block;
use super::operands::Wires;
use crate::vectors::{ROUND_CONSTANTS, Vector};

/// Source of the keys of the half-gates.
///
/// # Safety
/// As for `Vector`; and lanes up to `at + LANES` must have keys.
pub trait KeySource<V: Vector> {
    type Lane: Copy;
    unsafe fn lane(&self, at: usize) -> Self::Lane;
    /// The keys of round `r`; rounds are asked for in order, from 0.
    unsafe fn keys(&self, lane: &mut Self::Lane, r: usize) -> [V; 2];
}

/// Both key schedules, the same in every block.
pub struct SharedKeys<V>([[V; 2]; 11]);

impl<V: Vector> SharedKeys<V> {
    #[inline(always)]
    pub unsafe fn new(pair: [Block; 2]) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let mut keys = [V::splat(pair[0]), V::splat(pair[1])];
            let mut schedule = [keys; 11];
            for (round, constant) in schedule.iter_mut().zip(ROUND_CONSTANTS).skip(1) {
                keys = [keys[0].next_key(constant), keys[1].next_key(constant)];
                *round = keys;
            }
            Self(schedule)
        }
    }
}

impl<V: Vector> SharedKeys<V> {
    /// A schedule that was made before.
    #[inline(always)]
    pub unsafe fn expanded(schedule: &[Block; 11]) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let mut keys = [[V::splat(0); 2]; 11];
            for (keys, &block) in keys.iter_mut().zip(schedule) {
                *keys = [V::splat(block); 2];
            }
            Self(keys)
        }
    }
}

impl<V: Vector> KeySource<V> for SharedKeys<V> {
    type Lane = ();
    #[inline(always)]
    unsafe fn lane(&self, _at: usize) {}
    #[inline(always)]
    unsafe fn keys(&self, _lane: &mut (), r: usize) -> [V; 2] {
        self.0[r]
    }
}

/// Keys of each lane, expanded while they are used.
pub struct UniqueKeys<V> {
    lanes: *const Block,
    pair: [V; 2],
}

impl<V: Vector> UniqueKeys<V> {
    #[inline(always)]
    pub unsafe fn new(lanes: &[Block], pair: [Block; 2]) -> Self {
        // SAFETY: the caller's promise.
        let pair = unsafe { [V::splat(pair[0]), V::splat(pair[1])] };
        Self {
            lanes: lanes.as_ptr(),
            pair,
        }
    }
}

impl<V: Vector> KeySource<V> for UniqueKeys<V> {
    type Lane = [V; 2];
    #[inline(always)]
    unsafe fn lane(&self, at: usize) -> [V; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let lane = V::load(self.lanes.add(at));
            [lane.xor(self.pair[0]), lane.xor(self.pair[1])]
        }
    }
    #[inline(always)]
    unsafe fn keys(&self, lane: &mut [V; 2], r: usize) -> [V; 2] {
        if r > 0 {
            // SAFETY: the caller's promise.
            *lane = unsafe {
                [
                    lane[0].next_key(ROUND_CONSTANTS[r]),
                    lane[1].next_key(ROUND_CONSTANTS[r]),
                ]
            };
        }
        *lane
    }
}

/// `H` blocks under each of the first `P` keys, in `U` vectors of lanes at a time.
type Batch<V, const U: usize, const P: usize, const H: usize> = [[[V; H]; P]; U];

#[inline(always)]
unsafe fn encrypt<V: Vector, K: KeySource<V>, const U: usize, const P: usize, const H: usize>(
    source: &K,
    first: usize,
    blocks: &mut Batch<V, U, P, H>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut lanes = [source.lane(first); U];
        for (u, lane) in lanes.iter_mut().enumerate().skip(1) {
            *lane = source.lane(first + u * V::LANES);
        }
        macro_rules! round {
            ($r:literal, $step:ident) => {
                for u in 0..U {
                    let keys = source.keys(&mut lanes[u], $r);
                    for p in 0..P {
                        for h in 0..H {
                            blocks[u][p][h] = blocks[u][p][h].$step(keys[p]);
                        }
                    }
                }
            };
        }
        round!(0, xor);
        round!(1, round);
        round!(2, round);
        round!(3, round);
        round!(4, round);
        round!(5, round);
        round!(6, round);
        round!(7, round);
        round!(8, round);
        round!(9, round);
        round!(10, last_round);
    }
}

/// H(x) = E(sigma(x)) ^ sigma(x), in place.
#[inline(always)]
unsafe fn hash<V: Vector, K: KeySource<V>, const U: usize, const P: usize, const H: usize>(
    source: &K,
    first: usize,
    blocks: &mut Batch<V, U, P, H>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for block in blocks.as_flattened_mut().as_flattened_mut() {
            *block = block.sigma();
        }
        let sigmas = *blocks;
        encrypt(source, first, blocks);
        for u in 0..U {
            for p in 0..P {
                for h in 0..H {
                    blocks[u][p][h] = blocks[u][p][h].xor(sigmas[u][p][h]);
                }
            }
        }
    }
}

/// Garbles lanes from `at` while `U` vectors fit; returns the first lane that is left.
#[inline(always)]
pub unsafe fn garble<V: Vector, K: KeySource<V>, const U: usize>(
    source: &K,
    registers: *mut Block,
    wires: Wires,
    delta: *const Block,
    rows: [*mut u8; 2],
    mut at: usize,
) -> usize {
    // SAFETY: `Kernel::garble` checked every operand for `wires.lanes` lanes.
    unsafe {
        while at + U * V::LANES <= wires.lanes {
            let lane = |u: usize| at + u * V::LANES;
            let mut h: Batch<V, U, 2, 2> = [[[V::splat(0); 2]; 2]; U];
            for (u, h) in h.iter_mut().enumerate() {
                let a = V::load(registers.add(wires.a + lane(u)));
                let b = V::load(registers.add(wires.b + lane(u)));
                let delta = V::load(delta.add(lane(u)));
                *h = [[a, a.xor(delta)], [b, b.xor(delta)]];
            }
            hash(source, at, &mut h);
            for (u, h) in h.iter().enumerate() {
                let a = V::load(registers.add(wires.a + lane(u)));
                let b = V::load(registers.add(wires.b + lane(u)));
                let delta = V::load(delta.add(lane(u)));
                let [[a0, a1], [b0, b1]] = *h;
                let generator = a0.xor(a1).xor(delta.and(b.mask()));
                let both = b0.xor(b1);
                let out = a0
                    .xor(generator.and(a.mask()))
                    .xor(b0)
                    .xor(both.and(b.mask()));
                generator.store(rows[0].add(16 * lane(u)).cast());
                both.xor(a).store(rows[1].add(16 * lane(u)).cast());
                out.store(registers.add(wires.out + lane(u)));
            }
            at += U * V::LANES;
        }
        at
    }
}

/// Evaluates lanes from `at` while `U` vectors fit; returns the first lane that is left.
#[inline(always)]
pub unsafe fn evaluate<V: Vector, K: KeySource<V>, const U: usize>(
    source: &K,
    registers: *mut Block,
    wires: Wires,
    rows: [*const u8; 2],
    mut at: usize,
) -> usize {
    // SAFETY: `Kernel::evaluate` checked every operand for `wires.lanes` lanes.
    unsafe {
        while at + U * V::LANES <= wires.lanes {
            let lane = |u: usize| at + u * V::LANES;
            let mut h: Batch<V, U, 2, 1> = [[[V::splat(0)]; 2]; U];
            for (u, h) in h.iter_mut().enumerate() {
                let a = V::load(registers.add(wires.a + lane(u)));
                let b = V::load(registers.add(wires.b + lane(u)));
                *h = [[a], [b]];
            }
            hash(source, at, &mut h);
            for (u, h) in h.iter().enumerate() {
                let a = V::load(registers.add(wires.a + lane(u)));
                let b = V::load(registers.add(wires.b + lane(u)));
                let generator = V::load(rows[0].add(16 * lane(u)).cast());
                let evaluator = V::load(rows[1].add(16 * lane(u)).cast());
                let [[of_a], [of_b]] = *h;
                of_a.xor(generator.and(a.mask()))
                    .xor(of_b)
                    .xor(evaluator.xor(a).and(b.mask()))
                    .store(registers.add(wires.out + lane(u)));
            }
            at += U * V::LANES;
        }
        at
    }
}

/// XORs lanes from `at` while a vector fits; returns the first lane that is left.
#[inline(always)]
pub unsafe fn xor<V: Vector>(registers: *mut Block, wires: Wires, mut at: usize) -> usize {
    // SAFETY: `Kernel::xor` checked every operand for `wires.lanes` lanes.
    unsafe {
        while at + V::LANES <= wires.lanes {
            let a = V::load(registers.add(wires.a + at));
            let b = V::load(registers.add(wires.b + at));
            a.xor(b).store(registers.add(wires.out + at));
            at += V::LANES;
        }
        at
    }
}

/// Hashes (`HASH`) or encrypts the `H` blocks of lanes from `at` in place while `U` vectors fit; returns the first
/// lane that is left.
#[inline(always)]
pub unsafe fn replace<
    V: Vector,
    K: KeySource<V>,
    const U: usize,
    const H: usize,
    const HASH: bool,
>(
    source: &K,
    blocks: [*mut Block; H],
    lanes: usize,
    mut at: usize,
) -> usize {
    // SAFETY: the loop's condition keeps all within `lanes` lanes; `Kernel` checked blocks and keys.
    unsafe {
        while at + U * V::LANES <= lanes {
            let mut batch: Batch<V, U, 1, H> = [[[V::splat(0); H]]; U];
            for (u, [batch]) in batch.iter_mut().enumerate() {
                for (block, start) in batch.iter_mut().zip(blocks) {
                    *block = V::load(start.add(at + u * V::LANES));
                }
            }
            if HASH {
                hash(source, at, &mut batch);
            } else {
                encrypt(source, at, &mut batch);
            }
            for (u, [batch]) in batch.iter().enumerate() {
                for (block, start) in batch.iter().zip(blocks) {
                    block.store(start.add(at + u * V::LANES));
                }
            }
            at += U * V::LANES;
        }
        at
    }
}
