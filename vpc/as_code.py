"""Actions and sources as Python, for the cell that repeats an experiment."""

import hashlib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np

from .branching import Source
from .connectome import SOURCES
from .parameters import defaults
from .posterior import Posterior
from .protocol import Action
from .store import check_path, save_dataset
from .waveforms import Data
from .worm import Worm

__all__ = ["code_of", "code_of_source"]


def code_of(value: Any) -> str:
    """An action, a waveform or a number as Python, which leaves out what is as by default."""
    if not isinstance(value, Data):
        return repr(dict(value)) if hasattr(value, "items") else repr(value)
    module = "vpc" if isinstance(value, Action) else "vpc.protocol"
    values = [(f, getattr(value, f.name)) for f in fields(value)]  # type: ignore[arg-type]
    parts = [code_of(given) for f, given in values if f.default is MISSING]
    parts += [f"{f.name}={code_of(given)}" for f, given in values if f.default is not MISSING and given != f.default]
    return f"{module}.{type(value).__name__}({', '.join(parts)})"


def code_of_source(source: Source, folder: Path) -> str:
    """Python that makes a source, or opens it where it is now saved."""
    if isinstance(source, Worm):
        if source.connectome.label not in SOURCES:
            raise ValueError("this worm has wiring of its own, which code cannot repeat; branch from a posterior or a run")
        base = defaults(source.variant)
        changed = {name: value for name, value in source.parameters.items() if value != base[name]}
        settings = {"variant": source.variant, "connectome": source.connectome.label, "parameters": changed}
        settings |= {"objects": source.objects.tolist(), "ablated": list(source.ablated)}
        shown = [f"{name}={value!r}" for name, value in settings.items() if len(value) and value not in ("default", "openworm")]
        return f"vpc.Worm({', '.join(shown)})"
    data = source.dataset if isinstance(source, Posterior) else source
    digest = hashlib.sha256()
    for name in sorted(map(str, data.data_vars)):
        digest.update(name.encode() + np.ascontiguousarray(data[name].values).tobytes() if data[name].dtype != object else b"")
    path = folder / f"source-{digest.hexdigest()[:12]}.zarr"
    if not path.exists():
        save_dataset(data, check_path(path))
    how = "vpc.open_posterior" if isinstance(source, Posterior) else "vpc.store.open_dataset"
    return f"{how}({str(path)!r})"
