//! Hostile circuits and tables.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};

use super::circuit::{Circuit, Gate};
use super::evaluator::Evaluator;
use super::kernel::Kernel;
use super::tests::{plain, plan, run as garble_and_evaluate};
use super::tile::Mode;
use crate::fuzz::run;

/// Gates that are often, but not always, in order: numbers are near valid ones.
fn gates(input: &mut Unstructured<'_>, inputs: usize) -> Result<Vec<Gate>> {
    let mut gates = Vec::new();
    for number in 0..input.int_in_range(0..=6)? {
        let wires = (inputs + number) as u32;
        let most = if input.ratio(1, 64)? { 255 } else { 4 };
        let kind = input.int_in_range(0..=most)?;
        let operand = |input: &mut Unstructured<'_>| match input.int_in_range(0..=63)? {
            0 => input.arbitrary(),
            1 => Ok(wires),
            _ => input.int_in_range(0..=wires.saturating_sub(1)),
        };
        let a = operand(input)?;
        let b = operand(input)?;
        gates.push(Gate {
            kind,
            a: if kind == 3 { a % 2 } else { a },
            b: if kind < 2 || input.ratio(1, 64)? {
                b
            } else {
                0
            },
            out: if input.ratio(1, 64)? { a } else { wires },
        });
    }
    Ok(gates)
}

/// A circuit is refused, or garbling it gives the values that it computes.
#[test]
fn circuits() {
    run("circuits", 1, 96, |input| {
        let inputs = input.int_in_range(0..=4)?;
        let gates = gates(input, inputs)?;
        let wires = if input.ratio(1, 32)? {
            input.arbitrary::<u16>()?.into()
        } else {
            inputs + gates.len()
        };
        let mut outputs = Vec::new();
        for _ in 0..input.int_in_range(0..=3)? {
            outputs.push(input.int_in_range(0..=wires as u32)?);
        }
        let Ok(circuit) = Circuit::new(gates.clone(), wires, inputs, outputs.clone()) else {
            return Ok(());
        };
        if input.ratio(1, 256)? {
            let bits: Vec<bool> = (0..inputs)
                .map(|_| input.arbitrary())
                .collect::<Result<_>>()?;
            let expected = plain(&gates, wires, &bits, &outputs);
            let plan = plan(Mode::Unique, 1, 1, 1, Kernel::available()[0]);
            let columns: Vec<Vec<bool>> = bits.iter().map(|&bit| vec![bit]).collect();
            let (_, got) = garble_and_evaluate(&Arc::new(circuit), &plan, &columns, [64, 5]);
            assert_eq!(got.concat(), expected);
        }
        Ok(())
    });
}

/// Tables of any bytes, in any pieces: excess bytes are refused, and the pieces do not matter.
#[test]
fn tables() {
    let gates: Vec<Gate> = (0..4)
        .map(|number| Gate {
            kind: 1,
            a: number,
            b: number + 1,
            out: 3 + number,
        })
        .collect();
    let circuit = Arc::new(Circuit::new(gates, 7, 3, vec![6, 5]).unwrap());
    let plans = [(1, 3), (2, 3)]
        .map(|(tile, count)| plan(Mode::Tile, tile, count, 1, Kernel::available()[0]));
    let evaluator = |plan: &super::tile::Plan| {
        let mut evaluator = Evaluator::new(circuit.clone(), plan.clone()).unwrap();
        for wire in 0..3 {
            evaluator
                .set(wire, 0..plan.instances)
                .unwrap()
                .fill(wire as u128 + 9);
        }
        evaluator
    };
    run("tables", 1, 512, |input| {
        let plan = input.choose(&plans)?;
        let (mut whole, mut cut) = (evaluator(plan), evaluator(plan));
        let expected = whole.remaining() as usize;
        let mut bytes = vec![input.arbitrary()?; expected];
        let random = input.len().min(expected) / 2;
        bytes[..random].copy_from_slice(input.bytes(random)?);
        whole.feed(&bytes).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(input.int_in_range(1..=rest.len())?);
            assert!(cut.output(0).is_err());
            cut.feed(piece).unwrap();
            rest = after;
        }
        assert!(cut.feed(&[0]).is_err());
        for output in 0..2 {
            assert_eq!(*whole.output(output).unwrap(), *cut.output(output).unwrap());
        }
        Ok(())
    });
}
