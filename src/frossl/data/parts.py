"""Files in a folder, a list or archives -> those to learn from and those to be tested on, with labels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from frossl.data.files import ArchivedFiles, Chosen, Files, FolderFiles, read_list
from frossl.data.index import EXTENSIONS, Found, Index, index_folder
from frossl.data.labels import Labels, class_folder_labels, named_labels
from frossl.errors import InputError

TEST_PARTS = ("val", "test")
EXPECTED = "give a folder, a list (.txt, .csv), an archive (.zip, .tar), an array (.npy, .npz) or a name"


def cache_root() -> Path:
    """Where data sets are downloaded to and indexes are kept: $FROSSL_CACHE, or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("FROSSL_CACHE") or Path(base) / "frossl")


PartFiles = tuple[Files, Labels | None]


def parts_of(path: Path, found: Found | None) -> list[PartFiles]:
    """The files to learn from and their labels, and, if there are any, those to be tested on."""
    if path.is_dir():
        if shards := _shards(path):
            return [_archived(ArchivedFiles(shards, cache=cache_root() / "index"))]
        return folder_parts(path, found)
    if not path.is_file():
        raise InputError(f"{path} is no folder and no regular file; {EXPECTED}")
    suffix = path.suffix.lower()
    if suffix in (".txt", ".csv"):
        files, given = read_list(path)
        return [(files, named_labels(given))]
    if suffix in (".zip", ".tar"):
        return _split(ArchivedFiles([path], cache=cache_root() / "index"))
    raise InputError(f"{path} is a file of another kind; {EXPECTED}")


def _shards(folder: Path) -> list[Path]:
    """Tar archives, if a folder holds nothing else that could be meant."""
    shown = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    if any(entry.is_dir() or os.fsencode(entry.name).lower().endswith(EXTENSIONS) for entry in shown):
        return []
    return sorted(Path(entry.path) for entry in shown if entry.name.endswith(".tar"))


def folder_parts(root: Path, found: Found | None = None) -> list[PartFiles]:
    """All images below `root`; with `train/` and `val/` or `test/` in it, those as parts."""
    tests = [root / name for name in TEST_PARTS if (root / name).is_dir() and any((root / name).iterdir())]
    roots = [root / "train", tests[0]] if (root / "train").is_dir() and tests else [root]
    parts: list[PartFiles] = []
    names: tuple[str, ...] | None = None
    for part in roots:
        index = index_folder(part, cache=cache_root() / "index", found=found)
        labels = _folder_labels(index, names)
        names = labels.names if labels else None
        within = f"{part.name}/" if len(roots) > 1 else ""
        parts.append((FolderFiles(part, index, within=within), labels))
    return parts


def _folder_labels(index: Index, names: tuple[str, ...] | None) -> Labels | None:
    """Found out once for each folder, not for each file."""
    used, row = np.unique(index.folder_of, return_inverse=True)
    labels = class_folder_labels([index.folders[i] for i in used], names)
    return labels and Labels(labels.values[torch.from_numpy(row)], labels.names)


def _archived(files: ArchivedFiles) -> PartFiles:
    """Labels from the texts beside the images (`0001.jpg`, `0001.cls`), or from folders."""
    several = bool(files.shard_ends)  # then a name begins with its archive's
    inside = [name.partition("/")[2] for name in files.names] if several else files.names
    return files, _text_labels(files) or class_folder_labels(inside)


def _text_labels(files: ArchivedFiles) -> Labels | None:
    if len(files.labels) < 2:
        return None
    return Labels(torch.from_numpy(files.label_of.astype(np.int64)), files.labels)


def _split(files: ArchivedFiles) -> list[PartFiles]:
    """An archive that holds `train/` and `val/` or `test/`, perhaps in one folder, is read as those parts."""
    tops, wrap = {name.partition("/")[0] for name in files.names}, ""
    if len(tops) == 1:
        wrap = f"{tops.pop()}/"
        tops = {name.removeprefix(wrap).partition("/")[0] for name in files.names}
    test = next((name for name in TEST_PARTS if name in tops), None)
    if "train" not in tops or test is None:
        return [_archived(files)]
    texts = _text_labels(files)
    parts: list[PartFiles] = []
    names: tuple[str, ...] | None = None
    for top in ("train", test):
        chosen = Chosen.beginning(files, f"{wrap}{top}/")
        if texts is not None:
            labels: Labels | None = Labels(texts.values[torch.from_numpy(chosen.numbers)], texts.names)
        else:
            labels = class_folder_labels(chosen.names, names)
        names = labels.names if labels else None
        parts.append((chosen, labels))
    return parts
