"""The closed loop as one kernel: stretch, neurons, muscles, body, for many worms and many steps in one call.

A worm's state is 994 numbers: 302 voltages, 302 calcium concentrations, 49 rods x (x, y, phi and their velocities), 96 muscles.
Worms are kept in blocks of `LANES`, as bodies are in `wormsim.blocks`: a block is rows of one number for each of its worms.
Lanes never mix, and noise depends only on a worm's slot and the step, so a worm's future does not depend on its neighbours.
"""

from typing import NamedTuple

import numpy as np
from numba import prange

from wormsim import geometry as geo
from wormsim.blocks import LANES, SCRATCH
from wormsim.kernel import aligned, kernel
from wormsim.mechanics import step_block
from wormsim.stretch import UNITS, stretch_block

from .coupling import MEAN, MOST_ACTIVE, MUSCLES, RECEPTORS, TARGET, drive, excite, sense, unit_sums
from .neurons import CALCIUM, CURRENT, GAUSSIAN, HIGHEST, MID, PART, STEP, WORK, G, N, activate, keep, relax, sum_up
from .noise import PROCESS, gaussians

# Rows of a worm's state, after voltage and calcium.
BODY_ROW, MUSCLE_ROW = 2 * N, 2 * N + 6 * geo.RODS
SIZE = MUSCLE_ROW + 2 * geo.SEGMENTS
MOST_CALCIUM = 1e6  # uM
FINE, VOLTAGE_FAILED, MUSCLE_FAILED, BODY_FAILED, FAILED_BEFORE = range(5)
CAUSES = ("", "a voltage beyond 250 mV", "a muscle activation beyond 3", "a body bent beyond what is physical", "")


class Worms(NamedTuple):
    """Some blocks of worms, and what has become of them."""

    blocks: np.ndarray  # (block, 994 * lanes)
    alive: np.ndarray  # (block, lane): 1, or 0
    cause: np.ndarray  # why a worm failed
    failed_step: np.ndarray  # and when; -1 if it did not


class Surroundings(NamedTuple):
    """What the body lies in, and into how many its step is cut."""

    along: float
    across: float
    objects: np.ndarray
    substeps: int


class Inputs(NamedTuple):
    """What an experimenter does, by step: clamps (the command is NaN where a neuron is free) and injected currents."""

    clamped: np.ndarray  # neurons
    command: np.ndarray  # (step, clamped), mV
    injected: np.ndarray  # neurons
    current: np.ndarray  # (step, injected), pA


class Noise(NamedTuple):
    """Noise of the voltages: its size, and what it is drawn by."""

    scale: np.ndarray  # (neuron,), mV a step
    key: np.ndarray
    slots: np.ndarray  # (block, lane)
    first_step: int  # of the run, counted from where its noise began


class Record(NamedTuple):
    """Frames (worm, frame, ...) to be filled every so many steps, the start included; those without worms are left out."""

    every: int
    voltage: np.ndarray
    calcium: np.ndarray
    body: np.ndarray
    velocity: np.ndarray
    muscle: np.ndarray
    current: np.ndarray  # of the clamps, pA, in the step that begins with the frame


class Offspring(NamedTuple):
    """Particles whose descendants are wanted: of states x (994, particle) the ancestors' become `out`; empty in other runs.

    Some neurons can be watched: their Gaussian noise can be given, and what they did can be had.
    """

    x: np.ndarray
    ancestors: np.ndarray
    spare: np.ndarray  # (994,), a state to put in the place of one that has failed
    out: np.ndarray
    watched: np.ndarray  # neurons
    given: np.ndarray  # (particle, watched, step)
    voltage: np.ndarray  # (particle, watched, step), after each step
    decay: np.ndarray  # and what is left after the step of a deviation before it


EMPTY = np.empty((0, 0, 0))
_STATES, _WHICH = np.empty((0, 0)), np.empty(0, np.int64)
NONE = Offspring(_STATES, _WHICH, np.empty(0), _STATES, _WHICH, EMPTY, EMPTY, EMPTY)


