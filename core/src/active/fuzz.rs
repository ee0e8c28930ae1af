//! Hostile messages of one side: the other stops, or has what is right.

use arbitrary::{Result, Unstructured};

use super::tests::{Dealer, KEY, Pair, begin, leaky, sum};
use crate::fuzz::{mutate, run};
use crate::garble::Kernel;

/// Changes bytes whose number the caller has checked.
fn mutate_alike(input: &mut Unstructured<'_>, bytes: &mut Vec<u8>) -> Result<()> {
    let length = bytes.len();
    mutate(input, bytes)?;
    bytes.resize(length, 0);
    Ok(())
}

/// Any U and d of one side: both digests differ, or every triple is right.
#[test]
fn leaky_triples() {
    let kernel = Kernel::available()[0];
    run("leaky-triples", 4, 96, |input| {
        let mut dealer = Dealer::new(input.arbitrary()?);
        let (mut both, shared) = (leaky(&dealer, kernel), dealer.bits(15));
        let cheat = usize::from(input.arbitrary::<bool>()?);
        let mut sent = [0, 1].map(|side| begin(&mut both[side], &shared[side]));
        if input.ratio(3, 4)? {
            mutate_alike(input, &mut sent[cheat])?;
        }
        let d = [both[0].answer(&sent[1]), both[1].answer(&sent[0])];
        let mut claimed = d.clone();
        if input.arbitrary()? {
            claimed[cheat][input.choose_index(5)?] ^= 1;
        }
        let d = sum([&claimed[0], &claimed[1]]);
        let digests = both.each_mut().map(|side| side.finish(&d, &KEY));
        let [x, y, rho] = [0, 5, 10].map(|first| {
            let part = |side: usize| &shared[side].bits[first..first + 5];
            sum([part(0), part(1)])
        });
        let right = (0..5).all(|index| x[index] & y[index] == rho[index] ^ d[index]);
        assert!(digests[0] != digests[1] || right);
        Ok(())
    });
}

/// Any tables: the evaluator's check fails, or the outputs are right. Any masked values: the garbler's fails.
#[test]
fn tables_and_masked_values() {
    let mut pair = Pair::new(Kernel::available()[0], 3);
    let (tables, bits) = pair.garbler.tables(99);
    let honest = pair.evaluator.evaluate(99, &tables, &bits, [&KEY, &KEY]);
    run("active-tables", 4, 96, |input| {
        let (mut tables, mut bits) = (tables.clone(), bits.clone());
        if input.arbitrary()? {
            mutate_alike(input, &mut tables)?;
        }
        for bit in &mut bits {
            *bit ^= u8::from(input.ratio(1, 16)?);
        }
        let evaluated = pair.evaluator.evaluate(99, &tables, &bits, [&KEY, &KEY]);
        if pair.garbler.answer(&evaluated.values, &KEY).0 == evaluated.macs {
            assert_eq!(pair.unmasked(&evaluated.outputs), pair.expected);
        }
        let mut claimed = honest.values.clone();
        for bit in &mut claimed {
            *bit ^= u8::from(input.ratio(1, 8)?);
        }
        assert_eq!(
            pair.garbler.expected(&claimed, &KEY) == honest.labels,
            claimed == honest.values
        );
        Ok(())
    });
}
