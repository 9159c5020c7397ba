"""Between body and neurons: stretch opens conductances of the B neurons (w_s), and motor neurons drive the muscles (w_m).

Receptors are the B neurons DB1-7 and VB1-11, on their own side, and with `head` the SMD neurons, at unit 0. With sigma the
stretch of the units (`wormsim.stretch`) interpolated at the soma, and h = tanh(sigma / sigma_0), they get

    w_s g_s |h| (E_h - V) + w_s i_s sigma,      E_h = E_e if h > 0 else E_K,

and the B neurons moreover a tonic input and a plateau with gate m = 1 / (1 + exp(-(V - Veq - V_h) / k_p)):

    (g_on + g_p m) (E_e - V) + i_on + i_p m.

Muscles: dV = V - Veq of DB, DD, VB and VD is interpolated at the centres of the 12 units, x = tanh(w_m dV / V_s), and the drive
of a side is x_B - a_D x_D within its limits; activation follows as a' = (gain drive - a) / 0.1 s (Boyle, Berri & Cohen 2012).
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from wormsim import geometry as geo
from wormsim.blocks import LANES
from wormsim.elementary import PER_E, gate, tanh
from wormsim.kernel import kernel
from wormsim.stretch import SEGMENTS_PER_UNIT, UNIT_WEIGHTS, UNITS

from .connectome import NEURONS, index
from .neurons import CURRENT, MID, G

DORSAL, VENTRAL = 0, 1
MOTOR = (("DB", "DD"), ("VB", "VD"))  # exciting and inhibiting class of each side
HEAD = {"SMDDL": DORSAL, "SMDDR": DORSAL, "SMDVL": VENTRAL, "SMDVR": VENTRAL}
CENTRES = (np.arange(UNITS) + 0.5) / UNITS
MOST_ACTIVE = 3.0  # beyond it a worm has failed
RECEPTORS = 22
# Muscles, rows (side, segment) of lanes, in one flat array: activation, its mean over a step, and where it is driven to.
MUSCLES = 2 * geo.SEGMENTS * LANES
MEAN, TARGET = MUSCLES, 2 * MUSCLES
_GAIN = np.repeat(np.tile(geo.NEUROMUSCULAR_GAIN, 2), LANES)
_UNIT_GAIN = UNIT_WEIGHTS.max(axis=1)  # the same for all segments within a unit's reach
# Stretch of a side as long as a segment (not as its own rest length): where the original's dorsal factor changes.
_LIMIT = np.tile((geo.SEGMENT_LENGTH / geo.REST_LATERAL - 1) / geo.RELATIVE_WIDTH, 2)


class Coupling(NamedTuple):
    """What the kernel needs to know of receptors and muscles."""

    neuron: np.ndarray  # of each receptor
    unit: np.ndarray  # the two units of its side (receptor, 2) between which it lies
    weight: np.ndarray  # and their weights
    opening: np.ndarray  # pS: w_s g_s of each receptor
    pull: np.ndarray  # fA: w_s i_s
    bistable: np.ndarray  # 1 for those with a tonic input and a plateau
    inverse_sigma_0: float
    lengthening: float  # E_e, mV
    shortening: float  # E_K, mV
    tonic_conductance: float  # pS
    tonic_current: float  # fA
    plateau_conductance: float  # pS
    plateau_current: float  # fA
    plateau_middle: float  # V_h, mV
    plateau_slope: float  # 1/mV, of m = 1 / (1 + 2^(slope (V - middle)))
    dorsal_long: float
    dorsal_short: float
    motor_neuron: np.ndarray  # (side * unit, 4): the two exciting and the two inhibiting ones around its centre
    motor_weight: np.ndarray
    gain: float  # w_m / V_s, 1/mV
    inhibition: float
    least: float
    most: float
    linear: bool


def members(neuron_class: str) -> list[str]:
    """Names of a class of motor neurons, from head to tail."""
    return sorted((n for n in NEURONS if NEURONS[n].neuron_class == neuron_class), key=lambda name: NEURONS[name].position)


def _between(place: float, places: np.ndarray) -> tuple[tuple[int, int], tuple[float, float]]:
    """The two of some places, in order, between which a place lies, and their weights; beyond the ends, the last one alone."""
    right = int(np.clip(np.searchsorted(places, place), 1, len(places) - 1))
    share = float(np.clip((place - places[right - 1]) / (places[right] - places[right - 1]), 0, 1))
    return (right - 1, right), (1 - share, share)


@functools.cache
def _places() -> tuple[np.ndarray, ...]:
    """Of the receptors: neuron, units, their weights, bistable; of the muscles: motor neurons and their weights."""
    b_neurons = [(name, side) for side in (DORSAL, VENTRAL) for name in members(MOTOR[side][0])]
    receptors = [(name, side, *_between(NEURONS[name].position, CENTRES), 1.0) for name, side in b_neurons]
    receptors += [(name, side, (0, 0), (1.0, 0.0), 0.0) for name, side in HEAD.items()]
    names, sides, units, weights, bistable = zip(*receptors, strict=True)
    motor, motor_weight = np.empty((2 * UNITS, 4), dtype=np.uint64), np.empty((2 * UNITS, 4))
    for side in (DORSAL, VENTRAL):
        for kind, neuron_class in enumerate(MOTOR[side]):
            cells = members(neuron_class)
            places = np.array([NEURONS[name].position for name in cells])
            for unit, centre in enumerate(CENTRES):
                row, columns = side * UNITS + unit, slice(2 * kind, 2 * kind + 2)
                pair, motor_weight[row, columns] = _between(centre, places)
                motor[row, columns] = index([cells[k] for k in pair])
    both = np.array(units, dtype=np.uint64) + np.array(sides, dtype=np.uint64)[:, None] * np.uint64(UNITS)
    return index(names), both, np.array(weights), np.array(bistable), motor, motor_weight


def coupling(parameters: Mapping[str, Any], removed: np.ndarray) -> Coupling:
    """Receptors and muscles for the kernel; receptors of removed neurons feel nothing."""
    p = parameters
    neurons, units, weights, bistable, motor, motor_weight = _places()
    felt = p["w_s"] * np.where(bistable, 1.0, p["head"]) * ~removed[neurons]
    return Coupling(
        neurons,
        units,
        weights,
        opening=felt * p["g_s"],
        pull=1e3 * felt * p["i_s"],
        bistable=bistable * ~removed[neurons],
        inverse_sigma_0=1 / p["sigma_0"],
        lengthening=float(p["E_e"]),
        shortening=float(p["E_K"]),
        tonic_conductance=float(p["g_on"]),
        tonic_current=1e3 * p["i_on"],
        plateau_conductance=float(p["g_p"]),
        plateau_current=1e3 * p["i_p"],
        plateau_middle=float(p["V_h"]),
        plateau_slope=-PER_E / p["k_p"],
        dorsal_long=float(p["dorsal_long"]),
        dorsal_short=float(p["dorsal_short"]),
        motor_neuron=motor,
        motor_weight=motor_weight,
        gain=p["w_m"] / p["V_s"],
        inhibition=float(p["a_D"]),
        least=float(p["drive_min"]),
        most=float(p["drive_max"]),
        linear=p["linear"] > 0.5,
    )


# The kernels below work on a block of worms: rows of one number for each lane.


@kernel
def unit_sums(coupling, stretch, units):
    """Stretch of the units (side * unit, lane) from the segments' (side * segment, lane); after them is room for its sums."""
    long, short = coupling.dorsal_long, coupling.dorsal_short
    for side in range(2):
        above, below = (long, short) if side == DORSAL else (1.0, 1.0)
        for unit in range(UNITS):
            first = side * geo.SEGMENTS + SEGMENTS_PER_UNIT * unit
            a, b, c, d = stretch[first], stretch[first + 1], stretch[first + 2], stretch[first + 3]
            la, lb, lc, ld = _LIMIT[first], _LIMIT[first + 1], _LIMIT[first + 2], _LIMIT[first + 3]
            o = units[2 * UNITS + unit]
            for i in range(LANES):
                o[i] = (a[i] * (above if a[i] > la else below) + b[i] * (above if b[i] > lb else below)) + (
                    c[i] * (above if c[i] > lc else below) + d[i] * (above if d[i] > ld else below)
                )
        # A unit feels its own group and the next five; beyond the tail there are rows of zeros.
        for unit in range(UNITS):
            g, gain = 2 * UNITS + unit, _UNIT_GAIN[unit]
            a, b, c, d, e, f = units[g], units[g + 1], units[g + 2], units[g + 3], units[g + 4], units[g + 5]
            o = units[side * UNITS + unit]
            for i in range(LANES):
                o[i] = gain * (((a[i] + b[i]) + (c[i] + d[i])) + (e[i] + f[i]))


