"""Writers of features: Parquet, NumPy and CSV, chunk by chunk."""

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

from frossl.data.csv_cells import path_cell, text_cell
from frossl.errors import InputError
from frossl.runs.json_lines import TEXT
from frossl.text import encodable

TEXT_CELLS: dict[str, Callable[[str], str]] = {"name": path_cell, "other": path_cell, "label": text_cell}
"""Columns of text, and the function that makes a value safe for spreadsheets; other columns hold numbers."""


class Rows(NamedTuple):
    """Chunk of consecutive rows."""

    names: list[str]
    labels: list[str | None]
    features: NDArray[np.float32]
    """Features (n, F); NaN where a file could not be read."""

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Rows without features, bool (n,)."""
        return np.isnan(self.features[:, 0])


def write_parquet(file: BinaryIO, chunks: Iterable[Rows], shape: tuple[int, int]) -> None:
    """Write a Parquet file with the columns `name`, `label` and `features` (a list of F float32).

    Missing labels and features are null. Bytes of names that are not UTF-8 are escaped (`\\udcff`), because
    strings of Parquet are UTF-8.

    Args:
        file: File to write to.
        chunks: Rows in order.
        shape: Number of rows N and of features F.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    _, F = shape
    types = {"name": pa.string(), "label": pa.string(), "features": pa.list_(pa.float32(), F)}
    with pq.ParquetWriter(file, pa.schema(types), use_dictionary=["label"]) as writer:
        for rows in chunks:
            features = pa.FixedSizeListArray.from_arrays(
                pa.array(rows.features.reshape(-1)), F, mask=pa.array(rows.missing)
            )
            texts = [pa.array(list(map(_as_utf8, column)), pa.string()) for column in rows[:2]]
            writer.write_batch(pa.record_batch([*texts, features], names=list(types)))


def _as_utf8(text: str | None) -> str | None:
    return None if text is None else encodable(text, "utf-8")


def write_npy(file: BinaryIO, chunks: Iterable[Rows], shape: tuple[int, int]) -> None:
    """Write a NumPy file, float32 (N, F); `write_names` writes the names. Arguments as in `write_parquet`."""
    header = {"descr": npy.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(file, header)
    for rows in chunks:
        file.write(rows.features.tobytes())


def write_csv(file: BinaryIO, chunks: Iterable[Rows], shape: tuple[int, int]) -> None:
    """Write a CSV file with the columns `name`, `label`, `f0`, `f1`, …; missing values are empty.

    Nine digits restore the same float32. Arguments as in `write_parquet`.
    """
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
    """Write CSV. Quotes, line breaks and bytes that are not UTF-8 in names are preserved.

    Text that a spreadsheet would take for a formula is prefixed: a path by `./`, other text by an apostrophe.

    Args:
        file: File to write to.
        lines: Column titles, then rows.
    """
    rows = iter(lines)
    titles = list(next(rows))
    texts = [(i, TEXT_CELLS[title]) for i, title in enumerate(titles) if title in TEXT_CELLS]

    def sanitize(row: Iterable[Any]) -> list[Any]:
        cells = list(row)
        for i, cell in texts:
            cells[i] = cells[i] and cell(cells[i])
        return cells

    text = io.TextIOWrapper(file, newline="", **TEXT)
    csv.writer(text, lineterminator="\n").writerows(chain([titles], map(sanitize, rows)))
    text.detach()


def write_names(file: BinaryIO, chunks: Iterable[Rows]) -> None:
    """Write JSON Lines with `name` and `label`, in the order of the rows of a .npy file."""
    for rows in chunks:
        for name, label in zip(rows.names, rows.labels, strict=True):
            file.write(json.dumps({"name": name, "label": label}).encode() + b"\n")


Writer = Callable[[BinaryIO, Iterable[Rows], tuple[int, int]], None]

WRITERS: dict[str, Writer] = {".parquet": write_parquet, ".npy": write_npy, ".csv": write_csv}


def writer_for(path: Path) -> Writer:
    """Return the writer for a file by its suffix.

    Raises:
        InputError: If the suffix is unknown, or the writer needs a package that is not installed.
    """
    suffix = path.suffix.lower()
    if suffix not in WRITERS:
        raise InputError(f"{path.name} has an unknown suffix; give one of {', '.join(WRITERS)}")
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise InputError("Parquet needs its library: pip install 'frossl[parquet]'; or give a .npy file")
    return WRITERS[suffix]
