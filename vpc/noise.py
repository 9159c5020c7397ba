"""Random numbers that depend on nothing but where they are used: the same for any number of threads and any block width.

Philox4x32-7 (Salmon et al. 2011, Proc. SC11) scrambles a counter of four words under a key of two, in seven rounds, the fewest
with which it passes all of BigCrush. The counter is (slot, step, group of four neurons, stream), the key comes from the seed,
and Box & Muller's formula makes four Gaussians of four words.
"""

from math import factorial

import numpy as np

from wormsim.blocks import LANES
from wormsim.kernel import aligned, kernel

PROCESS, START = 0, 1  # streams: noise of the voltages, and voltages to begin with

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_ROOT_HALF, _MANTISSA = np.int32(0x3F3504F3), np.int32(0x007FFFFF)  # bits of a float32
# Taylor's coefficients of artanh(x)/x, sin(x)/x and cos(x) in powers of x^2, the highest first.
_ARTANH = tuple(np.float32(1 / (2 * n + 1)) for n in range(4, -1, -1))
_SINE = tuple(np.float32((-1) ** n / factorial(2 * n + 1)) for n in range(4, -1, -1))
_COSINE = tuple(np.float32((-1) ** n / factorial(2 * n)) for n in range(4, -1, -1))
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def key(seed: int) -> np.ndarray:
    """Two words that stand for a seed."""
    return np.random.SeedSequence(seed).generate_state(2, np.uint32).astype(np.uint64)


@kernel(inline="always")
def philox(c0, c1, c2, c3, k0, k1):
    """Four random words of 32 bits for a counter and a key, all of them held in 64 bits."""
    c0, c1, c2, c3, k0, k1 = c0 & _LOW, c1 & _LOW, c2 & _LOW, c3 & _LOW, k0 & _LOW, k1 & _LOW  # tells LLVM that they are short
    for _ in range(7):
        p0, p1 = c0 * _MULTIPLY_0, c2 * _MULTIPLY_1
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _LOW, (p0 >> _HALF) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _WEYL_0) & _LOW, (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


@kernel(inline="always")
def _polar(radius_word, angle_word):
    """Two Gaussians of two words by Box & Muller's formula, in single precision: more would be lost in noise."""
    # log u, where u = 2^k m is in (0, 1) and 0.7 < m < 1.4, by the series of artanh((m - 1)/(m + 1)).
    u = (np.float32(radius_word) + np.float32(0.5)) * np.float32(2.0**-32)
    bits = np.int32(np.float32(u).view(np.int32) - _ROOT_HALF)  # numba would go on in 64 bits
    m = np.int32((bits & _MANTISSA) + _ROOT_HALF).view(np.float32)
    s = (m - np.float32(1)) / (m + np.float32(1))
    z = s * s
    series = _ARTANH[0]
    for coefficient in _ARTANH[1:]:
        series = series * z + coefficient
    logarithm = np.float32(2) * s * series + np.float32(np.log(2)) * np.float32(np.int32(bits >> np.int32(23)))
    radius = np.sqrt(np.float32(-2) * (logarithm if logarithm < np.float32(0) else np.float32(0)))

    # The angle's first two bits choose a quadrant, the others a place in it, from -pi/4 to pi/4.
    place = np.int32(np.int32(angle_word & np.uint32(0x3FFFFFFF)) - np.int32(2**29))
    x = (np.float32(place) + np.float32(0.5)) * np.float32(0.5 * np.pi * 2.0**-30)
    z = x * x
    sine, cosine = _SINE[0], _COSINE[0]
    for coefficient in _SINE[1:]:
        sine = sine * z + coefficient
    for coefficient in _COSINE[1:]:
        cosine = cosine * z + coefficient
    sine = sine * x
    odd = (angle_word & np.uint32(0x40000000)) != np.uint32(0)
    radius = -radius if angle_word >= np.uint32(0x80000000) else radius
    return radius * (sine if odd else cosine), radius * (cosine if odd else -sine)


@kernel
def gaussians(out, slots, step, stream, key):
    """Fill rows of lanes, four at a time, with standard Gaussians that depend only on slot, step, stream and key.

    Words first, then Gaussians in their place, then these in double precision: each pass is as wide as its numbers allow.
    """
    k0, k1 = key[0], key[1]
    words = aligned(len(out) // 2).view(np.uint32)
    singles = words.view(np.float32)
    for group in range(len(out) // (4 * LANES)):
        w = words[4 * group * LANES : 4 * (group + 1) * LANES]
        for i in range(LANES):
            w0, w1, w2, w3 = philox(slots[i], np.uint64(step), np.uint64(group), np.uint64(stream), k0, k1)
            w[i], w[LANES + i], w[2 * LANES + i], w[3 * LANES + i] = np.uint32(w0), np.uint32(w2), np.uint32(w1), np.uint32(w3)
    for group in range(len(out) // (4 * LANES)):
        w, r = words[4 * group * LANES : 4 * (group + 1) * LANES], singles[4 * group * LANES : 4 * (group + 1) * LANES]
        for i in range(2 * LANES):
            r[i], r[2 * LANES + i] = _polar(w[i], w[2 * LANES + i])
    for i in range(len(out)):
        out[i] = singles[i]
