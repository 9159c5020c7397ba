"""What filters have in common: they are iterators over the observed frames, to be looked into, copied, saved and restored.

All randomness of frame k comes from a generator with the key (seed, k), so a filter that is copied, or saved and restored, goes
on as if nothing had happened.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import xarray as xr
from tqdm.auto import tqdm

from wormsim import check

from .model import StateSpaceModel, capability
from .resampling import effective_sample_size
from .store import check_path, open_dataset, save_dataset
from .summaries import Collector, Filtered, Summary

__all__ = ["Filter", "Frame"]

SECONDS_PER_CHECKPOINT = 30.0
ERRORS = (ArithmeticError, LookupError, TypeError, ValueError)  # of a model, which the filter explains


class Frame(NamedTuple):
    """What a filter says of one frame."""

    frame: int
    time: int
    ess: float
    log_evidence: float  # of all frames so far
    resampled: bool
    ancestors: int  # how many particles of the frame before have offspring
    failed: float  # share of particles whose likelihood is 0


class Filter(Iterator[Frame]):
    """Particles with weights that go from frame to frame; how they do is told by `_update` of each kind.

    Parameters
    ----------
    model
        With `initial`, `step` and `log_likelihood`, and what the kind of filter needs; a fused `advance` is used if it has one.
    observations
        (frame, ...), with NaN for what was not seen; a frame of nothing but NaN is a prediction.
    times
        The step of each frame, increasing; by default 0, 1, 2 ...
    particles
        How many.
    seed
        Of all randomness.
    collect
        By name, summaries of (weights, particles), or collectors, of `vpc.summaries`; `collected` holds their values.

    When all particles have failed, the evidence is -inf, `failure` says where and why, and the filter ends. One frame or none
    are no special cases: without frames the evidence is 1.
    """

    settings: ClassVar[tuple[str, ...]] = ()  # names of what a kind of filter has besides the above

    def __init__(
        self,
        model: StateSpaceModel,
        observations: np.ndarray,
        times: Sequence[int] | np.ndarray | None = None,
        particles: int = 1000,
        seed: int = 0,
        collect: Mapping[str, Summary | Collector] | None = None,
    ):
        self.model = model
        self.observations = np.asarray(observations, dtype=float)
        if self.observations.ndim < 2:
            shape = self.observations.shape
            raise ValueError(f"observations must have frames along axis 0, and what was seen after it; got shape {shape}")
        self.times = _check_times(times, len(self.observations))
        self.particles, self.seed = check.whole("particles", particles), check.whole("seed", seed, 0, 2**63 - 1)
        self.collectors: dict[str, Collector] = {
            name: Filtered(how) if callable(how) else how.copy() for name, how in (collect or {}).items()
        }
        for name in set(self.collectors) & set(Frame._fields):
            raise ValueError(f"collect must not use {name!r} as a name: every filter has it of itself")

        self.index = 0  # of the next frame
        self.x: np.ndarray = np.empty(0)
        self.weights = np.full(self.particles, 1 / self.particles)
        self.prior_x, self.prior_weights = self.x, self.weights  # before they were compared with the last frame
        self.ancestors: np.ndarray | None = None  # of each particle in the frame before; None if each is its own
        self.log_evidence = 0.0
        self.failure = ""  # why the evidence is -inf, if it is
        self.seconds = 0.0  # that it took so far
        self._collected = 0  # frames
        self.frames: list[Frame] = []

    @property
    def collected(self) -> dict[str, list[Any]]:
        """What was collected of each frame, by name."""
        return {name: collector.values for name, collector in self.collectors.items()}

    def __next__(self) -> Frame:
        if self.index == len(self.times) or self.failure:
            raise StopIteration
        if len(self.frames) > self._collected:
            raise ValueError(f"filter was interrupted while it summarised frame {self._collected}: make it anew, or restore it")
        k, t, y = self.index, int(self.times[self.index]), self.observations[self.index]
        rng, begin = np.random.Generator(np.random.Philox(key=[self.seed, k])), time.perf_counter()
        before = int(self.times[k - 1]) if k > 0 else 0
        increment, failed = self._update(rng, y, before, t)
        self.log_evidence, self.index = self.log_evidence + increment, k + 1
        if increment == -np.inf:
            explain = capability(self.model, "explain")
            self.failure = f"all particles have weight 0 at frame {k} (step {t}){': ' + explain() if explain else ''}"

        resampled, offspring = False, self.particles
        if self.ancestors is not None:
            resampled, offspring = True, 1 + int(np.count_nonzero(self.ancestors[1:] > self.ancestors[:-1]))  # they are sorted
        ess = 0.0 if self.failure else effective_sample_size(self.weights)
        frame = Frame(k, t, ess, self.log_evidence, resampled, offspring, failed)
        self.frames.append(frame)
        for collector in self.collectors.values():
            collector.update(self)
        self._collected = k + 1
        self.seconds += time.perf_counter() - begin
        return frame

    def _update(self, rng: np.random.Generator, y: np.ndarray, first: int, last: int) -> tuple[float, float]:
        """Take x and weights from one frame to the next; returns what the evidence grows by, and the share that failed."""
        raise NotImplementedError

    def revise(self, x: np.ndarray, ancestors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """States of an earlier frame in the light of this one, and where among them the ancestors of today's particles are."""
        return x, ancestors

    def _step(self, rng: np.random.Generator, x: np.ndarray, first: int, last: int) -> tuple[np.ndarray, str]:
        """Offspring at a later step, drawn from the model, and the method that gave them."""
        if last > first and capability(self.model, "advance"):
            return self._call("advance", x.shape, rng, x, first, last, self.ancestors), "advance"
        x = x if self.ancestors is None else x.take(self.ancestors, axis=0)
        for step in range(first, last):
            x = self._call("step", x.shape, rng, x, step)
        return x, "step" if last > first else "initial"

    def run(self, progress: bool = False, checkpoint: str | Path | None = None) -> Self:
        """Go through all frames that are left.

        `progress` shows a bar with the effective sample size and the evidence. `checkpoint` names a zarr folder: a run that was
        interrupted goes on from there, and it is written twice a minute and at the end.
        """
        if checkpoint is not None and check_path(checkpoint).exists():
            self.restore(checkpoint)
        silent = None if progress else True  # None: where there is no terminal and no notebook
        saved = time.monotonic()
        with tqdm(total=len(self.times), initial=self.index, desc="filtering", unit="frame", disable=silent) as bar:
            for frame in self:
                if not bar.disable:
                    bar.set_postfix(ESS=f"{frame.ess:.0f}", evidence=f"{frame.log_evidence:.1f}", refresh=False)
                    bar.update()
                if checkpoint is not None and time.monotonic() - saved > SECONDS_PER_CHECKPOINT:
                    self.save(checkpoint)
                    saved = time.monotonic()
        if checkpoint is not None:
            self.save(checkpoint)
        return self

    def copy(self) -> Self:
        """Another filter in the same state, which can go its own way."""
        other = object.__new__(type(self))
        other.__dict__ = self.__dict__ | {"frames": list(self.frames)}
        other.collectors = {name: collector.copy() for name, collector in self.collectors.items()}
        return other

    def to_dataset(self) -> xr.Dataset:
        """What is known of each frame so far, and what was collected."""
        data: dict[str, Any] = {name: ("frame", values) for name, values in self._columns().items()}
        for name, values in self.collected.items():
            stacked = np.array(values)
            data[name] = (["frame", *(f"{name}_dim_{axis}" for axis in range(stacked.ndim - 1))], stacked)
        return xr.Dataset(data, attrs=self._attributes())

    def _columns(self) -> dict[str, np.ndarray]:
        return {name: np.array([getattr(frame, name) for frame in self.frames]) for name in Frame._fields}

    def _attributes(self) -> dict[str, Any]:
        known = {"version": version("virtual-patch-clamp"), "seconds": self.seconds, "log_evidence": self.log_evidence}
        return self._identity() | known

    def save(self, path: str | Path) -> Path:
        """Write everything that `restore` needs to go on, atomically."""
        arrays = {"particles": self.x, "weights": self.weights}
        for name, collector in self.collectors.items():
            arrays |= {f"{name}.{part}": values for part, values in collector.state().items()}
        data = {
            name: ([f"{name}_dim_{axis}" for axis in range(array.ndim)], array)
            for name, array in (arrays | self._columns()).items()
        }
        return save_dataset(xr.Dataset(data, attrs=self._attributes() | {"failure": self.failure}), path)

    def restore(self, path: str | Path) -> Self:
        """Put this filter into the state that another one, of the same model, observations and settings, had saved."""
        saved = open_dataset(path).load()
        for name, value in self._identity().items():
            if saved.attrs.get(name) != value:
                raise ValueError(f"{path} was saved by another filter: its {name} is {saved.attrs.get(name)!r}, here {value!r}")
        columns = [saved[name].values.tolist() for name in Frame._fields]
        self.frames = [Frame(*values) for values in zip(*columns, strict=True)]
        for name, collector in self.collectors.items():
            parts = [str(part) for part in saved if str(part).startswith(f"{name}.")]
            collector.restore({part.removeprefix(f"{name}."): saved[part].values for part in parts})
        self.x, self.weights, self.index = saved["particles"].values, saved["weights"].values, len(self.frames)
        self.log_evidence = self.frames[-1].log_evidence if self.frames else 0.0
        self.failure, self.seconds, self._collected = saved.attrs["failure"], saved.attrs["seconds"], len(self.frames)
        return self

    def _identity(self) -> dict[str, Any]:
        """What two filters must share for one to go on where the other stopped."""
        parameters = json.dumps(getattr(self.model, "parameters", {}), default=np.ndarray.tolist)
        data = hashlib.sha256(self.observations.tobytes() + self.times.tobytes()).hexdigest()[:16]
        return {
            "model": type(self.model).__name__,
            "parameters": hashlib.sha256(parameters.encode()).hexdigest()[:16],
            "observations": data,
            "particles": self.particles,
            "seed": self.seed,
            **{name: getattr(self, name) for name in self.settings},
            "collect": ", ".join(f"{name} {collector.label}".strip() for name, collector in self.collectors.items()),
        }

    def _call(self, method: str, shape: tuple[int, ...], *arguments: Any) -> np.ndarray:
        """What a method of the model gives."""
        try:
            value = getattr(self.model, method)(*arguments)
        except ERRORS as error:
            raise self._blame(method, error) from error
        return self._checked(value, method, shape)

    def _blame(self, method: str, error: Exception) -> ValueError:
        """An error that says where in the model another one came from."""
        k, t = self.index, int(self.times[self.index])
        return ValueError(f"`{method}` of the model fails at frame {k} (step {t}): {error}")

    def _checked(self, value: Any, method: str, shape: tuple[int, ...]) -> np.ndarray:
        """What a method of the model gave, if it has the right shape."""
        result = np.asarray(value, dtype=float)
        if result.shape[: len(shape)] != shape:
            k, t = self.index, int(self.times[self.index])
            raise ValueError(
                f"`{method}` of the model must give an array of shape {shape}, got {result.shape}, at frame {k} (step {t})"
            )
        return result


def _check_times(times: Sequence[int] | np.ndarray | None, frames: int) -> np.ndarray:
    result = np.arange(frames) if times is None else np.asarray(times)
    result = result.astype(np.int64) if np.issubdtype(result.dtype, np.integer) or not frames else result
    if result.shape != (frames,) or not np.issubdtype(result.dtype, np.integer):
        raise ValueError(f"times must be {frames} whole numbers, one for each frame of observations, got {times!r}")
    if frames and (result[0] < 0 or (np.diff(result) <= 0).any()):
        where = 0 if result[0] < 0 else int(np.argmax(np.diff(result) <= 0)) + 1
        raise ValueError(f"times must be increasing, from 0 on, but times[{where}] is {result[where]}")
    return result
