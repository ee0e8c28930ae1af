//! The kernels that touch secrets, each as a function of a secret alone, and what of it is public.
//!
//! Left out: sampling of noise, whose time depends on the noise by design (`docs/proofs/sampling.md`), verification and
//! evaluation of public values, and inversions of public field elements.

use smpc_core::gf128::Multiplier;
use smpc_core::keystream::{Mask, add_keystreams};
use smpc_core::shamir;
use smpc_core::tuple_hash::TupleHash256;

use crate::ot::Publish;
use crate::{active, garble, ot, pedersen, proofs};

pub struct Kernel {
    pub name: &'static str,
    /// Bytes of the secret; any bytes are one.
    pub secret: usize,
    /// Whether all that is public in between is published: challenges of proofs are not, and memcheck cannot
    /// tell them from secrets.
    pub memcheck: bool,
    pub run: fn(&[u8], Publish<'_>) -> Vec<u8>,
}

pub const KERNELS: [Kernel; 19] = [
    Kernel {
        name: "masks",
        secret: 32,
        memcheck: true,
        run: masks,
    },
    Kernel {
        name: "shamir_split",
        secret: 96,
        memcheck: true,
        run: shamir_split,
    },
    Kernel {
        name: "shamir_combine",
        secret: 96,
        memcheck: true,
        run: shamir_combine,
    },
    Kernel {
        name: "gf128_product",
        secret: 32,
        memcheck: true,
        run: product,
    },
    Kernel {
        name: "tuple_hash",
        secret: 64,
        memcheck: true,
        run: tuple_hash,
    },
    Kernel {
        name: "garble_single",
        secret: 32,
        memcheck: true,
        run: |secret, _| garble::tables(secret, 1),
    },
    Kernel {
        name: "garble_tiles",
        secret: 32,
        memcheck: true,
        run: |secret, _| garble::tables(secret, 4),
    },
    Kernel {
        name: "evaluate_single",
        secret: garble::LABELS,
        memcheck: true,
        run: |secret, _| garble::outputs(secret, 1),
    },
    Kernel {
        name: "evaluate_tiles",
        secret: garble::LABELS,
        memcheck: true,
        run: |secret, _| garble::outputs(secret, 4),
    },
    Kernel {
        name: "garbler_inputs",
        secret: 24,
        memcheck: true,
        run: |secret, _| garble::inputs(secret),
    },
    Kernel {
        name: "label_list",
        secret: garble::LIST,
        memcheck: true,
        run: |secret, _| garble::list(secret),
    },
    Kernel {
        name: "active_garbler",
        secret: active::SECRET,
        memcheck: true,
        run: active::garbler,
    },
    Kernel {
        name: "active_evaluator",
        secret: active::SECRET,
        memcheck: true,
        run: active::evaluator,
    },
    Kernel {
        name: "ot_sender",
        secret: 32,
        memcheck: true,
        run: ot::sender,
    },
    Kernel {
        name: "ot_receiver",
        secret: 32,
        memcheck: true,
        run: ot::receiver,
    },
    Kernel {
        name: "commitment",
        secret: 96,
        memcheck: true,
        run: |secret, _| proofs::commitment(secret),
    },
    Kernel {
        name: "vector_commitment",
        secret: pedersen::SECRET,
        memcheck: true,
        run: |secret, _| pedersen::commitments(secret),
    },
    Kernel {
        name: "range_proof",
        secret: 104,
        memcheck: false,
        run: |secret, _| proofs::range(secret),
    },
    Kernel {
        name: "noise_proof",
        secret: 104,
        memcheck: false,
        run: |secret, _| proofs::noise(secret),
    },
];

fn masks(secret: &[u8], _: Publish<'_>) -> Vec<u8> {
    let key = secret.try_into().expect("32 bytes");
    let mut lanes = [0u64; 300];
    add_keystreams(
        &mut lanes,
        &[Mask {
            key,
            subtract: false,
        }],
        0,
        1,
    );
    lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect()
}

fn shamir_split(secret: &[u8], _: Publish<'_>) -> Vec<u8> {
    let (value, coefficients) = secret.split_at(32);
    let shares = shamir::split(value, 3, &[1, 2, 700, 4], coefficients).expect("a sharing");
    shares.iter().flat_map(|share| share.to_vec()).collect()
}

fn shamir_combine(secret: &[u8], _: Publish<'_>) -> Vec<u8> {
    let shares: Vec<&[u8]> = secret.chunks(32).collect();
    shamir::combine(&[1, 2, 700], &shares)
        .expect("three shares")
        .to_vec()
}

fn product(secret: &[u8], _: Publish<'_>) -> Vec<u8> {
    let half = |bytes: &[u8]| u128::from_be_bytes(bytes.try_into().expect("16 bytes"));
    let (factor, element) = secret.split_at(16);
    Multiplier::new(half(factor))
        .times(half(element))
        .to_be_bytes()
        .to_vec()
}

fn tuple_hash(secret: &[u8], _: Publish<'_>) -> Vec<u8> {
    let mut hasher = TupleHash256::new(b"timing");
    hasher.absorb(secret);
    let mut output = vec![0; 32];
    hasher.finish(&mut output);
    output
}
