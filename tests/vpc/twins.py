"""The linear-Gaussian twin with two unknown numbers. Workers of a cluster can import it from a folder on their path."""

import os
import time

import numpy as np

from vpc import learn
from vpc.autoregressive import LinearGaussian
from vpc.experiments import experiment
from vpc.learn import priors

TURN = np.array([[0.0, 0.3], [-0.3, 0.0]])
BASE = LinearGaussian(TURN, process_noise=0.4, observation_noise=0.5)
PRIORS = {"W": {"0,1": priors.normal(0.3, 0.15)}, "process_noise": priors.lognormal(0.4, 0.4)}
STEPS, EVERY = 12, 2


def seen(theta=(0.3, 0.4), seed=0):
    """Data of the twin with some parameters."""
    turn, noise = theta
    model = LinearGaussian(np.array([[0.0, turn], [-turn, 0.0]]), process_noise=noise, observation_noise=0.5)
    _, times, values = model.simulate(seed, STEPS, EVERY)
    return learn.Observations(values, times)


def record(worm):
    """A short recording of a worm."""
    return experiment("noise", worm, seconds=0.2).recording


def particles(n=60, **data):
    return learn.ArTarget(BASE, seen(**data), PRIORS, particles=n)


class Exact(learn.ArTarget):
    """The twin with Kalman's evidence."""

    def __call__(self, sweep):
        model = self.model(np.array(sweep.theta), sweep.widen)
        return model.kalman(*self.observations).log_evidence, ""


def exact(**data):
    return Exact(BASE, seen(**data), PRIORS)


class Slow(learn.ArTarget):
    """A twin whose sweeps take as long as a variable of the environment says."""

    def __call__(self, sweep):
        time.sleep(float(os.environ.get("VPC_TEST_SLEEP", "0")))
        return super().__call__(sweep)


def slow(particles=60):
    return Slow(BASE, seen(), PRIORS, particles=particles)
