//! Fold of the commitments of all edges of a run, which tells whether the two ends of each cancel.
//!
//! Edge {u, v} has a coefficient r(u, v) and a number h(u, v), hashes of a fresh seed and both ends. Summed
//! are r(u, v) D(u, v) over all claims of u on v, and h(u, v), negative at the greater end. If some edge is
//! claimed by one end alone, or its two commitments do not add up to the identity, both sums vanish with
//! probability at most 2^-128: whoever committed did not know the seed. Memory does not grow with the edges.

use std::sync::Mutex;

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::{Identity, IsIdentity, VartimeMultiscalarMul};

use super::encode::{self, ELEMENT, Element};
use super::error::ProofError;
use super::labels;
use crate::tuple_hash::TupleHash256;

/// Claims of one party: `edges[i]` is its commitment to the term that it adds for party
/// `neighbours[i]`. `others` are points that must be canonical, and have no other use.
pub struct Claims {
    /// The party that claims, from 1.
    pub party: u16,
    /// The other ends of its edges.
    pub neighbours: Vec<u16>,
    /// Its commitments, one for each neighbour.
    pub edges: Vec<Element>,
    /// Other points of the party.
    pub others: Vec<Element>,
}

/// A sum of points and of numbers; both vanish if all edges cancel.
#[derive(Clone)]
struct Fold {
    points: RistrettoPoint,
    numbers: u128,
}

impl Fold {
    fn new() -> Self {
        Self {
            points: RistrettoPoint::identity(),
            numbers: 0,
        }
    }

    fn vanishes(&self) -> bool {
        self.points.is_identity() && self.numbers == 0
    }
}

/// The sums over all edges, or for each party over its own.
pub struct Edges {
    start: TupleHash256,
    /// Whether an edge to the party counts, from party 1.
    counted: Vec<bool>,
    total: Mutex<Fold>,
    each: Option<Mutex<Vec<Fold>>>,
}

impl Edges {
    /// With `locate` each party has a sum of its own, which takes longer.
    pub fn new(counted: Vec<bool>, locate: bool) -> Result<Self, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let mut start = TupleHash256::new(labels::EDGE_WEIGHT.as_bytes());
        start.absorb(&seed);
        let each = locate.then(|| Mutex::new(vec![Fold::new(); counted.len()]));
        Ok(Self {
            start,
            counted,
            total: Mutex::new(Fold::new()),
            each,
        })
    }

    /// Returns the coefficient and the number of an edge, as `party` adds them.
    fn weights(&self, party: u16, peer: u16) -> (Scalar, u128) {
        let mut hasher = self.start.clone();
        hasher.absorb(&party.min(peer).to_be_bytes());
        hasher.absorb(&party.max(peer).to_be_bytes());
        let mut output = [0; 32];
        hasher.finish(&mut output);
        let (coefficient, number) = output.split_at(16);
        let half = |bytes: &[u8]| u128::from_le_bytes(bytes.try_into().expect("half of 32 bytes"));
        let number = half(number);
        let signed = if party < peer {
            number
        } else {
            number.wrapping_neg()
        };
        (Scalar::from(half(coefficient)), signed)
    }

    /// Folds claims of parties; returns the sum of each one's edges that count, or its malformed
    /// point.
    pub fn take(&self, claims: &[Claims]) -> Vec<Result<Element, ProofError>> {
        let mut fold = Fold::new();
        let (mut scalars, mut points) = (Vec::new(), Vec::new());
        let sums = claims
            .iter()
            .map(|claim| self.one(claim, &mut fold, &mut scalars, &mut points))
            .collect();
        fold.points = RistrettoPoint::vartime_multiscalar_mul(&scalars, &points);
        let mut total = self.total.lock().expect("nobody panics with it");
        total.points += fold.points;
        total.numbers = total.numbers.wrapping_add(fold.numbers);
        sums
    }

    fn one(
        &self,
        claim: &Claims,
        fold: &mut Fold,
        scalars: &mut Vec<Scalar>,
        points: &mut Vec<RistrettoPoint>,
    ) -> Result<Element, ProofError> {
        for other in &claim.others {
            encode::point("commitment", other)?;
        }
        let party = usize::from(claim.party);
        if !(1..=self.counted.len()).contains(&party) || claim.neighbours.len() != claim.edges.len()
        {
            return Err(ProofError::Argument(format!(
                "party {party} does not have one commitment for each neighbour"
            )));
        }
        let mut read = Vec::with_capacity(claim.edges.len());
        for (&peer, edge) in claim.neighbours.iter().zip(&claim.edges) {
            let point = encode::point("commitment", edge)?;
            let index = usize::from(peer).wrapping_sub(1);
            match self.counted.get(index) {
                Some(true) => read.push((peer, index, point)),
                Some(false) => {}
                None => {
                    return Err(ProofError::Argument(format!("there is no party {peer}")));
                }
            }
        }
        let mut sum = RistrettoPoint::identity();
        for (peer, index, point) in read {
            let (coefficient, number) = self.weights(claim.party, peer);
            sum += point;
            fold.numbers = fold.numbers.wrapping_add(number);
            if let Some(each) = &self.each {
                let weighted = RistrettoPoint::vartime_multiscalar_mul([coefficient], [point]);
                let mut each = each.lock().expect("nobody panics with it");
                for end in [party - 1, index] {
                    each[end].points += weighted;
                    each[end].numbers = each[end].numbers.wrapping_add(number);
                }
            }
            scalars.push(coefficient);
            points.push(point);
        }
        Ok(sum.compress().to_bytes())
    }

    /// Tells whether all edges cancel.
    pub fn cancels(&self) -> bool {
        self.total.lock().expect("nobody panics with it").vanishes()
    }

    /// Returns the parties with an edge that does not cancel, ascending; none unless they are
    /// located.
    pub fn apart(&self) -> Vec<usize> {
        let Some(each) = &self.each else {
            return Vec::new();
        };
        let each = each.lock().expect("nobody panics with it");
        let parties = each.iter().enumerate();
        parties
            .filter(|(_, fold)| !fold.vanishes())
            .map(|(index, _)| index + 1)
            .collect()
    }
}

/// Decodes parties of two bytes each, little-endian.
pub fn parties(packed: &[u8]) -> Result<Vec<u16>, ProofError> {
    let (whole, rest) = packed.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(ProofError::Argument("an odd number of bytes".into()));
    }
    Ok(whole.iter().map(|pair| u16::from_le_bytes(*pair)).collect())
}

/// Decodes consecutive points.
pub fn elements(packed: &[u8]) -> Result<Vec<Element>, ProofError> {
    let (whole, rest) = packed.as_chunks::<ELEMENT>();
    if !rest.is_empty() {
        return Err(ProofError::Argument(format!(
            "points: {} bytes",
            packed.len()
        )));
    }
    Ok(whole.to_vec())
}
