"""A body that crawls by itself: WormSim's circuit of 12 units with two bistable motor neurons each.

A dorsal (ventral) B neuron switches on above 0.75 and off below 0.25 of

    I_D = 0.675 + stretch_D          I_V = 0.675 + stretch_V + 0.5 - S_D

with S its own state (0 or 1): tonic drive, proprioception, and the dorsal neuron's inhibition of the ventral one. Each
muscle follows the difference of its unit's two neurons (Boyle, Berri & Cohen 2012). No pattern generator: the rhythm is in
the loop through the body. As in the original program, every millisecond the body moves under the muscles as they are, then
stretch, neurons and muscles are brought up to date.
"""

from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
import xarray as xr

from . import check
from . import geometry as geo
from .blocks import LANES, PHI, SCRATCH, STATE, X, Y
from .body import Body, default_substeps
from .kernel import aligned, kernel
from .mechanics import step_block
from .objects import off_the_worm
from .stretch import (
    DORSAL_LENGTHENING,
    DORSAL_SHORTENING,
    SEGMENTS_PER_UNIT,
    UNIT_WEIGHTS,
    UNITS,
    segment_stretch,
    stretch_block,
)

TONIC = 0.675
THRESHOLD, HYSTERESIS = 0.5, 0.5
PERIOD = 0.001  # s between updates of the circuit
RECORD_EVERY = 10  # updates between recorded frames


@kernel
def _feel(stretch, unit, feel):
    """Asymmetric `unit_stretch` of one unit: rows (side, segment, lane) into two rows (side, lane)."""
    feel[:] = 0.0
    for segment in range(SEGMENTS_PER_UNIT * unit, geo.SEGMENTS):
        weight = UNIT_WEIGHTS[unit, segment]
        limit = (geo.SEGMENT_LENGTH / geo.REST_LATERAL[segment] - 1) / geo.RELATIVE_WIDTH[segment]
        for i in range(LANES):
            dorsal, ventral = stretch[segment * LANES + i], stretch[(geo.SEGMENTS + segment) * LANES + i]
            feel[i] += weight * dorsal * (DORSAL_LENGTHENING if dorsal > limit else DORSAL_SHORTENING)
            feel[LANES + i] += weight * ventral


