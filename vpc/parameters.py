"""Every number that the simulator lets one set: its default, unit, limits and meaning, and the variants that go by a name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from wormsim import check

from .connectome import NEURONS, find, index, nearest

__all__ = ["PARAMETERS", "VARIANTS", "Parameter", "Value", "changed", "checked", "defaults", "per_neuron", "plain"]

Value = float | Mapping[str, float]  # one number, or {neurons: number}


class Parameter(NamedTuple):
    """One number of the model; `each` says that every neuron may have its own."""

    default: float
    unit: str
    low: float
    high: float
    meaning: str
    each: bool = False


PARAMETERS = {
    # Membranes: Wicks et al. 1996, Kunert et al. 2014, and OpenWorm's SCE.
    "C": Parameter(10, "pF", 0.1, 1000, "capacitance of a membrane", True),
    "g_leak": Parameter(100, "pS", 1, 1e5, "leak conductance", True),
    "E_leak": Parameter(-35, "mV", -120, 60, "leak reversal potential", True),
    "g_syn": Parameter(10, "pS", 0, 1e4, "conductance of one fully open synapse that a neuron makes", True),
    "g_gap": Parameter(5, "pS", 0, 1e4, "conductance of one gap junction"),
    "E_exc": Parameter(0, "mV", -120, 120, "reversal potential of excitatory synapses"),
    "E_inh": Parameter(-45, "mV", -120, 60, "reversal potential of GABA synapses"),
    "r_inh": Parameter(0.5, "1", 0, 100, "conductance of a GABA synapse, as a share of an excitatory one's"),
    "steep": Parameter(1, "1", 0.01, 10, "steepness of synaptic activation; 1 is 4.39 / 35 mV", True),
    # Calcium and fluorescence: after Rahmati et al. 2016.
    "c_min": Parameter(0.05, "uM", 0, 10, "calcium at a very negative voltage", True),
    "c_range": Parameter(1, "uM", 0, 100, "how much calcium rises from there to a very positive voltage", True),
    "V_c": Parameter(-20, "mV", -120, 60, "voltage at which calcium has risen by half", True),
    "k_c": Parameter(10, "mV", 1, 100, "width of that rise", True),
    "tau_c": Parameter(0.5, "s", 0.01, 100, "time constant of calcium", True),
    "F": Parameter(10, "1", 1e-3, 1e6, "fluorescence when the indicator is saturated", True),
    "Kd": Parameter(1, "uM", 1e-3, 1e3, "calcium at which it is half saturated", True),
    "D": Parameter(0, "1", -1e6, 1e6, "background fluorescence", True),
    # From stretch to neurons: conductances into the B neurons (and, by stretch only, the head's SMD).
    "w_s": Parameter(10.3, "1", 0, 1000, "how strongly stretch drives the B neurons"),
    "g_s": Parameter(30, "pS", 0, 1e4, "stretch conductance for each unit of w_s, fully open"),
    "sigma_0": Parameter(0.6, "1", 0.01, 100, "stretch at which it opens by tanh(1)"),
    "head": Parameter(1, "1", 0, 100, "stretch conductance of SMD, as a share of the B neurons'"),
    "E_e": Parameter(0, "mV", -120, 120, "reversal potential of tonic, plateau and lengthening conductances"),
    "E_K": Parameter(-70, "mV", -120, 60, "reversal potential of the shortening conductance"),
    "g_on": Parameter(30, "pS", 0, 1e4, "tonic conductance"),
    "g_p": Parameter(550, "pS", 0, 1e5, "plateau conductance, fully open"),
    "V_h": Parameter(9, "mV", -100, 100, "depolarisation at which the plateau is half open"),
    "k_p": Parameter(4, "mV", 1, 100, "width of its opening"),
    # The same as plain currents, which do not bound the voltage.
    "i_s": Parameter(0, "pA", 0, 100, "stretch current for each unit of w_s and of stretch"),
    "i_on": Parameter(0, "pA", -100, 100, "tonic current"),
    "i_p": Parameter(0, "pA", 0, 100, "plateau current, fully open"),
    "dorsal_long": Parameter(1, "1", 0, 10, "factor on the stretch of a lengthened dorsal segment"),
    "dorsal_short": Parameter(1, "1", 0, 10, "factor on the stretch of a shortened dorsal segment"),
    # From neurons to muscles.
    "w_m": Parameter(9.0, "1", 0, 1000, "how strongly motor neurons drive the muscles"),
    "V_s": Parameter(75, "mV", 1, 1e4, "depolarisation that drives a muscle by tanh(w_m)"),
    "a_D": Parameter(0.5, "1", 0, 10, "inhibition by D neurons, as a share of the B neurons' excitation"),
    "drive_min": Parameter(0, "1", -1e3, 0, "least drive of a muscle"),
    "drive_max": Parameter(1, "1", 0, 1e3, "largest drive of a muscle"),
    "linear": Parameter(0, "1", 0, 1, "1: the drive grows without the tanh"),
    # Surroundings.
    "medium": Parameter(1, "1", 0, 1, "what the worm lies in, from water (0) to agar (1)"),
}

_CURRENTS = {"g_s": 0, "g_on": 0, "g_p": 0, "head": 0, "i_s": 1, "V_h": 10, "k_p": 2, "dorsal_long": 0.8, "dorsal_short": 1.2}
_CURRENTS |= {"V_s": 100, "a_D": 1, "drive_min": -1e3, "drive_max": 1e3}

VARIANTS: dict[str, dict[str, float]] = {
    "default": {},
    "lively": {"steep": 2},
    "prototype": {**_CURRENTS, "i_on": 1.4, "i_p": 3.0},
    "paper": {**_CURRENTS, "linear": 1},
    "sce": {"steep": 8, "w_m": 0, "w_s": 0, "g_on": 0, "g_p": 0},
}
"""What each variant changes.