def room(n: int, threads: int) -> Worms:
    """Empty blocks, one for each thread, through which n particles can pass."""
    lanes = (-(-n // LANES), LANES)
    blocks = aligned(threads * SIZE * LANES).reshape(threads, -1)
    return Worms(blocks, np.ones(lanes), np.zeros(lanes, int), np.full(lanes, -1))


def pack(state: np.ndarray) -> Worms:
    """Worms in given states (worm, 994); the last block is filled up with copies of the first."""
    lanes = (-(-len(state) // LANES), LANES)
    padded = np.concatenate([state, np.repeat(state[:1], lanes[0] * LANES - len(state), axis=0)])
    blocks = aligned(padded.size).reshape(lanes[0], SIZE, LANES)
    blocks[:] = padded.reshape(*lanes, SIZE).swapaxes(1, 2)
    return Worms(blocks.reshape(lanes[0], -1), np.ones(lanes), np.zeros(lanes, int), np.full(lanes, -1))


@kernel
def _write(record, rows, b, activation, alive, block, frame):
    """Write a frame of a block; of failed worms, NaN."""
    first = block * LANES
    for i in range(LANES):
        valid = 1.0 if alive[i] > 0.0 else np.nan
        for out, row in ((record.voltage, 0), (record.calcium, CALCIUM // LANES)):
            if first + i < len(out):
                for k in range(out.shape[2]):
                    out[first + i, frame, k] = valid * rows[row + k, i]
        for out, row in ((record.body, 0), (record.velocity, 3)):
            if first + i < len(out):
                for k in range(out.shape[2]):
                    out[first + i, frame, k] = valid * b[BODY_ROW + row + 6 * (k // 3) + k % 3, i]
        if first + i < len(record.muscle):
            for k in range(record.muscle.shape[2]):
                record.muscle[first + i, frame, k] = valid * activation[k, i]


@kernel
def _write_current(record, inputs, rows, alive, step, block):
    """Write what it takes to hold the clamped neurons against the ionic currents that flow at the start of a step."""
    for k in range(len(inputs.clamped)):
        m, command = inputs.clamped[k], inputs.command[step, k]
        for i in range(min(LANES, len(record.current) - block * LANES)):
            valid = 1e-3 if alive[i] > 0.0 else np.nan
            need = rows[G // LANES + m, i] * command - rows[CURRENT // LANES + m, i]
            record.current[block * LANES + i, step // record.every, k] = valid * need


@kernel
def _bound(rows, limit, alive):
    """Find the worms of which a number is beyond its limit or none at all, and bring it back within: others must not suffer."""
    for i in range(LANES):
        for k in range(len(rows)):
            x = rows[k, i]
            if not abs(x) < limit:
                alive[i] = 0.0
                rows[k, i] = -limit if x < 0.0 else limit


@kernel
def _notice(which, step, alive, cause, failed_step):
    """Note why and when worms failed."""
    for i in range(LANES):
        if alive[i] == 0.0 and cause[i] == FINE:
            cause[i], failed_step[i] = which, step


@kernel
def _load(x, ancestors, spare, first, b, alive, cause):
    """Fill a block with the states (994, particle) of ancestors; one that has failed (NaN) is replaced, and does not live."""
    own = np.empty(LANES, np.int64)
    for i in range(LANES):
        own[i] = ancestors[min(first + i, len(ancestors) - 1)]
    if np.all(own == own[0] + np.arange(LANES)):
        for k in range(SIZE):
            row = x[k, own[0] :]
            for i in range(LANES):
                b[k, i] = row[i]
    else:
        for k in range(SIZE):
            for i in range(LANES):
                b[k, i] = x[k, own[i]]
    for i in range(LANES):
        alive[i], cause[i] = 1.0, FINE
        if np.isnan(b[0, i]):
            alive[i], cause[i] = 0.0, FAILED_BEFORE
            b[:, i] = spare


@kernel
def _store(b, alive, first, out):
    """Write a block into states (994, particle); of failed worms, NaN."""
    for i in range(LANES):
        if alive[i] == 0.0:
            b[:, i] = np.nan
    lanes = min(LANES, out.shape[1] - first)
    for k in range(SIZE):
        row = out[k, first:]
        if lanes == LANES:
            for i in range(LANES):
                row[i] = b[k, i]
        else:
            for i in range(lanes):
                row[i] = b[k, i]


@kernel
def _give(offspring, first, step, gaussian):
    """Put given noise in the place of that which was drawn."""
    for k in range(len(offspring.watched)):
        for i in range(min(LANES, len(offspring.given) - first)):
            gaussian[offspring.watched[k], i] = offspring.given[first + i, k, step]


@kernel
def _watch(offspring, first, step, rate, rows):
    """Note the voltages of watched neurons, and how fast they relaxed in the last step, as `relax` has it."""
    for k in range(len(offspring.watched)):
        m = offspring.watched[k]
        for i in range(min(LANES, len(offspring.voltage) - first)):
            z = STEP * rate[m] * rows[G // LANES + m, i]
            offspring.voltage[first + i, k, step] = rows[m, i]
            offspring.decay[first + i, k, step] = 1 / (1 + z * (1 + z * (1 / 2 + z * (1 / 6 + z / 24))))


@kernel
def _share(share, shares, worms, first, last, circuit, coupling, surroundings, inputs, noise, record, offspring):
    """Advance every block whose number leaves a remainder of `share`; those of offspring pass through one block."""
    c, (blocks, alive, cause, failed_step) = circuit, worms
    room, work = aligned(SCRATCH), aligned(WORK)
    work[:] = 0.0
    rows = work.reshape(-1, LANES)
    conductances, currents = rows[G // LANES :], rows[CURRENT // LANES :]
    stretch, muscles = aligned(2 * geo.SEGMENTS * LANES).reshape(-1, LANES), aligned(3 * MUSCLES)
    activation = muscles[:MUSCLES].reshape(-1, LANES)
    units, received = aligned((3 * UNITS + 5) * LANES).reshape(-1, LANES), aligned(RECEPTORS * 2 * LANES).reshape(-1, 2 * LANES)
    units[:] = 0.0
    current, rate, scale = c.current.copy(), c.rate.copy(), noise.scale.copy()
    noisy = np.any(noise.scale > 0.0)
    along, across, objects, substeps = surroundings
    h = STEP / substeps
    muscle_share = 1 - np.exp(-STEP / geo.MUSCLE_TIME)
    passing = len(offspring.out) > 0
    for n in range(share, len(alive), shares):
        block = blocks[share] if passing else blocks[n]
        b, living = block.reshape(SIZE, LANES), alive[n]
        body = block[BODY_ROW * LANES : MUSCLE_ROW * LANES]
        if passing:
            _load(offspring.x, offspring.ancestors, offspring.spare, n * LANES, b, living, cause[n])
        activation[:] = b[MUSCLE_ROW:]
        rows[:N] = rows[MID // LANES : MID // LANES + N] = b[:N]
        rows[CALCIUM // LANES : CALCIUM // LANES + N] = b[N : 2 * N]
        for step in range(first, last):
            # What the experimenter does: clamped voltages are set, and then rest because nothing can charge them.
            for k in range(len(inputs.clamped)):
                m, command = inputs.clamped[k], inputs.command[step, k]
                free = np.isnan(command)
                rate[m], scale[m] = c.rate[m] if free else 0.0, noise.scale[m] if free else 0.0
                if not free:
                    rows[m] = rows[MID // LANES + m] = command
            for k in range(len(inputs.injected)):
                m = inputs.injected[k]
                current[m] = c.current[m] + 1e3 * inputs.current[step, k]
            recording = step % record.every == 0
            if recording:
                _write(record, rows, b, activation, living, n, step // record.every)

            # Stretch.
            stretch_block(body, room, stretch.reshape(-1))
            unit_sums(coupling, stretch, units)
            sense(coupling, units, received)

            # Neurons: conductances and currents at the start, and again in the middle.
            for half in range(2):
                activate(circuit, work)
                sum_up(c.conductance_where, c.conductance_weight, c.conductance, rows, conductances)
                sum_up(c.current_where, c.current_weight, current, rows, currents)
                excite(coupling, c.equilibrium, received, work)
                if recording and half == 0:
                    _write_current(record, inputs, rows, living, step, n)
                relax(0.5 * (1 + half) * STEP, rate, work)
            if noisy:
                gaussians(work[GAUSSIAN : GAUSSIAN + PART], noise.slots[n], noise.first_step + step, PROCESS, noise.key)
                _give(offspring, n * LANES, step - first, rows[GAUSSIAN // LANES :])
            if keep(circuit, scale, work):
                _bound(rows[:N], HIGHEST, living)
                _bound(rows[MID // LANES : MID // LANES + N], HIGHEST, living)
                _bound(rows[CALCIUM // LANES : CALCIUM // LANES + N], MOST_CALCIUM, living)
                _notice(VOLTAGE_FAILED, step, living, cause[n], failed_step[n])
            _watch(offspring, n * LANES, step - first, rate, rows)

            # Muscles and body.
            if drive(coupling, c.equilibrium, rows, muscle_share, muscles):
                _bound(activation, MOST_ACTIVE, living)
                _notice(MUSCLE_FAILED, step, living, cause[n], failed_step[n])
            for _ in range(substeps):
                step_block(body, room, muscles[MEAN:TARGET], h, along, across, objects, living)
            _notice(BODY_FAILED, step, living, cause[n], failed_step[n])
        if last % record.every == 0:
            _write(record, rows, b, activation, living, n, last // record.every)
        b[MUSCLE_ROW:] = activation
        b[:N] = rows[:N]
        b[N : 2 * N] = rows[CALCIUM // LANES : CALCIUM // LANES + N]
        if passing:
            _store(b, living, n * LANES, offspring.out)


@kernel
def run(worms, first, last, circuit, coupling, surroundings, inputs, noise, record, offspring):
    """Advance worms in place, or offspring, from one step of 10 ms to another, on the calling thread."""
    _share(0, 1, worms, first, last, circuit, coupling, surroundings, inputs, noise, record, offspring)


@kernel(parallel=True)
def run_parallel(threads, worms, first, last, circuit, coupling, surroundings, inputs, noise, record, offspring):
    """`run` on some of numba's threads; the same result to the last bit."""
    for share in prange(threads):
        _share(share, threads, worms, first, last, circuit, coupling, surroundings, inputs, noise, record, offspring)