@kernel
def _run(block, neuron, updates, substeps, along, across, objects, proprioception, bodies, muscles, neurons, oks):
    """Run 16 bodies with their circuits, neuron rows (side, unit, lane), and record lane 0."""
    s = aligned(SCRATCH)
    alive = np.ones(LANES)
    muscle, stretch = np.zeros(2 * geo.SEGMENTS * LANES), np.empty(2 * geo.SEGMENTS * LANES)
    feel = np.empty(2 * LANES)
    for update in range(1, updates + 1):
        for _ in range(substeps):
            step_block(block, s, muscle, PERIOD / substeps, along, across, objects, alive)
        stretch_block(block, s, stretch)
        for unit in range(UNITS):
            _feel(stretch, unit, feel)
            for i in range(LANES):
                dorsal, ventral = neuron[unit * LANES + i], neuron[(UNITS + unit) * LANES + i]
                to_dorsal = TONIC + proprioception * feel[i]
                to_ventral = TONIC + proprioception * feel[LANES + i] + 0.5 - dorsal
                neuron[unit * LANES + i] = 1.0 if to_dorsal > THRESHOLD + HYSTERESIS * (0.5 - dorsal) else 0.0
                neuron[(UNITS + unit) * LANES + i] = 1.0 if to_ventral > THRESHOLD + HYSTERESIS * (0.5 - ventral) else 0.0
        for segment in range(geo.SEGMENTS):
            unit = segment // SEGMENTS_PER_UNIT
            gain = geo.NEUROMUSCULAR_GAIN[segment]
            for i in range(LANES):
                drive = gain * (neuron[unit * LANES + i] - neuron[(UNITS + unit) * LANES + i])
                a, b = segment * LANES + i, (geo.SEGMENTS + segment) * LANES + i
                muscle[a] += (drive - muscle[a]) * (PERIOD / geo.MUSCLE_TIME)
                muscle[b] += (-drive - muscle[b]) * (PERIOD / geo.MUSCLE_TIME)
        if update % RECORD_EVERY == 0:
            frame = update // RECORD_EVERY
            oks[frame] = alive[0] > 0.0
            for rod in range(geo.RODS):
                bodies[frame, rod, 0] = block[rod * STATE + X]
                bodies[frame, rod, 1] = block[rod * STATE + Y]
                bodies[frame, rod, 2] = block[rod * STATE + PHI]
            for k in range(2 * geo.SEGMENTS):
                muscles[frame, k // geo.SEGMENTS, k % geo.SEGMENTS] = muscle[k * LANES]
            for k in range(2 * UNITS):
                neurons[frame, k // UNITS, k % UNITS] = neuron[k * LANES]


def crawl(
    seconds: float,
    medium: float = 1.0,
    objects: Sequence | np.ndarray = (),
    seed: int | None = None,
    proprioception: float = 1.0,
) -> xr.Dataset:
    """Let a worm crawl by WormSim's circuit.

    Parameters
    ----------
    seconds
        How long; a frame is kept every 10 ms.
    medium
        From 0 (water) to 1 (agar).
    objects
        Round posts (n, 3) as x, y, radius in mm.
    seed
        None starts as the original program does, with all dorsal neurons on; a number draws which neuron of each unit is on.
    proprioception
        Factor on the stretch that the neurons feel; 0 cuts it off.

    Returns
    -------
    Dataset with `body` (time, rod, coord) in mm and rad, `muscle` and `stretch` (time, side, segment), `neuron` (time, side,
    unit), `ok` (time) and `objects` (object, shape = x, y, radius) in mm.
    """
    frame = PERIOD * RECORD_EVERY
    seconds = check.number("seconds", seconds, f"a number of at least {frame}", lambda s: s >= frame)
    proprioception = check.number("proprioception", proprioception, "a finite number", lambda _: True)
    seed = None if seed is None else check.whole("seed", seed, least=0)
    body = Body(1, medium, objects)
    if len(off_the_worm(body.objects, clearance=0.0)) < len(body.objects):
        raise ValueError("objects must leave room for the worm, which starts straight from (0, 0) to (1, 0) mm, 0.08 mm wide")
    frames = round(seconds / frame)
    neuron = np.zeros((2, UNITS))
    neuron[0] = 1.0 if seed is None else np.random.default_rng(seed).integers(0, 2, UNITS)
    neuron[1] = 1.0 - neuron[0]
    bodies, muscles = np.empty((frames + 1, geo.RODS, 3)), np.zeros((frames + 1, 2, geo.SEGMENTS))
    neurons = np.empty((frames + 1, 2, UNITS))
    bodies[0], neurons[0] = body.state[0], neuron
    lanes = np.repeat(neuron.reshape(-1), LANES)
    updates = frames * RECORD_EVERY
    substeps = default_substeps(PERIOD, body.medium, len(body.objects) > 0)
    oks = np.ones(frames + 1, bool)
    drag, posts = body.drag, body.objects
    _run(body._blocks[0], lanes, updates, substeps, *drag, posts, proprioception, bodies, muscles, neurons, oks)
    return xr.Dataset(
        {
            "body": (("time", "rod", "coord"), bodies, {"units": "mm, mm, rad"}),
            "muscle": (("time", "side", "segment"), muscles, {"units": "1"}),
            "stretch": (("time", "side", "segment"), segment_stretch(bodies), {"units": "1"}),
            "neuron": (("time", "side", "unit"), neurons, {"units": "1"}),
            "ok": ("time", oks, {"meaning": "the body is physical"}),
            "objects": (("object", "shape"), posts, {"units": "mm"}),
        },
        coords={
            "time": ("time", np.arange(frames + 1) * frame, {"units": "s"}),
            "coord": ["x", "y", "phi"],
            "side": ["dorsal", "ventral"],
            "shape": ["x", "y", "radius"],
        },
        attrs={
            "medium": body.medium,
            "proprioception": proprioception,
            "version": version("virtual-patch-clamp"),
            **({} if seed is None else {"seed": seed}),
        },
    )
