"""Neurons against numpy and scipy."""

import itertools
import re

import numba
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import vpc
import wormsim
from vpc import ensemble, neurons, reference
from vpc.connectome import index
from vpc.neurons import STEP
from vpc.noise import gaussians, key
from wormsim import kernel
from wormsim.blocks import LANES

ALONE = {"w_m": 0, "w_s": 0, "g_on": 0, "g_p": 0}  # the nervous system of section 2, with nothing else


def lsoda(worm: vpc.Worm, start: np.ndarray, current: np.ndarray, edges: tuple[float, ...]) -> np.ndarray:
    """Voltages every 10 ms at tight tolerance; the current (302,) is on in every second interval between the edges."""
    states = [start[None]]
    for k, (begin, end) in enumerate(itertools.pairwise(edges)):
        times = np.arange(round(begin / STEP) + 1, round(end / STEP) + 1) * STEP
        found = solve_ivp(
            lambda t, v, on=k % 2: reference.derivative(worm, v, on * current),
            (begin, end), states[-1][-1], method="LSODA", t_eval=times, rtol=1e-8, atol=1e-8,
        )  # fmt: skip
        states.append(found.y.T)
    return np.concatenate(states)


def test_equilibrium_is_where_currents_balance_with_synapses_half_open():
    worm = vpc.Worm(parameters=ALONE)
    assert np.abs(reference.derivative(worm, worm.equilibrium.values)).max() < 1e-9
    assert worm.equilibrium.attrs["units"] == "mV"


def test_relaxation_rates_at_the_equilibrium():
    """From about -180 to -8.6 /s where steep is 1; some two dozen unstable directions where it is 8."""

    def rates(worm: vpc.Worm) -> np.ndarray:
        rest, small = worm.equilibrium.values, 1e-4
        change = [
            reference.derivative(worm, rest + small * unit) - reference.derivative(worm, rest - small * unit)
            for unit in np.eye(302)
        ]
        return np.linalg.eigvals(np.array(change).T / (2 * small)).real

    calm = rates(vpc.Worm(parameters=ALONE))
    assert calm.min() == pytest.approx(-180, abs=5) and calm.max() == pytest.approx(-8.6, abs=0.1)
    assert 20 <= (rates(vpc.Worm("sce")) > 0).sum() <= 30


def test_rest_is_steady():
    worm = vpc.Worm()
    rest = worm.rest()
    assert np.abs(reference.derivative(worm, rest.values)).max() < 1e-6
    assert rest.sel(neuron="DB3") == pytest.approx(-4, abs=3)  # the plateau holds the B neurons up


@pytest.mark.parametrize(("neurons", "pa"), [(("PLML", "PLMR"), 10), (("AVAL", "AVAR"), 20), (("ASHL",), 5)])
def test_voltages_against_lsoda(neurons, pa):
    """From -20 mV, with a stimulus from 1 to 3 s: at most 1.2 mV off anywhere, 0.15 mV rms (measured 0.3 and 0.004 at most)."""
    worm = vpc.Worm(parameters=ALONE)
    run = worm.simulate(5, protocol=[vpc.CurrentClamp(name, pa, start=1, stop=3) for name in neurons], record=["voltage"])
    current = np.zeros(302)
    current[index(neurons)] = pa
    error = run["voltage"].values - lsoda(worm, run["voltage"].values[0], current, (0, 1, 3, 5))
    assert np.abs(error).max() < 0.5 and np.sqrt((error**2).mean()) < 0.01


def test_stable_with_steep_synapses():
    """At SCE's steepness 8, for a minute, with noise and a stimulus."""
    run = vpc.Worm("sce").simulate(
        60, n=16, noise=1.0, protocol=vpc.Stimulus("posterior touch", 5, start=1, stop=3), record=["voltage"], every=0.1
    )
    assert run["ok"].all() and run["voltage"].min() > -60 and run["voltage"].max() < 60


