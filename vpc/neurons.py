"""Voltage and calcium of 302 neurons: conductances, equilibrium, and the step of a block of worms.

With all conductances in pS, voltages in mV and currents in fA (pS x mV), neuron i follows

    C dV_i/dt = I_i - g_i V_i
    g_i = g_leak + sum_j gap_ij + sum_j syn_ij s_j + (inputs)
    I_i = g_leak E_leak + sum_j gap_ij V_j + sum_j syn_ij E_j s_j + (inputs)
    s_j = 1 / (1 + exp(-k_j (V_j - Veq_j)))
    dc_i/dt = (c_min + c_range / (1 + exp(-(V_i - V_c) / k_c)) - c_i) / tau_c

where Veq is the voltage at which every s is 1/2. A step of length h is an exponential midpoint rule: g and I at the start take
every neuron to the middle, g and I there take it from the start to the end, each time as if they were constant,

    V(h) = V + (h/C) (I - g V) (1 + z/2 + z^2/6 + z^3/24) / (1 + z + z^2/2 + z^3/6 + z^4/24),   z = h g / C,

which is V_inf + (V - V_inf) e^-z with e^z to fourth order: second order in h, stable for any g, and without memory.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from wormsim.blocks import LANES
from wormsim.elementary import PER_E, gate, gates, reciprocals
from wormsim.kernel import kernel

from .connectome import NEURONS, Connectome
from .matrices import solve
from .parameters import PARAMETERS, Value, per_neuron

N = len(NEURONS)
STEP = 0.01  # s
STEEP = 4.39 / 35  # 1/mV: steepness of synaptic activation where `steep` is 1 (Wicks et al. 1996)
HIGHEST = 250.0  # mV: beyond it a worm has failed
SIGNS = np.array([neuron.sign for neuron in NEURONS.values()])


# What the kernels work on, in one flat array, so that LLVM sees that its parts do not overlap: for every neuron a row of lanes
# of voltage, calcium, voltage in mid-step, s, conductance and current; when s has done its work, Gaussians take its place. They
# come in fours, hence the rounding.
PART = 4 * -(-N // 4) * LANES
V, CALCIUM, MID, S, G, CURRENT = [PART * part for part in range(6)]
GAUSSIAN = S
WORK = 6 * PART
END = np.uint32(2**32 - 1)  # in the place of a row: there are no more entries in this row of a sparse matrix


class Circuit(NamedTuple):
    """What the kernels need to know of the neurons: sparse matrices for `sum_up`, and numbers for each of them.

    Logistic functions are powers of two: s = 1 / (1 + 2^(slope V + offset)), and so is the rise of calcium.
    """

    conductance_where: np.ndarray  # row of the work, each of them an s
    conductance_weight: np.ndarray  # pS
    current_where: np.ndarray  # an s or a V
    current_weight: np.ndarray  # fA, or pS
    conductance: np.ndarray  # pS, that is there at all times
    current: np.ndarray  # fA, the same
    rate: np.ndarray  # 1/C, in 1/(s pS)
    equilibrium: np.ndarray  # mV, where s is 1/2
    slope: np.ndarray  # 1/mV
    offset: np.ndarray
    calcium_slope: np.ndarray  # 1/mV
    calcium_offset: np.ndarray
    calcium_min: np.ndarray  # uM
    calcium_range: np.ndarray  # uM
    calcium_share: np.ndarray  # of the way to its target that calcium goes in a step


def of(parameters: Mapping[str, Value], name: str) -> np.ndarray:
    """A parameter for each neuron."""
    return per_neuron(parameters[name], PARAMETERS[name].default)


def conductances(connectome: Connectome, parameters: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Synapses (to, from) and gap junctions in pS, and the reversal potential (from) of the synapses in mV."""
    strength = np.where(SIGNS < 0, parameters["r_inh"], 1.0) * of(parameters, "g_syn")
    reversal = np.where(SIGNS < 0, parameters["E_inh"], parameters["E_exc"])
    return (strength[:, None] * connectome.chemical).T, parameters["g_gap"] * connectome.gap, reversal


