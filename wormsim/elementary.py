"""Elementary functions that LLVM can vectorise, which libm's calls are not: polynomials after a reduction of the range."""

from math import factorial

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from .kernel import kernel

# pi in three parts, the first two of 31 bits, so that k times them is exact for |k| < 2**22.
_PI_1, _PI_2, _PI_3 = 3.1415926534682512, 1.215420100718692e-10, 5.825464112186712e-20
_ROUND = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest integer
# Taylor's coefficients of sin(x)/x and cos(x) in powers of x^2, the highest first.
_SINE = tuple((-1) ** n / factorial(2 * n + 1) for n in range(9, -1, -1))
_COSINE = tuple((-1) ** n / factorial(2 * n) for n in range(10, -1, -1))
# e^x where |x| < log(2) / 2, by the polynomial that meets it at Chebyshev's points.
_LOG_2 = np.log(2)
_E0, _E1, _E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9 = map(
    float, Chebyshev.interpolate(np.exp, 9, domain=(-_LOG_2 / 2, _LOG_2 / 2)).convert(kind=Polynomial).coef
)


@kernel(inline="always")
def sine_cosine(angle):
    """Sine and cosine, after taking off multiples of pi.

    With |r| <= pi/2 the first terms left out are below 3e-16.
    """
    k = (angle * (1 / np.pi) + _ROUND) - _ROUND
    r = ((angle - k * _PI_1) - k * _PI_2) - k * _PI_3
    half = (k * 0.5 + _ROUND) - _ROUND
    odd = k - 2.0 * half
    sign = 1.0 - 2.0 * odd * odd
    z = r * r
    sine, cosine = 0.0, 0.0
    for coefficient in _SINE:
        sine = sine * z + coefficient
    for coefficient in _COSINE:
        cosine = cosine * z + coefficient
    return sign * r * sine, sign * cosine


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
def exponential(x):
    """e^x to 1e-13 of itself, for |x| < 700."""
    shifted = x * (1 / _LOG_2) + _ROUND  # its last bits hold the nearest integer k
    r = x - (shifted - _ROUND) * _LOG_2
    # The terms of the polynomial are summed in pairs, which is quicker than one after the other.
    r2 = r * r
    low = (_E0 + r * _E1) + r2 * (_E2 + r * _E3)
    high = (_E4 + r * _E5) + r2 * (_E6 + r * _E7)
    r4 = r2 * r2
    y = low + r4 * (high + r4 * (_E8 + r * _E9))
    return np.int64(np.float64(y).view(np.int64) + (np.float64(shifted).view(np.int64) << 52)).view(np.float64)


@kernel(inline="always")
def logistic(x):
    """1 / (1 + e^-x), to 1e-13 of itself, for |x| < 700."""
    return 1.0 / (1.0 + exponential(-x))


@kernel(inline="always")
def reciprocals(a, b):
    """1 / a and 1 / b by one division, the slowest of a processor's operations."""
    both = 1.0 / (a * b)
    return both * b, both * a


@kernel(inline="always")
def logistics(x, y):
    """`logistic` of two numbers by one division, while their exponentials' product is finite; 0 for both where it is not."""
    return reciprocals(1.0 + exponential(-x), 1.0 + exponential(-y))


@kernel(inline="always")
def tanh(x):
    """Hyperbolic tangent, to 1e-13, for any x."""
    x = x if x < 20.0 else 20.0
    x = x if x > -20.0 else -20.0
    return 2.0 / (1.0 + exponential(-2.0 * x)) - 1.0
