"""Command that checks the installation and the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from frossl.cli.common import Json, app, print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from frossl.health import DoctorReport

STYLES = {"problem": "bold red", "hint": "yellow", "ok": "green"}
"""Styles of the levels of a finding, worst first."""
INDENT = 10
"""Width of the labels in columns."""


@app.command(epilog="Example: frossl doctor --self-test")
def doctor(
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test", help="Also run a loss, views, a gather and a training step (half a minute)"
        ),
    ] = False,
    test: Annotated[bool, typer.Option("--test", hidden=True, help="Former name of --self-test")] = False,
    device: Annotated[
        str | None, typer.Option(help="Device: cpu, cuda or mps (default: the fastest one)")
    ] = None,
    json: Json = False,
) -> int:
    """Check the installation: versions, devices, what is slow or missing, and how to fix it."""
    from frossl.live import NonBlockingConsole

    self_test = self_test or test
    with NonBlockingConsole(stderr=True).status(
        "testing this device" if self_test else "checking the installation"
    ):
        found = _examine(self_test=self_test, device=device)
    show(found, NonBlockingConsole(stderr=json))
    if json:
        print_json(found.to_json())
    return 0 if found.healthy else 1


def _examine(*, self_test: bool, device: str | None) -> DoctorReport:
    from frossl.errors import FrosslError

    try:
        from frossl.health import doctor
    except ImportError as error:  # no other command would work either
        package = (error.name or "a package").partition(".")[0]
        hint = f"pip install --force-reinstall {package}"
        raise FrosslError(f"{package} cannot be imported ({error}); try {hint}") from None
    return doctor(self_test=self_test, device=device)  # type: ignore[arg-type]  # checked there


def show(found: DoctorReport, console: Console) -> None:
    """Print versions and hardware, the findings (worst first), and commands that fix them."""
    from rich.text import Text

    for name, lines in _facts(found, console.width - INDENT).items():
        _print_labelled(console, name, "bold", lines)
    console.print()
    ordered = [finding for level in STYLES for finding in found.findings if finding.level == level]
    for finding in ordered:
        lines = [Text(finding.title), Text(finding.detail, style="dim")]
        _print_labelled(console, finding.level, STYLES[finding.level], lines)
    fixes = {finding.fix: finding.title for finding in ordered if finding.fix}
    if fixes:
        console.print()
        console.print(Text("to fix it", style="bold"))
    for fix, title in fixes.items():
        console.print(Text(f"# {title}", style="dim"), soft_wrap=True)
        console.print(Text(fix), soft_wrap=True)
    console.print()
    console.print(Text(_summary(found), style="bold"), soft_wrap=True)


def _print_labelled(console: Console, label: str, style: str, lines: list[Text]) -> None:
    """Print lines beside a label, wrapped to its right."""
    from rich.text import Text

    mark = f"{label:{INDENT}}"
    for line in lines:
        for part in line.wrap(console, console.width - INDENT) if line else ():
            part.rstrip()
            console.print(Text.assemble((mark, style), part), soft_wrap=True)
            mark = " " * INDENT


def _facts(found: DoctorReport, width: int) -> dict[str, list[Text]]:
    """Return the lines about versions and hardware that a bug report needs."""
    from rich.text import Text

    hardware = found.hardware
    usable = "all" if hardware.usable == hardware.cores else f"{hardware.usable:g}"
    versions = [f"{name} {version}" for name, version in found.versions.items() if version]
    devices = [f"{d.device}: {d.name}, {_memory(d.memory, d.free)}" for d in found.devices]
    return {
        "versions": [Text(line) for line in _joined_lines(versions, width)],
        "system": [Text(hardware.system)],
        "CPU": [
            Text(
                f"{hardware.cpu} ({hardware.capability}), {hardware.cores} cores, {usable} usable, "
                f"{hardware.threads} used by torch"
            )
        ],
        "memory": [Text(_memory(hardware.memory, hardware.free))],
        "devices": [Text(line) for line in devices or ["CPU only"]],
    }


def _joined_lines(items: list[str], width: int) -> list[str]:
    """Join items into lines of at most `width` columns, without breaking an item."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 3 <= width:
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return lines


def _memory(total: int | None, free: int | None) -> str:
    from frossl.text import gigabytes

    if total is None:
        return "unknown"
    return gigabytes(total) + (f", {gigabytes(free)} free" if free is not None else "")


def _summary(found: DoctorReport) -> str:
    levels = [finding.level for finding in found.findings]
    counts = ", ".join(
        f"{levels.count(level) or 'no'} {level}{'s' * (levels.count(level) != 1)}"
        for level in ("problem", "hint")
    )
    return (
        f"{counts}; tested on {found.tested}"
        if found.tested
        else f"{counts} (--self-test runs computations too)"
    )
