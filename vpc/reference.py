"""The same worm in plain numpy, slow and obvious: the kernel's oracle.

The equations stand in `neurons.py` and `coupling.py`; here they are written out once more, for one worm, over all 302 neurons,
with numpy's own functions. Only the body is `wormsim`'s, which has an oracle of its own.
"""

from typing import Any, NamedTuple

import numpy as np

import wormsim
from wormsim import geometry as geo
from wormsim.stretch import segment_stretch

from . import neurons
from .connectome import NEURONS, index
from .coupling import CENTRES, HEAD, MOTOR, members
from .neurons import STEEP, STEP, of
from .worm import Worm

STILL = np.zeros((2, len(CENTRES)))  # unit stretch of a straight body


class State(NamedTuple):
    """One worm."""

    voltage: np.ndarray  # (302,), mV
    calcium: np.ndarray  # (302,), uM
    body: wormsim.Body
    muscle: np.ndarray  # (2, 48)


def _logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _intact(worm: Worm) -> np.ndarray:
    return ~np.isin(list(NEURONS), worm.ablated)


def middle(worm: Worm) -> np.ndarray:
    """Where every neuron's synapses are half open, mV."""
    return np.where(_intact(worm), worm.equilibrium.values, of(worm.parameters, "E_leak"))


def unit_stretch(worm: Worm, body: np.ndarray) -> np.ndarray:
    """What the units feel (side, unit) of a body (49, 3)."""
    p: Any = worm.parameters
    stretch = segment_stretch(body)
    length = (stretch[0] * geo.RELATIVE_WIDTH + 1) * geo.REST_LATERAL
    stretch[0] *= np.where(length > geo.SEGMENT_LENGTH, p["dorsal_long"], p["dorsal_short"])
    return wormsim.unit_stretch(stretch)


def conductance_and_current(
    worm: Worm, voltage: np.ndarray, stretch: np.ndarray = STILL, current: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """g in pS and I in fA of all neurons, so that C dV/dt = I - g V; the injected current is in pA."""
    p: Any = worm.parameters
    intact = _intact(worm)
    synapse, gap, reversal = neurons.conductances(worm.connectome, worm.parameters)
    both = np.outer(intact, intact)
    synapse, gap = synapse * both, gap * both
    s = _logistic(STEEP * of(p, "steep") * (voltage - middle(worm)))
    leak = of(p, "g_leak")
    g = leak + gap.sum(axis=1) + synapse @ s
    i = leak * of(p, "E_leak") + gap @ voltage + synapse @ (reversal * s) + 1e3 * np.broadcast_to(current, len(s))

    bistable = [(name, side) for side in (0, 1) for name in members(MOTOR[side][0])]
    felt = {name: (np.interp(NEURONS[name].position, CENTRES, stretch[side]), p["w_s"]) for name, side in bistable}
    felt |= {name: (stretch[side, 0], p["head"] * p["w_s"]) for name, side in HEAD.items()}
    for name, (sigma, weight) in felt.items():
        n = index(name)[0]
        if not intact[n]:
            continue
        h = np.tanh(sigma / p["sigma_0"])
        g[n] += weight * p["g_s"] * abs(h)
        i[n] += weight * (p["g_s"] * abs(h) * (p["E_e"] if h > 0 else p["E_K"]) + 1e3 * p["i_s"] * sigma)
        if name not in HEAD:
            m = _logistic((voltage[n] - middle(worm)[n] - p["V_h"]) / p["k_p"])
            g[n] += p["g_on"] + p["g_p"] * m
            i[n] += (p["g_on"] + p["g_p"] * m) * p["E_e"] + 1e3 * (p["i_on"] + p["i_p"] * m)
    return g, i


def derivative(worm: Worm, voltage: np.ndarray, current: np.ndarray | float = 0.0, stretch: np.ndarray = STILL) -> np.ndarray:
    """dV/dt (302,) in mV/s, with an injected current (302,) in pA and the stretch that the units feel (side, unit)."""
    g, i = conductance_and_current(worm, voltage, stretch, current)
    return (i - g * voltage) / of(worm.parameters, "C")


def relaxed(worm: Worm, voltage: np.ndarray, h: float, g: np.ndarray, i: np.ndarray) -> np.ndarray:
    """Voltages after a time h under constant g and I, by the rational function of `neurons.py`."""
    scale = h / of(worm.parameters, "C")
    z = scale * g
    return (voltage + scale * i * (1 + z / 2 + z**2 / 6 + z**3 / 24)) / (1 + z + z**2 / 2 + z**3 / 6 + z**4 / 24)


def voltage_step(worm: Worm, voltage: np.ndarray, current: np.ndarray | float = 0.0, stretch: np.ndarray = STILL) -> np.ndarray:
    """Voltages one step of 10 ms later."""
    mid = relaxed(worm, voltage, STEP / 2, *conductance_and_current(worm, voltage, stretch, current))
    return relaxed(worm, voltage, STEP, *conductance_and_current(worm, mid, stretch, current))


def drive(worm: Worm, voltage: np.ndarray) -> np.ndarray:
    """What the motor neurons want of the muscles (side, segment)."""
    p: Any = worm.parameters
    depolarisation = voltage - middle(worm)

    def x(neuron_class: str) -> np.ndarray:
        names = members(neuron_class)
        values = np.interp(CENTRES, [NEURONS[name].position for name in names], depolarisation[index(names)])
        return p["w_m"] * values / p["V_s"] if p["linear"] > 0.5 else np.tanh(p["w_m"] * values / p["V_s"])

    sides = [np.clip(x(b) - p["a_D"] * x(d), p["drive_min"], p["drive_max"]) for b, d in MOTOR]
    return np.repeat(sides, geo.SEGMENTS // len(CENTRES), axis=1)


def step(worm: Worm, state: State, current: np.ndarray | float = 0.0) -> State:
    """A worm 10 ms later, without noise."""
    p: Any = worm.parameters
    voltage = voltage_step(worm, state.voltage, current, unit_stretch(worm, state.body.state[0]))
    target = neurons.calcium_target(voltage, p)
    calcium = target + (state.calcium - target) * np.exp(-STEP / of(p, "tau_c"))
    goal = geo.NEUROMUSCULAR_GAIN * drive(worm, voltage)
    muscle = goal + (state.muscle - goal) * np.exp(-STEP / geo.MUSCLE_TIME)
    state.body.step((state.muscle + muscle)[None] / 2, STEP)
    return State(voltage, calcium, state.body, muscle)
