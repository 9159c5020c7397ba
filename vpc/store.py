"""Results on disk: an xarray Dataset as a zarr folder, which is there whole or not at all; and as ArviZ wants them."""

import json
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import xarray as xr

__all__ = ["arviz_view", "check_path", "open_dataset", "save_dataset"]


MARK = "written_by"  # an attribute on disk, so that other programs' files are never replaced


def check_path(path: str | Path) -> Path:
    """Where a dataset may be written, or an error: what is there must be a result of this program."""
    path = _recovered(Path(path))
    if path.exists() and not _is_ours(path):
        raise ValueError(f"{path} exists and is not a result of this program; choose another name")
    return path


def save_dataset(dataset: xr.Dataset, path: str | Path) -> Path:
    """Write a dataset; one that is there already is replaced when the new one is complete."""
    path = check_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    new, old = temporary / "new", temporary / "old"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*zarr.*")  # that strings have no specification in zarr 3 yet
            dataset.assign_attrs({MARK: "virtual-patch-clamp"}).to_zarr(new, consolidated=False)
        if path.exists():
            os.replace(path, old)
        os.replace(new, path)
    except BaseException:
        if old.exists():
            os.replace(old, path)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return path


def open_dataset(path: str | Path) -> xr.Dataset:
    """Read a dataset that `save_dataset` wrote; its numbers are read when they are needed."""
    path = _recovered(Path(path))
    if not _is_ours(path):
        raise ValueError(f"{path} is not a result of this program" if path.exists() else f"there is no {path}")
    dataset = xr.open_zarr(path, consolidated=False, chunks=None)
    del dataset.attrs[MARK]
    return dataset


def arviz_view(draws: xr.Dataset, **groups: xr.Dataset) -> xr.DataTree:
    """Draws from a posterior, along a dimension `draw`, as the tree of groups that ArviZ reads, with other groups beside it.

    ArviZ 1 takes the tree as it is; before, `arviz.from_datatree(tree)` makes its InferenceData.
    """
    if "draw" not in draws.dims:
        raise ValueError(f"draws must have a dimension 'draw', got {', '.join(map(str, draws.dims)) or 'none'}")
    posterior = draws if "chain" in draws.dims else draws.expand_dims("chain")
    chains = posterior.assign_coords(chain=range(posterior.sizes["chain"]), draw=range(posterior.sizes["draw"]))
    return xr.DataTree.from_dict({"posterior": chains.transpose("chain", "draw", ...), **groups})


def _recovered(path: Path) -> Path:
    """The path, at which there is again what a program that was killed while it replaced it had put aside."""
    if not path.exists():
        for old in path.parent.glob(f".{path.name}.*/old"):
            os.replace(old, path)
            shutil.rmtree(old.parent, ignore_errors=True)
            break
    return path


def _is_ours(path: Path) -> bool:
    try:
        return MARK in json.loads((path / "zarr.json").read_text())["attributes"]
    except (OSError, ValueError, KeyError):
        return False
