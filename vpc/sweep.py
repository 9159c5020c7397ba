"""The worm and a recording of it as a state-space model, for `SMC`: particles are states (n, 994) of `vpc.loop`.

In memory each of the 994 numbers lies side by side for all particles, as in the kernel's blocks: nothing need be turned.

It starts in one of two ways:

- from the learned prior: voltages and calcium are drawn neuron by neuron, those of observed neurons with the first frame in
  view, and later ones too if asked. The evidence is then exact (its estimate unbiased)
- refined, as Warrington, Spencer & Wood do: many such draws live for one interval, those that fit the second frame are traced
  back to the start, and jittered. The evidence is then that of a model which starts where these draws are: it has seen the
  first two frames before it is asked how likely they are
"""

from collections.abc import Callable

import numba
import numpy as np

from wormsim import check

from . import loop
from .connectome import index
from .initialise import FACTOR, LEAST_CALCIUM, Prior, draw, learned_prior, poses
from .loop import BODY_ROW, CAUSES, EMPTY, LANES, MUSCLE_ROW, SIZE, Noise, Offspring, Record, Worms
from .neurons import N
from .observe import Fluorescence, fluorescence_of, sensitivities
from .protocol import inputs
from .recording import Recording
from .resampling import by_column, reweighted, systematic
from .worm import Worm, advance

__all__ = ["FromPrior", "WormModel", "model_of"]

PILOTS, DRAWS = 512, 10_000  # worms that tell what later frames say of a start, and draws of it from the prior
JITTER_VOLTAGE, JITTER_CALCIUM = 0.3, 0.1  # of the prior's sd, after tracing back


