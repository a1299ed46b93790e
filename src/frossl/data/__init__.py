"""Anything with images in it -> Batch(images, ids). Labels are kept apart and never enter a step."""

from frossl.data.dataset import Dataset, Part
from frossl.data.datasets import open_dataset
from frossl.data.labels import Labels, held_out
from frossl.data.loader import Loader
from frossl.data.named import NAMED
from frossl.data.pack import pack
from frossl.data.sources import ArraySource, FileSource, Source

__all__ = [
    "NAMED",
    "ArraySource",
    "Dataset",
    "FileSource",
    "Labels",
    "Loader",
    "Part",
    "Source",
    "held_out",
    "open_dataset",
    "pack",
]
