//! ristretto255 [RFC 9496, section 4.3]: canonical encodings of points, and when two points are one element.

use subtle::{Choice, ConditionallySelectable};

use super::field::{BYTES, D, Element, INVSQRT_A_MINUS_D, SQRT_M1, TWICE_D};
use super::point::{Extended, Niels};

/// A point with Z = 1.
#[derive(Clone, Copy)]
pub struct Affine {
    x: Element,
    y: Element,
}

impl Affine {
    pub fn extended(&self) -> Extended {
        Extended {
            x: self.x,
            y: self.y,
            z: Element::ONE,
            t: self.x * self.y,
        }
    }

    pub fn niels(&self) -> Niels {
        Niels {
            plus: (self.y + self.x).carry(),
            minus: (self.y - self.x).carry(),
            product: self.x * self.y * TWICE_D,
        }
    }
}

/// Returns the point that `bytes` canonically encode [section 4.3.1]; None for other bytes, in variable time.
pub fn decode(bytes: &[u8; BYTES]) -> Option<Affine> {
    let s = Element::from_bytes(bytes);
    if s.to_bytes() != *bytes || bool::from(s.is_negative()) {
        return None;
    }
    let square = s.square();
    let u1 = (Element::ONE - square).carry();
    let u2 = (Element::ONE + square).carry();
    let u2_square = u2.square();
    let v = (-(D * u1.square()) - u2_square).carry();
    let (was_square, inverse) = (v * u2_square).inverse_sqrt();
    let den_x = inverse * u2;
    let den_y = inverse * den_x * v;
    let x = ((s + s) * den_x).abs();
    let y = u1 * den_y;
    let refused = !was_square | (x * y).is_negative() | y.is_zero();
    (!bool::from(refused)).then_some(Affine { x, y })
}

/// Returns the canonical encoding of a point's element [section 4.3.2], in constant time.
pub fn encode(point: &Extended) -> [u8; BYTES] {
    let Extended { x, y, z, t } = *point;
    let u1 = (z + y) * (z - y);
    let u2 = x * y;
    let (_, inverse) = (u1 * u2.square()).inverse_sqrt();
    let (den1, den2) = (inverse * u1, inverse * u2);
    let z_inverse = den1 * den2 * t;
    let rotate = (t * z_inverse).is_negative();
    let select =
        |first: &Element, second: Element| Element::conditional_select(first, &second, rotate);
    let rotated_x = select(&x, y * SQRT_M1);
    let rotated_y = select(&y, x * SQRT_M1);
    let den_inverse = select(&den2, den1 * INVSQRT_A_MINUS_D);
    let negative = (rotated_x * z_inverse).is_negative();
    let y = Element::conditional_select(&rotated_y, &-rotated_y, negative);
    (den_inverse * (z - y)).abs().to_bytes()
}

/// Whether both points are the same element [section 4.3.3].
pub fn same(first: &Extended, second: &Extended) -> Choice {
    let zero = |a: Element, b: Element| (a - b).carry().is_zero();
    zero(first.x * second.y, first.y * second.x) | zero(first.y * second.y, first.x * second.x)
}

