"""The command line: `vpc demo`, `vpc simulate`, `vpc impute`, `vpc clamp`, `vpc learn`, `vpc cluster` and others."""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import __version__
from .cluster import KINDS, QUEUES
from .options import add_cluster, add_learning, cluster_of


def _json(value: Any) -> str:
    """JSON, in which what is not a number is null."""
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))


def _demo(options: argparse.Namespace) -> int:
    from .demo import write_demo

    path, result = write_demo(
        options.out,
        options.seconds,
        options.seed,
        progress=not options.json,
        particles=options.particles,
    )
    if options.json:
        print(_json({"page": str(path), **result}))
        return 0
    print("given the frames so far, and the same without having looked (medians; coverage of 90 % bands is a mean):\n")
    print(f"{'':18}{'':15}{'n':>5}{'r':>8}{'nrmse':>8}{'coverage':>10}")
    for row in result["score"]:
        figures = f"{row['n']:5d}{row['r']:8.3f}{row['nrmse']:8.3f}{row['coverage']:10.3f}".replace("nan", "   ")
        print(f"{row['of']:18}{row['source']:15}{figures}")
    print(f"\n{result['particles']} members of an ensemble; log evidence {result['log_evidence']:.0f}, approximate")
    print(", ".join(f"{name} {took:.1f} s" for name, took in result["timings"].items()))
    print(f"\nOpen {path} in a browser.")
    return 0


def _simulate(options: argparse.Namespace) -> int:
    import time

    import wormsim

    from . import Worm, protocol
    from .store import check_path, save_dataset

    if options.out:
        check_path(options.out)
    actions = protocol.loads(Path(options.protocol).read_text()) if options.protocol else ()
    worm = Worm(options.variant, options.connectome, options.medium)
    begin = time.perf_counter()
    run = worm.simulate(
        options.seconds, options.seed, options.n, actions, options.noise, every=options.every, progress=not options.json
    )
    taken = time.perf_counter() - begin
    result: dict[str, Any] = {"seconds": options.seconds, "worms": options.n, "took_seconds": round(taken, 3)}
    result["failed"] = int((run["failure"] != "").sum())
    result["voltage_mv"] = [float(run["voltage"].min()), float(run["voltage"].max())]
    one = run.isel(sample=0) if options.n > 1 else run
    if one["ok"].all() and one.sizes["time"] >= 20:
        result["gait"] = wormsim.gait(one)._asdict()
    if options.out:
        result["out"] = str(save_dataset(run, options.out))
    if options.json:
        print(_json(result))
        return 0
    print(f"{options.n} worm{'s' * (options.n > 1)} for {options.seconds:g} s, in {taken:.2f} s; {result['failed']} failed")
    low, high = result["voltage_mv"]
    print(f"voltages from {low:.1f} to {high:.1f} mV")
    if "gait" in result:
        print(f"gait of the first: {wormsim.Gait(**result['gait'])}")
    if options.out:
        print(f"written to {options.out}; read it with vpc.store.open_dataset({options.out!r})")
    return 0


def _impute(options: argparse.Namespace) -> int:
    from . import Recording, Worm, diagnose, impute
    from .experiments import experiment
    from .posterior import worm_of
    from .store import check_path, open_dataset

    if options.out:
        check_path(options.out)
    if options.recording is not None and options.preset is not None:
        raise ValueError("name a run or a --preset, not both")
    if options.recording is not None:
        truth = open_dataset(options.recording).load()
        recording = Recording.from_simulation(truth, every=options.every)
        worm = worm_of(truth)
        if worm is None:
            raise ValueError(
                f"{options.recording} is of a worm with wiring of its own; impute it in Python, where that is at hand"
            )
    else:
        worm = Worm(options.variant)
        truth, recording = experiment(options.preset or "paper", worm, options.truth, options.seconds)
    settings = {
        name: value for name in ("particles", "init_particles", "factor") if (value := getattr(options, name)) is not None
    }
    post = impute(
        worm, recording, options.method, **settings, seed=options.seed, progress=not options.json, checkpoint=options.checkpoint
    )
    if options.out:
        post.save(options.out)
    known, score = post.dataset.attrs, None if post.failure else post.score(truth)
    result = {"wall_seconds": known["seconds"], **{name: known[name] for name in ("core_seconds", "log_evidence", "particles")}}
    result |= {"min_ess": float(post.ess.min()), "failed": float(post.failed.max()), "failure": post.failure}
    if score is not None:
        medians = diagnose.medians(score)
        result |= {"score": medians["posterior"], "score_unconditioned": medians["unconditioned"]}
    if options.out:
        result["out"] = options.out
    if options.json:
        print(_json(result))
        return 0
    print(post)
    if score is not None:
        print("\nagainst the truth, and the same without having looked (medians; coverage of 90 % bands is a mean):\n")
        print(diagnose.table(score).round(3).to_string())
    print(f"\n{known['seconds']:.1f} s, {known['core_seconds']:.1f} core-seconds")
    if options.out:
        print(f"written to {options.out}; read it with vpc.open_posterior({options.out!r})")
    return 0