def equilibrium(connectome: Connectome, parameters: Mapping[str, Value]) -> np.ndarray:
    """Veq: where the currents balance when every synapse is half open, mV."""
    synapse, gap, reversal = conductances(connectome, parameters)
    leak = of(parameters, "g_leak")
    matrix = np.diag(leak + gap.sum(axis=1) + synapse.sum(axis=1) / 2) - gap
    currents = leak * of(parameters, "E_leak") + (synapse * reversal).sum(axis=1) / 2
    solve(matrix, currents[:, None])  # in place; LAPACK's threads would go on spinning for a while, and round in their own way
    return currents


def calcium_target(voltage: np.ndarray, parameters: Mapping[str, Value]) -> np.ndarray:
    """c_inf (..., neuron), uM: the calcium that belongs to a voltage in mV."""
    rise = 1 / (1 + np.exp(-(voltage - of(parameters, "V_c")) / of(parameters, "k_c")))
    return of(parameters, "c_min") + of(parameters, "c_range") * rise


def fluorescence(calcium: np.ndarray, parameters: Mapping[str, Value]) -> np.ndarray:
    """F c / (c + Kd) + D of calcium (..., neuron) in uM."""
    return of(parameters, "F") * calcium / (calcium + of(parameters, "Kd")) + of(parameters, "D")


