//! Half-gates over independent gates of one instance, written once for every vector width.
//!
//! Each hash has a key of its own, so key schedules cost as much as the cipher. Four are expanded in each
//! block of a vector, word by word: vector `w` has word `w` of all keys, so that one AESENCLAST serves four
//! keys, and no words need be shifted; each round's keys are then transposed. Two gates have the four keys of
//! a block: those of the even gate's a and b, then those of the odd gate's.
//!
//! Inlined into the entry points of `x86`, as `simd` is.

#![allow(unsafe_code)]

use super::block::Block;
use super::operands::GATE;
use super::runs::{Ands, GateSlots, Xors};
use crate::vectors::{ROUND_CONSTANTS, Vector};

/// Gates in the blocks of the widest vector.
const WIDEST: usize = 8;

/// The round keys of one round, word by word.
struct Words<V>([V; 4]);

impl<V: Vector> Words<V> {
    #[inline(always)]
    unsafe fn new(base: Block, halves: *const [u32; 2]) -> Self {
        // SAFETY: the caller's promise: two half-gates for each of 2 * LANES gates.
        unsafe {
            Self([
                V::load(halves.cast()).xor(V::word(base as u32)),
                V::word((base >> 32) as u32),
                V::word((base >> 64) as u32),
                V::word((base >> 96) as u32),
            ])
        }
    }

    #[inline(always)]
    unsafe fn next(&mut self, constant: u32) {
        let [w0, w1, w2, w3] = self.0;
        // SAFETY: the caller's promise.
        unsafe {
            let sums = [w0, w0.xor(w1), w0.xor(w1).xor(w2)];
            let last = sums[2].xor(w3);
            let column = w3.substitute(constant);
            self.0 = [
                sums[0].xor(column),
                sums[1].xor(column),
                sums[2].xor(column),
                last.xor(column),
            ];
        }
    }

    /// The keys of the even gates' a and b, and of the odd gates'.
    #[inline(always)]
    unsafe fn keys(&self) -> [V; 4] {
        let [w0, w1, w2, w3] = self.0;
        // SAFETY: the caller's promise.
        unsafe {
            let [low, high] = [
                [w0.low_words(w1), w2.low_words(w3)],
                [w0.high_words(w1), w2.high_words(w3)],
            ];
            [
                low[0].low_pairs(low[1]),
                low[0].high_pairs(low[1]),
                high[0].low_pairs(high[1]),
                high[0].high_pairs(high[1]),
            ]
        }
    }
}

/// H(x) = E(sigma(x)) ^ sigma(x) in place, for `H` blocks under each key.
#[inline(always)]
unsafe fn hash<V: Vector, const H: usize>(
    base: Block,
    halves: *const [u32; 2],
    blocks: &mut [[V; H]; 4],
) {
    // SAFETY: the caller's promise.
    unsafe {
        for block in blocks.as_flattened_mut() {
            *block = block.sigma();
        }
        let sigmas = *blocks;
        let mut words = Words::<V>::new(base, halves);
        macro_rules! round {
            ($step:ident) => {
                let keys = words.keys();
                for p in 0..4 {
                    for h in 0..H {
                        blocks[p][h] = blocks[p][h].$step(keys[p]);
                    }
                }
            };
            ($r:literal, $step:ident) => {
                words.next(ROUND_CONSTANTS[$r]);
                round!($step);
            };
        }
        round!(xor);
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
        for p in 0..4 {
            for h in 0..H {
                blocks[p][h] = blocks[p][h].xor(sigmas[p][h]);
            }
        }
    }
}

/// The labels in the first (`OPERAND` 0) or second operands of 2 * LANES gates: of the even, of the odd ones.
#[inline(always)]
unsafe fn gather<V: Vector, const OPERAND: usize>(
    registers: *const Block,
    gates: *const GateSlots,
) -> [V; 2] {
    let mut from = [[registers; 4]; 2];
    // SAFETY: the caller's promise.
    unsafe {
        for lane in 0..V::LANES {
            for (odd, from) in from.iter_mut().enumerate() {
                let gate = *gates.add(2 * lane + odd);
                let slot = if OPERAND == 0 { gate.a } else { gate.b };
                from[lane] = registers.add(slot as usize);
            }
        }
        [V::gather(from[0]), V::gather(from[1])]
    }
}

