"""The gait in a few numbers: how fast the body undulates, how long its wave is, and how far that carries it."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from . import geometry as geo


class Gait(NamedTuple):
    """A gait; all but the curvature are nan when the body does not undulate at least once."""

    frequency: float  # Hz
    wavelength: float  # body lengths
    speed: float  # mm/s along the path, undulation averaged out
    amplitude: float  # mm, of the sideways undulation
    curvature: float  # 1/mm, largest anywhere

    def __str__(self) -> str:
        if np.isnan(self.frequency):
            return f"does not undulate, curvature up to {self.curvature:.1f} /mm"
        return (
            f"{self.frequency:.3f} Hz, wavelength {self.wavelength:.3f} L, speed {self.speed:.3f} mm/s, "
            f"amplitude {self.amplitude:.3f} mm, curvature up to {self.curvature:.1f} /mm"
        )


def curvature(body: np.ndarray) -> np.ndarray:
    """Curvature (..., rod) in 1/mm of bodies (..., rod, coord): the rods' change of angle along the body."""
    return np.gradient(body[..., 2], geo.SEGMENT_LENGTH, axis=-1)


def gait(dataset: xr.Dataset, skip: float | None = None) -> Gait:
    """Measure the gait in a dataset with `body` (time, rod, coord).

    The frequency is where the spectrum of curvature, summed over the body, has its peak; the wavelength follows from how the
    phase at that frequency changes along the body; the speed compares the centre of mass one period apart.

    Parameters
    ----------
    dataset
        From `crawl`, or any with `body` and `time`.
    skip
        Seconds at the start to leave out while the gait settles; by default 2 s, or a third of a shorter run.
    """
    if "body" not in dataset or "time" not in dataset.coords:
        raise ValueError("dataset must hold a variable `body` (time, rod, coord) with coordinates `time` in s")
    if "ok" in dataset and not dataset["ok"].all():
        failed = float(dataset["time"][int(dataset["ok"].values.argmin())])
        raise ValueError(f"dataset holds a body that failed after {failed:.2f} s and has no gait from then on")
    time = dataset["time"].values - float(dataset["time"][0])
    duration = float(time[-1])
    keep = time >= (min(2.0, duration / 3) if skip is None else skip)
    if keep.sum() < 8:
        raise ValueError(
            f"dataset is too short for a gait: {keep.sum()} of its {duration:.2f} s are left after skip, 8 frames are needed"
        )
    time, body = time[keep], dataset["body"].values[keep]
    bend = curvature(body)
    peak = float(np.abs(bend).max())
    wave = bend - bend.mean(axis=0)
    if np.sqrt((wave**2).mean()) < 0.01:  # 1/mm: still, to within a degree over the whole body
        return Gait(np.nan, np.nan, np.nan, np.nan, peak)

    window = np.hanning(len(time) + 2)[1:-1, None]

    def spectrum(frequencies: np.ndarray) -> np.ndarray:
        """Complex amplitude (frequency, rod) of the wave."""
        return np.exp(-2j * np.pi * np.outer(frequencies, time)) @ (window * wave)

    span, step = time[-1] - time[0], time[1] - time[0]
    grid = np.arange(0.5 / span, min(10.0, 0.5 / step), 0.2 / span)
    for _ in range(3):  # zoom in on the peak
        best = grid[(np.abs(spectrum(grid)) ** 2).sum(axis=1).argmax()]
        spacing = grid[1] - grid[0]
        grid = np.linspace(max(best - spacing, spacing / 10), best + spacing, 41)
    frequency = float(best)
    if frequency * span < 1:
        return Gait(np.nan, np.nan, np.nan, np.nan, peak)

    amplitude = spectrum(np.array([frequency]))[0]
    phase = np.unwrap(np.angle(amplitude))
    place = np.linspace(0, 1, geo.RODS)
    middle = np.abs(place - 0.5) <= 0.4  # the tips hardly bend
    slope = np.polyfit(place[middle], phase[middle], 1, w=np.abs(amplitude[middle]))[0]

    centre = body[:, :, :2].mean(axis=1)
    period = min(round(1 / (frequency * step)), len(time) - 1)
    travelled = np.hypot(*(centre[period:] - centre[:-period]).T) / (period * step)

    # Sideways displacement from each frame's long axis.
    centred = body[:, :, :2] - centre[:, None]
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    sideways = np.einsum("trc,tc->tr", centred, axes[:, 1])
    return Gait(
        frequency=frequency,
        wavelength=float(2 * np.pi / abs(slope)),
        speed=float(travelled.mean()),
        amplitude=float(np.sqrt(2) * sideways.std()),
        curvature=peak,
    )
