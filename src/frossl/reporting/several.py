"""The page of several runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from frossl.errors import FrosslError
from frossl.reporting.charts import Curve, is_number, line_chart, number, table
from frossl.reporting.compare import Comparison, compare_runs
from frossl.reporting.facts import Facts
from frossl.reporting.html import Markup, joined, tag
from frossl.reporting.page import Section, page
from frossl.reporting.pieces import axis_choice, quiet, spectra, verdict


def comparison_page(runs: Sequence[Facts]) -> Markup:
    runs = _told_apart(runs)
    names = ", ".join(run.name for run in runs)
    header = joined(
        tag("p", f"{len(runs)} runs", class_="over"),
        tag("h1", _short(names)),
        [tag("p", f"{run.name}: {trouble}", class_="trouble") for run in runs for trouble in run.troubles],
    )
    sections = [
        Section("accuracy", "Accuracy", _accuracy(runs)),
        Section("runs", "The runs", _runs(runs)),
        Section("curves", "Curves", _curves(runs)),
        Section("spectra", "Eigenvalues", _spectra(runs)),
        Section("differences", "What was set differently", _differences(runs), "Differences"),
    ]
    about = "A comparison by frossl. Everything is in this file; it fetches nothing."
    return page(f"{_short(names)} · frossl", header, sections, about=about)


def _told_apart(runs: Sequence[Facts]) -> list[Facts]:
    """By their paths, where two have one name."""
    if len({run.name for run in runs}) == len(runs):
        return list(runs)
    return [replace(run, name=str(run.folder.path)) for run in runs]


def _short(names: str) -> str:
    return names if len(names) <= 120 else names[:119] + "…"


def _accuracy(runs: Sequence[Facts]) -> Markup:
    try:
        compared = compare_runs([run.folder.path for run in runs])
    except FrosslError as error:
        return quiet(f"No accuracy to compare: {error}.")
    except (OSError, LookupError, ValueError, TypeError):  # a file of a run that is missing or damaged
        return quiet("No accuracy to compare: the records of a run are damaged or not complete.")
    return joined(
        tag("p", tag("strong", f"{compared.verdict()}."), class_="verdict"),
        tag("p", f"By {compared.protocol}, best first; the order is a ranking only where that is said."),
        _arms(compared),
        _pairs(compared) if compared.pairs else None,
    )


def _arms(compared: Comparison) -> Markup:
    rows = []
    for arm in compared.to_json()["arms"]:
        reached = arm["reached"] or {}
        rows.append(
            [
                arm["name"],
                ", ".join(str(seed) for seed in arm["seeds"]),
                f"{arm['percent']:.1f} ± {2 * arm['error']:.1f}",
                _given(reached.get("epochs")),
                _given(reached.get("seconds") and reached["seconds"] / 60),
                _given(arm["step_ms"]),
                _given(arm["memory_gb"]),
                _given(arm["minutes"]),
            ]
        )
    target = f"{number(compared.target)}%"
    names = ["run", "seeds", "percent, ± 2 errors", f"epochs to {target}", f"minutes to {target}"]
    return table("Accuracy and cost", [*names, "ms a step", "memory, GB", "minutes"], rows)


def _pairs(compared: Comparison) -> Markup:
    rows = [
        [
            f"{pair.better} − {pair.other}",
            f"{pair.difference:.1f} ± {2 * pair.error:.1f}",
            "yes" if pair.separated else "cannot be told",
        ]
        for pair in compared.pairs
    ]
    return tag(
        "details",
        tag("summary", "Differences, pair by pair"),
        table("Differences of accuracy", ["pair", "points, ± 2 errors", "ahead"], rows),
    )


def _given(value: object) -> str:
    return number(value) if is_number(value) else "–"


def _runs(runs: Sequence[Facts]) -> Markup:
    cards = [
        tag(
            "div",
            tag("h3", run.name),
            tag("p", run.state, class_="state"),
            verdict(run),
            tag(
                "dl",
                [
                    tag("div", tag("dt", name), tag("dd", value))
                    for name, value in (
                        ("effective rank", _given(run.newest("z_rank"))),
                        ("images a second", _given(run.images_per_second)),
                        ("minutes", _given(round(run.seconds / 60, 1))),
                        ("images", _given(run.images)),
                        ("memory, GB", _given(run.memory_gb)),
                    )
                ],
                class_="facts",
            ),
        )
        for run in runs
    ]
    return tag("div", cards, class_="cards")


def _curves(runs: Sequence[Facts]) -> Markup:
    def of(key: str) -> list[Curve]:
        return [run.curve(key, run.name, looks=True, place=i) for i, run in enumerate(runs)]

    titles: Iterable[tuple[str, str]] = (
        ("knn", "kNN while training, percent"),
        ("probe", "Probe while training, percent"),
        ("z_rank", "Effective rank of the projections"),
        ("features_rank", "Effective rank of the features"),
        ("features_rankme", "RankMe of the features"),
        ("alignment", "Distance between views"),
    )
    charts = [line_chart(title, of(key), long=True) for key, title in titles]
    if not any(charts):
        return quiet("No run has recorded looks at itself.")
    return joined(
        tag("p", "Losses are left out: those of different methods have no scale in common."),
        axis_choice(),
        tag("div", charts, class_="charts"),
    )


def _spectra(runs: Sequence[Facts]) -> Markup:
    charts = [chart for run in runs for chart in spectra(run, [("z", run.name)])]
    if not charts:
        return quiet("No run has looked at its embeddings twice.")
    return joined(
        tag("p", "The largest eigenvalues of the covariance of the projections, over the steps of each run."),
        tag("div", charts, class_="charts"),
    )


def _differences(runs: Sequence[Facts]) -> Markup:
    """Keys of the configuration that are not the same in all runs."""
    settings = [run.settings() for run in runs]
    keys = dict.fromkeys(key for one in settings for key in one)
    differing = [key for key in keys if len({one.get(key) for one in settings}) > 1]
    if not differing:
        return quiet("Nothing: the configurations are the same.")
    rows = [[key, *(one.get(key, "–") for one in settings)] for key in differing]
    return table("Configuration", ["key", *(run.name for run in runs)], rows)
