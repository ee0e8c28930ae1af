//! Keys of noise, with a stream of their own for each call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use num_bigint::BigUint;
use zeroize::Zeroizing;

use super::distribution::{Distribution, Rational};
use super::draw::Sampler;
use super::error::NoiseError;
use super::table::Table;
use super::words::Streams;
use crate::tuple_hash::TupleHash256;

/// Label of a source's key, derived from a caller's key and context.
const SOURCE_KEY: &str = "smpc-dp/1/noise-source";
/// Label of one call's key, derived from its source's key, the call's number, the distribution and
/// its parameters.
const CALL_KEY: &str = "smpc-dp/1/noise-call";
/// Number of cached samplers, the latest used last: making their tables takes longer than a short
/// call.
const RETAINED: usize = 64;
/// Bytes of a numerator or denominator.
const TERM_BYTES: usize = 32;

type Key = Zeroizing<[u8; 32]>;
type Retained = (String, Vec<Vec<u8>>, Arc<Sampler>);

static SAMPLERS: Mutex<Vec<Retained>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these hold is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds the sampler of `distribution`, whose parameters are fractions: numerator, denominator, big-endian.
fn build(distribution: &str, terms: &[Vec<u8>]) -> Result<Sampler, NoiseError> {
    if terms.iter().any(|term| term.len() > TERM_BYTES) {
        return Err(NoiseError::Argument("a parameter has more than 32 bytes"));
    }
    let mut fractions = terms.chunks_exact(2).map(|pair| {
        Rational::new(
            BigUint::from_bytes_be(&pair[0]),
            BigUint::from_bytes_be(&pair[1]),
        )
    });
    let (first, second) = (fractions.next(), fractions.next());
    let zero = BigUint::ZERO;
    let positive = |value: &Rational| value.up > zero && value.down > zero;
    match (distribution, terms.len(), first, second) {
        ("bernoulli-exp", 2, Some(x), None) if x.down > zero => Sampler::bernoulli(x),
        ("geometric", 2, Some(x), None) if positive(&x) => single(Distribution::geometric(x)),
        ("discrete-laplace", 2, Some(scale), None) if positive(&scale) => {
            single(Distribution::laplace(scale))
        }
        ("discrete-gaussian", 2, Some(variance), None) if positive(&variance) => {
            single(Distribution::gaussian(variance))
        }
        ("skellam", 2, Some(variance), None) if positive(&variance) => {
            let mean = Rational::new(variance.up, variance.down << 1u8);
            Table::new(Distribution::poisson(mean)).map(Sampler::Difference)
        }
        ("binomial", 4, Some(trials), Some(p))
            if trials.down == 1u8.into() && p.down > zero && p.up <= p.down =>
        {
            binomial(trials.up, p)
        }
        _ => Err(NoiseError::Argument(
            "no law of that name has such parameters",
        )),
    }
}

fn single(distribution: Distribution) -> Result<Sampler, NoiseError> {
    Ok(Sampler::Single {
        table: Table::new(distribution)?,
        origin: 0,
    })
}

fn binomial(trials: BigUint, p: Rational) -> Result<Sampler, NoiseError> {
    let most = NoiseError::Argument("more than 2^62 trials");
    let all = i64::try_from(&trials).map_err(|_| most.clone())?;
    if all > 1 << 62 {
        return Err(most);
    }
    if all == 0 || p.up == BigUint::ZERO {
        return Ok(Sampler::Constant(0));
    }
    if p.up == p.down {
        return Ok(Sampler::Constant(all));
    }
    let distribution = Distribution::binomial(trials, p);
    let origin = distribution.origin().ok_or(NoiseError::Beyond)?;
    Ok(Sampler::Single {
        table: Table::new(distribution)?,
        origin,
    })
}

