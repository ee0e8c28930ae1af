//! Both sides in one process, with a dealer in place of the transfers.

use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::{Evaluator, Garbler, Given, Leaky, Masks, Octets, Openings, Shared, Side, Triples};
use crate::garble::{AND, Block, Circuit, EQ, Gate, INV, Kernel, XOR};

const SIDES: [Side; 2] = [Side::Garbler, Side::Evaluator];
pub(super) const KEY: [u8; 32] = [7; 32];
const START: Block = 0x1234_5678_9abc_def0;

pub(super) struct Dealer {
    random: Xoshiro256PlusPlus,
    deltas: [Block; 2],
}

impl Dealer {
    pub fn new(seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let deltas = SIDES.map(|side| (draw(&mut random) & !1) | side.bit());
        Self { random, deltas }
    }

    pub(super) fn bits(&mut self, count: usize) -> [Shared; 2] {
        let mut both = [Shared::zeros(count), Shared::zeros(count)];
        for side in 0..2 {
            for index in 0..count {
                let (bit, key) = ((self.random.next_u64() & 1) as u8, draw(&mut self.random));
                both[side].bits[index] = bit;
                both[1 - side].keys[index] = key;
                both[side].macs[index] = key ^ (self.deltas[1 - side] * Block::from(bit));
            }
        }
        both
    }

    /// Masks of inputs of the side with this number alone.
    fn own(&mut self, owner: usize, count: usize) -> [Shared; 2] {
        let mut both = self.bits(count);
        both[1 - owner].bits.fill(0);
        both[1 - owner].macs.fill(0);
        both[owner].keys.fill(0);
        both
    }
}

fn draw(random: &mut Xoshiro256PlusPlus) -> Block {
    Block::from(random.next_u64()) << 64 | Block::from(random.next_u64())
}

pub(super) fn sum(bits: [&[u8]; 2]) -> Vec<u8> {
    bits[0].iter().zip(bits[1]).map(|(a, b)| a ^ b).collect()
}

/// Verifies both sides' openings and returns the sums.
fn opened(openings: &[Openings; 2]) -> Vec<u8> {
    for side in 0..2 {
        let stated = openings[side].bits();
        assert_eq!(
            openings[1 - side].expected(stated, &KEY),
            openings[side].digest(&KEY)
        );
        let mut lie = stated.to_vec();
        lie[0] ^= 1;
        assert_ne!(
            openings[1 - side].expected(&lie, &KEY),
            openings[side].digest(&KEY)
        );
    }
    sum([openings[0].bits(), openings[1].bits()])
}

fn octets(labels: &[Block]) -> Vec<Octets> {
    labels.iter().map(|label| label.to_le_bytes()).collect()
}

pub(super) fn leaky(dealer: &Dealer, kernel: Kernel) -> [Leaky; 2] {
    SIDES.map(|side| Leaky::new(side, dealer.deltas[side as usize], START, kernel))
}

/// Begins leaky triples with a side's shared bits; returns its message.
pub(super) fn begin(side: &mut Leaky, shared: &Shared) -> Vec<u8> {
    let given = Given {
        bits: &shared.bits,
        macs: &octets(&shared.macs),
        keys: &octets(&shared.keys),
    };
    side.begin(5, given)
}

/// Exchanges the messages of leaky triples with these shared bits; returns both digests of L.
fn exchange_all(
    both: &mut [Leaky; 2],
    shared: &[Shared; 2],
    change: impl Fn(&mut [Vec<u8>; 2]),
) -> [[u8; 32]; 2] {
    let mut sent = SIDES.map(|side| begin(&mut both[side as usize], &shared[side as usize]));
    change(&mut sent);
    let d = [both[0].answer(&sent[1]), both[1].answer(&sent[0])];
    let d = sum([&d[0], &d[1]]);
    both.each_mut().map(|side| side.finish(&d, &KEY))
}

fn triples(dealer: &mut Dealer, count: usize, size: usize, kernel: Kernel) -> [Triples; 2] {
    let mut both = leaky(dealer, kernel);
    let mut made = [Triples::default(), Triples::default()];
    // What a larger group leaves in the memory must not count.
    for count in [count + 2, count] {
        let shared = dealer.bits(3 * count * size);
        let digests = exchange_all(&mut both, &shared, |_| ());
        assert_eq!(digests[0], digests[1]);
        let order: Vec<u32> = (0..(count * size) as u32).rev().collect();
        let openings = both.each_mut().map(|side| side.divide(&order, size));
        let differences = opened(&openings);
        for (side, openings) in openings.into_iter().enumerate() {
            made[side] = both[side].combine(openings, &differences);
        }
    }
    made
}

/// Inputs 0 and 1 are the garbler's, 2 the evaluator's, 3 is a coin.
fn circuit() -> Circuit {
    let gate = |kind, a, b, out| Gate { kind, a, b, out };
    let gates = vec![
        gate(XOR, 0, 2, 4),
        gate(AND, 4, 1, 5),
        gate(INV, 5, 0, 6),
        gate(EQ, 1, 0, 7),
        gate(XOR, 3, 7, 8),
        gate(AND, 6, 8, 9),
        gate(AND, 9, 7, 10),
    ];
    Circuit::new(gates, 11, 4, vec![10, 5, 0]).unwrap()
}

fn plain([a, b, c, coin]: [u8; 4]) -> [u8; 3] {
    let and = (a ^ c) & b;
    [(and ^ 1) & (coin ^ 1), and, a]
}

