"""HTML page that compares several runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from frossl.errors import FrosslError
from frossl.reporting.charts import Curve, line_chart, number, table
from frossl.reporting.compare import RunComparison, compare_runs
from frossl.reporting.fragments import axis_choice, quiet, spectra, verdict
from frossl.reporting.html import Markup, joined, tag
from frossl.reporting.page import Section, page
from frossl.reporting.run_data import RunData
from frossl.runs.records import is_number


def comparison_page(runs: Sequence[RunData]) -> Markup:
    """Return the page that compares the runs."""
    runs = _with_unique_names(runs)
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
    about = "Comparison written by frossl. The file is self-contained and loads nothing from the network."
    return page(f"{_short(names)} · frossl", header, sections, about=about)


def _with_unique_names(runs: Sequence[RunData]) -> list[RunData]:
    """Name the runs by their paths if two of them have the same name."""
    if len({run.name for run in runs}) == len(runs):
        return list(runs)
    return [replace(run, name=str(run.folder.path)) for run in runs]


def _short(names: str) -> str:
    return names if len(names) <= 120 else names[:119] + "…"


def _accuracy(runs: Sequence[RunData]) -> Markup:
    try:
        compared = compare_runs([run.folder.path for run in runs])
    except FrosslError as error:
        return quiet(f"No accuracy to compare: {error}.")
    except (OSError, LookupError, ValueError, TypeError):  # a missing or damaged file of a run
        return quiet("No accuracy to compare: the records of a run are damaged or incomplete.")
    return joined(
        tag("p", tag("strong", f"{compared.verdict()}."), class_="verdict"),
        tag(
            "p",
            f"Protocol: {compared.protocol}. Best first; the order is a ranking only where differences are "
            "separated, that is, more than twice their standard error.",
        ),
        _arms(compared),
        _pairs(compared) if compared.pairs else None,
    )


def _arms(compared: RunComparison) -> Markup:
    rows = []
    for arm in compared.to_json()["arms"]:
        reached = arm["reached"] or {}
        rows.append(
            [
                arm["name"],
                ", ".join(str(seed) for seed in arm["seeds"]),
                f"{arm['percent']:.1f} ± {2 * arm['error']:.1f}",
                _number_or_dash(reached.get("epochs")),
                _number_or_dash(reached.get("seconds") and reached["seconds"] / 60),
                _number_or_dash(arm["step_ms"]),
                _number_or_dash(arm["memory_gb"]),
                _number_or_dash(arm["minutes"]),
            ]
        )
    target = f"{number(compared.target)}%"
    names = ["run", "seeds", "percent, ± 2 standard errors", f"epochs to {target}", f"minutes to {target}"]
    return table("Accuracy and cost", [*names, "ms per step", "memory, GB", "minutes"], rows)


def _pairs(compared: RunComparison) -> Markup:
    rows = [
        [
            f"{pair.better} − {pair.other}",
            f"{pair.difference:.1f} ± {2 * pair.error:.1f}",
            "yes" if pair.separated else "no",
        ]
        for pair in compared.pairs
    ]
    return tag(
        "details",
        tag("summary", "Pairwise differences"),
        table("Differences in accuracy", ["pair", "points, ± 2 standard errors", "separated"], rows),
    )


def _number_or_dash(value: object) -> str:
    return number(value) if is_number(value) else "–"


def _runs(runs: Sequence[RunData]) -> Markup:
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
                        ("effective rank", _number_or_dash(run.newest("z_rank"))),
                        ("images per second", _number_or_dash(run.images_per_second)),
                        ("minutes", _number_or_dash(round(run.seconds / 60, 1))),
                        ("images", _number_or_dash(run.images)),
                        ("memory, GB", _number_or_dash(run.memory_gb)),
                    )
                ],
                class_="facts",
            ),
        )
        for run in runs
    ]
    return tag("div", cards, class_="cards")


def _curves(runs: Sequence[RunData]) -> Markup:
    def curves(key: str) -> list[Curve]:
        return [run.curve(key, run.name, diagnostics=True, place=i) for i, run in enumerate(runs)]

    titles: Iterable[tuple[str, str]] = (
        ("knn", "Online kNN, percent"),
        ("probe", "Online probe, percent"),
        ("z_rank", "Effective rank of the projections"),
        ("features_rank", "Effective rank of the features"),
        ("features_rankme", "RankMe of the features"),
        ("alignment", "Distance between views"),
    )
    charts = [line_chart(title, curves(key), long=True) for key, title in titles]
    if not any(charts):
        return quiet("No run has recorded diagnostics.")
    return joined(
        tag("p", "Losses are not shown: those of different methods are on different scales."),
        axis_choice(),
        tag("div", charts, class_="charts"),
    )


def _spectra(runs: Sequence[RunData]) -> Markup:
    charts = [chart for run in runs for chart in spectra(run, [("z", run.name)])]
    if not charts:
        return quiet("No run has recorded the spectrum of its embeddings at least twice.")
    return joined(
        tag("p", "The largest eigenvalues of the covariance of the projections, over the steps of each run."),
        tag("div", charts, class_="charts"),
    )


def _differences(runs: Sequence[RunData]) -> Markup:
    """Return a table of the settings that are not the same in all runs."""
    settings = [run.settings() for run in runs]
    keys = dict.fromkeys(key for one in settings for key in one)
    differing = [key for key in keys if len({one.get(key) for one in settings}) > 1]
    if not differing:
        return quiet("None: the configurations are the same.")
    rows = [[key, *(one.get(key, "–") for one in settings)] for key in differing]
    return table("Configuration", ["key", *(run.name for run in runs)], rows)
