"""Frame of a self-contained HTML page: style, script and a content security policy."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from frossl.reporting.html import Child, Markup, joined, tag


@dataclass(frozen=True)
class Section:
    """Section of a page: anchor, heading and content."""

    key: str
    title: str
    body: Markup
    short: str = ""
    """Shorter title for the navigation, if given."""


@cache
def _asset(name: str) -> str:
    return files("frossl.reporting").joinpath("assets", name).read_text(encoding="utf-8")


def page(
    title: str, header: Child, sections: Sequence[Section], *, style: str = "", about: str = ""
) -> Markup:
    """Return a complete page.

    Args:
        title: Title of the document.
        header: Content above the navigation.
        sections: Sections in their order.
        style: CSS rules of this page, in addition to report.css.
        about: Text of the footer.
    """
    script = Markup(_asset("report.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(_asset("report.css")), Markup(style)),
    )
    contents = [tag("li", tag("a", s.short or s.title, href=f"#{s.key}")) for s in sections]
    body = [
        tag(
            "section",
            tag("h2", s.title, id=f"{s.key}-title"),
            s.body,
            id=s.key,
            aria_labelledby=f"{s.key}-title",
        )
        for s in sections
    ]
    return joined(
        Markup("<!doctype html>\n"),
        tag(
            "html",
            head,
            tag(
                "body",
                tag("a", "Skip to the report", href="#report", class_="skip"),
                tag(
                    "header",
                    tag("button", "Dark", type="button", id="theme", hidden=True),
                    header,
                    tag("nav", tag("ul", contents), aria_label="Sections"),
                ),
                tag("main", body, id="report", tabindex="-1"),
                tag("footer", tag("p", about)),
                tag("script", script),
            ),
            lang="en",
        ),
    )
