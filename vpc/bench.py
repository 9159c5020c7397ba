"""`vpc bench`: how fast, as ratios between things measured in one run on one machine."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numba
import numpy as np
from tqdm.auto import tqdm

import vpc
import wormsim
from vpc import reference as plain
from wormsim import geometry as geo
from wormsim import reference

SOLVERS = ("RK23", "RK45", "DOP853", "LSODA", "BDF")
STEP = 0.01  # s
TURNS = 25  # for each of some things that are measured by turns


def muscle_wave(t: float) -> np.ndarray:
    """Smooth muscle activations (2, 48) of a wave of 0.4 Hz and 0.65 body lengths."""
    wave = np.sin(2 * np.pi * (0.4 * t - np.linspace(0, 1, geo.SEGMENTS) / 0.65))
    return 0.5 * geo.NEUROMUSCULAR_GAIN * np.stack([1 + wave, 1 - wave])


def _quickest(run: Callable[[], Any], repeats: int) -> float:
    """Wall seconds of the quickest of some runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@contextlib.contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Let numba use so many threads for a while."""
    before = numba.get_num_threads()
    numba.set_num_threads(count)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def _step_microseconds(medium: float, threads: int, particles: int = 1600, steps: int = 20) -> float:
    """Microseconds for one body's step of 10 ms, all of `Body.step` included."""
    body = wormsim.Body(particles, medium)
    muscle = np.broadcast_to(muscle_wave(0.1), (particles, 2, geo.SEGMENTS)).copy()

    def run() -> None:
        for _ in range(steps):
            body.step(muscle)

    with on_threads(threads):
        body.step(muscle)
        quickest = _quickest(run, repeats=15)
    return 1e6 * quickest / (particles * steps)


def _by_steps(muscles: np.ndarray, **solver: Any) -> np.ndarray:
    """The state after steps of 10 ms under given muscles by scipy, started anew at each step as a closed loop demands."""
    state = geo.straight()[0]
    for muscle in muscles:

        def held(t: float, muscle: np.ndarray = muscle) -> np.ndarray:
            return muscle

        state = reference.integrate(state, held, STEP, **solver)
    return state


def _in_one_call(muscles: np.ndarray, **solver: Any) -> np.ndarray:
    """The same with muscles known in advance as a smooth function, so that scipy may choose its steps freely."""
    return reference.integrate(geo.straight()[0], muscle_wave, len(muscles) * STEP, **solver)


def body(seconds: float = 5.0, progress: bool = True) -> dict[str, Any]:
    """Measure the body's step, and scipy's solvers on the reference equations at no larger error, on agar.

    Each solver runs at tightening tolerances until its worst rod ends as near to the true place as the kernel's does, or until
    it has become half as slow again as another that is as good.
    """
    threads = min(2, numba.config.NUMBA_NUM_THREADS)
    # Each way with its loosest useful tolerance: with free steps, explicit solvers are unstable at looser ones.
    ways = {"by_steps": (_by_steps, 1e-1), "in_one_call": (_in_one_call, 1e-3)}
    bar = tqdm(total=3 + len(ways) * (1 + len(SOLVERS)), desc="measuring", disable=None if progress else True)
    result: dict[str, Any] = {"threads": threads, "seconds": seconds}
    for name, medium, count in (("agar_us", 1.0, 1), ("agar_us_threads", 1.0, threads), ("water_us", 0.0, 1)):
        result[name] = _step_microseconds(medium, count)
        bar.update()

    muscles = np.array([muscle_wave(STEP * (step + 0.5)) for step in range(round(seconds / STEP))])
    worm = wormsim.Body()
    for muscle in muscles:
        worm.step(muscle[None], STEP)
    for way, (solve, loosest) in ways.items():
        truth = solve(muscles, rtol=1e-10, atol=1e-11)
        bar.update()

        def error(state: np.ndarray, truth: np.ndarray = truth) -> float:
            """Distance of the worst rod from the truth, % of body length."""
            return float(100 * np.hypot(*(state - truth)[:, :2].T).max() / geo.LENGTH)

        kernel_error = error(worm.state[0])
        best, solvers = np.inf, {}
        for solver in SOLVERS:
            for tolerance in loosest * 10 ** -np.arange(0, 7, 0.5):
                begin = time.perf_counter()
                end = solve(muscles, method=solver, rtol=tolerance, atol=tolerance)
                taken = 1e6 * (time.perf_counter() - begin) / len(muscles)
                if taken < 1.5 * best:  # a candidate gets more tries, as the kernel does
                    again = partial(solve, muscles, method=solver, rtol=tolerance, atol=tolerance)
                    taken = min(taken, 1e6 * _quickest(again, repeats=2) / len(muscles))
                as_good = error(end) <= kernel_error
                if as_good or taken > 1.5 * best:
                    best = min(best, taken) if as_good else best
                    solvers[solver] = {"rtol": float(tolerance), "us": taken, "error_percent": error(end), "as_good": as_good}
                    break
            bar.update()
        result[way] = {
            "kernel_error_percent": kernel_error,
            "scipy": solvers,
            "times_faster": best / result["agar_us"],
            "times_faster_threads": best / result["agar_us_threads"],
        }
    bar.close()
    return result