class WormModel:
    """A worm whose calcium is seen.

    Parameters
    ----------
    worm
        The simulator.
    recording
        What was seen.
    seen
        Its likelihood.
    prior
        Of voltages and calcium at the first frame.
    noise
        sd of the process noise of each neuron, mV a step.
    candidates
        How many draws to refine the start from; 0 starts from the prior, blindly.
    pose, pose_spread
        The body (49, 3) at the first frame, straight by default, and how far it may be bent otherwise, rad.
    """

    no_log_transition = "calcium and body are deterministic given the voltages; smooth by `trace` or a fixed lag"

    def __init__(
        self,
        worm: Worm,
        recording: Recording,
        seen: Fluorescence,
        prior: Prior,
        noise: np.ndarray,
        candidates: int = 0,
        pose: np.ndarray | None = None,
        pose_spread: float = 0.0,
    ):
        self.worm, self.recording, self.seen, self.prior = worm, recording, seen, prior
        self.noise = np.array(noise)
        self.noise[index(worm.ablated)] = 0.0
        self.candidates = check.whole("candidates", candidates, least=0)
        self.pose, self.pose_spread = pose, check.number("pose_spread", pose_spread, "from 0 to 1 rad", lambda x: 0 <= x <= 1)
        self._inputs = inputs((), int(recording.steps[-1]) + 1)
        self._nothing = Record(1 << 40, *(np.empty((0, 0, 0)) for _ in range(6)))
        self._spare = worm.start(1, 0)[0]
        self._worms: Worms | None = None  # of the last interval

    @property
    def parameters(self) -> dict[str, object]:
        """What two models must share to be the same."""
        own = {name: getattr(self, name) for name in ("noise", "candidates", "pose", "pose_spread")}
        worm = self.worm._attributes(0, 0, 0.0, ()) | {"objects": self.worm.objects}
        return own | {"worm": worm, "seen": self.seen._asdict(), "prior": self.prior._asdict()}

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """States from the prior; muscles are relaxed and the body is at rest."""
        x = np.zeros((n, SIZE), order="F")
        x[:, :N], x[:, N:BODY_ROW] = draw(self.prior, rng, n)
        x[:, BODY_ROW:MUSCLE_ROW].reshape(n, -1, 6)[:, :, :3] = poses(self.pose, self.pose_spread, rng, n)
        return x

    def initial(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Particles at the first frame."""
        if not self.candidates:
            return self.draw(rng, n)
        x = self.draw(rng, self.candidates)
        columns = self.seen.columns
        x[:, columns], _ = by_column(rng, x[:, columns], self.seen.each(self.recording.values[0], x[:, columns]))
        later = self.advance(rng, x, 0, int(self.recording.steps[1]))
        even = np.full(self.candidates, 1 / self.candidates)
        weights, _ = reweighted(even, self.seen.log_likelihood(self.recording.values[1], later))
        x = x[systematic(rng, weights, n)]
        x[:, :N] += JITTER_VOLTAGE * self.prior.voltage_sd * rng.standard_normal((n, N))
        x[:, N:BODY_ROW] += JITTER_CALCIUM * self.prior.calcium_sd * rng.standard_normal((n, N))
        np.maximum(x[:, N:BODY_ROW], LEAST_CALCIUM, out=x[:, N:BODY_ROW])
        self._worms = None
        return x

    def step(self, rng: np.random.Generator, x: np.ndarray, t: int) -> np.ndarray:
        """Particles at t + 1, of particles at t."""
        return self.advance(rng, x, t, t + 1)

    def advance(
        self,
        rng: np.random.Generator,
        x: np.ndarray,
        first: int,
        last: int,
        ancestors: np.ndarray | None = None,
        noise: np.ndarray | None = None,
    ) -> np.ndarray:
        """Offspring at a later step, all steps in one call of the kernel; those that failed are NaN.

        The Gaussian noise (particle, observed neuron, step) of the neurons that are observed can be given.
        """
        key = rng.bit_generator.random_raw(2)
        ancestors = np.arange(len(x)) if ancestors is None else ancestors
        return self._run(x, ancestors, first, last, self.noise, key, *(() if noise is None else (noise,)))

    def noise_shape(self, steps: int) -> tuple[int, int]:
        """The Gaussian noise of some steps: that of each neuron in each of them."""
        return N, steps

    def drive(
        self,
        x: np.ndarray,
        first: int,
        last: int,
        noise: np.ndarray | None = None,
        ancestors: np.ndarray | None = None,
    ) -> np.ndarray:
        """Offspring at a later step, given the noise on the way (particle, neuron, step) of all neurons; or without any."""
        ancestors, key = np.arange(len(x)) if ancestors is None else ancestors, np.zeros(2, np.uint64)
        if noise is None:
            return self._run(x, ancestors, first, last, np.zeros(N), key)
        return self._run(x, ancestors, first, last, self.noise, key, noise, watched=np.arange(N))

    def _run(
        self,
        x: np.ndarray,
        ancestors: np.ndarray,
        first: int,
        last: int,
        noise: np.ndarray,
        key: np.ndarray,
        given: np.ndarray = EMPTY,
        voltage: np.ndarray = EMPTY,
        decay: np.ndarray = EMPTY,
        watched: np.ndarray | None = None,
    ) -> np.ndarray:
        n = len(ancestors)
        worms = loop.room(n, min(numba.get_num_threads(), -(-n // LANES)))
        slots = np.arange(worms.alive.size, dtype=np.uint64).reshape(worms.alive.shape)
        if watched is None:
            watched = (self.seen.columns - N)[: max(given.shape[1], voltage.shape[1])]
        x, out = np.ascontiguousarray(x.T), np.empty((SIZE, n))
        offspring = Offspring(x, ancestors, self._spare, out, watched, given, voltage, decay)
        advance(self.worm, worms, first, last, self._inputs, Noise(noise, key, slots, 0), self._nothing, offspring)
        self._worms = worms
        return out.T

    def linearise(self, x: np.ndarray, first: int, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Fluorescence (particle, time, neuron) without noise, and its derivative by each neuron's own; see `vpc.guided`."""
        n, seen, steps = len(x), len(self.seen.columns), int(times[-1]) - first
        voltage, decay = np.empty((n, seen, steps)), np.empty((n, seen, steps))
        quiet, key = np.zeros_like(self.noise), np.zeros(2, np.uint64)
        self._run(x, np.arange(n), first, int(times[-1]), quiet, key, EMPTY, voltage, decay)
        predicted, jacobian = np.empty((n, len(times), seen)), np.empty((n, seen, len(times), steps))
        circuit, (columns, full, half, dark, _) = self.worm._compiled[0], self.seen
        ends = np.asarray(times) - first
        where = columns - N
        sensitivities(x[:, columns], voltage, decay, ends, self.noise, circuit, where, full, half, dark, predicted, jacobian)
        return predicted, jacobian, int(times[0]) - first

    def log_likelihood(self, y: np.ndarray, x: np.ndarray, t: int) -> np.ndarray:
        """log p(y | x) of each particle; -inf for one that has failed."""
        return self.seen.log_likelihood(y, x)

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fluorescence (particle, neuron) without noise, and the sd of its noise."""
        return self.seen.predict(x), self.seen.sigma

    def confine(self, x: np.ndarray) -> None:
        """Keep calcium above a floor."""
        calcium = x[:, N : 2 * N]
        np.maximum(calcium, LEAST_CALCIUM, out=calcium)

    def explain(self) -> str:
        """Why worms failed in the last interval."""
        causes = [] if self._worms is None else [CAUSES[code] for code in np.unique(self._worms.cause)]
        return "; ".join(filter(None, causes)) or "no particle comes near the recording"


class FromPrior(WormModel):
    """The same, started from the prior with the first frame in view."""

    def propose(
        self,
        rng: np.random.Generator,
        x: np.ndarray,
        y: np.ndarray,
        first: int,
        last: int,
        ancestors: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first frame with y in view; later ones from the model."""
        if last > first:
            return self.advance(rng, x, first, last, ancestors), np.zeros(len(x))
        return self.propose_start(rng, x, y, 0)

    def propose_start(
        self, rng: np.random.Generator, x: np.ndarray, y: np.ndarray, look_ahead: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first frame, drawn from the prior with y and some later frames in view, and log p / q.

        Voltage and calcium of each observed neuron are drawn many times from their prior, and resampled by how well they fit
        the first frame and, as other worms tell, later ones. These worms are independent of the draws, so that the estimate is
        unbiased.
        """
        fits = self._prospects(rng, look_ahead)
        which = self.seen.columns - N
        own = Prior(*(values[which] for values in self.prior))
        draws = np.stack(draw(own, rng, max(DRAWS, len(x))), axis=2)
        draws, log_estimate = by_column(rng, draws, self.seen.each(y, draws[:, :, 1]) + fits(draws), len(x))
        x = x.copy()
        x[:, which], x[:, self.seen.columns] = draws[:, :, 0], draws[:, :, 1]
        return x, log_estimate - self.seen.log_likelihood(y, x) - fits(draws).sum(axis=1)

    def _prospects(self, rng: np.random.Generator, look_ahead: int) -> Callable[[np.ndarray], np.ndarray]:
        """How well voltage and calcium (draw, neuron, 2) at the first frame fit the next ones: log densities, each neuron's.

        Worms from the prior show how those depend on these, to first order, and how much they vary otherwise.
        """
        if look_ahead == 0:
            return lambda values: np.zeros(values.shape[:2])
        x, shown, steps = self.draw(rng, PILOTS), [], self.recording.steps
        start = x[:, np.stack([self.seen.columns - N, self.seen.columns], axis=1)]
        coming = slice(1, 1 + look_ahead)
        for before, step in zip(steps, steps[coming], strict=False):
            x = self.advance(rng, x, int(before), int(step))
            shown.append(self.seen.predict(x))
        alive = np.isfinite(x[:, 0])
        laws = []
        for k, y in enumerate(self.recording.values[coming].T):
            known = np.flatnonzero(~np.isnan(y))
            features = np.insert(start[alive, k], 0, 1.0, axis=1)
            later = np.array([shown[frame][alive, k] for frame in known]).reshape(len(known), len(features)).T
            slopes = np.linalg.pinv(np.einsum("pi,pj->ij", features, features)) @ np.einsum("pi,pj->ij", features, later)
            rest = later - np.einsum("pi,ij->pj", features, slopes)
            spread = np.einsum("pi,pj->ij", rest, rest) / max(1, len(rest)) + self.seen.sigma[k] ** 2 * np.eye(len(known))
            laws.append((y[known], slopes, np.linalg.inv(spread)))

        def fits(values: np.ndarray) -> np.ndarray:
            out = np.empty(values.shape[:2])
            for k, (y, slopes, precision) in enumerate(laws):
                error = y - np.einsum("pi,ij->pj", np.insert(values[:, k], 0, 1.0, axis=1), slopes)
                out[:, k] = -0.5 * np.einsum("pi,ij,pj->p", error, precision, error)
            return out

        return fits


def model_of(
    worm: Worm,
    recording: Recording,
    scaling: str = "settled",
    factor: float = FACTOR,
    sigma: float | np.ndarray | None = None,
    temperature: float = 1.0,
    candidates: int = 0,
    pose: np.ndarray | None = None,
    pose_spread: float = 0.0,
    corpus: Worm | None = None,
) -> WormModel:
    """The model that `vpc.impute` filters; its arguments mean the same there.

    Prior, noise and sigma are learned from the worm itself, or from another one, `corpus`: evidences of two worms can only be
    compared if they have these in common.
    """
    factor = check.number("factor", factor, "from 0 to 10", lambda x: 0 <= x <= 10)
    temperature = check.number("temperature", temperature, "a positive number", lambda x: x > 0)
    prior = learned_prior(worm if corpus is None else corpus, scaling)
    widths = prior.sigma.copy()
    if sigma is not None:
        given = check.array("sigma", sigma, () if np.ndim(sigma) == 0 else (len(recording.neurons),))
        if not (given > 0).all():
            raise ValueError(f"sigma must be positive, got {sigma!r}")
        widths[index(recording.neurons)] = given
    seen = fluorescence_of(worm, recording, widths, temperature)
    candidates = candidates if len(recording.steps) > 1 else 0
    kind = WormModel if candidates else FromPrior
    return kind(worm, recording, seen, prior, factor * prior.noise, candidates, pose, pose_spread)
