"""The command line: `vpc demo`, `vpc bench`, `vpc lab`."""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import __version__


def _json(value: Any) -> str:
    """JSON, in which what is not a number is null."""
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))


def _demo(options: argparse.Namespace) -> int:
    from .demo import write_demo

    path, gaits = write_demo(options.out, options.seconds, options.seed, progress=not options.json)
    if options.json:
        print(_json({"page": str(path), "gaits": {name: gait._asdict() for name, gait in gaits.items()}}))
    else:
        for name, gait in gaits.items():
            print(f"{name}: {gait}")
        print(f"\nOpen {path} in a browser.")
    return 0


def _bench(options: argparse.Namespace) -> int:
    from .bench import body, table

    result = body(progress=not options.json)
    print(_json(result) if options.json else table(result))
    return 0


def _lab(options: argparse.Namespace) -> int:
    jupyter = Path(sys.executable).with_name("jupyter-lab")
    program = str(jupyter) if jupyter.exists() else shutil.which("jupyter-lab")
    folder = Path(options.folder)
    if program is None:
        print("vpc lab: JupyterLab is missing; install it with `pip install virtual-patch-clamp[notebooks]`", file=sys.stderr)
        return 1
    if not folder.is_dir():
        print(f"vpc lab: there is no folder {folder}; name the one with your notebooks: vpc lab FOLDER", file=sys.stderr)
        return 1
    return subprocess.call([program, f"--ServerApp.root_dir={folder.resolve()}", *options.passed_on])


def parser() -> argparse.ArgumentParser:
    """The parser of `vpc`."""
    top = argparse.ArgumentParser(prog="vpc", description="The Virtual Patch Clamp: a worm you can look inside.")
    top.add_argument("--version", action="version", version=f"vpc {__version__}")
    commands = top.add_subparsers(dest="command", required=True)

    demo = commands.add_parser("demo", help="let the worm crawl in three places and write a page that plays it")
    demo.add_argument("--out", default="demo", help="folder to write index.html into (default: demo)")
    demo.add_argument("--seconds", type=float, default=10.0, help="how long each worm crawls (default: 10)")
    demo.add_argument("--seed", type=int, help="start with a random half of the neurons on (default: all dorsal ones)")
    demo.set_defaults(run=_demo)

    bench = commands.add_parser("bench", help="measure the speed, as ratios within one run")
    bench.add_argument("what", choices=["body"], help="body: the mechanics, against scipy's solvers on the reference")
    bench.set_defaults(run=_bench)

    for command in (demo, bench):
        command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    lab = commands.add_parser("lab", help="open the notebooks in JupyterLab; options it does not know go to jupyter lab")
    lab.add_argument("folder", nargs="?", default="notebooks", help="folder with the notebooks (default: notebooks)")
    lab.set_defaults(run=_lab)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. Bad input is one line on standard error, not a traceback."""
    top = parser()
    options, unknown = top.parse_known_args(arguments)
    if unknown and options.command != "lab":
        top.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.passed_on = unknown
    try:
        return options.run(options)
    except (ValueError, OSError, MemoryError) as error:
        print(f"vpc {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
