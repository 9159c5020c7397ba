"""`vpc bench`: how fast, as ratios between things measured in one run on one machine."""

import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from tqdm.auto import tqdm

import wormsim
from wormsim import geometry as geo
from wormsim import reference

SOLVERS = ("RK45", "RK23", "DOP853", "LSODA", "BDF")
TOLERANCES = 10.0 ** -np.arange(2.0, 9.0, 0.5)


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


def _step_microseconds(medium: float, threads: int, particles: int = 1600, steps: int = 20) -> float:
    """Microseconds for one body's step of 10 ms, all of `Body.step` included."""
    body = wormsim.Body(particles, medium)
    muscle = np.broadcast_to(muscle_wave(0.1), (particles, 2, geo.SEGMENTS)).copy()
    before = numba.get_num_threads()
    numba.set_num_threads(threads)
    try:
        body.step(muscle)
        quickest = _quickest(lambda: [body.step(muscle) for _ in range(steps)], repeats=15)
    finally:
        numba.set_num_threads(before)
    return 1e6 * quickest / (particles * steps)


def body(seconds: float = 5.0, progress: bool = True) -> dict[str, Any]:
    """Measure the body's step, and scipy's solvers on the reference equations at no larger error, on agar.

    Each solver runs at tightening tolerances until its worst rod is, at the end, as near to the true place as the kernel's is, or
    until it has become slower than another that is.
    """
    threads = numba.config.NUMBA_NUM_THREADS
    bar = tqdm(total=4 + len(SOLVERS), desc="measuring", disable=None if progress else True)

    def measured(value: Any) -> Any:
        bar.update()
        return value

    result: dict[str, Any] = {"threads": threads, "steps_of_seconds": 0.01}
    result["agar_us_one_thread"] = measured(_step_microseconds(1.0, 1))
    result["agar_us_all_threads"] = measured(_step_microseconds(1.0, threads))
    result["water_us_one_thread"] = measured(_step_microseconds(0.0, 1))

    start = geo.straight()[0]
    truth = reference.integrate(start, muscle_wave, seconds, rtol=1e-10, atol=1e-11)

    def error(state: np.ndarray) -> float:
        """Distance of the worst rod from the truth, % of body length."""
        return float(100 * np.hypot(*(state - truth)[:, :2].T).max() / geo.LENGTH)

    worm = wormsim.Body()
    steps = round(seconds / 0.01)
    for step in range(steps):
        worm.step(muscle_wave(0.01 * (step + 0.5))[None])
    result["kernel_error_percent"] = measured(error(worm.state[0]))

    result["scipy"] = {}
    best = np.inf
    for solver in SOLVERS:
        for tolerance in TOLERANCES:
            begin = time.perf_counter()
            end = reference.integrate(start, muscle_wave, seconds, method=solver, rtol=tolerance, atol=tolerance)
            taken = time.perf_counter() - begin
            good = error(end) <= result["kernel_error_percent"]
            if good:
                best = min(best, taken)
            if good or taken > best:
                result["scipy"][solver] = {
                    "rtol": float(tolerance), "error_percent": error(end), "ms_per_step": 1e3 * taken / steps, "as_good": good
                }  # fmt: skip
                break
        measured(None)
    bar.close()
    result["times_faster"] = 1e6 * best / steps / result["agar_us_one_thread"]
    return result


def table(result: dict[str, Any]) -> str:
    """The result of `body` for reading."""
    one, many = result["agar_us_one_thread"], result["agar_us_all_threads"]
    lines = [
        "One body, one step of 10 ms, second order; error after 5 s on agar in % of body length",
        f"  kernel, agar, 1 thread      {one:8.2f} us   error {result['kernel_error_percent']:.4f} %",
        f"  kernel, agar, {result['threads']} threads     {many:8.2f} us   {one / many:.2f} times one thread",
        f"  kernel, water, 1 thread     {result['water_us_one_thread']:8.2f} us",
        "scipy's solvers on the reference, at the loosest tolerance that is as good (or slower than one that is)",
    ]
    for solver, entry in result["scipy"].items():
        note = "" if entry["as_good"] else "   given up"
        lines.append(
            f"  {solver:7s} rtol {entry['rtol']:.0e}          {1e3 * entry['ms_per_step']:8.0f} us   "
            f"error {entry['error_percent']:.4f} %{note}"
        )
    lines.append(f"One core is {result['times_faster']:.0f} times faster than scipy's best.")
    return "\n".join(lines)
