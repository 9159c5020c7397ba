"""How likely a recorded frame is, given the calcium of a worm: y = F c / (c + Kd) + D + N(0, sigma^2), neuron by neuron."""

from typing import NamedTuple

import numpy as np

from wormsim.elementary import PER_E, gate
from wormsim.kernel import kernel

from .connectome import index
from .neurons import N, of
from .recording import Recording
from .worm import Worm

__all__ = ["Fluorescence", "fluorescence_of"]


@kernel
def sensitivities(calcium, voltage, decay, ends, noise, circuit, neurons, full, half, dark, seen, jacobian):
    """What is seen (particle, time, neuron) after some steps, and its derivative (particle, neuron, time, step) by the noise.

    Voltages (particle, neuron, step) and what is left after a step of a deviation before it are given; what a neuron does to
    others that act on it in turn is left out.
    """
    steps = voltage.shape[2]
    pulse, response = np.empty(steps), np.empty(steps)
    for w in range(len(neurons)):
        m = neurons[w]
        share, low, span = circuit.calcium_share[m], circuit.calcium_min[m], circuit.calcium_range[m]
        slope, offset = circuit.calcium_slope[m], circuit.calcium_offset[m]
        for p in range(len(calcium)):
            c, frame = calcium[p, w], 0
            response[:] = 0.0
            for t in range(steps):
                rise = gate(slope * voltage[p, w, t] + offset)
                c += share * (low + span * rise - c)
                gain, left, d = share * span * (-slope / PER_E) * rise * (1 - rise), 1 - share, decay[p, w, t]
                pulse[t] = noise[m] / d  # so that it is what the noise adds, after it has been multiplied by d
                for k in range(t + 1):
                    pulse[k] *= d
                    response[k] = left * response[k] + gain * pulse[k]
                if t + 1 == ends[frame]:
                    seen[p, frame, w] = full[w] * c / (c + half[w]) + dark[w]
                    for k in range(steps):
                        jacobian[p, w, frame, k] = full[w] * half[w] / (c + half[w]) ** 2 * response[k]
                    frame += 1


class Fluorescence(NamedTuple):
    """What is seen of a state (particle, 994), for each of some neurons."""

    columns: np.ndarray  # of the neurons' calcium in the state
    full: np.ndarray  # F, fluorescence when saturated
    half: np.ndarray  # Kd, uM
    dark: np.ndarray  # D, background
    sigma: np.ndarray  # sd of the noise

    def of(self, calcium: np.ndarray) -> np.ndarray:
        """Fluorescence of calcium (particle, neuron), without noise."""
        return self.full * calcium / (calcium + self.half) + self.dark

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Fluorescence (particle, neuron) of states, without noise."""
        return self.of(x.T[self.columns].T)

    def log_likelihood(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        """log p(y | x) of each particle; what is NaN in y does not count, and a particle of NaN has failed."""
        total = self.each(y, x.T[self.columns].T).sum(axis=1)
        return np.where(np.isnan(x[:, 0]), -np.inf, total)

    def each(self, y: np.ndarray, calcium: np.ndarray) -> np.ndarray:
        """log p(y_i | c_i) of calcium (particle, neuron), for each; 0 where y is NaN."""
        error = (y - self.of(calcium)) / self.sigma
        return np.where(np.isnan(y), 0.0, -0.5 * error**2 - np.log(np.sqrt(2 * np.pi) * self.sigma))


def fluorescence_of(worm: Worm, recording: Recording, sigma: np.ndarray, temperature: float = 1.0) -> Fluorescence:
    """The likelihood of a recording of a worm, whose noise of `sigma` (302,) is widened to a variance temperature x sigma^2.

    A recording that no calcium could give is refused.
    """
    which = index(recording.neurons)
    gone = [name for name in recording.neurons if name in worm.ablated]
    if gone:
        raise ValueError(f"recording holds neurons that are ablated in the worm: {', '.join(gone)}; leave them out of it")
    full, half, dark = (of(worm.parameters, name)[which] for name in ("F", "Kd", "D"))
    for name, low, high, values in zip(recording.neurons, dark, dark + full, recording.values.T, strict=True):
        if (values < low - 0.25 * (high - low)).any() or (values > high + 0.25 * (high - low)).any():
            raise ValueError(
                f"fluorescence of {name} must lie between D = {low:g} and D + F = {high:g}, or near, but it goes from "
                f"{np.nanmin(values):g} to {np.nanmax(values):g}; rescale the recording, or set the worm's F and D"
            )
    return Fluorescence(N + which, full, half, dark, np.sqrt(temperature) * sigma[which])