def _source(name: str) -> Any:
    """What an experiment is done on: a new worm, a run or a posterior."""
    from . import Worm, open_posterior
    from .store import open_dataset

    if name == "worm":
        return Worm()
    dataset = open_dataset(name)
    return open_posterior(name) if "draws" in dataset else dataset.load()


def _clamp(options: argparse.Namespace) -> int:
    from . import StepFamily, branch, curves, protocol
    from .branching import difference
    from .diagnose import bands
    from .store import check_path, save_dataset

    if options.out:
        check_path(options.out)
    what = protocol.loads(Path(options.protocol).read_text())
    settings = {"at": options.at, "seed": options.seed, "particles": options.particles, "progress": not options.json}
    result: dict[str, Any] = {}
    if isinstance(what, StepFamily):
        if options.control:
            raise ValueError(f"--control is for one experiment, and {options.protocol} holds a family of them")
        run = curves.record_family(_source(options.source), what, options.seconds, **settings)
        if options.window:
            curve = curves.iv(run, options.window)
            result["level"] = run["level"].values.tolist()
            result |= _rows(curve["current" if what.clamp == "voltage" else "voltage"])
            result |= {name: float(curve[name]) for name in ("conductance", "reversal") if name in curve}
    else:
        if options.window:
            raise ValueError(f"--window is for a family of steps, and {options.protocol} holds one experiment")
        run = branch(_source(options.source), protocol=what, seconds=options.seconds, control=options.control, **settings)
        if "current" in run:
            one = run.sel(arm="experiment", drop=True) if options.control else run
            result["clamp"] = run["clamp"].values.tolist()
            result |= _rows(bands(one[["current"]].mean("time"))["current"])
        if options.control:
            change = abs(difference(run)["voltage"]).mean(["sample", "time"])
            order = change.argsort().values[::-1][:5]
            result["changed_most"] = dict(
                zip(change["neuron"].values[order].tolist(), change.values[order].tolist(), strict=True)
            )
    result |= {"at": run.attrs["branched_at"], "seconds": options.seconds, "worms": run.sizes["sample"]}
    result["failed"] = int((~run["ok"].isel(time=-1)).sum())
    if options.out:
        result["out"] = str(save_dataset(run, options.out))
    if options.json:
        print(_json(result))
        return 0
    worms = f"{result['worms']} worm{'s' * (result['worms'] > 1)}"
    print(f"{worms} from {result['at']:g} s on, for {options.seconds:g} s; {result['failed']} runs failed")
    if "mean" in result:
        of = "clamp" if "clamp" in result else "level"
        units = ("", "pA") if of == "clamp" else ("mV", "pA") if what.clamp == "voltage" else ("pA", "mV")
        print("\n" + "".join(f"{name:>10}" for name in (f"{of} {units[0]}", f"mean {units[1]}", "q05", "q95")))
        for first, *values in zip(*(result[name] for name in (of, "mean", "q05", "q95")), strict=True):
            print(f"{first:>10}" + "".join(f"{value:10.3f}" for value in values))
    if "conductance" in result:
        print(f"\nconductance {result['conductance']:.4g} nS, reversal {result['reversal']:.4g} mV")
    if options.control:
        print("\nchanged most, mV on average: " + ", ".join(f"{n} {mv:.3g}" for n, mv in result["changed_most"].items()))
    if options.out:
        print(f"written to {options.out}; read it with vpc.store.open_dataset({options.out!r})")
    return 0


def _rows(curve: Any) -> dict[str, list[float]]:
    return {stat: curve.sel(stat=stat).values.tolist() for stat in ("mean", "q05", "q95")}


def _learn(options: argparse.Namespace) -> int:
    from .learn import command

    result = command.learn(options)
    print(_json(result) if options.json else command.told(result))
    return 0


