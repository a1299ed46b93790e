"""Find the splits and labels of a data set in a folder, a list or archives."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from frossl.data.files import ArchivedFiles, Files, FolderFiles, SubsetFiles, read_list
from frossl.data.index import EXTENSIONS, Found, Index, index_folder
from frossl.data.labels import Labels, class_folder_labels, named_labels
from frossl.errors import InputError

TEST_SPLITS = ("val", "test")
"""Names of folders to test on; the first that exists is used."""
EXPECTED_SOURCES = (
    "give a folder, a list (.txt, .csv), an archive (.zip, .tar), an array (.npy, .npz) or a name"
)


def cache_root() -> Path:
    """Return the folder for downloads and cached indexes: $FROSSL_CACHE, or `frossl` in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("FROSSL_CACHE") or Path(base) / "frossl")


SplitFiles = tuple[Files, Labels | None]
"""Files of a split, and their labels."""


def find_splits(path: Path, found: Found | None) -> list[SplitFiles]:
    """Find the train split, and the test split if there is one.

    Args:
        path: A folder, a list (.txt, .csv) or an archive (.zip, .tar).
        found: Callback that receives the number of files found so far.
    """
    if path.is_dir():
        if shards := _shards(path):
            return [_with_labels(ArchivedFiles(shards, cache=cache_root() / "index"))]
        return folder_splits(path, found)
    if not path.is_file():
        raise InputError(f"{path} is no folder and no regular file; {EXPECTED_SOURCES}")
    suffix = path.suffix.lower()
    if suffix in (".txt", ".csv"):
        files, given = read_list(path)
        return [(files, named_labels(given))]
    if suffix in (".zip", ".tar"):
        return _archive_splits(ArchivedFiles([path], cache=cache_root() / "index"))
    raise InputError(f"{path} is a file of another kind; {EXPECTED_SOURCES}")


def _shards(folder: Path) -> list[Path]:
    """Return the tar archives of a folder; none if it also holds images or folders."""
    visible = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    if any(entry.is_dir() or os.fsencode(entry.name).lower().endswith(EXTENSIONS) for entry in visible):
        return []
    return sorted(Path(entry.path) for entry in visible if entry.name.endswith(".tar"))


def folder_splits(root: Path, found: Found | None = None) -> list[SplitFiles]:
    """Find the splits of a folder: `train/` and `val/` or `test/` if it has them, else all its images as one.

    Args:
        root: The folder.
        found: Callback that receives the number of files found so far.
    """
    tests = [root / name for name in TEST_SPLITS if (root / name).is_dir() and any((root / name).iterdir())]
    roots = [root / "train", tests[0]] if (root / "train").is_dir() and tests else [root]
    splits: list[SplitFiles] = []
    names: tuple[str, ...] | None = None
    for folder in roots:
        index = index_folder(folder, cache=cache_root() / "index", found=found)
        labels = _folder_labels(index, names)
        names = labels.names if labels else None
        prefix = f"{folder.name}/" if len(roots) > 1 else ""
        splits.append((FolderFiles(folder, index, prefix=prefix), labels))
    return splits


def _folder_labels(index: Index, names: tuple[str, ...] | None) -> Labels | None:
    """Build labels from class folders, once for each folder, not for each file."""
    used, row = np.unique(index.folder_of, return_inverse=True)
    labels = class_folder_labels([index.folders[i] for i in used], names)
    return labels and Labels(labels.values[torch.from_numpy(row)], labels.names)


def _with_labels(files: ArchivedFiles) -> SplitFiles:
    """Add labels from the files beside the images (`0001.jpg`, `0001.cls`), else from class folders."""
    several = bool(files.shard_ends)  # then names begin with that of their archive
    inside = [name.partition("/")[2] for name in files.names] if several else files.names
    return files, _text_labels(files) or class_folder_labels(inside)


def _text_labels(files: ArchivedFiles) -> Labels | None:
    if len(files.labels) < 2:
        return None
    return Labels(torch.from_numpy(files.label_of.astype(np.int64)), files.labels)


def _archive_splits(files: ArchivedFiles) -> list[SplitFiles]:
    """Find the splits of an archive: `train/` and `val/` or `test/`, perhaps within one folder, else all
    images as one."""
    tops, wrapper = {name.partition("/")[0] for name in files.names}, ""
    if len(tops) == 1:
        wrapper = f"{tops.pop()}/"
        tops = {name.removeprefix(wrapper).partition("/")[0] for name in files.names}
    test = next((name for name in TEST_SPLITS if name in tops), None)
    if "train" not in tops or test is None:
        return [_with_labels(files)]
    texts = _text_labels(files)
    splits: list[SplitFiles] = []
    names: tuple[str, ...] | None = None
    for top in ("train", test):
        chosen = SubsetFiles.with_prefix(files, f"{wrapper}{top}/")
        if texts is not None:
            labels: Labels | None = Labels(texts.values[torch.from_numpy(chosen.numbers)], texts.names)
        else:
            labels = class_folder_labels(chosen.names, names)
        names = labels.names if labels else None
        splits.append((chosen, labels))
    return splits
