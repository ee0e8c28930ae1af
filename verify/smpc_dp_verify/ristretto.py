"""ristretto255 [RFC 9496] in plain integers: slow, obvious, not constant-time: for public values alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P

Point = tuple[int, int, int, int]
IDENTITY: Point = (0, 1, 1, 0)


def _is_negative(x: int) -> bool:
    return x % P % 2 == 1


def _abs(x: int) -> int:
    return -x % P if _is_negative(x) else x % P


SQRT_M1 = _abs(pow(2, (P - 1) // 4, P))


def sqrt_ratio(u: int, v: int) -> tuple[bool, int]:
    """Return (whether u/v is square, its root or that of i u/v) [RFC 9496, 4.2, SQRT_RATIO_M1]."""
    r = u * v**3 * pow(u * v**7, (P - 5) // 8, P) % P
    check = v * r * r % P
    correct, flipped, flipped_i = check == u % P, check == -u % P, check == -u * SQRT_M1 % P
    if flipped or flipped_i:
        r = r * SQRT_M1 % P
    return correct or flipped, _abs(r)


SQRT_AD_MINUS_ONE = 25063068953384623474111414158702152701244531502492656460079210482610430750235
INVSQRT_A_MINUS_D = sqrt_ratio(1, -1 - D)[1]
ONE_MINUS_D_SQ = (1 - D * D) % P
D_MINUS_ONE_SQ = (D - 1) ** 2 % P


def add(p: Point, q: Point) -> Point:
    """Return the sum of two points, by the unified addition on the twisted Edwards curve with a = -1."""
    # Reduced here too: products of four factors take longer.
    a = (p[1] - p[0]) * (q[1] - q[0]) % P
    b = (p[1] + p[0]) * (q[1] + q[0]) % P
    c = 2 * p[3] * q[3] % P * D % P
    d = 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def negate(p: Point) -> Point:
    """Return the inverse -p of a point."""
    return -p[0] % P, p[1], p[2], -p[3] % P


def double(p: Point) -> Point:
    """Return twice a point [RFC 8032, section 5.1.4], in fewer multiplications than `add`."""
    a, b = p[0] * p[0] % P, p[1] * p[1] % P
    h, g = a + b, a - b
    e = h - (p[0] + p[1]) ** 2 % P
    f = 2 * p[2] * p[2] % P + g
    return e * f % P, g * h % P, f * g % P, e * h % P


def is_same(p: Point, q: Point) -> bool:
    """Tell whether two points have one encoding, so are one group element [RFC 9496, section 4.3.3]."""
    return (p[0] * q[1] - p[1] * q[0]) % P == 0 or (p[1] * q[1] - p[0] * q[0]) % P == 0


def times(n: int, p: Point) -> Point:
    """Return a point multiplied by an integer n >= 0."""
    doublings = _doublings(p)
    while len(doublings) <= n.bit_length():
        doublings.append(double(doublings[-1]))
    sums = [IDENTITY] * 4
    for index, factor in _odd_digits(n):
        point = doublings[index] if factor > 0 else negate(doublings[index])
        sums[abs(factor) // 2] = add(sums[abs(factor) // 2], point)
    # sums[j] counts 2j + 1 times: twice the total of j sums[j], and each once.
    beyond = total = IDENTITY
    for part in reversed(sums[1:]):
        beyond = add(beyond, part)
        total = add(total, beyond)
    return add(add(double(total), beyond), sums[0])


def _odd_digits(n: int) -> Iterator[tuple[int, int]]:
    """Yield pairs (i, d), d odd and -7 to 7, such that n is the sum of all d 2^i."""
    index = 0
    while n:
        if n & 1:
            digit = (n + 7) % 16 - 7
            yield index, digit
            n -= digit
        n >>= 1
        index += 1


@functools.lru_cache(512)
def _doublings(p: Point) -> list[Point]:
    """Return the cached, growing list of p, 2p, 4p and so on, which begins with p alone."""
    return [p]


@functools.lru_cache(4096)
def decode(data: bytes) -> Point:
    """Decode 32 bytes to a point [RFC 9496, section 4.3.1]; raise ValueError if not canonical."""
    s = int.from_bytes(data, "little")
    if s >= P or _is_negative(s):
        raise ValueError("not canonical")
    ss = s * s % P
    u1, u2 = (1 - ss) % P, (1 + ss) % P
    v = (-(D * u1 * u1) - u2 * u2) % P
    square, invsqrt = sqrt_ratio(1, v * u2 * u2)
    den_x = invsqrt * u2 % P
    den_y = invsqrt * den_x * v % P
    x = _abs(2 * s * den_x)
    y = u1 * den_y % P
    if not square or _is_negative(x * y) or y == 0:
        raise ValueError("not a group element")
    return x, y, 1, x * y % P


def encode(p: Point) -> bytes:
    """Return the canonical 32-byte encoding of a point [RFC 9496, section 4.3.2]."""
    x0, y0, z0, t0 = p
    u1 = (z0 + y0) * (z0 - y0) % P
    u2 = x0 * y0 % P
    invsqrt = sqrt_ratio(1, u1 * u2 * u2)[1]
    den1, den2 = invsqrt * u1 % P, invsqrt * u2 % P
    z_inv = den1 * den2 * t0 % P
    if _is_negative(t0 * z_inv):
        x, y, den_inv = y0 * SQRT_M1 % P, x0 * SQRT_M1 % P, den1 * INVSQRT_A_MINUS_D % P
    else:
        x, y, den_inv = x0, y0, den2
    if _is_negative(x * z_inv):
        y = -y % P
    return _abs(den_inv * (z0 - y)).to_bytes(32, "little")


def map_to_group(data: bytes) -> Point:
    """Map 32 bytes, whose highest bit is ignored, to a point [RFC 9496, section 4.3.4, MAP]."""
    t = int.from_bytes(data, "little") % 2**255 % P
    r = SQRT_M1 * t * t % P
    u = (r + 1) * ONE_MINUS_D_SQ % P
    v = (-1 - r * D) * (r + D) % P
    square, s = sqrt_ratio(u, v)
    c = P - 1
    if not square:
        s, c = -_abs(s * t) % P, r
    n = (c * (r - 1) * D_MINUS_ONE_SQ - v) % P
    w0, w1 = 2 * s * v, n * SQRT_AD_MINUS_ONE
    w2, w3 = 1 - s * s, 1 + s * s
    return w0 * w3 % P, w2 * w1 % P, w1 * w3 % P, w0 * w2 % P


BASE = decode(bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76"))
