"""Data sets of Hugging Face, from the hub or from a folder written by `save_to_disk`. Needs `frossl[hf]`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

from frossl.data.decode import BadFile
from frossl.data.files import read_file, stamp_of
from frossl.data.labels import Labels, named_labels
from frossl.data.layouts import SplitFiles
from frossl.data.mmap import Names
from frossl.errors import FrosslError, InputError

HUB = "hf:"
"""Prefix of data sets on the hub."""
TEST_SPLITS = ("validation", "valid", "val", "test")
"""Names of splits to test on; the first that exists is used."""


class HuggingFaceFiles:
    """Encoded images of a split."""

    shard_ends = ()
    prefix = ""
    sizes = None

    def __init__(self, split: Any, column: str, name: str) -> None:
        from datasets import Image

        self._column = column
        self._rows = split.select_columns([column]).cast_column(column, Image(decode=False))
        self.names = Names.of(f"{name}/{i}".encode() for i in range(len(split)))
        self.unreadable: dict[str, str] = {}
        chunks = self._rows.data.column(column).chunks
        self._embedded = not any(
            chunk.field("bytes").null_count for chunk in chunks
        )  # files outside may change
        self.digest = self.cache_key = hashlib.sha256(split._fingerprint.encode()).hexdigest()

    def read(self, i: int) -> bytes:
        image = self._rows[i][self._column]
        if image is None:
            raise BadFile("no image in this row")
        return image["bytes"] if image["bytes"] is not None else read_file(image["path"])

    def stamp(self, i: int) -> bytes | None:
        return stamp_of(self.digest, i) if self._embedded else None


def is_saved(folder: Path) -> bool:
    """Return whether `save_to_disk` has written a folder, with one split or several."""
    one = all((folder / name).is_file() for name in ("dataset_info.json", "state.json"))
    return one or (folder / "dataset_dict.json").is_file()


def huggingface_splits(source: str | Path) -> list[SplitFiles]:
    """Open the `train` split of a data set, and its test split if there is one.

    Args:
        source: `hf:NAME`, `hf:NAME:CONFIGURATION`, or a folder written by `save_to_disk`.
    """
    try:
        import datasets
    except ImportError:
        raise InputError("data sets of Hugging Face need their library: pip install 'frossl[hf]'") from None
    try:
        if isinstance(source, Path):
            found = datasets.load_from_disk(str(source))
        else:
            name, _, configuration = source.removeprefix(HUB).partition(":")
            found = datasets.load_dataset(name, configuration or None)
    except Exception as error:  # the library raises its own, and those of several others
        raise FrosslError(
            f"{source} could not be opened ({type(error).__name__}: {error}); check it"
        ) from None
    splits = found if isinstance(found, dict) else {"train": found}
    if "train" not in splits:
        raise InputError(f"{source} has the splits {', '.join(splits)}; expected `train` among them")
    test = next((name for name in TEST_SPLITS if name in splits), None)
    train, *tests = (
        _open_split(splits[name].with_format(None), name, str(source))
        for name in ("train", *([test] if test else []))
    )
    return [train, *((files, _renumbered(labels, train[1])) for files, labels in tests)]


def _renumbered(labels: Labels | None, train: Labels | None) -> Labels | None:
    """Renumber labels by the class names of the train split: another split may number them differently."""
    if labels is None or train is None or labels.names == train.names:
        return labels
    given = [labels.names[value] if value >= 0 else None for value in labels.values.tolist()]
    return named_labels(given, train.names)


def _open_split(split: Any, name: str, source: str) -> SplitFiles:
    from datasets import ClassLabel, Image

    columns = {
        kind: [c for c, f in split.features.items() if isinstance(f, kind)] for kind in (Image, ClassLabel)
    }
    if not columns[Image]:
        raise InputError(
            f"{source} has the columns {', '.join(split.features)}, none of images; choose another"
        )
    files = HuggingFaceFiles(split, columns[Image][0], name)
    if not columns[ClassLabel]:
        return files, None
    column = columns[ClassLabel][0]
    values = torch.tensor([-1 if value is None else value for value in split[column]])
    return files, Labels(values, tuple(split.features[column].names))