#[cfg(test)]
mod tests {
    use curve25519_dalek::constants::{RISTRETTO_BASEPOINT_COMPRESSED, RISTRETTO_BASEPOINT_POINT};
    use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
    use curve25519_dalek::traits::Identity;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};
    use subtle::ConstantTimeEq;

    use super::*;

    /// A point of ours in affine coordinates, and the element that dalek has for it.
    type Pair = (Affine, RistrettoPoint);

    fn pair(element: RistrettoPoint) -> Pair {
        let point = decode(element.compress().as_bytes()).expect("an encoding");
        (point, element)
    }

    /// The four points of an element: it, and its sums with (i, 0), (0, -1) and (-i, 0).
    fn coset((point, element): Pair) -> [Pair; 4] {
        let Affine { x, y } = point;
        let turned = Affine {
            x: y * SQRT_M1,
            y: x * SQRT_M1,
        };
        let opposite = |point: Affine| Affine {
            x: -point.x,
            y: -point.y,
        };
        [point, opposite(point), turned, opposite(turned)].map(|point| (point, element))
    }

    fn points() -> Vec<Pair> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut elements = vec![
            RistrettoPoint::identity(),
            RISTRETTO_BASEPOINT_POINT,
            -RISTRETTO_BASEPOINT_POINT,
            RISTRETTO_BASEPOINT_POINT + RISTRETTO_BASEPOINT_POINT,
        ];
        for _ in 0..4 {
            let mut wide = [0; 64];
            random.fill_bytes(&mut wide);
            elements.push(RistrettoPoint::from_uniform_bytes(&wide));
        }
        elements
            .into_iter()
            .flat_map(|element| coset(pair(element)))
            .collect()
    }

    /// Whether coordinates are those of a point of the curve, and its encoding dalek's.
    fn expect(point: &Extended, element: RistrettoPoint) {
        let Extended { x, y, z, t } = *point;
        let equal = |a: Element, b: Element| assert!(bool::from(a.ct_eq(&b)));
        equal(x * y, z * t);
        equal(
            (y.square() - x.square()).carry(),
            (z.square() + D * t.square()).carry(),
        );
        assert!(!bool::from(z.is_zero()));
        assert_eq!(encode(point), element.compress().to_bytes());
        let (other, _) = pair(element);
        assert!(bool::from(same(point, &other.extended())));
    }

    #[test]
    fn sums_are_those_of_dalek() {
        let points = points();
        // With another Z than 1.
        let scaled = |point: &Affine| {
            let Extended { x, y, z, t } = point.extended();
            let factor = D.square();
            Extended {
                x: x * factor,
                y: y * factor,
                z: z * factor,
                t: t * factor,
            }
        };
        for (p, first) in &points {
            expect(&p.extended(), *first);
            expect(&scaled(p), *first);
            expect(&scaled(p).double(), first + first);
            for (q, second) in &points {
                let (sum, difference) = (first + second, first - second);
                expect(&scaled(p).plus_niels(&q.niels()), sum);
                expect(&scaled(p).minus_niels(&q.niels()), difference);
                expect(&scaled(p).plus(&scaled(q).cached()), sum);
                for (choice, result) in [(0, sum), (1, difference)] {
                    let summand = scaled(q).cached().negated_if(Choice::from(choice));
                    expect(&scaled(p).plus(&summand), result);
                }
                let [plus, minus] = scaled(p).plus_and_minus(&scaled(q).cached());
                expect(&plus, sum);
                expect(&minus, difference);
                let [plus, minus] = p.niels().plus_and_minus(&q.niels());
                expect(&plus, sum);
                expect(&minus, difference);
                let alike = bool::from(same(&scaled(p), &q.extended()));
                assert_eq!(alike, first == second);
            }
        }
    }

    /// RFC 9496, appendix A.2: not canonical, negative, of no square, negative x y, and y = 0.
    #[test]
    fn other_encodings_are_refused() {
        let mut refused = vec![[0xff; BYTES], [0; BYTES]];
        refused[1][0] = 1;
        let p_minus = |k: u8| {
            let mut bytes = [0xff; BYTES];
            (bytes[0], bytes[BYTES - 1]) = (0xed - k, 0x7f);
            bytes
        };
        refused.extend([p_minus(0), p_minus(1)]);
        let mut high = *RISTRETTO_BASEPOINT_COMPRESSED.as_bytes();
        high[BYTES - 1] |= 0x80;
        refused.push(high);
        refused.push((-Element::from_bytes(RISTRETTO_BASEPOINT_COMPRESSED.as_bytes())).to_bytes());
        for bytes in refused {
            assert!(decode(&bytes).is_none(), "{bytes:?}");
            assert!(CompressedRistretto(bytes).decompress().is_none());
        }
        assert!(decode(&[0; BYTES]).is_some());
    }
}
