"""`frossl doctor`: what was found, for a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from frossl.cli.common import Json, app, print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from frossl.api.examination import Examination

STYLES = {"problem": "bold red", "hint": "yellow", "ok": "green"}
INDENT = 10


@app.command(epilog="Example: frossl doctor --test")
def doctor(
    test: Annotated[
        bool, typer.Option("--test", help="Compute too: loss, views, gather, a step; half a minute")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps (default: the best one)")] = None,
    json: Json = False,
) -> int:
    """Is all well here? Versions, devices, what is slow or missing, and what mends it."""
    from frossl.live import Patient

    with Patient(stderr=True).status("computing on this device" if test else "looking around"):
        found = _examined(test=test, device=device)
    show(found, Patient(stderr=json))
    if json:
        print_json(found.to_json())
    return 0 if found.healthy else 1


def _examined(*, test: bool, device: str | None) -> Examination:
    from frossl.errors import FrosslError

    try:
        from frossl.api.examination import doctor
    except ImportError as error:  # nothing else of frossl would work either
        package = (error.name or "a package").partition(".")[0]
        hint = f"pip install --force-reinstall {package}"
        raise FrosslError(f"{package} cannot be imported ({error}); try {hint}") from None
    return doctor(test=test, device=device)  # type: ignore[arg-type]  # checked there


def show(found: Examination, console: Console) -> None:
    """Versions and hardware, what was found (worst first), and commands to be copied."""
    from rich.text import Text

    for name, lines in _facts(found, console.width - INDENT).items():
        _put(console, name, "bold", lines)
    console.print()
    ordered = [finding for level in STYLES for finding in found.findings if finding.level == level]
    for finding in ordered:
        lines = [Text(finding.title), Text(finding.detail, style="dim")]
        _put(console, finding.level, STYLES[finding.level], lines)
    mends = {finding.mend: finding.title for finding in ordered if finding.mend}
    if mends:
        console.print()
        console.print(Text("to mend it", style="bold"))
    for mend, title in mends.items():
        console.print(Text(f"# {title}", style="dim"), soft_wrap=True)
        console.print(Text(mend), soft_wrap=True)
    console.print()
    console.print(Text(_sum(found), style="bold"), soft_wrap=True)


def _put(console: Console, label: str, style: str, lines: list[Text]) -> None:
    """Lines beside a label, wrapped to the right of it."""
    from rich.text import Text

    mark = f"{label:{INDENT}}"
    for line in lines:
        for part in line.wrap(console, console.width - INDENT) if line else ():
            part.rstrip()
            console.print(Text.assemble((mark, style), part), soft_wrap=True)
            mark = " " * INDENT


def _facts(found: Examination, width: int) -> dict[str, list[Text]]:
    """Few lines: what would be asked for in a report of a bug."""
    from rich.text import Text

    hardware = found.hardware
    usable = "all" if hardware.usable == hardware.cores else f"{hardware.usable:g}"
    versions = [f"{name} {version}" for name, version in found.versions.items() if version]
    devices = [f"{d.device}: {d.name}, {_memory(d.memory, d.free)}" for d in found.devices]
    return {
        "versions": [Text(line) for line in _packed(versions, width)],
        "system": [Text(hardware.system)],
        "CPU": [
            Text(
                f"{hardware.cpu} ({hardware.capability}), {hardware.cores} cores, {usable} usable, "
                f"{hardware.threads} used by torch"
            )
        ],
        "memory": [Text(_memory(hardware.memory, hardware.free))],
        "devices": [Text(line) for line in devices or ["none beside the CPU"]],
    }


def _packed(items: list[str], width: int) -> list[str]:
    """As many on a line as fit; none is broken."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 3 <= width:
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return lines


def _memory(total: int | None, free: int | None) -> str:
    if total is None:
        return "unknown"
    return f"{total / 1e9:.1f} GB" + (f", {free / 1e9:.1f} GB free" if free is not None else "")


def _sum(found: Examination) -> str:
    levels = [finding.level for finding in found.findings]
    said = ", ".join(
        f"{levels.count(level) or 'no'} {level}{'s' * (levels.count(level) != 1)}"
        for level in ("problem", "hint")
    )
    return f"{said}; computed on {found.tested}" if found.tested else f"{said} (--test computes too)"
