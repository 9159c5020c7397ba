"""`vpc rig`: the clamp rig as an app in the browser, which Voilà serves to this machine alone."""

import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from .store import open_dataset

# Voilà's own page asks a CDN for the icons of buttons, which an app that needs no network must not.
TEMPLATE = """{%- extends 'voila/templates/lab/index.html.j2' -%}
{%- block notebook_css -%}{{ super() | replace('https://cdn.jsdelivr.net/npm/', 'data:text/css,') }}{%- endblock -%}
"""
UNFIT = "@pyviz/jupyterlab_pyviz"  # Panel's extension of JupyterLab, which Voilà cannot load


def cell(source: str | None) -> str:
    """The one cell of the app's notebook: the rig with a result on disk, or with its own default.

    The notebook lies in a temporary folder, but what the rig exports belongs where the command was given.
    """
    opened = ""
    if source is not None:
        reader = "vpc.open_posterior" if "draws" in open_dataset(source) else "vpc.store.open_dataset"
        opened = f"{reader}({str(Path(source).resolve())!r})"
    return f"import os\n\nimport vpc\n\nos.chdir({os.getcwd()!r})\nvpc.ClampRig({opened})"


def serve(source: str | None = None, port: int | None = None, browser: bool = True, passed_on: Sequence[str] = ()) -> int:
    """Serve the rig until it is interrupted.

    Parameters
    ----------
    source
        Zarr folder with a run or a posterior; None for what `ClampRig` takes by itself.
    port
        None for Voilà's own, 8866, or one near it if that is taken.
    browser
        Whether to open one.
    passed_on
        Options for Voilà.

    Returns
    -------
        The command's exit code.
    """
    code = cell(source)
    if port is not None and not 0 < port < 65536:
        raise ValueError(f"port must be from 1 to 65535, got {port}")
    if find_spec("voila") is None:
        print("vpc rig: Voilà is missing; install it with `pip install virtual-patch-clamp[notebooks]`", file=sys.stderr)
        return 1
    import nbformat.v4 as nb
    from voila.app import Voila

    with tempfile.TemporaryDirectory(prefix="vpc-rig-") as folder:
        book = nb.new_notebook(cells=[nb.new_code_cell(code)], metadata={"title": "The clamp rig"})
        Path(folder, "rig.ipynb").write_text(nb.writes(book))
        template = Path(folder, "voila", "templates", "rig")
        template.mkdir(parents=True)
        (template / "conf.json").write_text('{"base_template": "lab"}')
        (template / "index.html.j2").write_text(TEMPLATE)
        os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("JUPYTER_PATH")]))
        options = ["--template=rig", "--Voila.ip=127.0.0.1", f"--VoilaConfiguration.extension_denylist={UNFIT}"]
        options += [] if port is None else [f"--port={port}"]
        options += [] if browser else ["--no-browser"]
        Voila.launch_instance([f"{folder}/rig.ipynb", *options, *passed_on])
    return 0
