"""Data sets: open, index, decode and load images. Labels are kept apart and never reach a training step."""

from frossl.data.arrays import MappedSource, array_dataset, as_tensor
from frossl.data.check import DataReport, check_dataset
from frossl.data.dataset import Dataset, Split, with_test
from frossl.data.digests import DIGEST_BYTES, content_digests, copies_within
from frossl.data.labels import Labels, held_out, stratified
from frossl.data.loader import Loader
from frossl.data.mmap import Names
from frossl.data.named import NAMED
from frossl.data.open import LARGEST, listed_dataset, open_dataset
from frossl.data.pack import pack
from frossl.data.sources import ArraySource, FileSource, Source, spread

__all__ = [
    "DIGEST_BYTES",
    "LARGEST",
    "NAMED",
    "ArraySource",
    "DataReport",
    "Dataset",
    "FileSource",
    "Labels",
    "Loader",
    "MappedSource",
    "Names",
    "Source",
    "Split",
    "array_dataset",
    "as_tensor",
    "check_dataset",
    "content_digests",
    "copies_within",
    "held_out",
    "listed_dataset",
    "open_dataset",
    "pack",
    "spread",
    "stratified",
    "with_test",
]
