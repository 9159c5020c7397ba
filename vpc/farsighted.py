"""Particles that look far ahead by living it, with exact weights: for models that have thresholds, or no Jacobian.

From where it is, each particle lives through the next frames without noise, and hundreds of them once more with noise. What
noise makes of what is seen, d, in units of the sd of observations, is regressed on the noise z of the first interval:

    d = mean + J z + (later noise),   S2 = covariance of (later noise) + I,   S = S2 + J J^T

By these, which all particles share, ancestors are chosen and z is drawn as in `vpc.guided`; r is now by how much the frames
differ from mean + what a particle shows without noise. Of all numbers that will be seen, those are looked at that noise moves
most. Of J only what is clear of chance is believed, as in `vpc.ensemble`. Noise of one source acts much alike all over an
interval, so that z is its sum, and the rest of it is free.

However crude all this is, weights undo it, and the evidence stays unbiased: second lives have noise of their own, so that J
and S depend on nothing but where the particles are.
"""

from typing import ClassVar, NamedTuple

import numpy as np

from wormsim.kernel import kernel

from .ensemble import DOUBT, believed
from .guided import Guided
from .matrices import cholesky, gram, product, solve, solve_rows

__all__ = ["Farsighted"]

PILOTS = 500  # particles that live a second time, at most
WINDOWS = 128  # numbers of those that will be seen that are looked at
OWN = 2**63  # key of the noise of second lives: filters have keys below


class Outlook(NamedTuple):
    """What is common to all particles; see above."""

    jacobian: np.ndarray  # J (window, source)
    late: np.ndarray  # the root of S2
    late_determinant: float
    wide: np.ndarray  # the root of S
    wide_determinant: float
    gain: np.ndarray  # S^-1 J


@kernel
def _regress(d, z):
    """The outlook, from centred d (particle, window) and z (particle, source)."""
    n, size = d.shape
    jacobian = product(d.T.copy(), z)
    shown, given = (d * d).sum(axis=0), (z * z).sum(axis=0)
    for i in range(size):
        for k in range(len(given)):
            jacobian[i, k] *= believed(jacobian[i, k], shown[i] * given[k], n, DOUBT) / n
    upper = gram(d - product(z, jacobian.T.copy())) / n
    for i in range(size):
        upper[i, i] += 1.0
    late = upper.T.copy()
    wide = late + product(jacobian, jacobian.T.copy())
    gain = jacobian.copy()
    solve(wide.T.copy(), gain)
    return jacobian, late, cholesky(late), wide, cholesky(wide), gain


@kernel
def _log_normal(root, log_determinant, r):
    """log N(r; 0, L L^T) of each particle's r (particle, window), but for a constant."""
    rows = r.T.copy()
    solve_rows(root, rows)
    return -0.5 * (rows * rows).sum(axis=0) - log_determinant


@kernel
def _draw(r, jacobian, late, late_determinant, wide, wide_determinant, gain, free, errors):
    """Draws of z (particle, source) given r, of free noise and N(0, I) for what else there is, and their log p / q."""
    transposed = jacobian.T.copy()
    z = free + product(r - product(free, transposed) - product(errors, late.T.copy()), gain)
    left = r - product(z, transposed)
    return z, _log_normal(wide, wide_determinant, r) - _log_normal(late, late_determinant, left)


class Farsighted(Guided):
    """A model for `SMC` that behaves as another one does, and whose particles look far ahead.

    What the model `needs` is told in `vpc.model`.
    """

    needs: ClassVar[dict[str, str]] = {
        "predict": "Gaussian noise of what is seen",
        "advance": "many steps in one call",
        "noise_shape": "the shape of its noise",
        "drive": "Gaussian noise that can be given",
    }

    def foresee(self, x: np.ndarray, t: int) -> np.ndarray:
        """log psi of particles at step t."""
        model, rng = self.model, np.random.Generator(np.random.Philox(key=[OWN, t]))
        coming = self._coming(t)
        y, times = self.observations[coming], self.times[coming]
        some = np.linspace(0, len(x) - 1, min(len(x), PILOTS)).astype(int)
        noise = rng.standard_normal((len(some), *model.noise_shape(int(times[0]) - t)))
        quiet, lively, before, both = x, model.drive(x[some], t, int(times[0]), noise), t, []
        for k, now in enumerate(int(time) for time in times):
            quiet = model.drive(quiet, before, now)
            lively = model.advance(rng, lively, before, now) if k else lively
            both.append((model.predict(quiet)[0], model.predict(lively)[0]))
            before = now
        sd = model.predict(x)[1]
        shown, other = ((np.stack(part, axis=1) / sd).reshape(len(part[0]), -1) for part in zip(*both, strict=True))

        # What noise does, in the windows in which it does most.
        d = other - shown[some]
        well = np.isfinite(d).all(axis=1)
        d = d[well] if well.any() else np.zeros((1, shown.shape[1]))
        mean = d.mean(axis=0)
        wanted = (y / sd).reshape(-1) - mean
        moved = np.where(np.isnan(wanted), -1.0, d.var(axis=0))
        windows = np.sort(np.argsort(-moved, kind="stable")[: min(WINDOWS, np.count_nonzero(~np.isnan(wanted)))])
        missed = wanted[windows] - shown[:, windows]
        z = _sums(noise)[well] if well.any() else np.zeros((1, noise.shape[1]))
        outlook = Outlook(*_regress(d[:, windows] - mean[windows], z - z.mean(axis=0)))
        fails = np.isnan(missed).any(axis=1)  # without noise; with noise it may live
        missed[fails] = 0.0
        out = _log_normal(outlook.wide, outlook.wide_determinant, missed)
        out[fails] = out.min()
        self._plan = x, missed, outlook
        return np.where(np.isnan(x.reshape(len(x), -1)[:, 0]), -np.inf, out)

    def _move(
        self, rng: np.random.Generator, x: np.ndarray, first: int, last: int, ancestors: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        _, missed, outlook = self._plan
        noise = rng.standard_normal((len(ancestors), *self.model.noise_shape(last - first)))
        errors, free = rng.standard_normal((len(ancestors), missed.shape[1])), _sums(noise)
        z, log_ratio = _draw(missed[ancestors], *outlook, free, errors)
        noise += (z - free)[:, :, None] / np.sqrt(noise.shape[2])
        return self.model.drive(x, first, last, noise, ancestors), log_ratio


def _sums(noise: np.ndarray) -> np.ndarray:
    """Standard Gaussians (particle, source): the sum of each source's noise (particle, source, part)."""
    out: np.ndarray = noise.sum(axis=2) / np.sqrt(noise.shape[2])
    return out
