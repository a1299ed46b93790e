"""Files of features: Parquet, NumPy and CSV, written as their rows come."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from frossl.data.cells import path_cell, text_cell
from frossl.errors import InputError
from frossl.runs.record import TEXT

CELLS: dict[str, Callable[[str], str]] = {"name": path_cell, "other": path_cell, "label": text_cell}
"""Columns of text; the others hold numbers."""


class Rows(NamedTuple):
    """Some images, one after the other."""

    names: list[str]
    labels: list[str | None]
    features: NDArray[np.float32]
    """(n, F); NaN where a file could not be read."""

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.isnan(self.features[:, 0])


def write_parquet(file: BinaryIO, chunks: Iterable[Rows], shape: tuple[int, int]) -> None:
    """Columns `name`, `label` (null for none) and `features` (a list of F float32; null where there are
    none). Bytes of names that are not UTF-8 become `\\udcff` and the like, as Parquet's texts are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    _, F = shape
    kinds = {"name": pa.string(), "label": pa.string(), "features": pa.list_(pa.float32(), F)}
    with pq.ParquetWriter(file, pa.schema(kinds), use_dictionary=["label"]) as writer:
        for rows in chunks:
            features = pa.FixedSizeListArray.from_arrays(
                pa.array(rows.features.reshape(-1)), F, mask=pa.array(rows.missing)
            )
            texts = [pa.array(list(map(_plain, column)), pa.string()) for column in rows[:2]]
            writer.write_batch(pa.record_batch([*texts, features], names=list(kinds)))


def _plain(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "backslashreplace").decode("utf-8")


def write_npy(file: BinaryIO, chunks: Iterable[Rows], shape: tuple[int, int]) -> None:
    """float32 (N, F); names go to a file beside it."""
    header = {"descr": npy.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(file, header)
    for rows in chunks:
        file.write(rows.features.tobytes())


def write_csv(file: BinaryIO, chunks: Iterable[Rows], shape: tuple[int, int]) -> None:
    """Columns `name`, `label`, `f0`, `f1`, …, empty for none; nine digits give the same float32."""
    _, F = shape
    empty = [""] * F

    def lines() -> Iterable[list[Any]]:
        yield ["name", "label", *(f"f{i}" for i in range(F))]
        for rows in chunks:
            values = zip(rows.names, rows.labels, rows.features.tolist(), rows.missing, strict=True)
            for name, label, features, missing in values:
                yield [name, label, *(empty if missing else [f"{value:.9g}" for value in features])]

    write_lines(file, lines())


def write_lines(file: BinaryIO, lines: Iterable[Iterable[Any]]) -> None:
    """CSV, titles first; names may hold quotes, line breaks, and bytes that are not UTF-8, which stay as they
    are. What a spreadsheet would compute is marked: `./` before a path, an apostrophe before other text."""
    rows = iter(lines)
    titles = list(next(rows))
    texts = [(i, CELLS[title]) for i, title in enumerate(titles) if title in CELLS]

    def harmless(row: Iterable[Any]) -> list[Any]:
        cells = list(row)
        for i, cell in texts:
            cells[i] = cells[i] and cell(cells[i])
        return cells

    text = io.TextIOWrapper(file, newline="", **TEXT)
    csv.writer(text, lineterminator="\n").writerows(chain([titles], map(harmless, rows)))
    text.detach()


def write_names(file: BinaryIO, chunks: Iterable[Rows]) -> None:
    """A JSON object with `name` and `label` on each line, in the order of the rows of a .npy file."""
    for rows in chunks:
        for name, label in zip(rows.names, rows.labels, strict=True):
            file.write(json.dumps({"name": name, "label": label}).encode() + b"\n")


Write = Callable[[BinaryIO, Iterable[Rows], tuple[int, int]], None]

FORMATS: dict[str, Write] = {".parquet": write_parquet, ".npy": write_npy, ".csv": write_csv}


def format_of(path: Path) -> Write:
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{path.name} has an ending that is not known; give one of {', '.join(FORMATS)}")
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise InputError("Parquet needs its library: pip install 'frossl[parquet]'; or give a .npy file")
    return FORMATS[suffix]
