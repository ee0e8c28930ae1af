//! Points of the curve -x^2 + y^2 = 1 + d x^2 y^2, and their addition.
//!
//! The formulas are those of [Hisil, Wong, Carter, Dawson 2008, sections 3.1 and 3.3], unified and complete for
//! this curve: they hold for all points, equal ones and those of small order included.

use subtle::{Choice, ConditionallySelectable};
use zeroize::Zeroize;

use super::field::{Element, INVERSE_TWICE_D, Loose, TWICE_D};

/// A point in extended coordinates: x = X / Z, y = Y / Z, x y = T / Z.
#[derive(Clone, Copy)]
pub struct Extended {
    pub x: Element,
    pub y: Element,
    pub z: Element,
    pub t: Element,
}

/// A point as a summand of an addition: y + x, y - x and 2 d x y.
#[derive(Clone, Copy)]
pub struct Niels {
    pub plus: Element,
    pub minus: Element,
    pub product: Element,
}

/// A point as a summand: Y + X, Y - X, 2 Z and 2 d T.
#[derive(Clone, Copy)]
pub struct Cached {
    plus: Loose,
    minus: Loose,
    twice_z: Loose,
    product: Element,
}

/// Of an addition: its result is (E F, G H, F G, E H).
#[inline]
fn completed(e: Loose, f: Loose, g: Loose, h: Loose) -> Extended {
    Extended {
        x: e * f,
        y: g * h,
        z: f * g,
        t: e * h,
    }
}

/// Both the sum and the difference of the points with these products.
///
/// `alike` are (Y1 - X1)(Y2 - X2) and (Y1 + X1)(Y2 + X2), `crossed` (Y1 - X1)(Y2 + X2) and (Y1 + X1)(Y2 - X2).
#[inline]
fn both(alike: [Element; 2], crossed: [Element; 2], c: Element, d: Element) -> [Extended; 2] {
    let ([a, b], [a2, b2]) = (alike, crossed);
    [
        completed(b - a, d - c, d + c, b + a),
        completed(b2 - a2, d + c, d - c, b2 + a2),
    ]
}

impl Extended {
    pub const IDENTITY: Self = Self {
        x: Element::ZERO,
        y: Element::ONE,
        z: Element::ONE,
        t: Element::ZERO,
    };

    /// Returns the sum with a point in affine coordinates: 7 multiplications.
    #[inline]
    pub fn plus_niels(&self, other: &Niels) -> Self {
        let a = (self.y - self.x) * other.minus;
        let b = (self.y + self.x) * other.plus;
        let c = self.t * other.product;
        let d = (self.z + self.z).carry();
        completed(b - a, d - c, d + c, b + a)
    }

    /// Returns the difference from a point in affine coordinates.
    #[inline]
    pub fn minus_niels(&self, other: &Niels) -> Self {
        let a = (self.y - self.x) * other.plus;
        let b = (self.y + self.x) * other.minus;
        let c = self.t * other.product;
        let d = (self.z + self.z).carry();
        completed(b - a, d + c, d - c, b + a)
    }

    /// Returns the sum: 8 multiplications.
    #[inline]
    pub fn plus(&self, other: &Cached) -> Self {
        let a = (self.y - self.x) * other.minus;
        let b = (self.y + self.x) * other.plus;
        let c = self.t * other.product;
        let d = self.z * other.twice_z;
        completed(b - a, d - c, d + c, b + a)
    }

    /// Returns the sum and the difference: 14 multiplications.
    #[inline]
    pub fn plus_and_minus(&self, other: &Cached) -> [Self; 2] {
        let (plus, minus) = (self.y + self.x, self.y - self.x);
        both(
            [minus * other.minus, plus * other.plus],
            [minus * other.plus, plus * other.minus],
            self.t * other.product,
            self.z * other.twice_z,
        )
    }

    pub fn double(&self) -> Self {
        let (a, b) = (self.x.square(), self.y.square());
        let z = self.z.square();
        let h = (a + b).carry();
        let e = h - (self.x + self.y).square();
        let g = (a - b).carry();
        let f = (z + z).carry() + g;
        completed(e, f, g.into(), h.into())
    }

    /// Returns the point as a summand: 1 multiplication.
    #[inline]
    pub fn cached(&self) -> Cached {
        Cached {
            plus: self.y + self.x,
            minus: self.y - self.x,
            twice_z: self.z + self.z,
            product: self.t * TWICE_D,
        }
    }
}

impl Niels {
    /// Returns the sum and the difference: 14 multiplications.
    #[inline]
    pub fn plus_and_minus(&self, other: &Self) -> [Extended; 2] {
        both(
            [self.minus * other.minus, self.plus * other.plus],
            [self.minus * other.plus, self.plus * other.minus],
            self.product * other.product * INVERSE_TWICE_D,
            Element::TWO,
        )
    }
}

impl Cached {
    /// Words of `words`.
    pub const WORDS: usize = 20;

    /// Returns the limbs of its coordinates.
    pub fn words(&self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        let parts = [self.plus, self.minus, self.twice_z, self.product.into()];
        for (to, part) in words.as_chunks_mut::<5>().0.iter_mut().zip(parts) {
            *to = part.limbs();
        }
        words
    }

    /// Of words that `words` gave.
    #[inline]
    pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let (parts, _) = words.as_chunks::<5>();
        Self {
            plus: Loose::from_limbs(parts[0]),
            minus: Loose::from_limbs(parts[1]),
            twice_z: Loose::from_limbs(parts[2]),
            product: Element::from_limbs(parts[3]),
        }
    }

    /// Returns its negative if `choice` says so, in constant time.
    #[inline]
    pub fn negated_if(&self, choice: Choice) -> Self {
        let select = Loose::conditional_select;
        Self {
            plus: select(&self.plus, &self.minus, choice),
            minus: select(&self.minus, &self.plus, choice),
            twice_z: self.twice_z,
            product: Element::conditional_select(&self.product, &-self.product, choice),
        }
    }
}

impl Zeroize for Extended {
    fn zeroize(&mut self) {
        self.x.zeroize();
        self.y.zeroize();
        self.z.zeroize();
        self.t.zeroize();
    }
}
