"""What the engine's step costs beside a bare loop, and what a loss costs in a whole step.

    python -m benchmarks.step [--rounds 15] [--views 2,8] [--skip-table]

Overhead: the engine's step, given its views, against forward + backward + optimizer of the same networks,
the same views tensor and the same loss; and against itself with augmentation, and with the views of a step
forwarded together. Table: the whole step at N = D = 1024, FroSSL against MMCR (the paper's table D), on a
small network. Each round times every variant once, in turn; reported is the median of the ratios within a
round, with the quartiles. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch

import frossl
from frossl import engine
from frossl.config import Config, Objective, ViewSpec
from frossl.data import open_dataset
from frossl.engine.step import train_step
from frossl.objectives import frossl_loss

DATA = open_dataset("cifar10-mini")


def state_of(config: Config) -> engine.State:
    return engine.build(engine.settle(config, DATA), DATA)


def demo(views: int, *, batch: int = 128) -> Config:
    config = frossl.recipe("demo")
    specs = (replace(config.views[0], count=views),)
    return replace(config, views=specs, train=replace(config.train, batch_size=batch))


def engine_step(config: Config, *, given: bool) -> Callable[[], object]:
    """The engine's step on one batch; `given`: its views are made before."""
    state = state_of(config)
    clock = state.loader.clock(0)
    batch = state.to_device(state.loader.read(state.loader.ids(0)))
    if given:
        views = state.augment(batch, clock)
        state.augment = lambda batch, clock: views  # type: ignore[assignment]
    return lambda: train_step(batch, state, clock)


def bare_step(config: Config) -> Callable[[], object]:
    """What anybody would write for this run, on the same networks and views."""
    state = state_of(config)
    batch = state.to_device(state.loader.read(state.loader.ids(0)))
    (views,) = state.augment(batch, state.loader.clock(0))
    backbone, projector, optimizer = state.method.backbone, state.method.projector, state.optimizer

    def once() -> None:
        z = [projector(backbone(view)) for view in views]
        frossl_loss(z).total.backward()
        optimizer.step()
        optimizer.zero_grad()

    return once


def seconds(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def compare(variants: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each variant, round by round; every other round in reverse order."""
    for step in variants.values():
        step(), step()
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds):
        for name in list(variants)[:: 1 if number % 2 else -1]:
            times[name].append(seconds(variants[name]))
    return times


def ratio(over: list[float], under: list[float]) -> dict[str, float]:
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4)
    return {"median": round(median, 3), "low": round(low, 3), "high": round(high, 3)}


def words(value: dict[str, float]) -> str:
    return f"{value['median']:.2f} ({value['low']:.2f}–{value['high']:.2f})"


def overhead(views: list[int], rounds: int) -> list[dict]:
    print("| V | bare step | engine / bare | with augmentation / bare | views together / engine |")
    print("|---|---|---|---|---|")
    rows = []
    for V in views:
        config = demo(V)
        together = replace(config, train=replace(config.train, together=True))
        times = compare(
            {
                "bare": bare_step(config),
                "engine": engine_step(config, given=True),
                "augmenting": engine_step(config, given=False),
                "together": engine_step(together, given=True),
            },
            rounds,
        )
        line = {
            "V": V,
            "bare_ms": round(1000 * statistics.median(times["bare"]), 1),
            "engine": ratio(times["engine"], times["bare"]),
            "augmenting": ratio(times["augmenting"], times["bare"]),
            "together": ratio(times["together"], times["engine"]),
        }
        cells = [f"{line['bare_ms']:.0f} ms", *(words(line[k]) for k in ("engine", "augmenting", "together"))]
        print(f"| {V} | {' | '.join(cells)} |", flush=True)
        rows.append(line)
    return rows


def table_d(rounds: int) -> list[dict]:
    """The whole step at N = D = 1024."""
    print("\n| V | FroSSL step | MMCR / FroSSL |\n|---|---|---|")
    rows = []
    for V in (2, 4, 8):
        config = demo(V, batch=1024)
        network = replace(config.network, width=0.25, stages=2, projector_hidden=512, projector_out=1024)
        config = replace(
            config,
            network=network,
            views=(ViewSpec(size=16, count=V, flip=0.5, jitter=0.8, gray=0.2, blur=0.5),),
        )
        configs = {name: replace(config, objective=Objective(name)) for name in ("frossl", "mmcr")}
        times = compare({name: engine_step(c, given=True) for name, c in configs.items()}, rounds)
        line = {
            "V": V,
            "frossl_ms": round(1000 * statistics.median(times["frossl"])),
            "mmcr": ratio(times["mmcr"], times["frossl"]),
        }
        print(f"| {V} | {line['frossl_ms']} ms | {words(line['mmcr'])} |", flush=True)
        rows.append(line)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--views", default="2,8")
    parser.add_argument("--skip-table", action="store_true")
    options = parser.parse_args()
    rows = overhead([int(V) for V in options.views.split(",")], options.rounds)
    table = [] if options.skip_table else table_d(max(3, options.rounds // 3))
    capability = torch.backends.cpu.get_cpu_capability()
    print(json.dumps({"cpu": capability, "threads": torch.get_num_threads(), "overhead": rows, "D": table}))


if __name__ == "__main__":
    main()