@kernel
def sense(coupling, units, received):
    """What the receptors' neurons get from stretch: rows (receptor, conductance and current)."""
    lengthening, shortening, scale = coupling.lengthening, coupling.shortening, coupling.inverse_sigma_0
    for k in range(RECEPTORS):
        opening, pull = coupling.opening[k], coupling.pull[k]
        a, b = units[coupling.unit[k, 0]], units[coupling.unit[k, 1]]
        wa, wb = coupling.weight[k, 0], coupling.weight[k, 1]
        felt = received[k]
        for i in range(LANES):
            sigma = wa * a[i] + wb * b[i]
            h = tanh(scale * sigma)
            felt[i] = opening * abs(h)
            felt[LANES + i] = opening * abs(h) * (lengthening if h > 0.0 else shortening) + pull * sigma


@kernel
def excite(coupling, equilibrium, received, work):
    """Add the receptors' inputs, with tonic drive and plateau at the present voltage."""
    tonic_g, tonic_i = coupling.tonic_conductance, coupling.tonic_current
    plateau_g, plateau_i = coupling.plateau_conductance, coupling.plateau_current
    half, slope = coupling.plateau_middle, coupling.plateau_slope
    reversal = coupling.lengthening
    for k in range(RECEPTORS):
        n = coupling.neuron[k]
        r, felt = work[n * LANES :], received[k]
        middle, on = equilibrium[n] + half, coupling.bistable[k]
        for i in range(LANES):
            m = gate(slope * (r[MID + i] - middle))
            own = on * (tonic_g + plateau_g * m)
            r[G + i] += felt[i] + own
            r[CURRENT + i] += felt[LANES + i] + own * reversal + on * (tonic_i + plateau_i * m)


