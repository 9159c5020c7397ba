"""`wormsim serve`: the body as a service."""

import argparse
import signal
import sys

from . import __version__
from .service import Service


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="wormsim", description="The body of C. elegans.")
    parser.add_argument("--version", action="version", version=f"wormsim {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="answer steps of bodies over ZeroMQ (see wormsim.RemoteBody)")
    serve.add_argument("--bind", required=True, help="ipc://PATH or tcp://127.0.0.1:PORT; loopback only")
    serve.add_argument("--workers", type=int, default=1, help="requests worked on at once, each on one core (default 1)")
    options = parser.parse_args(arguments)
    try:
        service = Service(options.bind, options.workers)
    except ValueError as error:
        parser.error(str(error))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: service.stop())
    print(f"wormsim serves bodies at {service.address} with {service.workers} worker(s); stop with Ctrl-C", file=sys.stderr)
    service.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