def sparse_rows(matrix: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The entries of a matrix that are not 0, row by row, for `sum_up`: where (the places of its columns), and weight."""
    rows, columns = np.nonzero(matrix)
    ends = np.searchsorted(rows, np.arange(len(matrix)), side="right")
    return np.insert(places[columns].astype(np.uint32), ends, END), np.insert(matrix[rows, columns], ends, 0)


def _rows(*matrices: tuple[np.ndarray, int]) -> tuple[np.ndarray, np.ndarray]:
    """Entries of matrices that act on some part of the work, side by side."""
    places = np.concatenate([part // LANES + np.arange(N) for _, part in matrices])
    return sparse_rows(np.hstack([matrix for matrix, _ in matrices]), places)


def circuit(connectome: Connectome, parameters: Mapping[str, Value], removed: np.ndarray, middle: np.ndarray) -> Circuit:
    """The neurons for the kernel, some of them removed, with synapses half open at the voltages `middle`."""
    synapse, gap, reversal = conductances(connectome, parameters)
    for matrix in (synapse, gap):
        matrix[removed] = 0
        matrix[:, removed] = 0
    leak, resting = of(parameters, "g_leak"), of(parameters, "E_leak")
    middle = np.where(removed, resting, middle)
    slope, calcium_slope = -PER_E * STEEP * of(parameters, "steep"), -PER_E / of(parameters, "k_c")
    return Circuit(
        *_rows((synapse, S)),
        *_rows((synapse * reversal, S), (gap, MID)),
        conductance=leak + gap.sum(axis=1),
        current=leak * resting,
        rate=np.where(removed, 0, 1 / of(parameters, "C")),  # nothing charges what has been removed
        equilibrium=middle,
        slope=slope,
        offset=-slope * middle,
        calcium_slope=calcium_slope,
        calcium_offset=-calcium_slope * of(parameters, "V_c"),
        calcium_min=of(parameters, "c_min"),
        calcium_range=of(parameters, "c_range"),
        calcium_share=1 - np.exp(-STEP / of(parameters, "tau_c")),
    )


# The kernels below do the work of one block of worms; some take neurons in pairs, which share a division.


@kernel
def activate(circuit, work):
    """Open the synapses: s at the voltages of mid-step."""
    for n in range(0, N, 2):
        r, slope, next_slope = work[n * LANES :], circuit.slope[n], circuit.slope[n + 1]
        offset, next_offset = circuit.offset[n], circuit.offset[n + 1]
        for i in range(LANES):
            k = LANES + i
            r[S + i], r[S + k] = gates(slope * r[MID + i] + offset, next_slope * r[MID + k] + next_offset)


@kernel
def sum_up(where, weight, constant, rows, out):
    """out = constant + (sparse matrix) (rows), all of them rows of lanes.

    The 16 sums have names, because LLVM keeps them in registers then. That a row of the matrix ends by END, and not after a
    number of entries that is known, keeps LLVM from unrolling its loop, which most rows are too short for.
    """
    first = np.uint64(0)
    for n in range(len(constant)):
        for p in range(0, LANES, 16):
            a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = a8 = a9 = a10 = a11 = a12 = a13 = a14 = a15 = constant[n]
            entry = first
            while where[entry] != END:
                w, r = weight[entry], rows[np.uint64(where[entry])]  # unsigned numbers index faster
                a0, a1, a2, a3 = a0 + w * r[p], a1 + w * r[p + 1], a2 + w * r[p + 2], a3 + w * r[p + 3]
                a4, a5, a6, a7 = a4 + w * r[p + 4], a5 + w * r[p + 5], a6 + w * r[p + 6], a7 + w * r[p + 7]
                a8, a9, a10, a11 = a8 + w * r[p + 8], a9 + w * r[p + 9], a10 + w * r[p + 10], a11 + w * r[p + 11]
                a12, a13, a14, a15 = a12 + w * r[p + 12], a13 + w * r[p + 13], a14 + w * r[p + 14], a15 + w * r[p + 15]
                entry += np.uint64(1)
            o = out[n]
            o[p], o[p + 1], o[p + 2], o[p + 3], o[p + 4], o[p + 5], o[p + 6], o[p + 7] = a0, a1, a2, a3, a4, a5, a6, a7
            o[p + 8], o[p + 9], o[p + 10], o[p + 11] = a8, a9, a10, a11
            o[p + 12], o[p + 13], o[p + 14], o[p + 15] = a12, a13, a14, a15
        first = entry + np.uint64(1)


@kernel(inline="always")
def _gain(z):
    """(e^z - 1) / z, with e^z to fourth order."""
    return 1.0 + z * (1 / 2 + z * (1 / 6 + z * (1 / 24)))


@kernel
def relax(h, rate, work):
    """Let every voltage relax for a time h under its conductance and current; one that nothing can charge stays, exactly."""
    for n in range(0, N, 2):
        r, scale, next_scale = work[n * LANES :], h * rate[n], h * rate[n + 1]
        for i in range(LANES):
            k = LANES + i
            z, next_z = scale * r[G + i], next_scale * r[G + k]
            gain, next_gain = _gain(z), _gain(next_z)
            left, next_left = reciprocals(1.0 + z * gain, 1.0 + next_z * next_gain)
            r[MID + i] = r[V + i] + scale * (r[CURRENT + i] - r[G + i] * r[V + i]) * gain * left
            r[MID + k] = r[V + k] + next_scale * (r[CURRENT + k] - r[G + k] * r[V + k]) * next_gain * next_left


@kernel
def keep(circuit, noise, work):
    """End a step: add noise, let calcium follow, and say whether a voltage is out of bounds or not a number."""
    bad = False
    for n in range(N):
        r, sd, share = work[n * LANES :], noise[n], circuit.calcium_share[n]
        low, span, slope = circuit.calcium_min[n], circuit.calcium_range[n], circuit.calcium_slope[n]
        offset = circuit.calcium_offset[n]
        for i in range(LANES):
            new = r[MID + i] + sd * r[GAUSSIAN + i]
            r[V + i] = r[MID + i] = new
            r[CALCIUM + i] += share * (low + span * gate(slope * new + offset) - r[CALCIUM + i])
            bad |= not abs(new) < HIGHEST
    return bad
