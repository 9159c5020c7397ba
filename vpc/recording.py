"""`Recording`: the fluorescence of some neurons over time, which is all that the rest of the worm is inferred from."""

import warnings
from collections.abc import Sequence

import numpy as np
import xarray as xr

from wormsim import check

from .connectome import KATO_NEURONS, index
from .neurons import STEP

__all__ = ["Recording"]

SLOW = 0.25  # s between frames, beyond which the worm forgets: voltages last 0.1 s and calcium 0.5 s


class Recording:
    """Fluorescence (time, neuron) of neurons by name, with NaN where nothing was seen.

    Times are in s, increasing, and kept to 10 ms, the simulator's step; they need not be regular.
    """

    def __init__(self, fluorescence: np.ndarray, neurons: Sequence[str], time: Sequence[float] | np.ndarray):
        names = [str(name) for name in neurons]
        index(names)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"neurons must be named once each, but {', '.join(twice)} came twice")
        if not names:
            raise ValueError("neurons must name at least one neuron")
        values = np.array(fluorescence, dtype=float)
        if values.ndim != 2 or values.shape[1] != len(names):
            raise ValueError(
                f"fluorescence must have one column for each of {len(names)} neurons and one row a frame, got {values.shape}"
            )
        if np.isinf(values).any():
            raise ValueError("fluorescence must not be infinite; use NaN for what was not seen")
        if np.isnan(values).all():
            raise ValueError("fluorescence must hold at least one number, and is all NaN")
        seconds = check.array("time", time, (len(values),))
        steps = np.round(seconds / STEP).astype(int)
        if (np.diff(steps) <= 0).any():
            where = int(np.argmax(np.diff(steps) <= 0)) + 1
            raise ValueError(f"time must increase by at least {STEP} s a frame, but time[{where}] is {seconds[where]}")
        self.data = xr.DataArray(
            values,
            dims=("time", "neuron"),
            coords={"time": ("time", np.round(steps * STEP, 2), {"units": "s"}), "neuron": names},
            name="fluorescence",
        )
        self.steps = steps - steps[0]  # counted from the first frame
        self._warn()

    def _warn(self) -> None:
        """Say what in a recording looks wrong but may be meant."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of neurons that were never seen
            spread = np.nanmax(self.values, axis=0) - np.nanmin(self.values, axis=0)
        still = [name for name, width in zip(self.neurons, spread, strict=True) if width == 0]
        if still and len(self.steps) > 1:
            warnings.warn(
                f"the fluorescence of {', '.join(still)} is constant; leave them out if that is no signal", stacklevel=3
            )
        apart = np.diff(self.steps).max() * STEP if len(self.steps) > 1 else 0.0
        if apart > SLOW + STEP / 2:
            warnings.warn(
                f"frames are up to {apart:g} s apart; a voltage is forgotten after 0.1 s and calcium after 0.5 s, so beyond "
                f"{SLOW} s much of what happens between frames cannot be inferred",
                stacklevel=3,
            )

    @property
    def values(self) -> np.ndarray:
        """Fluorescence (time, neuron)."""
        return self.data.values

    @property
    def neurons(self) -> tuple[str, ...]:
        """Names of the neurons."""
        return tuple(self.data["neuron"].values.tolist())

    @property
    def time(self) -> np.ndarray:
        """Times of the frames, s."""
        return self.data["time"].values

    @property
    def seconds(self) -> float:
        """From the first frame to the last."""
        return float(self.steps[-1] * STEP)

    def without(self, *neurons: str) -> "Recording":
        """The same without some neurons."""
        for name in neurons:
            if name not in self.neurons:
                raise ValueError(f"neurons must be recorded ones, got {name!r}; these are {', '.join(self.neurons)}")
        kept = [name for name in self.neurons if name not in neurons]
        if not kept:
            raise ValueError(f"neurons must leave at least one, got all {len(self.neurons)} of the recording")
        other = object.__new__(Recording)  # its warnings have been given
        other.data, other.steps = self.data.sel(neuron=kept).copy(), self.steps
        return other

    @classmethod
    def from_simulation(
        cls,
        run: xr.Dataset,
        neurons: Sequence[str] = KATO_NEURONS,
        every: float = 0.05,
        noise: float = 0.0,
        seed: int = 0,
    ) -> "Recording":
        """What a microscope would see of a run: some neurons, a frame every so many seconds, Gaussian noise of some sd."""
        if not isinstance(run, xr.Dataset) or "fluorescence" not in run or run["fluorescence"].dims != ("time", "neuron"):
            raise ValueError("run must be the run of one worm with its calcium recorded, as `Worm.simulate` gives it")
        noise = check.number("noise", noise, "a number from 0 on", lambda sd: sd >= 0)
        stride = round(float(run["time"][1] - run["time"][0]), 6) if run.sizes["time"] > 1 else STEP
        rule = f"a multiple of {stride:g} s, the run's own interval"
        every = check.number("every", every, rule, lambda s: s > 0 and abs(s / stride - round(s / stride)) < 1e-6)
        index(list(neurons))
        seen = run["fluorescence"].isel(time=slice(None, None, round(every / stride))).sel(neuron=list(neurons))
        draws = np.random.default_rng([check.whole("seed", seed, least=0), 3]).standard_normal(seen.shape)
        return cls(seen.values + noise * draws, list(neurons), seen["time"].values)

    def __repr__(self) -> str:
        return f"<Recording of {len(self.neurons)} neurons, {len(self.steps)} frames over {self.seconds:g} s>"