default: conductances, voltages bounded by construction. lively: steeper synapses, more interneurons move. prototype: currents
instead of conductances, unbounded voltages. paper: stretch current and a linear drive only; it does not crawl. sce: the nervous
system alone, as SCE has it, its body at rest.
"""


def defaults(variant: str) -> dict[str, Value]:
    """All values of a variant."""
    return {name: float(VARIANTS[variant].get(name, parameter.default)) for name, parameter in PARAMETERS.items()}


def checked(name: str, value: Value) -> Value:
    """The value of a parameter, or an error that names it, its limits and its unit."""
    if name not in PARAMETERS:
        raise ValueError(f"{name!r} is not a parameter of the worm; did you mean {nearest(name, PARAMETERS)!r}?")
    known = PARAMETERS[name]
    rule = f"from {known.low:g} to {known.high:g} {known.unit if known.unit != '1' else '(no unit)'} ({known.meaning})"

    def one(label: str, number: object) -> float:
        return check.number(label, number, rule, lambda x: known.low <= x <= known.high)

    if not isinstance(value, Mapping):
        return one(name, value)
    if not known.each:
        raise ValueError(f"{name} must be one number for the whole worm, got one for each of some neurons: {dict(value)!r}")
    for what in value:
        find(what)
    return MappingProxyType({what: one(f"{name}[{what!r}]", number) for what, number in value.items()})


def changed(values: Mapping[str, Value], changes: Mapping[str, Value]) -> dict[str, Value]:
    """Values with some changes; a change of some neurons leaves the others as they were."""
    if not isinstance(changes, Mapping):
        raise ValueError(f"parameters must be a mapping from names to values, got {type(changes).__name__}")
    result = dict(values)
    for name, change in changes.items():
        new = checked(name, change)
        if isinstance(new, Mapping):
            old = result[name]
            before = old if isinstance(old, Mapping) else {"all": old}
            new = MappingProxyType({**{what: number for what, number in before.items() if what not in new}, **new})
        result[name] = new
    return result


def plain(values: Mapping[str, Value]) -> dict[str, float | dict[str, float]]:
    """Values that JSON can hold."""
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}


def per_neuron(value: Value, default: float) -> np.ndarray:
    """A value for each of the 302 neurons; later entries of a mapping win, and what none of them names has the default."""
    if not isinstance(value, Mapping):
        return np.full(len(NEURONS), float(value))
    result = np.full(len(NEURONS), float(default))
    for what, number in value.items():
        result[index(find(what))] = number
    return result
