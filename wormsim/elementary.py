"""Elementary functions that LLVM can vectorise, which libm's calls are not: polynomials after a reduction of the range."""

from math import factorial

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from .kernel import kernel

# pi in three parts, the first two of 31 bits, so that k times them is exact for |k| < 2**22.
_PI_1, _PI_2, _PI_3 = 3.1415926534682512, 1.215420100718692e-10, 5.825464112186712e-20
_ROUND = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest integer


def _shortened(series: list[float], top: float, terms: int) -> list[float]:
    """A series in z, 0 <= z <= top, of fewer terms: highest powers make room for what is nearest to them in lower ones."""
    coefficients = np.array(series)
    while len(coefficients) > terms:
        least = Chebyshev.basis(len(coefficients) - 1, domain=(0, top)).convert(kind=Polynomial).coef
        coefficients = (coefficients - coefficients[-1] / least[-1] * least)[:-1]
    return coefficients.tolist()


# sin(x)/x and cos(x), |x| <= pi/2, in powers of x^2: Taylor's series to 1e-20, shortened.
_S0, _S1, _S2, _S3, _S4, _S5, _S6, _S7 = _shortened([(-1) ** n / factorial(2 * n + 1) for n in range(13)], np.pi**2 / 4, 8)
_C0, _C1, _C2, _C3, _C4, _C5, _C6, _C7, _C8 = _shortened([(-1) ** n / factorial(2 * n) for n in range(13)], np.pi**2 / 4, 9)
# 2^x where |x| < 1/2, by the polynomial that meets it at Chebyshev's points.
_P0, _P1, _P2, _P3, _P4, _P5, _P6, _P7, _P8, _P9 = map(
    float, Chebyshev.interpolate(np.exp2, 9, domain=(-0.5, 0.5)).convert(kind=Polynomial).coef
)
PER_E = 1 / np.log(2)  # e^x is 2^(PER_E x)


@kernel(inline="always")
def _with_sign(x, sign):
    """x, or -x where the highest bit of an integer says so."""
    return np.int64(np.float64(x).view(np.int64) ^ sign).view(np.float64)


@kernel(inline="always")
def sine_cosine(angle):
    """Sine and cosine to 6e-16, after taking off the nearest multiple of pi; odd ones change the sign."""
    shifted = angle * (1 / np.pi) + _ROUND  # its last bits hold the multiple
    k = shifted - _ROUND
    r = ((angle - k * _PI_1) - k * _PI_2) - k * _PI_3
    sign = np.int64(np.float64(shifted).view(np.int64) << 63)
    z = r * r
    y = z * z  # even and odd powers of z apart: two short sums are quicker than a long one
    sine = (_S0 + y * (_S2 + y * (_S4 + y * _S6))) + z * (_S1 + y * (_S3 + y * (_S5 + y * _S7)))
    cosine = (_C0 + y * (_C2 + y * (_C4 + y * (_C6 + y * _C8)))) + z * (_C1 + y * (_C3 + y * (_C5 + y * _C7)))
    return _with_sign(r * sine, sign), _with_sign(cosine, sign)


@kernel(inline="always")
def inverse_root(x):
    """1 / sqrt(x) without the processor's slow division and root, to 8e-16 for normal x > 0.

    Halving the exponent as an integer gives a first guess y, good to 4 %; with e = 1 - x y^2 the rest is Taylor's series of
    (1 - e)^(-1/2), twice.
    """
    y = np.int64(np.int64(0x5FE6EB50C7B537A9) - (np.float64(x).view(np.int64) >> 1)).view(np.float64)
    e = 1.0 - x * y * y
    y = y * (1.0 + e * (0.5 + e * (0.375 + e * 0.3125)))
    e = 1.0 - x * y * y
    return y * (1.0 + e * (0.5 + e * 0.375))


@kernel(inline="always")
def power_of_two(x):
    """2^x to 1e-13 of itself, for |x| < 1000."""
    shifted = x + _ROUND  # its last bits hold the nearest integer
    r = x - (shifted - _ROUND)
    z = r * r
    y = (_P0 + z * (_P2 + z * (_P4 + z * (_P6 + z * _P8)))) + r * (_P1 + z * (_P3 + z * (_P5 + z * (_P7 + z * _P9))))
    return np.int64(np.float64(y).view(np.int64) + (np.float64(shifted).view(np.int64) << 52)).view(np.float64)


@kernel(inline="always")
def gate(x):
    """1 / (1 + 2^x), to 1e-13 of itself, for |x| < 1000: 1 / (1 + e^-u) where x = -PER_E u."""
    return 1.0 / (1.0 + power_of_two(x))


@kernel(inline="always")
def reciprocals(a, b):
    """1 / a and 1 / b by one division, the slowest of a processor's operations."""
    both = 1.0 / (a * b)
    return both * b, both * a


@kernel(inline="always")
def gates(x, y):
    """`gate` of two numbers by one division, while their powers' product is finite; 0 for both where it is not."""
    return reciprocals(1.0 + power_of_two(x), 1.0 + power_of_two(y))


@kernel(inline="always")
def tanh(x):
    """Hyperbolic tangent, to 1e-13, for any x."""
    x = x if x < 20.0 else 20.0
    x = x if x > -20.0 else -20.0
    return 2.0 * gate(-2.0 * PER_E * x) - 1.0
