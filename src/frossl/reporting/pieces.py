"""Pieces that the page of one run and the page of several have in common."""

from __future__ import annotations

from collections.abc import Sequence

from frossl.errors import InputError
from frossl.reporting.charts import spectrum_chart
from frossl.reporting.facts import Facts
from frossl.reporting.html import Markup, joined, tag
from frossl.reporting.trajectory import Kind, trajectory
from frossl.runs.outcome import ALSO, BETTER, NO_BETTER_THAN_PIXELS, NO_BETTER_THAN_START, WORSE

SIGNS = {
    "learning": "↗",
    BETTER: "↗",
    "saturated": "→",
    NO_BETTER_THAN_START: "→",
    NO_BETTER_THAN_PIXELS: "–",
    "stalled": "–",
    WORSE: "!",
    "forgetting": "!",
    "collapsing": "!",
    "diverging": "!",
}
GOOD = ("learning", BETTER)
BAD = ("collapsing", "diverging", "stalled", "forgetting", NO_BETTER_THAN_PIXELS, WORSE)


def quiet(text: str) -> Markup:
    return tag("p", text, class_="quiet")


def verdict(run: Facts) -> Markup:
    found = run.verdict
    kind = found.get("kind")
    if not kind:
        return quiet("No verdict was made: the run ended before it looked at itself.")
    reason, advice = found.get("reason"), found.get("advice")
    return joined(
        tag(
            "p",
            tag(
                "strong",
                tag("span", SIGNS.get(kind, "·"), aria_hidden="true"),
                f" {kind}" + (":" if reason else ""),
            ),
            f" {reason}." if reason else None,
            tag("span", f" What to try: {advice}.", class_="advice") if advice else None,
            class_=f"verdict {'bad' if kind in BAD else 'good' if kind in GOOD else ''}",
        ),
        [quiet(f"{also[0].upper()}{also[1:]}.") for name in ALSO if (also := found.get(name))],
    )


def axis_choice() -> Markup:
    """Epochs or minutes: the style sheet shows one or the other."""
    radios = [
        tag(
            "label",
            tag("input", type="radio", name="across", value=name, checked=not i, id=f"across-{name}"),
            name,
        )
        for i, name in enumerate(("epochs", "minutes"))
    ]
    return tag("fieldset", tag("legend", "Over"), radios, class_="across")


def spectra(run: Facts, titles: Sequence[tuple[Kind, str]]) -> list[Markup]:
    """Those of a run that can be drawn."""
    charts = []
    for kind, title in titles:
        try:
            charts.append(spectrum_chart(title, trajectory(run.folder.path, kind)))
        except (InputError, ValueError, LookupError, TypeError):  # too few, or a damaged record
            continue
    return charts