/// Puts labels into the slots of 2 * LANES gates, in their order: gates without use may share a slot.
#[inline(always)]
unsafe fn scatter<V: Vector>(labels: [V; 2], registers: *mut Block, gates: *const GateSlots) {
    let mut stored: [[Block; WIDEST / 2]; 2] = Default::default();
    // SAFETY: the caller's promise; no vector has more than WIDEST / 2 blocks.
    unsafe {
        labels[0].store(stored[0].as_mut_ptr());
        labels[1].store(stored[1].as_mut_ptr());
        for lane in 0..V::LANES {
            for (odd, stored) in stored.iter().enumerate() {
                let slot = (*gates.add(2 * lane + odd)).out;
                *registers.add(slot as usize) = stored[lane];
            }
        }
    }
}

/// Garbles 2 * LANES gates.
#[inline(always)]
unsafe fn garble_some<V: Vector>(
    registers: *mut Block,
    base: Block,
    gates: *const GateSlots,
    halves: *const [u32; 2],
    delta: Block,
    table: *mut u8,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let delta = V::splat(delta);
        let a = gather::<V, 0>(registers, gates);
        let b = gather::<V, 1>(registers, gates);
        let mut h = [a[0], b[0], a[1], b[1]].map(|zero| [zero; 2]);
        for pair in &mut h {
            pair[1] = pair[0].xor(delta);
        }
        hash(base, halves, &mut h);
        let mut out = a;
        let mut rows: [[[Block; WIDEST / 2]; 2]; 2] = Default::default();
        for odd in 0..2 {
            let [[a0, a1], [b0, b1]] = [h[2 * odd], h[2 * odd + 1]];
            let b_mask = b[odd].mask();
            let generator = a0.xor(a1).xor(delta.and(b_mask));
            let both = b0.xor(b1);
            out[odd] = a0
                .xor(generator.and(a[odd].mask()))
                .xor(b0)
                .xor(both.and(b_mask));
            generator.store(rows[odd][0].as_mut_ptr());
            both.xor(a[odd]).store(rows[odd][1].as_mut_ptr());
        }
        scatter(out, registers, gates);
        let table: *mut Block = table.cast();
        for lane in 0..V::LANES {
            for (odd, rows) in rows.iter().enumerate() {
                for (which, row) in rows.iter().enumerate() {
                    let index = 4 * lane + 2 * odd + which;
                    table.add(index).write_unaligned(row[lane]);
                }
            }
        }
    }
}

/// Evaluates 2 * LANES gates.
#[inline(always)]
unsafe fn evaluate_some<V: Vector>(
    registers: *mut Block,
    base: Block,
    gates: *const GateSlots,
    halves: *const [u32; 2],
    table: *const u8,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let a = gather::<V, 0>(registers, gates);
        let b = gather::<V, 1>(registers, gates);
        let mut h = [[a[0]], [b[0]], [a[1]], [b[1]]];
        hash(base, halves, &mut h);
        let mut out = a;
        for odd in 0..2 {
            let mut rows = [[table.cast::<Block>(); 4]; 2];
            for lane in 0..V::LANES {
                for (which, row) in rows.iter_mut().enumerate() {
                    row[lane] = table.cast::<Block>().add(4 * lane + 2 * odd + which);
                }
            }
            let [generator, evaluator] = [V::gather(rows[0]), V::gather(rows[1])];
            let [[of_a], [of_b]] = [h[2 * odd], h[2 * odd + 1]];
            out[odd] = of_a
                .xor(generator.and(a[odd].mask()))
                .xor(of_b)
                .xor(evaluator.xor(a[odd]).and(b[odd].mask()));
        }
        scatter(out, registers, gates);
    }
}

/// `width` gates from `at` on, the last one repeated: it gives the same label again.
#[inline(always)]
fn padded(run: Ands<'_>, at: usize, width: usize) -> ([GateSlots; WIDEST], [[u32; 2]; WIDEST]) {
    let last = run.gates().len() - 1;
    let mut gates = ([GateSlots::default(); WIDEST], [[0; 2]; WIDEST]);
    for index in 0..width {
        gates.0[index] = run.gates()[last.min(at + index)];
        gates.1[index] = run.halves()[last.min(at + index)];
    }
    gates
}

