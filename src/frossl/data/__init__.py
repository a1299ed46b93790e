"""Anything with images in it -> Batch(images, ids). Labels are kept apart and never enter a step."""

from frossl.data.datasets import NAMED, Dataset, Part, open_dataset
from frossl.data.labels import Labels, held_out
from frossl.data.loader import Loader
from frossl.data.sources import ArraySource, FolderSource, Source

__all__ = [
    "NAMED",
    "ArraySource",
    "Dataset",
    "FolderSource",
    "Labels",
    "Loader",
    "Part",
    "Source",
    "held_out",
    "open_dataset",
]
