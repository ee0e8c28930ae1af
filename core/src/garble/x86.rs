//! The kernels for x86-64: AES-NI, VAES on 256 bits and VAES on 512 bits.

#![allow(unsafe_code)]

/// The entry points for one set of instructions: whole vectors first, the lanes that are left one by one.
///
/// `$one` and `$more` are the vectors of lanes that are hashed side by side where each lane has its own key, with one
/// label and with several: measured. With more of them the compiler keeps some in memory.
macro_rules! entry_points {
    ($module:ident, $features:literal, $vector:ty, $wide:literal, $one:literal, $more:literal) => {
        pub mod $module {
            use std::arch::x86_64::*;

            use crate::garble::block::Block;
            use crate::garble::operands::{Keys, Wires};
            use crate::garble::runs::{Ands, Xors};
            use crate::garble::simd::{self, KeySource, SharedKeys, UniqueKeys};
            use crate::garble::simd_runs;
            use crate::vectors::Vector;

            const LANES: usize = <$vector as Vector>::LANES;

            /// # Safety
            /// The machine has the instructions, and `Kernel::garble` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn garble(
                registers: &mut [Block],
                wires: Wires,
                keys: Keys<'_>,
                delta: &[Block],
                [generator, evaluator]: [&mut [u8]; 2],
            ) {
                let registers = registers.as_mut_ptr();
                let delta = delta.as_ptr();
                let rows = [generator.as_mut_ptr(), evaluator.as_mut_ptr()];
                // SAFETY: the caller's promise.
                unsafe {
                    match keys {
                        Keys::Shared(pair) => {
                            let keys = SharedKeys::<$vector>::new(pair);
                            let at = simd::garble::<$vector, _, $wide>(
                                &keys, registers, wires, delta, rows, 0,
                            );
                            let at = simd::garble::<$vector, _, 1>(
                                &keys, registers, wires, delta, rows, at,
                            );
                            if at < wires.lanes {
                                let keys = SharedKeys::<__m128i>::new(pair);
                                simd::garble::<__m128i, _, 1>(
                                    &keys, registers, wires, delta, rows, at,
                                );
                            }
                        }
                        Keys::Unique { lanes, pair } => {
                            let keys = UniqueKeys::<$vector>::new(lanes, pair);
                            let at = simd::garble::<$vector, _, 2>(
                                &keys, registers, wires, delta, rows, 0,
                            );
                            let at = simd::garble::<$vector, _, 1>(
                                &keys, registers, wires, delta, rows, at,
                            );
                            let keys = UniqueKeys::<__m128i>::new(lanes, pair);
                            simd::garble::<__m128i, _, 1>(&keys, registers, wires, delta, rows, at);
                        }
                    }
                }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::evaluate` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn evaluate(
                registers: &mut [Block],
                wires: Wires,
                keys: Keys<'_>,
                rows: [&[u8]; 2],
            ) {
                let registers = registers.as_mut_ptr();
                let rows = rows.map(<[u8]>::as_ptr);
                // SAFETY: the caller's promise.
                unsafe {
                    match keys {
                        Keys::Shared(pair) => {
                            let keys = SharedKeys::<$vector>::new(pair);
                            let at =
                                simd::evaluate::<$vector, _, 4>(&keys, registers, wires, rows, 0);
                            let at =
                                simd::evaluate::<$vector, _, 1>(&keys, registers, wires, rows, at);
                            if at < wires.lanes {
                                let keys = SharedKeys::<__m128i>::new(pair);
                                simd::evaluate::<__m128i, _, 1>(&keys, registers, wires, rows, at);
                            }
                        }
                        Keys::Unique { lanes, pair } => {
                            let keys = UniqueKeys::<$vector>::new(lanes, pair);
                            let at =
                                simd::evaluate::<$vector, _, 2>(&keys, registers, wires, rows, 0);
                            let at =
                                simd::evaluate::<$vector, _, 1>(&keys, registers, wires, rows, at);
                            let keys = UniqueKeys::<__m128i>::new(lanes, pair);
                            simd::evaluate::<__m128i, _, 1>(&keys, registers, wires, rows, at);
                        }
                    }
                }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::xor` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn xor(registers: &mut [Block], wires: Wires) {
                let registers = registers.as_mut_ptr();
                // SAFETY: the caller's promise.
                unsafe {
                    let at = simd::xor::<$vector>(registers, wires, 0);
                    simd::xor::<__m128i>(registers, wires, at);
                }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::garble_run` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn garble_run(
                registers: &mut [Block],
                run: Ands<'_>,
                delta: Block,
                table: &mut [u8],
            ) {
                let registers = registers.as_mut_ptr();
                // SAFETY: the caller's promise.
                unsafe { simd_runs::garble::<$vector, __m128i>(registers, run, delta, table) }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::evaluate_run` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn evaluate_run(registers: &mut [Block], run: Ands<'_>, table: &[u8]) {
                // SAFETY: the caller's promise.
                unsafe {
                    simd_runs::evaluate::<$vector, __m128i>(registers.as_mut_ptr(), run, table)
                }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::xor_run` checked the operands.
            #[target_feature(enable = $features)]
            pub unsafe fn xor_run(registers: &mut [Block], run: Xors<'_>) {
                // SAFETY: the caller's promise.
                unsafe { simd_runs::xor::<__m128i>(registers.as_mut_ptr(), run) }
            }

            /// # Safety
            /// The machine has the instructions, and `Kernel::hash` checked the keys and the labels of `lanes` lanes.
            #[target_feature(enable = $features)]
            pub unsafe fn hash<const H: usize>(
                keys: Keys<'_>,
                labels: [&mut [Block]; H],
                lanes: usize,
            ) {
                let labels = labels.map(<[Block]>::as_mut_ptr);
                // SAFETY: the caller's promise.
                unsafe {
                    match keys {
                        Keys::Shared(pair) => {
                            let narrow = SharedKeys::<__m128i>::new(pair);
                            replace::<_, _, H, true, false>(
                                &SharedKeys::new(pair),
                                &narrow,
                                labels,
                                lanes,
                            );
                        }
                        Keys::Unique { lanes: own, pair } => {
                            let narrow = UniqueKeys::<__m128i>::new(own, pair);
                            replace::<_, _, H, true, true>(
                                &UniqueKeys::new(own, pair),
                                &narrow,
                                labels,
                                lanes,
                            );
                        }
                    }
                }
            }

            /// # Safety
            /// The machine has the instructions.
            #[target_feature(enable = $features)]
            pub unsafe fn encrypt(schedule: &[Block; 11], blocks: &mut [Block]) {
                // SAFETY: the caller's promise.
                unsafe {
                    let wide = SharedKeys::<$vector>::expanded(schedule);
                    let narrow = SharedKeys::<__m128i>::expanded(schedule);
                    replace::<_, _, 1, false, false>(
                        &wide,
                        &narrow,
                        [blocks.as_mut_ptr()],
                        blocks.len(),
                    );
                }
            }

            /// # Safety
            /// As for `hash`.
            #[inline(always)]
            unsafe fn replace<
                W: KeySource<$vector>,
                N: KeySource<__m128i>,
                const H: usize,
                const HASH: bool,
                const UNIQUE: bool,
            >(
                wide: &W,
                narrow: &N,
                blocks: [*mut Block; H],
                lanes: usize,
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    // As many as the registers hold.
                    let at = match (UNIQUE, H) {
                        (true, 1) => {
                            simd::replace::<$vector, _, $one, H, HASH>(wide, blocks, lanes, 0)
                        }
                        (true, _) => {
                            simd::replace::<$vector, _, $more, H, HASH>(wide, blocks, lanes, 0)
                        }
                        (false, 1) => {
                            simd::replace::<$vector, _, 8, H, HASH>(wide, blocks, lanes, 0)
                        }
                        (false, _) => {
                            simd::replace::<$vector, _, 4, H, HASH>(wide, blocks, lanes, 0)
                        }
                    };
                    let at = simd::replace::<$vector, _, 1, H, HASH>(wide, blocks, lanes, at);
                    if LANES > 1 {
                        simd::replace::<__m128i, _, 1, H, HASH>(narrow, blocks, lanes, at);
                    }
                }
            }
        }
    };
}

entry_points!(aes, "aes,ssse3,sse4.1", __m128i, 2, 8, 4);
entry_points!(vaes256, "aes,vaes,avx2", __m256i, 2, 4, 4);
entry_points!(
    vaes512,
    "aes,vaes,avx2,avx512f,avx512bw,avx512vl",
    __m512i,
    2,
    2,
    2
);
