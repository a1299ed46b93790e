"""Parts shared by the report of one run and the comparison of several."""

from __future__ import annotations

from collections.abc import Sequence

from frossl.errors import InputError
from frossl.reporting.charts import spectrum_chart
from frossl.reporting.html import Markup, joined, tag
from frossl.reporting.run_data import RunData
from frossl.reporting.trajectory import Kind, trajectory
from frossl.runs.outcome import BETTER, NO_BETTER_THAN_PIXELS, NO_BETTER_THAN_START, VERDICT_NOTES, WORSE

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
"""Symbols in front of the verdicts."""
GOOD = ("learning", BETTER)
"""Verdicts that are shown as a success."""
BAD = ("collapsing", "diverging", "stalled", "forgetting", NO_BETTER_THAN_PIXELS, WORSE)
"""Verdicts that are shown as a warning."""


def quiet(text: str) -> Markup:
    """Return a paragraph in a subdued color."""
    return tag("p", text, class_="quiet")


def verdict(run: RunData) -> Markup:
    """Return the verdict of a run with its reason and advice."""
    found = run.verdict
    kind = found.get("kind")
    if not kind:
        return quiet("No verdict: the run ended before its first diagnostics.")
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
        [quiet(f"{also[0].upper()}{also[1:]}.") for name in VERDICT_NOTES if (also := found.get(name))],
    )


def axis_choice() -> Markup:
    """Return the switch between epochs and minutes; the style sheet shows the charts of one of them."""
    radios = [
        tag(
            "label",
            tag("input", type="radio", name="across", value=name, checked=not i, id=f"across-{name}"),
            name,
        )
        for i, name in enumerate(("epochs", "minutes"))
    ]
    return tag("fieldset", tag("legend", "Over"), radios, class_="across")


def spectra(run: RunData, titles: Sequence[tuple[Kind, str]]) -> list[Markup]:
    """Return the spectrum charts of a run.

    Args:
        run: Data of the run.
        titles: Pairs of a kind of embedding and a title; those without enough records are left out.
    """
    charts = []
    for kind, title in titles:
        try:
            charts.append(spectrum_chart(title, trajectory(run.folder.path, kind)))
        except (InputError, ValueError, LookupError, TypeError):  # too few records, or a damaged one
            continue
    return charts