def _bench(options: argparse.Namespace) -> int:
    from . import bench, filter_bench, screen_bench

    parts: dict[str, tuple[Any, Any]] = {
        "body": (bench.body, bench.body_table),
        "worm": (bench.worm, bench.worm_table),
        "smc": (bench.smc, bench.smc_table),
        "impute": (bench.impute, bench.impute_table),
        "filters": (filter_bench.filters, filter_bench.filters_table),
        "evidence": (filter_bench.evidence, filter_bench.evidence_table),
        "screen": (screen_bench.screen, screen_bench.screen_table),
    }
    if options.what == "cluster":  # needs Dask
        from .cluster import scaling

        parts["cluster"] = (scaling.cluster, scaling.cluster_table)
    measure, table = parts[options.what]
    result = measure(progress=not options.json)
    print(_json(result) if options.json else table(result))
    return 0


def _cluster(options: argparse.Namespace) -> int:
    from .cluster.check import check

    if options.what == "script":
        from .cluster.queues import job_script

        if options.kind not in QUEUES:
            raise ValueError(f"--kind of a script must be one of {', '.join(QUEUES)}, got {options.kind!r}")
        script = job_script(options.kind, **cluster_of(options))
        print(_json({"script": script}) if options.json else script)
        return 0
    findings = []
    for found in check(options.kind, **cluster_of(options)):
        findings.append(found)
        if not options.json:
            print(f"{'ok  ' if found.good else 'FAIL'}  {found.what:10}{found.told}", flush=True)
    good = all(found.good for found in findings)
    if options.json:
        print(_json({"good": good, "findings": [found._asdict() for found in findings]}))
    return 0 if good else 1


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


def _rig(options: argparse.Namespace) -> int:
    from .rig_app import serve

    return serve(options.source, options.port, not options.no_browser, options.passed_on)