@kernel
def drive(coupling, equilibrium, rows, share, muscles):
    """Move activations towards the motor neurons' drive, and give their means over the step; voltages come first in rows.

    Says whether an activation is out of bounds or not a number.
    """
    low, high = coupling.least, coupling.most
    gain, inhibition, linear = coupling.gain, coupling.inhibition, coupling.linear
    for unit in range(2 * UNITS):
        neuron, weight, m = (
            coupling.motor_neuron[unit],
            coupling.motor_weight[unit],
            muscles[SEGMENTS_PER_UNIT * unit * LANES :],
        )
        v1, v2, v3, v4 = rows[neuron[0]], rows[neuron[1]], rows[neuron[2]], rows[neuron[3]]
        w1, w2, w3, w4 = gain * weight[0], gain * weight[1], gain * weight[2], gain * weight[3]
        rest_b = w1 * equilibrium[neuron[0]] + w2 * equilibrium[neuron[1]]
        rest_d = w3 * equilibrium[neuron[2]] + w4 * equilibrium[neuron[3]]
        for i in range(LANES):
            b = w1 * v1[i] + w2 * v2[i] - rest_b
            d = w3 * v3[i] + w4 * v4[i] - rest_d
            x = b - inhibition * d if linear else tanh(b) - inhibition * tanh(d)
            x = x if x > low else low
            x = x if x < high else high
            m[TARGET + i] = m[TARGET + LANES + i] = m[TARGET + 2 * LANES + i] = m[TARGET + 3 * LANES + i] = x
    bad = False
    for k in range(MUSCLES):
        new = muscles[k] + share * (_GAIN[k] * muscles[TARGET + k] - muscles[k])
        muscles[MEAN + k] = 0.5 * (muscles[k] + new)
        muscles[k] = new
        bad |= not abs(new) < MOST_ACTIVE
    return bad
