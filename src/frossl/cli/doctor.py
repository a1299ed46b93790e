"""`frossl doctor`: what was found, for a reader."""

from __future__ import annotations

import json as json_
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from frossl.api.doctor import Examination

STYLES = {"problem": "bold red", "hint": "yellow", "ok": "green"}


def doctor(
    test: Annotated[
        bool, typer.Option("--test", help="Compute too: loss, views, gather, a step; half a minute")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps (default: the best one)")] = None,
    json: Annotated[bool, typer.Option("--json", help="End standard output with one JSON object")] = False,
) -> int:
    """Is all well here? Versions, devices, what is slow or missing, and what mends it."""
    from rich.console import Console

    with Console(stderr=True).status("computing on this device" if test else "looking around"):
        found = _examined(test=test, device=device)
    show(found, Console(stderr=json))
    if json:
        typer.echo(json_.dumps(found.to_json(), ensure_ascii=False))
    return 0 if found.healthy else 1


def _examined(*, test: bool, device: str | None) -> Examination:
    from frossl.errors import FrosslError

    try:
        from frossl.api.doctor import doctor
    except ImportError as error:  # nothing else of frossl would work either
        package = (error.name or "a package").partition(".")[0]
        hint = f"pip install --force-reinstall {package}"
        raise FrosslError(f"{package} cannot be imported ({error}); try {hint}") from None
    return doctor(test=test, device=device)  # type: ignore[arg-type]  # checked there


def show(found: Examination, console: Console) -> None:
    """Versions and hardware, what was found (worst first), and commands to be copied."""
    from rich.text import Text

    console.print(_facts(found))
    console.print()
    console.print(_findings(found))
    mends = {
        finding.mend: finding.title
        for level in STYLES
        for finding in found.findings
        if finding.level == level and finding.mend
    }
    if mends:
        console.print()
        console.print(Text("to mend it", style="bold"))
    for mend, title in mends.items():
        console.print(Text(f"# {title}", style="dim"), soft_wrap=True)
        console.print(Text(mend), soft_wrap=True)
    console.print()
    console.print(Text(_sum(found), style="bold"))


def _grid() -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _facts(found: Examination) -> Table:
    """Few lines: what would be asked for in a report of a bug."""
    from rich.text import Text

    versions, hardware = found.versions, found.hardware
    part = "all" if hardware.usable == hardware.cores else f"{hardware.usable:g}"
    lines = {
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "system": hardware.system,
        "CPU": f"{hardware.cpu} ({hardware.capability}), {hardware.cores} cores, {part} usable, "
        f"{hardware.threads} used by torch",
        "memory": _memory(hardware.memory, hardware.free),
        "devices": "none beside the CPU",
    }
    if found.devices:
        names = (f"{d.device}: {d.name}, {_memory(d.memory, d.free)}" for d in found.devices)
        lines["devices"] = "\n".join(names)
    grid = _grid()
    for name, line in lines.items():
        grid.add_row(Text(name, style="bold"), Text(line))
    return grid


def _memory(total: int | None, free: int | None) -> str:
    if total is None:
        return "unknown"
    return f"{total / 1e9:.1f} GB" + (f", {free / 1e9:.1f} GB free" if free is not None else "")


def _findings(found: Examination) -> Table:
    from rich.text import Text

    grid = _grid()
    for level, style in STYLES.items():
        for finding in found.findings:
            if finding.level == level:
                said = Text(finding.title)
                if finding.detail:
                    said.append(f"\n{finding.detail}", style="dim")
                grid.add_row(Text(level, style=style), said)
    return grid


def _sum(found: Examination) -> str:
    counts = [sum(finding.level == level for finding in found.findings) for level in ("problem", "hint")]
    said = ", ".join(
        f"{count or 'no'} {name}{'s' * (count != 1)}"
        for count, name in zip(counts, ("problem", "hint"), strict=True)
    )
    return f"{said}; computed on {found.tested}" if found.tested else f"{said} (--test computes too)"