def test_second_order():
    """Halving the step quarters the error: done by doubling the capacitance and thus slowing everything down."""
    fast = vpc.Worm(parameters=ALONE)
    slow = fast.with_parameters(C=20, tau_c=1.0)
    truth = lsoda(fast, fast.simulate(0.01)["voltage"].values[0], np.zeros(302), (0.0, 0.3))[-1]
    errors = [
        np.abs(worm.simulate(seconds)["voltage"].values[-1] - truth).max() for worm, seconds in ((fast, 0.3), (slow, 0.6))
    ]
    assert 3 < errors[0] / errors[1] < 20


@pytest.mark.parametrize("variant", ["default", "lively", "prototype", "paper", "sce"])
def test_the_kernel_equals_plain_numpy(variant):
    """Two seconds of the closed loop, with neurons ablated and their own parameters: equal to 1e-9."""
    worm = vpc.Worm(variant, parameters={"steep": {"AVA": 1.5}, "tau_c": {"motor": 0.3}, "C": {"DB": 12}}).ablate(
        "AVBL", "DB3", "VD5", "SMDDL"
    )
    run = worm.simulate(2, seed=3, protocol=vpc.CurrentClamp("PLML", 5, start=0.5))
    first = run.isel(time=0)
    state = reference.State(first["voltage"].values, first["calcium"].values, wormsim.Body(), np.zeros((2, 48)))
    current = np.zeros(302)
    for step in range(200):
        current[index("PLML")] = 5 if step >= 50 else 0
        state = reference.step(worm, state, current)
    last = run.isel(time=-1)
    for name, mine in (
        ("voltage", state.voltage),
        ("calcium", state.calcium),
        ("body", state.body.state[0]),
        ("muscle", state.muscle),
    ):
        np.testing.assert_allclose(last[name].values, mine, atol=1e-9, rtol=0, err_msg=name)


def test_the_kernels_are_vectorised():
    """Packed arithmetic on 256 or 512 bits."""
    circuit = vpc.Worm()._compiled[0]
    work = np.zeros(neurons.WORK)
    rows, noise = work.reshape(-1, LANES), np.zeros(302)
    c = circuit
    calls = {
        neurons.activate: (circuit, work),
        neurons.sum_up: (c.current_where, c.current_weight, c.current, rows, rows),
        neurons.relax: (0.01, c.rate, work),
        neurons.keep: (circuit, noise, work),
        gaussians: (work, np.arange(LANES, dtype=np.uint64), 0, 0, key(0)),
        ensemble._multiply: (np.ones((4, 3), np.float32), np.ones((3, 32), np.float32), np.ones((4, 32), np.float32)),
        ensemble._multiply_rows: (np.ones((4, 32), np.float32), np.ones((4, 32), np.float32), np.ones((4, 4), np.float32)),
    }
    fewer = {neurons.sum_up: 4, ensemble._multiply: 8, ensemble._multiply_rows: 8}
    if "avx2" not in numba.core.codegen.get_host_cpu_features():
        pytest.skip("this processor has no AVX2")
    for function, arguments in calls.items():
        compiled = numba.njit(**{**kernel.FLAGS, "cache": False})(function.py_func)
        compiled(*arguments)
        assembly = compiled.inspect_asm(compiled.signatures[0])
        packed = re.findall(r"v(?:fn?m(?:add|sub)\d+|mul|add|sub|div)p[sd]\s.*%[yz]mm", assembly)
        assert len(packed) >= fewer.get(function, 10), function.__name__


def test_calcium_follows_a_clamped_voltage():
    """dc/dt = (c_inf - c)/tau has a solution."""
    run = vpc.Worm().simulate(3, protocol=vpc.VoltageClamp("AVAL", 10))
    calcium, time = run["calcium"].sel(neuron="AVAL").values, run["time"].values
    target = 0.05 + 1 / (1 + np.exp(-3))
    np.testing.assert_allclose(calcium, target + (calcium[0] - target) * np.exp(-time / 0.5), atol=1e-12)
    np.testing.assert_allclose(run["fluorescence"].sel(neuron="AVAL"), 10 * calcium / (calcium + 1), rtol=1e-12)