def _worm_seconds(animal: vpc.Worm, worms: int, seconds: float, noise: float, threads: int) -> float:
    """Wall seconds for some worms to live so long, all of `Worm.simulate` included."""
    with on_threads(threads):
        return _quickest(lambda: animal.simulate(seconds, n=worms, noise=noise, record=(), every=seconds, progress=False), 1)


def worm(progress: bool = True) -> dict[str, Any]:
    """Measure the closed loop, beside the body alone and the same step in plain numpy."""
    threads = min(2, numba.config.NUMBA_NUM_THREADS)
    animal = vpc.Worm()
    bar = tqdm(total=TURNS + 5, desc="measuring", disable=None if progress else True)
    result: dict[str, Any] = {"threads": threads}
    # By turns, so that a machine's slow moments, which others who share it make, fall on all alike.
    ways = {"quiet_us": (0.0, 1), "noisy_us": (0.05, 1), "noisy_us_threads": (0.05, threads)}
    quickest = dict.fromkeys(ways, np.inf)
    for _ in range(TURNS):
        for name, way in ways.items():
            quickest[name] = min(quickest[name], _worm_seconds(animal, 160, 5.0, *way))
        bar.update()
    result |= {name: 1e6 * seconds / (160 * 5.0 / STEP) for name, seconds in quickest.items()}
    result["body_us"] = _step_microseconds(1.0, 1)
    bar.update()

    result["thousand_worms_5_s"] = min(_worm_seconds(animal, 1000, 5.0, 0.05, 1) for _ in range(3))
    bar.update()
    result["one_worm_10_s"] = _quickest(lambda: animal.simulate(10, progress=False), repeats=3)
    bar.update()

    fresh = [sys.executable, "-c", "import vpc; vpc.Worm().simulate(10, progress=False)"]
    result["new_process_10_s"] = _quickest(lambda: subprocess.run(fresh, check=True), repeats=3)
    bar.update()

    steps = 20
    start = animal.simulate(STEP).isel(time=0)
    state = plain.State(start["voltage"].values, start["calcium"].values, wormsim.Body(), np.zeros((2, geo.SEGMENTS)))

    def by_numpy() -> None:
        now = state
        for _ in range(steps):
            now = plain.step(animal, now)

    result["numpy_us"] = 1e6 * _quickest(by_numpy, repeats=2) / steps
    bar.update()
    bar.close()
    result["times_faster"] = result["numpy_us"] / result["quiet_us"]
    return result


