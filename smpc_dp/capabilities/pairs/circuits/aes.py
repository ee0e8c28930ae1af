"""AES-128 encryption [FIPS 197] as a circuit: 200 S-boxes of 32 AND each; all other parts are linear."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from smpc_dp.capabilities.pairs.circuits.builder import Bit, Bits, Builder
from smpc_dp.capabilities.pairs.circuits.gadgets import bitwise_xor

ROUNDS = 10
BLOCK_BYTES = 16

# The straight-line program of [Boyar and Peralta 2009, A new combinational logic minimization technique
# with applications to cryptology, eprint 2009/191]: the S-box in 32 AND (x) and 83 XOR (+) or XNOR (#).
# x0 is the most significant bit that goes in, s0 the most significant that comes out. The middle inverts
# in GF(2^4)^2, the top and the bottom change the basis.
_SBOX_TOP = """
    y14=x3+x5   y13=x0+x6   y9=x0+x3    y8=x0+x5    t0=x1+x2    y1=t0+x7    y4=y1+x3    y12=y13+y14
    y2=y1+x0    y5=y1+x6    y3=y5+y8    t1=x4+y12   y15=t1+x5   y20=t1+x1   y6=y15+x7   y10=y15+t0
    y11=y20+y9  y7=x7+y11   y17=y10+y11 y19=y10+y8  y16=t0+y11  y21=y13+y16 y18=x0+y16
"""
_SBOX_MIDDLE = """
    t2=y12xy15  t3=y3xy6    t4=t3+t2    t5=y4xx7    t6=t5+t2    t7=y13xy16  t8=y5xy1    t9=t8+t7
    t10=y2xy7   t11=t10+t7  t12=y9xy11  t13=y14xy17 t14=t13+t12 t15=y8xy10  t16=t15+t12 t17=t4+t14
    t18=t6+t16  t19=t9+t14  t20=t11+t16 t21=t17+y20 t22=t18+y19 t23=t19+y21 t24=t20+y18 t25=t21+t22
    t26=t21xt23 t27=t24+t26 t28=t25xt27 t29=t28+t22 t30=t23+t24 t31=t22+t26 t32=t31xt30 t33=t32+t24
    t34=t23+t33 t35=t27+t33 t36=t24xt35 t37=t36+t34 t38=t27+t36 t39=t29xt38 t40=t25+t39 t41=t40+t37
    t42=t29+t33 t43=t29+t40 t44=t33+t37 t45=t42+t41 z0=t44xy15  z1=t37xy6   z2=t33xx7   z3=t43xy16
    z4=t40xy1   z5=t29xy7   z6=t42xy11  z7=t45xy17  z8=t41xy10  z9=t44xy12  z10=t37xy3  z11=t33xy4
    z12=t43xy13 z13=t40xy5  z14=t29xy2  z15=t42xy9  z16=t45xy14 z17=t41xy8
"""
_SBOX_BOTTOM = """
    t46=z15+z16 t47=z10+z11 t48=z5+z13  t49=z9+z10  t50=z2+z12  t51=z2+z5   t52=z7+z8   t53=z0+z3
    t54=z6+z7   t55=z16+z17 t56=z12+t48 t57=t50+t53 t58=z4+t46  t59=z3+t54  t60=t46+t57 t61=z14+t57
    t62=t52+t58 t63=t49+t58 t64=z4+t59  t65=t61+t62 t66=z1+t63  s0=t59+t63  s6=t56#t62  s7=t48#t60
    t67=t64+t65 s3=t53+t66  s4=t51+t66  s5=t47+t65  s1=t64#s3   s2=t55#t67
