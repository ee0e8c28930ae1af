//! Whether the time of the core's kernels depends on secrets: `make timing`.
//!
//! Plain, it times each kernel with a fixed and with random secrets, and prints Welch's t (dudect [Reparaz,
//! Balasch, Verbauwhede 2017]). Under valgrind it tells memcheck that secrets are undefined: every branch and
//! every address that depends on one is then an error (as ctgrind [Langley 2010]).

mod active;
mod garble;
mod kernels;
mod memcheck;
mod ot;
mod pedersen;
mod proofs;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use dudect_bencher::ctbench::{BenchMetadata, BenchName, BenchOpts, run_benches_console};
use dudect_bencher::rand::Rng;
use dudect_bencher::{BenchRng, Class, CtRunner};

use kernels::{KERNELS, Kernel};

/// Seconds of measurement of each kernel, and how many samples that may be.
const SECONDS: f64 = 3.0;
const SAMPLES: std::ops::RangeInclusive<usize> = 200..=50_000;

fn measure(kernel: &Kernel, runner: &mut CtRunner, random: &mut BenchRng) {
    let publish = |_: &[u8]| {};
    let fixed = vec![0x5a; kernel.secret];
    // The first run makes what later ones share, such as generators.
    (kernel.run)(&fixed, &publish);
    let start = Instant::now();
    (kernel.run)(&fixed, &publish);
    let samples = (SECONDS / start.elapsed().as_secs_f64()) as usize;
    for _ in 0..samples.clamp(*SAMPLES.start(), *SAMPLES.end()) {
        let mut secret = vec![0; kernel.secret];
        random.fill_bytes(&mut secret);
        let class = if random.next_u32() & 1 == 0 {
            Class::Left
        } else {
            Class::Right
        };
        if let Class::Left = class {
            secret.copy_from_slice(&fixed);
        }
        runner.run_one(class, || (kernel.run)(&secret, &publish));
    }
}

fn bench<const N: usize>(runner: &mut CtRunner, random: &mut BenchRng) {
    measure(&KERNELS[N], runner, random);
}

fn under_valgrind() -> ExitCode {
    // A table that is read at a secret place must be found, or nothing would be.
    println!("control: an error follows, which must be found");
    let (place, table) = (black_box(vec![0u8; 1]), black_box(vec![5u8; 256]));
    memcheck::undefined(&place);
    let before = memcheck::errors();
    black_box(table[usize::from(black_box(&place)[0])]);
    let mut failed = memcheck::errors() == before;
    println!("control: {}", if failed { "not found" } else { "found" });
    for kernel in KERNELS.iter().filter(|kernel| kernel.memcheck) {
        let secret = vec![0x5a; kernel.secret];
        memcheck::undefined(&secret);
        let before = memcheck::errors();
        let output = (kernel.run)(&secret, &memcheck::defined);
        memcheck::defined(&output);
        let result = memcheck::errors() - before;
        println!(
            "{}: {result} branches or addresses depend on the secret",
            kernel.name
        );
        failed |= result > 0;
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn main() -> ExitCode {
    if memcheck::running() {
        return under_valgrind();
    }
    macro_rules! benches {
        ($($number:literal)*) => {
            [$(BenchMetadata { name: BenchName(KERNELS[$number].name), seed: Some($number), benchfn: bench::<$number> }),*]
        };
    }
    let benches: [_; KERNELS.len()] = benches!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
    run_benches_console(BenchOpts::default(), benches.into()).expect("standard output");
    ExitCode::SUCCESS
}
