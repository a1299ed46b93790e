"""Run folders of `pretrain`: reserve and initialize one, find that of a requeued job."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import frossl.engine as engine
from frossl._api.common import file_digest
from frossl.config import Config
from frossl.data import Dataset
from frossl.engine.budget import Budget, Pacer, is_duration
from frossl.errors import InputError
from frossl.exporting import EXPORT_FILES
from frossl.runs import RunFolder, command_line, is_run, provenance
from frossl.runs.folder import remove_if_empty

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@contextmanager
def reserve_folder(
    out: Path | None, default: Path, fabric: Fabric, *, overwrite: bool
) -> Iterator[RunFolder]:
    """Yield a run folder that the main process has locked.

    Args:
        out: Folder to reserve; `default`, or the first free name of `default`-2, `default`-3, …, if None.
        default: Folder to reserve without `out`.
        fabric: Process group; all its processes get the same folder.
        overwrite: Replace a run that is in `out`.
    """
    with contextlib.ExitStack() as stack:
        folder = RunFolder(out or default)
        if fabric.is_global_zero:
            missing = [path for path in (folder.path, *folder.path.parents) if not path.exists()]
            if out is None:
                folder = RunFolder(make_free_folder(default))
                missing = [folder.path, *missing]
            for path in reversed(missing):
                stack.callback(
                    remove_if_empty, path
                )  # leaves no empty folders if the run fails before it starts
            stack.enter_context(folder.reserved(overwrite=overwrite))
        agreed = engine.all_gather_object(folder.path)[0]
        yield folder if fabric.is_global_zero else RunFolder(agreed)


def begin_run(folder: RunFolder, config: Config, dataset: Dataset, *, pacer: Pacer | None) -> None:
    """Write everything that `resume` needs into a reserved folder.

    Args:
        folder: Run folder.
        config: Settled configuration.
        dataset: Data set of the run, whose digest and names are recorded.
        pacer: Pace of the run, if a time budget determined its number of steps.
    """
    source = dataset.train.source
    origin = provenance(
        seed=config.train.seed,
        index_digest=source.digest,
        images=len(source),
        weights_digest=file_digest(config.network.weights),
    )
    origin |= {"budget": None, "pace": None}
    if pacer is not None:
        origin |= {"budget": pacer.budget.seconds, "pace": pacer.to_json()}
    folder.begin(origin, export_files=EXPORT_FILES)
    if source.names is not None:
        source.names.write(folder.index)
    folder.write_text(folder.config_file.name, config.to_toml())


def resumed_pacer(folder: RunFolder, config: Config, *, began: float) -> Pacer | None:
    """Return the pacer of a run to resume; None if its length does not follow from a time budget.

    Args:
        folder: Run folder.
        config: Configuration of the run.
        began: Value of `time.monotonic()` when this process began.
    """
    origin = folder.provenance()
    seconds = origin.get("budget")
    if config.train.steps is None or not is_duration(seconds):
        return None
    return Pacer.from_json(Budget(seconds, began), origin.get("pace"))


def run_of_this_job(out: str | Path | None, data: str | Path) -> Path | None:
    """Return the run that this SLURM job started before it was requeued, if there is one."""
    job = os.environ.get("SLURM_JOB_ID")
    if not int(os.environ.get("SLURM_RESTART_COUNT") or 0):
        return None
    name = Path(out) if out is not None else Path("runs") / default_name(data)
    for path in [name] if out is not None else sorted(name.parent.glob(f"{name.name}*")):
        folder = RunFolder(path)
        if not folder.config_file.is_file() or not is_run(path):
            continue
        origin = folder.provenance()
        if (origin.get("job"), origin["command"]) == (job, command_line()):
            return path
    return None


def default_name(data: str | Path) -> str:
    """Return a name for the run folder, made from the last part of the data's path."""
    return re.sub(r"[^\w.-]+", "-", Path(data).absolute().name).strip("-.") or "run"


def make_free_folder(path: Path) -> Path:
    """Create and return the first of path, path-2, path-3, … that does not exist."""
    number, free = 1, path
    while True:
        try:
            free.mkdir(parents=True)
        except FileExistsError:
            if not free.parent.is_dir():
                raise InputError(f"{free.parent} is a file; choose another --out") from None
            number += 1
            free = path.with_name(f"{path.name}-{number}")
        except OSError as error:
            raise InputError(f"cannot create {free}: {error.strerror}; choose another --out") from None
        else:
            return free
