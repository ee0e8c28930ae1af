//! Rates in millions of AND gates a second: `cargo test --release --lib rates -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::Instant;

use super::circuit::{AND, Circuit, Gate, INV, XOR};
use super::evaluator::Evaluator;
use super::garbler::Garbler;
use super::kernel::Kernel;
use super::step::Step;
use super::tests::{Fixed, plan};
use super::tile::{Mode, suggest_tile};

/// A chain of the shape of a comparison of `bits`-bit integers: one AND gate a bit.
fn comparator(bits: u32) -> Circuit {
    let mut gates = Vec::new();
    let (mut next, mut carry) = (2 * bits, None);
    let mut gate = |kind, a, b| {
        gates.push(Gate {
            kind,
            a,
            b,
            out: next,
        });
        next += 1;
        next - 1
    };
    for bit in 0..bits {
        let (x, y) = (bit, bits + bit);
        carry = Some(match carry {
            None => {
                let not = gate(INV, x, 0);
                gate(AND, not, y)
            }
            Some(carry) => {
                let (left, right) = (gate(XOR, x, carry), gate(XOR, y, carry));
                let both = gate(AND, left, right);
                gate(XOR, both, y)
            }
        });
    }
    let wires = next as usize;
    Circuit::new(gates, wires, 2 * bits as usize, vec![wires as u32 - 1]).unwrap()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement"]
fn rates() {
    let mut fixed = Fixed(4);
    let mut gates = Vec::new();
    for number in 0..34_400u32 {
        let near = |fixed: &mut Fixed| {
            let wires = 256 + number;
            wires - 1 - fixed.below(wires.min(1500) as usize) as u32
        };
        gates.push(Gate {
            kind: if fixed.below(344) < 64 { AND } else { XOR },
            a: near(&mut fixed),
            b: near(&mut fixed),
            out: 256 + number,
        });
    }
    let outputs = (34_656 - 128..34_656).collect();
    let aes = Arc::new(Circuit::new(gates, 34_656, 256, outputs).unwrap());
    let less = Arc::new(comparator(64));
    println!(
        "aes-like: {} AND gates in {} levels, {} and {} slots",
        aes.ands,
        aes.single
            .steps
            .iter()
            .filter(|step| matches!(step, Step::Ands { .. }))
            .count(),
        aes.tiled.slots,
        aes.single.slots
    );
    let tile = suggest_tile(&less, 4096);
    println!("comparator: slots {}, tile {tile}", less.tiled.slots);
    for kernel in Kernel::available().into_iter().rev() {
        for (name, circuit, instances, tile) in [
            ("comparator", &less, 4096, tile),
            ("comparator", &less, 4096, 256),
            ("comparator", &less, 65_536, tile),
            ("aes-like single", &aes, 1, 1),
            ("aes-like batch", &aes, 256, suggest_tile(&aes, 256)),
        ] {
            for mode in [Mode::Tile, Mode::Unique] {
                let plan = plan(mode, tile, instances, 1, kernel);
                let ands = (circuit.ands * instances) as f64;
                let mut buffer = vec![0; 32 * circuit.ands * instances];
                let runs = if kernel == Kernel::available()[0] {
                    3
                } else {
                    31
                };
                let (mut garble, mut evaluate) = (Vec::new(), Vec::new());
                for _ in 0..runs {
                    let mut garbler = Garbler::new(circuit.clone(), plan.clone(), [5, 6]).unwrap();
                    let start = Instant::now();
                    garbler.fill(&mut buffer).unwrap();
                    garble.push(start.elapsed().as_secs_f64());
                    let mut evaluator = Evaluator::new(circuit.clone(), plan.clone()).unwrap();
                    for input in 0..circuit.inputs {
                        garbler.zeros(input, evaluator.set(input, 0..instances).unwrap());
                    }
                    let start = Instant::now();
                    evaluator.feed(&buffer).unwrap();
                    evaluate.push(start.elapsed().as_secs_f64());
                    std::hint::black_box(evaluator.output(0).unwrap());
                }
                println!(
                    "{:9} {name} x{instances} tile {tile} {mode:?}: garble {:.1} M/s, evaluate {:.1} M/s",
                    kernel.name(),
                    ands / median(garble) / 1e6,
                    ands / median(evaluate) / 1e6
                );
            }
        }
    }
}
