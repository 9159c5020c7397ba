"""Results on disk."""

import warnings

import numpy as np
import pytest
import xarray as xr

import vpc
from vpc.autoregressive import LinearGaussian, random_weights
from vpc.smc import SMC
from vpc.smoothing import backward
from vpc.store import arviz_view, open_dataset, save_dataset


def test_what_was_written_is_read(tmp_path):
    run = vpc.Worm().simulate(0.2, n=2, protocol=vpc.VoltageClamp("AVAL", -20))
    save_dataset(run, tmp_path / "deep" / "run.zarr")
    xr.testing.assert_identical(open_dataset(tmp_path / "deep" / "run.zarr").load(), run)


def test_the_old_one_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "run.zarr"
    save_dataset(xr.Dataset({"x": ("k", np.arange(3))}), path)
    with pytest.raises((TypeError, ValueError)):
        save_dataset(xr.Dataset({"x": ("k", np.array([object()]))}), path)
    assert open_dataset(path)["x"].values.tolist() == [0, 1, 2]
    save_dataset(xr.Dataset({"x": ("k", np.arange(4))}), path)
    assert open_dataset(path)["x"].size == 4
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.zarr"]


def test_other_files_are_safe(tmp_path):
    (tmp_path / "thesis").mkdir()
    with pytest.raises(ValueError, match="thesis exists and is not a result"):
        save_dataset(xr.Dataset(), tmp_path / "thesis")
    with pytest.raises(ValueError, match="thesis is not a result of this program"):
        open_dataset(tmp_path / "thesis")
    with pytest.raises(ValueError, match="there is no .*nowhere"):
        open_dataset(tmp_path / "nowhere")


def test_another_programs_zarr_is_safe(tmp_path):
    xr.Dataset({"x": ("k", np.arange(3))}).to_zarr(tmp_path / "theirs.zarr", consolidated=False)
    with pytest.raises(ValueError, match="is not a result of this program"):
        save_dataset(xr.Dataset(), tmp_path / "theirs.zarr")
    assert xr.open_zarr(tmp_path / "theirs.zarr", consolidated=False)["x"].size == 3


def test_what_a_killed_program_had_put_aside_is_found_again(tmp_path):
    """Killed between the two renames: the old one is in a hidden folder beside, and nothing is at the path."""
    path = save_dataset(xr.Dataset({"x": ("k", np.arange(3))}), tmp_path / "run.zarr")
    (tmp_path / ".run.zarr.abc").mkdir()
    path.rename(tmp_path / ".run.zarr.abc" / "old")
    assert open_dataset(path)["x"].values.tolist() == [0, 1, 2] and not (tmp_path / ".run.zarr.abc").exists()


def test_draws_as_arviz_reads_them():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that ArviZ is being refactored
        import arviz
    model = LinearGaussian(random_weights(2, species=3, filled=0.9, mean=0.2), process_noise=0.5, observation_noise=0.8)
    _, times, y = model.simulate(5, steps=8, every=2)
    filter = SMC(model, y, times, 300)
    paths = xr.Dataset({"x": (("draw", "frame", "species"), backward(filter, 200))})
    tree = arviz_view(paths, observed_data=xr.Dataset({"y": (("frame", "species"), y)}), filter=filter.to_dataset())
    data = arviz.from_datatree(tree) if hasattr(arviz, "from_datatree") else tree
    means = np.asarray(arviz.summary(data, kind="stats", round_to="none")["mean"], dtype=float)
    np.testing.assert_allclose(means, paths["x"].mean("draw").values.ravel(), atol=1e-6)
    assert tree["posterior"]["x"].dims == ("chain", "draw", "frame", "species")
    assert tree["filter"].attrs["seed"] == 0 and tree["filter"].attrs["version"]
    with pytest.raises(ValueError, match="draws must have a dimension 'draw', got frame"):
        arviz_view(filter.to_dataset())
