"""The vectorised elementary functions against libm's."""

import numpy as np

from wormsim import elementary


def test_sine_and_cosine_to_the_last_digits():
    angles = np.concatenate([np.random.default_rng(0).uniform(-1e4, 1e4, 20_000), np.linspace(-7, 7, 20_001)])
    found = np.array([elementary.sine_cosine(angle) for angle in angles])
    np.testing.assert_allclose(found, np.column_stack([np.sin(angles), np.cos(angles)]), atol=6e-16, rtol=0)


def test_inverse_root_to_the_last_digits():
    numbers = np.exp(np.random.default_rng(0).uniform(-300, 300, 20_000))
    found = np.array([elementary.inverse_root(number) for number in numbers])
    np.testing.assert_allclose(found, 1 / np.sqrt(numbers), rtol=1e-15)


def test_two_by_one_division():
    one, other = np.random.default_rng(0).uniform(-350, 350, (2, 20_000))
    pairs = np.array([elementary.reciprocals(np.exp(a), np.exp(b)) for a, b in zip(one, other, strict=True)])
    np.testing.assert_allclose(pairs, np.exp(-np.column_stack([one, other])), rtol=1e-13)
    pairs = np.array([elementary.gates(a, b) for a, b in zip(one, other, strict=True)])
    np.testing.assert_allclose(pairs, 1 / (1 + np.exp2(np.column_stack([one, other]))), rtol=1e-13)
    assert elementary.gates(600.0, 500.0) == (0, 0)


def test_power_gate_and_tanh():
    numbers = np.concatenate([np.random.default_rng(0).uniform(-990, 990, 10_000), np.linspace(-5, 5, 10_001)])
    for mine, exact in (
        (elementary.power_of_two, np.exp2(numbers)),
        (elementary.gate, 1 / (1 + np.exp2(numbers))),
    ):
        np.testing.assert_allclose([mine(number) for number in numbers], exact, rtol=1e-13)
    np.testing.assert_allclose([elementary.tanh(number) for number in numbers], np.tanh(numbers), atol=1e-13)
    assert (elementary.tanh(1e9), elementary.tanh(-1e9)) == (1, -1)
