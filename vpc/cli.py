"""The command line: `vpc demo`, `vpc bench`, `vpc lab`."""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__


def _demo(options: argparse.Namespace) -> int:
    from .demo import write_demo

    path, gaits = write_demo(options.out, options.seconds, progress=not options.json)
    if options.json:
        print(json.dumps({"page": str(path), "gaits": {name: gait._asdict() for name, gait in gaits.items()}}))
    else:
        for name, gait in gaits.items():
            print(f"{name}: {gait}")
        print(f"\nOpen {path} in a browser.")
    return 0


def _bench(options: argparse.Namespace) -> int:
    from .bench import body, table

    result = body(progress=not options.json)
    print(json.dumps(result) if options.json else table(result))
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
    return subprocess.call([program, f"--ServerApp.root_dir={folder.resolve()}", *options.options])


def parser() -> argparse.ArgumentParser:
    """The parser of `vpc`."""
    top = argparse.ArgumentParser(prog="vpc", description="The Virtual Patch Clamp: a worm you can look inside.")
    top.add_argument("--version", action="version", version=f"vpc {__version__}")
    commands = top.add_subparsers(dest="command", required=True)

    demo = commands.add_parser("demo", help="let the worm crawl in three places and write a page that plays it")
    demo.add_argument("--out", default="demo", help="folder to write index.html into (default: demo)")
    demo.add_argument("--seconds", type=float, default=10.0, help="how long each worm crawls (default: 10)")
    demo.set_defaults(run=_demo)

    bench = commands.add_parser("bench", help="measure the speed, as ratios within one run")
    bench.add_argument("what", choices=["body"], help="body: the mechanics, against scipy's solvers on the reference")
    bench.set_defaults(run=_bench)

    for command in (demo, bench):
        command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    lab = commands.add_parser("lab", help="open the notebooks in JupyterLab")
    lab.add_argument("folder", nargs="?", default="notebooks", help="folder with the notebooks (default: notebooks)")
    lab.add_argument("options", nargs=argparse.REMAINDER, help="passed on to jupyter lab")
    lab.set_defaults(run=_lab)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. Bad input is one line on standard error, not a traceback."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options)
    except (ValueError, OSError) as error:
        print(f"vpc {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