#[test]
fn triples_multiply_with_every_kernel() {
    let mut first = None;
    for kernel in Kernel::available() {
        let mut dealer = Dealer::new(1);
        let deltas = dealer.deltas;
        let [g, e] = triples(&mut dealer, 300, 3, kernel);
        for index in 0..g.len() {
            let value = |a: &Shared, b: &Shared| a.bits[index] ^ b.bits[index];
            assert_eq!(value(&g.x, &e.x) & value(&g.y, &e.y), value(&g.z, &e.z));
            for (own, other, delta) in [(&g.z, &e.z, deltas[1]), (&e.z, &g.z, deltas[0])] {
                let expected = other.keys[index] ^ (delta * Block::from(own.bits[index]));
                assert_eq!(own.macs[index], expected);
            }
        }
        let made = first.get_or_insert_with(|| g.z.macs.clone());
        assert_eq!(*made, g.z.macs, "{}", kernel.name());
    }
}

#[test]
fn a_changed_u_passes_where_the_other_share_of_x_is_0() {
    let kernel = Kernel::available()[0];
    let mut outcomes = [[0; 2]; 2];
    for seed in 0..32 {
        let mut dealer = Dealer::new(seed);
        let shared = dealer.bits(6);
        let share = shared[1].bits[0];
        let mut both = leaky(&dealer, kernel);
        let digests = exchange_all(&mut both, &shared, |sent| sent[0][0] ^= 2);
        outcomes[usize::from(share)][usize::from(digests[0] == digests[1])] += 1;
    }
    assert!(outcomes[0][0] == 0 && outcomes[1][1] == 0);
    assert!(outcomes[0][1] > 0 && outcomes[1][0] > 0);
}

/// Both sides of an evaluation with their masks, and the right outputs, wire by wire.
pub(super) struct Pair {
    pub garbler: Garbler,
    pub evaluator: Evaluator,
    pub expected: Vec<u8>,
}

impl Pair {
    pub fn new(kernel: Kernel, instances: usize) -> Self {
        let mut dealer = Dealer::new(9);
        let circuit = Arc::new(circuit());
        let gates = circuit.ands() * instances;
        let prepared = triples(&mut dealer, gates + 3, 2, kernel);
        let mut inputs = [Shared::default(), Shared::default()];
        let owners = [
            dealer.own(0, 2 * instances),
            dealer.own(1, instances),
            dealer.bits(instances),
        ];
        for part in &owners {
            for (to, from) in inputs.iter_mut().zip(part) {
                to.bits.extend(&from.bits);
                to.macs.extend(&from.macs);
                to.keys.extend(&from.keys);
            }
        }
        let bits: Vec<u8> = (0..3 * instances)
            .map(|_| (dealer.random.next_u64() & 1) as u8)
            .collect();
        let lambda = sum([&inputs[0].bits, &inputs[1].bits]);
        let mut masked = sum([&bits, &lambda[..bits.len()]]);
        masked.resize(4 * instances, 0);
        let outputs = dealer.bits(gates);
        let mut masks: Vec<Masks> = SIDES
            .into_iter()
            .zip(inputs.into_iter().zip(outputs))
            .map(|(side, (inputs, gates))| {
                let delta = dealer.deltas[side as usize];
                Masks::new(side, delta, circuit.clone(), instances, inputs, gates)
            })
            .collect();
        let openings = [masks[0].open(&prepared[0]), masks[1].open(&prepared[1])];
        let sums = opened(&openings);
        for (masks, triples) in masks.iter_mut().zip(&prepared) {
            masks.multiply(triples, &sums);
        }
        let [g, e]: [Masks; 2] = masks.try_into().ok().unwrap();
        let mut expected = vec![0; 3 * instances];
        for instance in 0..instances {
            let [a, b, c] = [0, 1, 2].map(|wire| bits[wire * instances + instance]);
            let values = plain([a, b, c, lambda[3 * instances + instance]]);
            for (output, bit) in values.into_iter().enumerate() {
                expected[output * instances + instance] = bit;
            }
        }
        Self {
            garbler: Garbler::new(g, kernel, START, 70, masked.clone()),
            evaluator: Evaluator::new(e, kernel, START, 70, masked),
            expected,
        }
    }

    /// The outputs whose masked values these are.
    pub fn unmasked(&self, masked: &[u8]) -> Vec<u8> {
        let shares = [self.garbler.masks(), self.evaluator.masks()].map(Masks::outputs);
        sum([masked, &sum([&shares[0].bits, &shares[1].bits])])
    }
}

#[test]
fn circuits_are_evaluated_and_checked() {
    for (kernel, instances) in Kernel::available().into_iter().zip([1, 5, 64, 140]) {
        let mut pair = Pair::new(kernel, instances);
        let (mut tables, table_bits) = pair.garbler.tables(99);
        let (garbler, evaluator) = (&pair.garbler, &pair.evaluator);
        let evaluated = evaluator.evaluate(99, &tables, &table_bits, [&KEY, &KEY]);
        assert_eq!(garbler.expected(&evaluated.values, &KEY), evaluated.labels);
        let (macs, values) = garbler.answer(&evaluated.values, &KEY);
        assert_eq!(macs, evaluated.macs);
        assert_eq!(values, evaluated.outputs);
        assert_eq!(pair.unmasked(&evaluated.outputs), pair.expected);
        // A changed row is used by some instance, or by none; if by one, the answer differs.
        tables
            .iter_mut()
            .take(16 * instances)
            .step_by(16)
            .for_each(|byte| *byte ^= 1);
        let wrong = evaluator.evaluate(99, &tables, &table_bits, [&KEY, &KEY]);
        let right = garbler.answer(&wrong.values, &KEY).0 == wrong.macs;
        assert_eq!(right, wrong.values == evaluated.values);
        // A masked value that was not evaluated has another label.
        let mut lie = evaluated.values.clone();
        lie[0] ^= 1;
        assert_ne!(garbler.expected(&lie, &KEY), evaluated.labels);
    }
}