"""


def _parse(program: str) -> tuple[tuple[str, str, str, str], ...]:
    """Split a straight-line program into steps (result, left operand, operator, right operand)."""
    steps = []
    for step in program.split():
        result, value = step.split("=")
        # The first letter of an operand may itself be x, so the operator is looked for after it.
        index = next(i for i in range(1, len(value)) if value[i] in "+x#")
        steps.append((result, value[:index], value[index], value[index + 1 :]))
    return tuple(steps)


_SBOX = _parse(_SBOX_TOP + _SBOX_MIDDLE + _SBOX_BOTTOM)


def sbox(builder: Builder, byte: Sequence[Bit]) -> Bits:
    """Add gates that apply the AES S-box to 8 bits, the least significant first, with 32 AND gates."""
    named = {f"x{index}": bit for index, bit in enumerate(reversed(byte))}
    for result, left, operator, right in _SBOX:
        a, b = named[left], named[right]
        if operator == "x":
            named[result] = builder.and_(a, b)
        else:
            sum_ = builder.xor(a, b)
            named[result] = builder.not_(sum_) if operator == "#" else sum_
    return tuple(named[f"s{index}"] for index in range(7, -1, -1))


def encrypt(builder: Builder, key: Sequence[Bit], block: Sequence[Bit]) -> Bits:
    """Add gates that encrypt a block with AES-128, key schedule included, and return the output bits.

    Block and key are the integers that their bytes are in big-endian order, least significant bit first.
    """
    round_key = _split(key)
    state = [bitwise_xor(builder, a, b) for a, b in zip(_split(block), round_key, strict=True)]
    constant = 1
    for number in range(1, ROUNDS + 1):
        round_key = _next_key(builder, round_key, constant)
        constant = constant << 1 ^ (0x11B if constant & 0x80 else 0)
        state = [sbox(builder, byte) for byte in state]
        # ShiftRows: row r of column c comes from column c + r. Bytes run down the columns.
        state = [state[(index + 4 * (index % 4)) % BLOCK_BYTES] for index in range(BLOCK_BYTES)]
        if number < ROUNDS:
            columns = (_mix_column(builder, state[i : i + 4]) for i in range(0, BLOCK_BYTES, 4))
            state = [byte for column in columns for byte in column]
        state = [bitwise_xor(builder, a, b) for a, b in zip(state, round_key, strict=True)]
    return tuple(bit for byte in reversed(state) for bit in byte)


def meaning(key: int, block: int) -> tuple[int]:
    """Return the AES-128 encryption of a block as a tuple of one integer, by the library `cryptography`."""
    cipher = Cipher(algorithms.AES(key.to_bytes(BLOCK_BYTES, "big")), modes.ECB())  # noqa: S305  # one block
    return (int.from_bytes(cipher.encryptor().update(block.to_bytes(BLOCK_BYTES, "big")), "big"),)


def _split(value: Sequence[Bit]) -> list[Bits]:
    """Return the bytes of a big-endian integer given as bits, the most significant byte first."""
    return [tuple(value[8 * index : 8 * index + 8]) for index in range(BLOCK_BYTES - 1, -1, -1)]


def _next_key(builder: Builder, key: list[Bits], constant: int) -> list[Bits]:
    """Add gates for one step of the AES-128 key schedule, and return the next round key's bytes."""
    turned = [sbox(builder, byte) for byte in (*key[13:16], key[12])]
    turned[0] = bitwise_xor(builder, turned[0], builder.constant(constant, 8))
    result: list[Bits] = []
    for index, byte in enumerate(key):
        before = turned[index] if index < 4 else result[index - 4]
        result.append(bitwise_xor(builder, byte, before))
    return result


def _mix_column(builder: Builder, column: Sequence[Bits]) -> list[Bits]:
    """Add gates for AES MixColumns on one column of four bytes, and return the new column.

    2 a + 3 b + c + d = 2 (a + b) + b + (c + d).
    """
    pairs = [bitwise_xor(builder, column[row], column[(row + 1) % 4]) for row in range(4)]
    return [
        bitwise_xor(
            builder,
            _double(builder, pairs[row]),
            bitwise_xor(builder, column[(row + 1) % 4], pairs[(row + 2) % 4]),
        )
        for row in range(4)
    ]


def _double(builder: Builder, byte: Bits) -> Bits:
    """Add gates that multiply a byte by x in the AES field GF(2^8), and return the product's bits."""
    top = byte[7]
    shifted = (top, *byte[:7])
    return tuple(builder.xor(bit, top) if index in (1, 3, 4) else bit for index, bit in enumerate(shifted))
