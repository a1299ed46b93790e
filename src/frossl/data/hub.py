"""Data sets of Hugging Face, from the hub or from a folder that one was saved to. Needs `frossl[hf]`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

from frossl.data.decode import BadFile
from frossl.data.files import read_file
from frossl.data.kept import Names
from frossl.data.labels import Labels
from frossl.data.parts import PartFiles
from frossl.errors import FrosslError, InputError

HUB = "hf:"
TEST_SPLITS = ("validation", "valid", "val", "test")


class HubFiles:
    """The images of one split, as they are encoded."""

    shard_ends = ()
    within = ""

    def __init__(self, split: Any, column: str, name: str) -> None:
        from datasets import Image

        self._column = column
        self._rows = split.select_columns([column]).cast_column(column, Image(decode=False))
        self.names = Names.of(f"{name}/{i}".encode() for i in range(len(split)))
        self.closed: dict[str, str] = {}
        self.digest = hashlib.sha256(split._fingerprint.encode()).hexdigest()

    def read(self, i: int) -> bytes:
        held = self._rows[i][self._column]
        if held is None:
            raise BadFile("no image in this row")
        return held["bytes"] if held["bytes"] is not None else read_file(held["path"])


def is_saved(folder: Path) -> bool:
    """By `save_to_disk`, one split or several."""
    one = all((folder / name).is_file() for name in ("dataset_info.json", "state.json"))
    return one or (folder / "dataset_dict.json").is_file()


def hub_parts(source: str | Path) -> list[PartFiles]:
    """`hf:NAME`, `hf:NAME:CONFIGURATION`, or a folder: its `train` split, and the one to be tested on."""
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
    return [
        _part(splits[name].with_format(None), name, str(source))
        for name in ("train", *([test] if test else []))
    ]


def _part(split: Any, name: str, source: str) -> PartFiles:
    from datasets import ClassLabel, Image

    columns = {
        kind: [c for c, f in split.features.items() if isinstance(f, kind)] for kind in (Image, ClassLabel)
    }
    if not columns[Image]:
        raise InputError(
            f"{source} has the columns {', '.join(split.features)}, none of images; choose another"
        )
    files = HubFiles(split, columns[Image][0], name)
    if not columns[ClassLabel]:
        return files, None
    column = columns[ClassLabel][0]
    values = torch.tensor([-1 if value is None else value for value in split[column]])
    return files, Labels(values, tuple(split.features[column].names))
