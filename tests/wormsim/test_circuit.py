"""`crawl` and `gait`: what they hold, and the circuit against its plain equations."""

import numpy as np
import pytest
import xarray as xr

import wormsim
from wormsim import circuit
from wormsim import geometry as geo


def test_the_dataset():
    worm = wormsim.crawl(0.5, medium=0.3, objects=wormsim.square_posts())
    assert worm["body"].dims == ("time", "rod", "coord") and worm.sizes["time"] == 51
    assert worm["muscle"].dims == worm["stretch"].dims == ("time", "side", "segment")
    assert worm["time"].attrs["units"] == "s" and worm["body"].attrs["units"]
    assert worm.attrs["medium"] == 0.3 and worm.attrs["version"] and worm["ok"].all()
    np.testing.assert_array_equal(worm["stretch"], wormsim.segment_stretch(worm["body"].values))


def test_same_seed_same_worm():
    one, same, other = (wormsim.crawl(1, seed=seed) for seed in (3, 3, 4))
    assert (one["body"] == same["body"]).all() and not (one["body"] == other["body"]).all()


@pytest.mark.parametrize(("medium", "seed"), [(1.0, None), (0.0, None), (0.2, 5)])
def test_circuit_against_its_plain_equations(medium, seed):
    """The compiled loop does, to the last digits, what the equations in circuit.py's docstring say."""
    worm = wormsim.crawl(1, medium, seed=seed)
    body = wormsim.Body(medium=medium)
    on = worm["neuron"].values[0] > 0
    muscle = np.zeros((1, 2, geo.SEGMENTS))
    for _ in range(1000):
        body.step(muscle, 0.001)
        feel = wormsim.unit_stretch(wormsim.segment_stretch(body.state[0]), asymmetric=True)
        current = circuit.TONIC + feel
        current[1] += 0.5 - on[0]
        on = current > np.where(on, 0.25, 0.75)
        drive = np.repeat(on[0] * 1.0 - on[1], 4) * geo.NEUROMUSCULAR_GAIN
        muscle += (np.stack([drive, -drive]) - muscle) * 0.001 / geo.MUSCLE_TIME
    np.testing.assert_allclose(worm["body"].values[-1], body.state[0], atol=1e-9)
    np.testing.assert_allclose(worm["muscle"].values[-1], muscle[0], atol=1e-9)
    assert (worm["neuron"].values[-1] == on).all()


def test_unit_stretch_sums_and_tail_factors():
    feel = wormsim.unit_stretch(np.ones((2, geo.SEGMENTS)))
    assert feel.shape == (2, 12)
    assert feel[0, 0] == pytest.approx(24 * 0.325 * 0.4)
    assert feel[0, 11] == pytest.approx(4 * 0.325 * (0.4 + 0.88) * 6**0.5)
    dorsal, ventral = wormsim.unit_stretch(np.full((2, geo.SEGMENTS), 0.1), asymmetric=True)
    np.testing.assert_allclose(dorsal, 0.8 * ventral)


def test_gait_of_a_made_up_wave():
    """A sine of known frequency, wavelength and speed is measured as such."""
    time, place = np.arange(0, 12, 0.01), np.linspace(0, 1, geo.RODS)
    phase = 2 * np.pi * (0.7 * time[:, None] + place / 0.8)
    body = np.empty((len(time), geo.RODS, 3))
    body[..., 0], body[..., 1] = place + 0.25 * time[:, None], 0.05 * np.sin(phase)
    body[..., 2] = np.pi / 2 + np.cos(phase)
    found = wormsim.gait(xr.Dataset({"body": (("time", "rod", "coord"), body)}, coords={"time": time}))
    assert found.frequency == pytest.approx(0.7, rel=0.01)
    assert found.wavelength == pytest.approx(0.8, rel=0.01)
    assert found.speed == pytest.approx(0.25, rel=0.01)
    assert found.amplitude == pytest.approx(0.05, rel=0.1)
    assert "0.70" in str(found)
