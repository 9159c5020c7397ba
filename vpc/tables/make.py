"""Make the connectome tables beside this file: `python -m vpc.tables.make`, with the extra `connectome` installed.

They hold facts only: names, counts, transmitters and positions, from the PyPI packages `cect` (which reads each published data
set) and `c302` (whose NeuroML cells carry soma positions). The sources are cited in `vpc.connectome`.
"""

import csv
import importlib
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

FOLDER = Path(__file__).parent
READERS = {
    "openworm": "SpreadsheetDataReader",
    "varshney2011": "VarshneyDataReader",
    "cook2019": "Cook2019HermReader",
    "white1986": "White_whole",
    **{f"witvliet2021-{stage}": f"WitvlietDataReader{stage}" for stage in range(1, 9)},
}

# Where the motor neurons of the cord lie: arc length along OpenWorm's spine, head 0 to tail 1.
CORD = {
    "DB": [0.157, 0.137, 0.205, 0.322, 0.461, 0.651, 0.757],
    "DD": [0.155, 0.257, 0.386, 0.582, 0.718, 0.860],
    "VB": [0.135, 0.126, 0.185, 0.235, 0.309, 0.377, 0.471, 0.562, 0.629, 0.699, 0.751],
    "VD": [0.160, 0.163, 0.215, 0.280, 0.347, 0.415, 0.493, 0.598, 0.668, 0.721, 0.775, 0.837, 0.877],
}  # fmt: skip


def by_number(name: str) -> tuple[str, int]:
    """Sort key: VB2 before VB11."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


def neuron_class(name: str, names: set[str]) -> str:
    """The class of a neuron by its name: without number in the cord, without side, and without dorsal or ventral after that."""
    if cord := re.fullmatch(r"(AS|DA|DB|DD|VA|VB|VC|VD)\d+", name):
        return cord[1]
    if name[-1] in "LR" and {name[:-1] + "L", name[:-1] + "R"} <= names:
        name = name[:-1]
    return name[:-1] if len(name) == 4 and name[-1] in "DV" else name


def somata(names: list[str]) -> dict[str, tuple[float, float, float]]:
    """Soma positions in um from c302's cells: x to the left, y from head to tail, z dorsal."""
    folder = Path(importlib.import_module("c302").__file__ or "").parent / "NeuroML2"
    places = {}
    for name in names:
        point = ElementTree.parse(folder / f"{name}.cell.nml").find(".//{*}segment/{*}proximal")
        assert point is not None, name
        places[name] = (float(point.attrib["x"]), float(point.attrib["y"]), float(point.attrib["z"]))
    return places


def positions(places: dict[str, tuple[float, float, float]]) -> dict[str, float]:
    """Positions along the body by the somata's y: through those of the cord's motor neurons, straight on at both ends."""
    knots = sorted((places[f"{kind}{i}"][1], at) for kind, ats in CORD.items() for i, at in enumerate(ats, start=1))
    y, at = np.array(knots).T
    slopes = [(at[k] - at[k - 4]) / (y[k] - y[k - 4]) for k in (4, -1)]
    y, at = np.array([-1e3, *y, 1e3]), np.array([at[0] + slopes[0] * (-1e3 - y[0]), *at, at[-1] + slopes[1] * (1e3 - y[-1])])
    known = {f"{kind}{i}": at for kind, ats in CORD.items() for i, at in enumerate(ats, start=1)}
    return {name: known.get(name, float(np.clip(np.interp(place[1], y, at), 0, 1))) for name, place in places.items()}


def write(name: str, header: list[str], rows: list[list[Any]]) -> None:
    """Write a table."""
    with open(FOLDER / f"{name}.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([header, *rows])
    print(f"{name}: {len(rows)} rows")


def main() -> None:
    """Make all tables."""
    cells = importlib.import_module("cect.Cells")
    names = sorted(cells.PREFERRED_HERM_NEURON_NAMES, key=by_number)
    types = {name: "sensory" for name in cells.SENSORY_NEURONS_COOK}
    types |= {name: "inter" for name in cells.INTERNEURONS_COOK} | {name: "motor" for name in cells.MOTORNEURONS_COOK}
    types |= {name: "polymodal" for name in cells.PHARYNGEAL_POLYMODAL_NEURONS}
    wang = importlib.import_module("cect.readers.Wang2024HermReader").get_instance(from_cache=False)
    places = somata(names)
    along = positions(places)
    rows: list[list[Any]] = []
    for name in names:
        transmitters = "|".join(filter(None, wang.all_neurotransmitters[name]))
        kind = types.get(name, "unknown")
        rows.append([name, neuron_class(name, set(names)), kind, transmitters, *places[name], round(along[name], 4)])
    write("neurons", ["name", "class", "type", "transmitters", "x", "y", "z", "position"], rows)
    for table, reader in READERS.items():
        data = importlib.import_module(f"cect.readers.{reader}").get_instance(from_cache=True)
        kept = [(str(node), i) for i, node in enumerate(data.nodes) if str(node) in places]
        matrices = {kind: np.asarray(matrix) for kind, matrix in data.connections.items()}
        gap = matrices.pop("Generic_GJ")
        gap, chemical = np.maximum(gap, gap.T), np.sum(list(matrices.values()), axis=0)
        rows = []
        for pre, i in sorted(kept):
            for post, j in sorted(kept):
                if chemical[i, j]:
                    rows.append([pre, post, "chemical", int(chemical[i, j])])
                if pre < post and gap[i, j]:
                    rows.append([pre, post, "gap", int(gap[i, j])])
        write(table, ["pre", "post", "kind", "count"], rows)


if __name__ == "__main__":
    main()
