"""Members that live their last frames again, for an ensemble's evidence where a model is far from linear.

A shift may take a member to where no life would lead, such as back over a threshold, whatever that would have cost in noise. So
a member is shifted where it was some frames ago, and in the noise it has met since; then it lives through these frames once
more, and is where this takes it. If the model is linear, that is where the shift takes it, up to chance.

For this a particle carries its past along, and the ensemble shifts all of it:

    now | at the first of these frames | noise since then, a sum for each source and interval | its keys | number of the frame

Noise of one source acts much alike all over an interval: of an interval only the sum is shifted. The rest of the noise is drawn
anew from its key whenever it is needed, by a member's place: who has failed and begins again as a copy of another shares its
sums, not the rest. Keys and the number are the same for all, so that no shift changes them.

What a frame shows is the work of thousands of such sums. The correlation with each of them is too weak to be told from chance,
so that an ensemble with its usual doubt would leave most of them alone, and members would hardly be shifted. So `vpc.methods`
gives such an ensemble no doubt, and there must be many more members than numbers in a frame.
"""

from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from wormsim import check

from .model import capability

__all__ = ["Relived"]

KEYS = 2**48  # of noise, so that a double can hold one


class Relived:
    """A model for `Ensemble` that behaves as another one does, and whose members live again.

    Parameters
    ----------
    model
        What it `needs` is told in `vpc.model`.
    times
        As the ensemble gets them.
    look_back
        How many frames members live again.
    """

    needs: ClassVar[dict[str, str]] = {
        "predict": "Gaussian noise of what is seen",
        "noise_shape": "the shape of its noise",
        "drive": "Gaussian noise that can be given",
    }

    def __init__(self, model: Any, times: np.ndarray, look_back: int):
        for name in self.needs:
            capability(model, name, needed_for="an ensemble that looks back")
        self.model, self.times = model, [int(time) for time in times]
        self.look_back = check.whole("look_back", look_back)
        self.sources = model.noise_shape(1)[0]
        self._rest = lru_cache(maxsize=self.look_back + 1)(_rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    @property
    def parameters(self) -> dict[str, Any]:
        """What two models must share to be the same."""
        return {"look_back": self.look_back, "of": type(self.model).__name__, **getattr(self.model, "parameters", {})}

    def initial(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Particles at the first frame, whose past is yet to come."""
        x = self.model.initial(rng, n)
        return np.hstack([x, x, np.zeros((n, self.look_back * (self.sources + 1) + 1))])

    def _parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
        """Views of particles: now, at the first frame, sums (particle, source) of each interval and its key; and the frame."""
        size = (x.shape[1] - self.look_back * (self.sources + 1) - 1) // 2
        now, start, rest = np.split(x, [size, 2 * size], axis=1)
        sums = rest[:, : -self.look_back - 1].reshape(len(x), self.look_back, self.sources)
        living = np.flatnonzero(~np.isnan(x[:, -1]))
        return now, start, sums.swapaxes(0, 1), rest[:, -self.look_back - 1 : -1], int(x[living[0], -1]) if len(living) else 0

    def _interval(self, x: np.ndarray, sums: np.ndarray, keys: np.ndarray, k: int) -> np.ndarray:
        """States at frame k + 1, of those at frame k."""
        first, last = self.times[k], self.times[k + 1]
        shape = len(x), *self.model.noise_shape(last - first)
        alive = ~np.isnan(keys)
        rest = self._rest(int(keys[alive][0]) if alive.any() else 0, shape)
        return self.model.drive(x, first, last, rest + sums[:, :, None] / np.sqrt(shape[2]))

    def advance(
        self, rng: np.random.Generator, x: np.ndarray, first: int, last: int, ancestors: np.ndarray | None = None
    ) -> np.ndarray:
        """Particles at the next frame, with a past that is as long as it may be."""
        if first < self.times[0]:  # on the way to the first frame there is nothing to shift
            now = self.model.advance(rng, self._parts(x)[0], first, last, ancestors)
            return np.hstack([now, now, x[:, 2 * now.shape[1] :]])
        x = (x if ancestors is None else x[ancestors]).copy("K")
        now, start, sums, keys, frame = self._parts(x)
        if frame >= self.look_back:
            start[:] = self._interval(start, sums[0], keys[:, 0], frame - self.look_back)
            sums[:-1], keys[:, :-1] = sums[1:].copy(), keys[:, 1:].copy()
        here = min(frame, self.look_back - 1)
        sums[here] = rng.standard_normal(sums[here].shape)
        keys[:, here] = rng.integers(KEYS)
        now[:] = self._interval(now, sums[here], keys[:, here], frame)
        x[:, -1] = frame + 1
        x[np.isnan(now[:, 0])] = np.nan
        return x

    def confine(self, x: np.ndarray) -> None:
        """Live again; who cannot stays where the shift took it."""
        now, start, sums, keys, frame = self._parts(x)
        confines = capability(self.model, "confine")
        if confines:
            confines(start)
            confines(now)
        back = min(frame, self.look_back)
        again = start
        for k in range(back):
            again = self._interval(again, sums[k], keys[:, k], frame - back + k)
        lives = np.isfinite(again).all(axis=1)
        now[lives] = again[lives]

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is seen of each particle, and the sd of its noise."""
        return self.model.predict(np.ascontiguousarray(self._parts(x)[0]))


def _rest(key: int, shape: tuple[int, int, int]) -> np.ndarray:
    """Noise (particle, source, part) less the mean of each source's."""
    noise = np.random.Generator(np.random.Philox(key=[key, 0])).standard_normal(shape)
    noise -= noise.mean(axis=2, keepdims=True)
    noise.flags.writeable = False
    return noise