def parser() -> argparse.ArgumentParser:
    """The parser of `vpc`."""
    top = argparse.ArgumentParser(prog="vpc", description="The Virtual Patch Clamp: a worm you can look inside.")
    top.add_argument("--version", action="version", version=f"vpc {__version__}")
    commands = top.add_subparsers(dest="command", required=True)

    demo = commands.add_parser("demo", help="simulate, record 49 neurons, impute the rest, clamp AVA, and write a page of it")
    demo.add_argument("--out", default="demo", help="folder to write index.html into (default: demo)")
    demo.add_argument("--seconds", type=float, default=5.0, help="how long the worm is recorded (default: 5)")
    demo.add_argument("--seed", type=int, default=0, help="of the true worm; the imputation takes the next (default: 0)")
    demo.add_argument("--particles", type=int, help="how many worms to condition (default: as many as impute takes, 200)")
    demo.set_defaults(run_command=_demo)

    simulate = commands.add_parser("simulate", help="let the worm live by its own nervous system, and keep what it did")
    simulate.add_argument("--seconds", type=float, default=10.0, help="how long (default: 10)")
    simulate.add_argument("--seed", type=int, default=0, help="of the start and the noise (default: 0)")
    simulate.add_argument("--out", help="zarr folder to write, such as run.zarr; nothing is kept without it")
    simulate.add_argument("--n", type=int, default=1, help="how many worms, side by side (default: 1)")
    simulate.add_argument("--noise", type=float, default=0.0, help="noise of every voltage, mV a step of 10 ms (default: 0)")
    simulate.add_argument("--every", type=float, default=0.01, help="seconds between frames (default: 0.01)")
    simulate.add_argument("--variant", default="default", help="default, lively, prototype, paper or sce")
    simulate.add_argument("--connectome", default="openworm", help="openworm, cook2019, varshney2011, ...")
    simulate.add_argument("--medium", type=float, default=1.0, help="from 0 (water) to 1 (agar) (default: 1)")
    simulate.add_argument("--protocol", help="JSON file with what is done to the worm, as vpc.protocol.dumps writes it")
    simulate.set_defaults(run_command=_simulate)

    impute = commands.add_parser("impute", help="infer every voltage of a worm from the fluorescence of some, and score it")
    impute.add_argument("recording", nargs="?", help="a run that `vpc simulate --out` wrote; or make one with --preset")
    impute.add_argument(
        "--preset", help="an experiment: paper (default), all, noise or start; vpc.experiments tells them apart"
    )
    impute.add_argument("--truth", type=int, default=0, help="seed of the experiment's truth (default: 0)")
    impute.add_argument("--seconds", type=float, default=5.0, help="length of the experiment's truth (default: 5)")
    impute.add_argument("--every", type=float, default=0.05, help="seconds between the frames seen of a run (default: 0.05)")
    impute.add_argument("--method", default="ensemble", help="ensemble, guided, farsighted or bootstrap (default: ensemble)")
    impute.add_argument("--particles", type=int, help="how many worms side by side (default: the method's, 200 or 1000)")
    impute.add_argument("--init-particles", type=int, help="how many to refine the start from (default: 5000 for bootstrap)")
    impute.add_argument("--seed", type=int, default=1, help="of the sweep (default: 1)")
    impute.add_argument("--factor", type=float, help="of the process noise (default: 0.2)")
    impute.add_argument("--variant", default="default", help="of the experiment's worm: default, lively, prototype, ...")
    impute.add_argument("--checkpoint", help="zarr folder from which an interrupted sweep goes on")
    impute.add_argument("--out", help="zarr folder to write the posterior into")
    impute.set_defaults(run_command=_impute)

    clamp = commands.add_parser("clamp", help="branch from a moment of a worm, a run or a posterior, and clamp or inject there")
    clamp.add_argument("source", help="zarr folder with a posterior or a run; or the word worm, for a new one")
    clamp.add_argument(
        "--protocol", required=True, help="JSON file with actions or a StepFamily, as vpc.protocol.dumps writes it"
    )
    clamp.add_argument("--at", type=float, help="the moment to branch from, s (default: the last)")
    clamp.add_argument("--seconds", type=float, default=2.0, help="how long (default: 2)")
    clamp.add_argument("--seed", type=int, default=0, help="of the noise (default: 0)")
    clamp.add_argument("--particles", type=int, help="how many worms (default: as many as a posterior or a run holds, or one)")
    clamp.add_argument("--control", action="store_true", help="let the same worms live on without the experiment too")
    clamp.add_argument(
        "--window", type=float, nargs=2, metavar=("A", "B"), help="of a family: its I-V curve from means from A to B, s"
    )
    clamp.add_argument("--out", help="zarr folder to write what was recorded into")
    clamp.set_defaults(run_command=_clamp)

    learn = commands.add_parser(
        "learn", help="search for parameters, with data whose truth is known, and see how near it comes"
    )
    add_learning(learn)
    learn.set_defaults(run_command=_learn)

    bench = commands.add_parser("bench", help="measure the speed, as ratios within one run")
    bench.add_argument(
        "what",
        choices=["body", "worm", "smc", "impute", "filters", "evidence", "screen", "cluster"],
        help="body: the mechanics; worm: the closed loop with its nerves; smc: particle filters beside `particles`; "
        "impute: whole sweeps; filters: all methods for the same money (15 min); evidence: how they rank parameters (2 h); "
        "screen: a screen over all neurons (4 min); cluster: what workers cost, and how many are worth it (3 min)",
    )
    bench.set_defaults(run_command=_bench)

    cluster = commands.add_parser("cluster", help="try out a cluster, or see the job that it would be given")
    cluster.add_argument(
        "what",
        choices=["check", "script"],
        help="check: run a small workload there and say what is wrong; script: print the job",
    )
    cluster.add_argument("--kind", required=True, help=f"{', '.join(KINDS)}, or the address of a Dask scheduler")
    add_cluster(cluster)
    cluster.set_defaults(run_command=_cluster)

    for command in (demo, simulate, impute, clamp, learn, bench, cluster):
        command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    lab = commands.add_parser("lab", help="open the notebooks in JupyterLab; options it does not know go to jupyter lab")
    lab.add_argument("folder", nargs="?", default="notebooks", help="folder with the notebooks (default: notebooks)")
    lab.set_defaults(run_command=_lab)

    rig = commands.add_parser("rig", help="the clamp rig as an app in the browser; options it does not know go to voila")
    rig.add_argument(
        "source", nargs="?", help="zarr folder with a run or a posterior (default: a worm that has crawled a while)"
    )
    rig.add_argument("--port", type=int, help="where to serve it (default: 8866, or one near it if that is taken)")
    rig.add_argument("--no-browser", action="store_true", help="open none, only serve")
    rig.set_defaults(run_command=_rig)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. Bad input is one line on standard error, not a traceback."""
    top = parser()
    options, unknown = top.parse_known_args(arguments)
    if unknown and options.command not in ("lab", "rig"):
        top.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.passed_on = unknown
    try:
        return options.run_command(options)
    except (ValueError, OSError, MemoryError) as error:
        print(f"vpc {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