/// Garbles a run. `N` is a vector of one block: with few gates its rounds take less time.
#[inline(always)]
pub unsafe fn garble<V: Vector, N: Vector>(
    registers: *mut Block,
    run: Ands<'_>,
    delta: Block,
    table: &mut [u8],
) {
    let (gates, halves) = (run.gates().as_ptr(), run.halves().as_ptr());
    let count = run.gates().len();
    let mut at = 0;
    // SAFETY: `Kernel::garble_run` checked registers and table for the run.
    unsafe {
        while at + 2 * V::LANES <= count {
            let to = table.as_mut_ptr().add(GATE * at);
            garble_some::<V>(
                registers,
                run.base,
                gates.add(at),
                halves.add(at),
                delta,
                to,
            );
            at += 2 * V::LANES;
        }
        if at < count && count - at <= 2 * N::LANES {
            garble_rest::<N>(registers, run, at, delta, table);
        } else if at < count {
            garble_rest::<V>(registers, run, at, delta, table);
        }
    }
}

/// Garbles the gates from `at` on, at least one and at most 2 * LANES.
#[inline(always)]
unsafe fn garble_rest<V: Vector>(
    registers: *mut Block,
    run: Ands<'_>,
    at: usize,
    delta: Block,
    table: &mut [u8],
) {
    let (gates, halves) = padded(run, at, 2 * V::LANES);
    let (gates, halves) = (gates.as_ptr(), halves.as_ptr());
    let mut rows = [[0; GATE]; WIDEST];
    // SAFETY: the caller's promise.
    unsafe {
        let to = rows.as_mut_ptr().cast();
        garble_some::<V>(registers, run.base, gates, halves, delta, to);
    }
    let (table, _) = table[GATE * at..].as_chunks_mut::<GATE>();
    for (to, row) in table.iter_mut().zip(rows) {
        *to = row;
    }
}

/// Evaluates a run, as `garble` garbles one.
#[inline(always)]
pub unsafe fn evaluate<V: Vector, N: Vector>(registers: *mut Block, run: Ands<'_>, table: &[u8]) {
    let (gates, halves) = (run.gates().as_ptr(), run.halves().as_ptr());
    let count = run.gates().len();
    let mut at = 0;
    // SAFETY: `Kernel::evaluate_run` checked registers and table for the run.
    unsafe {
        while at + 2 * V::LANES <= count {
            let from = table.as_ptr().add(GATE * at);
            evaluate_some::<V>(registers, run.base, gates.add(at), halves.add(at), from);
            at += 2 * V::LANES;
        }
        if at < count && count - at <= 2 * N::LANES {
            evaluate_rest::<N>(registers, run, at, table);
        } else if at < count {
            evaluate_rest::<V>(registers, run, at, table);
        }
    }
}

/// Evaluates the gates from `at` on, at least one and at most 2 * LANES.
#[inline(always)]
unsafe fn evaluate_rest<V: Vector>(registers: *mut Block, run: Ands<'_>, at: usize, table: &[u8]) {
    let (gates, halves) = padded(run, at, 2 * V::LANES);
    let (given, _) = table[GATE * at..].as_chunks::<GATE>();
    let mut rows = [[0; GATE]; WIDEST];
    for (index, row) in rows.iter_mut().enumerate().take(2 * V::LANES) {
        *row = given[index.min(given.len() - 1)];
    }
    let (gates, halves, from) = (gates.as_ptr(), halves.as_ptr(), rows.as_ptr().cast());
    // SAFETY: the caller's promise.
    unsafe { evaluate_some::<V>(registers, run.base, gates, halves, from) }
}

/// Computes a run of XOR gates; `N` is a vector of one block.
#[inline(always)]
pub unsafe fn xor<N: Vector>(registers: *mut Block, run: Xors<'_>) {
    // SAFETY: `Kernel::xor_run` checked the registers for the run.
    unsafe {
        for gate in run.gates() {
            N::load(registers.add(gate.a as usize))
                .xor(N::load(registers.add(gate.b as usize)))
                .store(registers.add(gate.out as usize));
        }
    }
}
