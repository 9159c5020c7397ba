"""Results on disk: an xarray Dataset as a zarr folder, which is there whole or not at all."""

import os
import shutil
import tempfile
import warnings
from pathlib import Path

import xarray as xr

__all__ = ["open_dataset", "save_dataset"]


def save_dataset(dataset: xr.Dataset, path: str | Path) -> Path:
    """Write a dataset; one that is there already is replaced when the new one is complete."""
    path = Path(path)
    if path.exists() and not _is_store(path):
        raise ValueError(f"{path} exists and is not a result of this program; choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*zarr.*")  # that strings have no specification in zarr 3 yet
            dataset.to_zarr(temporary / "new", consolidated=False)
        if path.exists():
            os.replace(path, temporary / "old")
        os.replace(temporary / "new", path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return path


def open_dataset(path: str | Path) -> xr.Dataset:
    """Read a dataset that `save_dataset` wrote; its numbers are read when they are needed."""
    path = Path(path)
    if not _is_store(path):
        raise ValueError(f"{path} is not a result of this program: there is {'no zarr folder' if path.exists() else 'nothing'}")
    return xr.open_zarr(path, consolidated=False, chunks=None)


def _is_store(path: Path) -> bool:
    return (path / "zarr.json").is_file()