/// Returns the sampler of a distribution, from the cache or new.
fn sampler(distribution: &str, terms: &[Vec<u8>]) -> Result<Arc<Sampler>, NoiseError> {
    let same = |retained: &Retained| retained.0 == distribution && retained.1 == terms;
    {
        let mut samplers = lock(&SAMPLERS);
        if let Some(index) = samplers.iter().position(same) {
            let retained = samplers.remove(index);
            let result = Arc::clone(&retained.2);
            samplers.push(retained);
            return Ok(result);
        }
    }
    let made = Arc::new(build(distribution, terms)?);
    let mut samplers = lock(&SAMPLERS);
    samplers.retain(|retained| !same(retained));
    if samplers.len() >= RETAINED {
        samplers.remove(0);
    }
    samplers.push((distribution.to_owned(), terms.to_vec(), Arc::clone(&made)));
    Ok(made)
}

/// A source's secret and the number of calls made.
struct State {
    key: Key,
    calls: u64,
    /// The process that the key was drawn in, for a key of the operating system.
    process: Option<u32>,
}

fn fresh_key() -> Result<Key, NoiseError> {
    let mut key = Key::default();
    getrandom::fill(&mut *key).map_err(NoiseError::Randomness)?;
    Ok(key)
}

/// A source of noise: a key, and the number of calls that have drawn from it.
pub struct NoiseKey(Mutex<State>);

impl NoiseKey {
    /// Returns a key of the operating system; a forked process draws one of its own.
    pub fn system() -> Result<Self, NoiseError> {
        Ok(Self(Mutex::new(State {
            key: fresh_key()?,
            calls: 0,
            process: Some(std::process::id()),
        })))
    }

    /// Returns the key derived from a caller's key and context.
    pub fn keyed<'a>(key: &[u8; 32], context: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = TupleHash256::new(SOURCE_KEY.as_bytes());
        hasher.absorb(key);
        context.into_iter().for_each(|part| hasher.absorb(part));
        let mut derived = Key::default();
        hasher.finish(&mut *derived);
        Self(Mutex::new(State {
            key: derived,
            calls: 0,
            process: None,
        }))
    }

    /// Returns the number of calls that have drawn.
    pub fn calls(&self) -> u64 {
        lock(&self.0).calls
    }

    /// Draws `count` samples of a distribution on so many threads; their number does not change the samples.
    ///
    /// The distributions, as `protocols/sampling/README.md` defines them, are "bernoulli-exp" and "geometric" with x, "discrete-laplace"
    /// with its scale, "discrete-gaussian" and "skellam" with their variance, and "binomial" with the number of trials
    /// and p. A parameter is two of `terms`, numerator and denominator, each big-endian in at most 32 bytes.
    pub fn draw(
        &self,
        distribution: &str,
        terms: &[Vec<u8>],
        count: usize,
        threads: usize,
    ) -> Result<Vec<i64>, NoiseError> {
        let sampler = sampler(distribution, terms)?;
        let mut samples = Vec::new();
        samples
            .try_reserve_exact(count)
            .map_err(|_| NoiseError::Memory(count))?;
        samples.resize(count, 0);
        let streams = self.next_call(distribution, terms)?;
        sampler.fill(&streams, &mut samples, threads)?;
        Ok(samples)
    }

    /// Returns the streams of the next call.
    fn next_call(&self, distribution: &str, terms: &[Vec<u8>]) -> Result<Streams, NoiseError> {
        let mut state = lock(&self.0);
        let here = std::process::id();
        if state.process.is_some_and(|process| process != here) {
            // A forked process must not repeat its parent's noise.
            state.key = fresh_key()?;
            state.process = Some(here);
        }
        let mut hasher = TupleHash256::new(CALL_KEY.as_bytes());
        hasher.absorb(&*state.key);
        hasher.absorb(&state.calls.to_be_bytes());
        hasher.absorb(distribution.as_bytes());
        terms.iter().for_each(|term| hasher.absorb(term));
        state.calls += 1;
        let mut key = Key::default();
        hasher.finish(&mut *key);
        Ok(Streams::new(&key))
    }
}
