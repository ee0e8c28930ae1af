//! Generators, hashed to the group: nobody knows a relation between any two.
//!
//! Element `i` of a family is ristretto255's map of 64 bytes of TupleHash256 over family and index
//! [RFC 9496, section 4.3.4]. Lists grow when they are asked for more, and are kept.

use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use curve25519_dalek::ristretto::RistrettoPoint;

use super::labels;
use crate::tuple_hash::TupleHash256;

/// A list of generators.
#[derive(Debug, Clone, Copy)]
pub enum Family {
    /// Gamma: one a coordinate of committed vectors.
    Value,
    /// G: the left vectors of inner products.
    Left,
    /// H: the right vectors of inner products.
    Right,
}

/// The generators that stand alone.
pub struct Bases {
    /// H_0, of every blinding.
    pub blinding: RistrettoPoint,
    /// U, of inner products.
    pub product: RistrettoPoint,
    /// N, of squared norms.
    pub norm: RistrettoPoint,
}

type List = Arc<Vec<RistrettoPoint>>;

static LISTS: LazyLock<[RwLock<List>; 3]> = LazyLock::new(Default::default);
static BASES: LazyLock<Bases> = LazyLock::new(|| Bases {
    blinding: generator(labels::FAMILY_BLINDING, 0),
    product: generator(labels::FAMILY_PRODUCT, 0),
    norm: generator(labels::FAMILY_NORM, 0),
});

pub fn bases() -> &'static Bases {
    &BASES
}

/// Returns at least the first `count` generators of a family.
pub fn list(family: Family, count: usize) -> List {
    let retained = &LISTS[family as usize];
    let have = Arc::clone(&retained.read().unwrap_or_else(PoisonError::into_inner));
    if have.len() >= count {
        return have;
    }
    let mut retained = retained.write().unwrap_or_else(PoisonError::into_inner);
    if retained.len() < count {
        let label = match family {
            Family::Value => labels::FAMILY_VALUE,
            Family::Left => labels::FAMILY_LEFT,
            Family::Right => labels::FAMILY_RIGHT,
        };
        let mut longer = retained.to_vec();
        longer.extend(
            (retained.len()..count.next_power_of_two()).map(|i| generator(label, i as u32)),
        );
        *retained = Arc::new(longer);
    }
    Arc::clone(&retained)
}

fn generator(family: &str, index: u32) -> RistrettoPoint {
    let mut hasher = TupleHash256::new(labels::GENERATOR.as_bytes());
    hasher.absorb(family.as_bytes());
    hasher.absorb(&index.to_be_bytes());
    let mut wide = [0; 64];
    hasher.finish(&mut wide);
    RistrettoPoint::from_uniform_bytes(&wide)
}