def smc(progress: bool = True, sweeps: int = 100) -> dict[str, Any]:
    """Measure bootstrap sweeps of the AR model, 200 particles x 200 steps, beside `particles` on one thread.

    The independent noise of the 30 species can be written in two ways there: as 30 normal distributions, word for word, or as
    one multivariate normal, which BLAS draws at once.
    """
    try:
        import particles
        from particles import distributions, state_space_models
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise ValueError("vpc bench smc needs the package `particles`, which `make setup` installs") from error

    from .autoregressive import Autoregressive
    from .smc import SMC

    class Bootstrap(Autoregressive):
        propose = None  # type: ignore[assignment]

    class StepByStep(Bootstrap):
        advance = None  # type: ignore[assignment]

        def step(self, rng: np.random.Generator, x: np.ndarray, t: int) -> np.ndarray:
            return Autoregressive.advance(self, rng, x, t, t + 1)

    model, species, count = Bootstrap(), 30, 200
    _, times, y = model.simulate(0)
    transition = np.eye(species) + model.weights
    data = [y[t // 10] if t % 10 == 0 else None for t in range(201)]

    class Unobserved(distributions.ProbDist):
        def logpdf(self, x: object) -> np.ndarray:
            return np.zeros(count)

    def independent(mean: np.ndarray, sd: float) -> Any:
        return distributions.IndepProd(*(distributions.Normal(mean[..., k], sd) for k in range(species)))

    def multivariate(mean: np.ndarray, sd: float) -> Any:
        return distributions.MvNormal(mean, sd, np.eye(species))

    def theirs(normal: Callable[[np.ndarray, float], Any]) -> Callable[[], Any]:
        class Model(state_space_models.StateSpaceModel):
            def PX0(self) -> Any:
                return normal(np.zeros(species), 1.0)

            def PX(self, t: int, xp: np.ndarray) -> Any:
                return normal(xp @ transition.T, model.process_noise)

            def PY(self, t: int, xp: np.ndarray, x: np.ndarray) -> Any:
                return Unobserved() if data[t] is None else normal(model.observe(x), model.observation_noise)

        feynman_kac = state_space_models.Bootstrap(Model(), data)
        return lambda: particles.SMC(feynman_kac, N=count, resampling="systematic", ESSrmin=0.5).run()

    bar = tqdm(total=4, desc="measuring", disable=None if progress else True)
    result: dict[str, Any] = {"particles": count, "steps": 200, "species": species}
    with on_threads(1), threadpool_limits(1):
        for name, run, repeats in (
            ("ours_ms", lambda: SMC(model, y, times, count).run(), sweeps),
            ("ours_by_steps_ms", lambda: SMC(StepByStep(), y, times, count).run(), sweeps),
            ("theirs_independent_ms", theirs(independent), sweeps // 10),
            ("theirs_multivariate_ms", theirs(multivariate), sweeps // 4),
        ):
            run()
            result[name] = 1e3 * _quickest(run, repeats)
            bar.update()
    bar.close()
    result["sweeps_per_second"] = 1e3 / result["ours_ms"]
    for way in ("independent", "multivariate"):
        result[f"times_faster_than_{way}"] = result[f"theirs_{way}_ms"] / result["ours_ms"]
    return result


def smc_table(result: dict[str, Any]) -> str:
    """The result of `smc` for reading."""
    return "\n".join(
        [
            f"One bootstrap sweep of the AR model: {result['species']} species, {result['particles']} particles, "
            f"{result['steps']} steps, one thread.",
            f"  vpc, ten steps at once                     {result['ours_ms']:7.2f} ms   "
            f"{result['sweeps_per_second']:.0f} sweeps/s",
            f"  vpc, step by step                          {result['ours_by_steps_ms']:7.2f} ms",
            *(
                f"  particles, {label:30s}  {result[f'theirs_{way}_ms']:7.2f} ms   "
                f"{result[f'times_faster_than_{way}']:.1f} times slower"
                for way, label in (("independent", "30 normals"), ("multivariate", "one multivariate normal (BLAS)"))
            ),
        ]
    )


def impute(progress: bool = True) -> dict[str, Any]:
    """Measure whole sweeps: the paper's size, ten times as many particles, and how the cost grows with particles and frames."""
    import resource

    from .experiments import experiment

    animal = vpc.Worm()
    _, seen = experiment("paper", animal)
    vpc.impute(animal, seen, "bootstrap", 32, 32, progress=False)  # compile

    def sweep(recording: vpc.Recording, particles: int, candidates: int) -> tuple[float, float]:
        begin, busy = time.perf_counter(), time.process_time()
        vpc.impute(animal, recording, "bootstrap", particles, candidates, progress=False)
        return time.perf_counter() - begin, time.process_time() - busy

    crowds, lengths = (100, 316, 1000, 3162, 10_000), (0.5, 1.5, 5.0, 15.0, 50.0)
    bar = tqdm(total=3 + len(crowds) + len(lengths), desc="measuring", disable=None if progress else True)
    tries = []
    for _ in range(3):
        tries.append(sweep(seen, 1000, 5000))
        bar.update()
    wall, core = min(tries)
    result: dict[str, Any] = {"threads": numba.get_num_threads(), "paper_wall": wall, "paper_core": core}
    by_particles, by_frames = [], []
    for particles in crowds:
        by_particles.append(sweep(seen, particles, 0)[1])
        bar.update()
    result["ten_thousand_core"] = by_particles[-1]
    result["ten_thousand_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    for seconds in lengths:
        by_frames.append(sweep(experiment("paper", animal, seconds=seconds).recording, 100, 0)[1])
        bar.update()
    bar.close()
    result["by_particles"] = dict(zip(map(str, crowds), by_particles, strict=True))
    result["by_seconds"] = dict(zip(map(str, lengths), by_frames, strict=True))
    result["slope_particles"] = float(np.polyfit(np.log(crowds), np.log(by_particles), 1)[0])
    result["slope_frames"] = float(np.polyfit(np.log(lengths), np.log(by_frames), 1)[0])
    return result


def impute_table(result: dict[str, Any]) -> str:
    """The result of `impute` for reading."""
    particles = ", ".join(f"{n}: {taken:.1f}" for n, taken in result["by_particles"].items())
    seconds = ", ".join(f"{n} s: {taken:.1f}" for n, taken in result["by_seconds"].items())
    return "\n".join(
        [
            "One whole-worm sweep over 5 s, 49 neurons seen every 0.05 s; summaries of 847 numbers at each frame included.",
            f"  1000 particles (5000 to start)   {result['paper_core']:6.1f} core-s   {result['paper_wall']:.1f} s on "
            f"{result['threads']} threads; the paper reports 38,400 core-s",
            f"  10,000 particles                 {result['ten_thousand_core']:6.1f} core-s   at most "
            f"{result['ten_thousand_gb']:.1f} GB of memory",
            f"Core-seconds by particles: {particles}; log-log slope {result['slope_particles']:.2f}.",
            f"Core-seconds by length, 100 particles: {seconds}; log-log slope {result['slope_frames']:.2f}.",
        ]
    )


def worm_table(result: dict[str, Any]) -> str:
    """The result of `worm` for reading."""
    one, many = result["noisy_us"], result["noisy_us_threads"]
    return "\n".join(
        [
            "One worm, one step of 10 ms: 302 neurons, 96 muscles, 49 rods, on agar.",
            f"  without noise, 1 thread   {result['quiet_us']:8.2f} us   of which the body alone {result['body_us']:.2f} us",
            f"  with noise, 1 thread      {one:8.2f} us",
            f"  with noise, {result['threads']} threads     {many:8.2f} us   {one / many:.2f} times one thread",
            f"  plain numpy, no noise     {result['numpy_us']:8.0f} us   {result['times_faster']:.0f} times slower",
            f"1000 noisy worms for 5 s take {result['thousand_worms_5_s']:.2f} s on one core.",
            f"One worm for 10 s, recorded, takes {result['one_worm_10_s']:.3f} s, "
            f"and {result['new_process_10_s']:.1f} s in a new process, most of it for imports.",
        ]
    )


def body_table(result: dict[str, Any]) -> str:
    """The result of `body` for reading."""
    one, many = result["agar_us"], result["agar_us_threads"]
    lines = [
        f"One body, one step of 10 ms; errors are of the worst rod after {result['seconds']} s on agar, in % of body length.",
        f"  kernel, agar, 1 thread    {one:8.2f} us",
        f"  kernel, agar, {result['threads']} threads   {many:8.2f} us   {one / many:.2f} times one thread",
        f"  kernel, water, 1 thread   {result['water_us']:8.2f} us",
    ]
    for way, heading in (
        ("by_steps", "scipy on the reference, muscles arriving step by step as from a nervous system"),
        ("in_one_call", "scipy on the reference, muscles known in advance, free choice of steps"),
    ):
        found = result[way]
        lines.append(f"{heading} (kernel's error {found['kernel_error_percent']:.4f} %)")
        for solver, entry in found["scipy"].items():
            note = "" if entry["as_good"] else "   given up: not as good, and slower than one that is"
            lines.append(
                f"  {solver:7s} rtol {entry['rtol']:.0e}       {entry['us']:8.0f} us   "
                f"error {entry['error_percent']:.4f} %{note}"
            )
        lines.append(
            f"  The kernel is {found['times_faster']:.0f} times faster than the best on one thread, "
            f"{found['times_faster_threads']:.0f} times on {result['threads']}."
        )
    return "\n".join(lines)
