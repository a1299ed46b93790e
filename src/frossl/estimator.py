"""The scikit-learn estimator: images in, features out."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from frossl.api.catalog import recipe
from frossl.api.shared import LARGEST_STORED
from frossl.api.subject import measuring_device
from frossl.api.training import Choices, train_encoder
from frossl.artifacts import Design, from_bytes, load_encoder, save_encoder, to_bytes
from frossl.config import Config
from frossl.data import (
    LARGEST,
    ArraySource,
    Dataset,
    Source,
    array_dataset,
    as_tensor,
    listed_dataset,
    open_dataset,
)
from frossl.engine import best_device
from frossl.errors import InputError
from frossl.evaluation import Labelled, extract
from frossl.runs import RunFolder

WHOLE = (int, np.integer)
SMALLEST = 4
"""Pixels along the side of an image."""
PARAMS = "params.json"
"""Beside the encoder, in what `save` writes."""
REMEMBERED = ("image_shape_", "value_range_", "n_features_in_", "feature_names_in_")
"""What a fit learns besides its encoder and configuration, where it was given arrays."""


class ImagesError(InputError, ValueError):
    """Input that cannot be taken for images; a ValueError too, as scikit-learn expects."""


class FroSSLEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns an encoder from images without labels; `transform` gives their features, float32 (n, F).

    X may be
    - an array of images (n, H, W), (n, H, W, C) or (n, C, H, W): there are fewer channels than pixels;
    - an array of rows (n, features), each an image of `image_shape`. Without one, a row is a gray image of
      the smallest square that holds it, at least 4 × 4, and what is missing is black: 64 numbers are 8 × 8;
    - paths of image files: a list, an array or a Series of them;
    - one path of what `frossl.pretrain` takes: a folder, an archive, a list, … Of data that has parts, the
      one that is learned from. Rows come in the order of sorted names.

    uint8 is taken as it is. Other numbers become 256 shades, from the smallest number of the fit (black) to
    its largest (white), and are cut off there in `transform`. y is ignored.

    Parameters are those of `frossl.pretrain`, and None is what the recipe says (`default`: FroSSL, half a
    ResNet-18, two views, 100 epochs in batches of 128). settings: any other setting, by its dotted name
    ({"optim.weight_decay": 0.05}). device: cpu, cuda or mps. random_state: the seed; None is another one
    every time.

    After `fit`: `encoder_` (a torch Module: images (N, C, H, W) -> features), `config_` (all settings, as
    they were settled), `n_features_out_`; of arrays `n_features_in_`, `image_shape_`, and `value_range_`
    (None for uint8). Ctrl-C ends a fit with KeyboardInterrupt. A pickle holds the weights as safetensors; a
    folder that executes nothing when it is read is what `save` and `load` are for.
    """

    def __init__(
        self,
        *,
        recipe: str = "default",
        method: str | None = None,
        backbone: str | None = None,
        width: float | None = None,
        views: int | None = None,
        view_set: str | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        settings: Mapping[str, Any] | None = None,
        image_shape: Sequence[int] | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.recipe = recipe
        self.method = method
        self.backbone = backbone
        self.width = width
        self.views = views
        self.view_set = view_set
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.settings = settings
        self.image_shape = image_shape
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> FroSSLEncoder:
        """Learn from the images."""
        for name in ("encoder_", "config_", *REMEMBERED):
            self.__dict__.pop(name, None)
        data = self._dataset(X)
        choices = self._choices()
        self.encoder_, self.config_ = train_encoder(data, choices)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Features of the images, one row each: what the backbone pools."""
        check_is_fitted(self, "encoder_")
        source = self._source(X)
        if source.channels != (channels := self.config_.network.channels):
            raise ImagesError(
                f"images of {source.channels} channels, where the fit had {channels}; give such as it had"
            )
        ids = torch.arange(len(source))
        encoder = self.encoder_.ready_on(measuring_device(self.config_))
        features, read = extract(encoder, Labelled(source, ids, ids))
        if len(read) < len(ids):
            name = source.name(int(ids[~torch.isin(ids, read)][0]))
            reason = source.bad_files().get(name, "it is damaged")
            raise ImagesError(f"{name!r} cannot be read as an image ({reason}); take it out")
        return cast(NDArray[np.float32], features.numpy())

    @property
    def n_features_out_(self) -> int:
        """F: how many features an image has."""
        check_is_fitted(self, "encoder_")
        return int(self.encoder_.num_features)

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_

    def save(self, path: str | Path) -> None:
        """Write the fitted encoder to a folder: encoder.safetensors, preprocess.json, config.toml (which
        `frossl.load_encoder` reads too) and params.json."""
        check_is_fitted(self, "encoder_")
        folder, params = RunFolder(os.path.expanduser(path)), self.get_params(deep=False)
        if not isinstance(params["random_state"], (*WHOLE, type(None))):
            params["random_state"] = self.config_.train.seed  # a generator has moved on
        fitted = {name: vars(self)[name] for name in REMEMBERED if name in vars(self)}
        try:
            text = json.dumps({"params": params, "fitted": fitted}, default=_plain, indent=2)
        except TypeError as error:
            raise InputError(f"the parameters cannot be written ({error}); give plain values") from None
        _make_room(folder.path)
        save_encoder(self.encoder_, self.config_, folder)
        folder.write_text(folder.config_file.name, self.config_.to_toml())
        folder.write_text(PARAMS, text + "\n")

    @classmethod
    def load(cls, path: str | Path) -> FroSSLEncoder:
        """What `save` has written, fitted. Nothing is unpickled."""
        folder = RunFolder.open(os.path.expanduser(path))
        if not (folder.path / PARAMS).is_file():
            raise InputError(f"{path} holds no {PARAMS}; give a folder that FroSSLEncoder.save has written")
        stored = folder.read_json(PARAMS)
        try:
            fitted = dict(stored["fitted"])
            estimator = cls(**{name: _tuple(value) for name, value in stored["params"].items()})
        except (TypeError, KeyError, AttributeError) as error:
            raise InputError(
                f"{folder.path / PARAMS} is damaged, or of another version ({error}); save it again"
            ) from None
        if (names := fitted.pop("feature_names_in_", None)) is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        for name in REMEMBERED:
            if name in fitted:
                setattr(estimator, name, _tuple(fitted[name]))
        estimator.encoder_, estimator.config_ = load_encoder(folder.path), Config.read(folder.config_file)
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "encoder_" in state:
            design = Design.of(self.encoder_, self.config_)
            state |= {"encoder_": to_bytes(self.encoder_, design), "config_": self.config_.to_toml()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "encoder_" in state:
            state["config_"] = Config.from_toml(state["config_"])
            state["encoder_"], _ = from_bytes(state["encoder_"])
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _choices(self) -> Choices:
        names = ("method", "backbone", "width", "views", "view_set", "epochs", "batch_size", "lr")
        given = {name: _scalar(getattr(self, name)) for name in names}
        settings = {name: _scalar(value) for name, value in (self.settings or {}).items()}
        device = {} if self.device is None else {"train.device": self.device}
        config = recipe(self.recipe, method=given["method"], views=given["views"])
        chosen = {"config": config, "settings": {**settings, **device}, "seed": _seed(self.random_state)}
        return cast(Choices, given | chosen)

    def _dataset(self, X: Any) -> Dataset | str:
        """What to learn from."""
        if isinstance(X, (str, os.PathLike)):
            return os.fspath(X)
        paths = _paths(X)
        if paths is None:
            return array_dataset(ArraySource(self._images(X, fitting=True)))
        if len(paths) < 2:
            raise ImagesError(f"n_samples = {len(paths)}; give at least two images to learn from")
        return listed_dataset(paths, largest=LARGEST_STORED.get(self.device or best_device(), LARGEST))

    def _source(self, X: Any) -> Source:
        """What to tell the features of."""
        if isinstance(X, (str, os.PathLike)):
            return open_dataset(os.fspath(X), size=self.encoder_.size, max_bad=1.0).train.source
        paths = _paths(X)
        if paths is None:
            return ArraySource(self._images(X, fitting=False))
        return listed_dataset(paths, size=self.encoder_.size, max_bad=1.0).train.source

    def _images(self, X: Any, *, fitting: bool) -> torch.Tensor:
        """Arrays as uint8 (N, C, H, W). A fit remembers shape and range, and `transform` keeps to them."""
        framed = hasattr(X, "columns")
        if framed:  # names come first: what another frame holds is not looked at
            validate_data(self, X, reset=fitting, skip_check_array=True)
        array = check_array(X, allow_nd=True, ensure_min_samples=2 if fitting else 1)
        if not framed:
            validate_data(self, array.reshape(len(array), -1), reset=fitting, skip_check_array=True)
        shape = self._shape(array, None if fitting else getattr(self, "image_shape_", None))
        shades = self._shades(array, fitting=fitting).reshape(len(array), -1)
        if fitting:
            self.image_shape_ = shape
        missing = math.prod(shape) - shades.shape[1]
        return as_tensor(np.pad(shades, ((0, 0), (0, missing))).reshape(-1, *shape))

    def _shape(self, array: NDArray[Any], fitted: tuple[int, ...] | None) -> tuple[int, ...]:
        """Of one image, as its numbers lie in a row."""
        own, asked = array.shape[1:], None if self.image_shape is None else _checked(self.image_shape)
        known = fitted or asked
        if array.ndim == 2 and known is None:
            return square(own[0])
        if array.ndim > 2 and known not in (None, own):
            raise ImagesError(f"images of shape {own}, where {known} is expected; give such")
        if array.ndim == 2 and fitted is None and math.prod(known or ()) != own[0]:
            raise ImagesError(
                f"rows of {own[0]} numbers are no images of shape {known}; give another image_shape"
            )
        return known or _checked(own)

    def _shades(self, array: NDArray[Any], *, fitting: bool) -> NDArray[np.uint8]:
        """uint8 as it is; the range of other numbers in 256 shades."""
        whole = array.dtype == np.uint8
        if fitting:
            self.value_range_ = None if whole else (float(array.min()), float(array.max()))
        value_range: tuple[float, float] | None = getattr(self, "value_range_", None)  # none of files
        if whole != (value_range is None):
            kinds = ("uint8", "other numbers") if whole else (str(array.dtype), "uint8 images, or files")
            raise ImagesError(f"X is {kinds[0]}, where the fit had {kinds[1]}; convert it as X was then")
        if value_range is None:
            return cast(NDArray[np.uint8], array)
        low, high = value_range
        share = (array.astype(np.result_type(array, np.float32)) - low) / (high - low or 1.0)
        return cast(NDArray[np.uint8], np.rint(255 * share.clip(0, 1)).astype(np.uint8))


def square(numbers: int) -> tuple[int, int]:
    """The smallest square of pixels that holds so many numbers; refused where they look like colors."""
    side = math.isqrt(numbers // 3)
    if numbers == 3 * side * side and side >= SMALLEST:
        raise ImagesError(
            f"rows of {numbers} numbers may be {side} × {side} pixels in color; give "
            f"image_shape=({side}, {side}, 3), or (3, {side}, {side}) where each color lies by itself"
        )
    side = max(SMALLEST, math.isqrt(numbers - 1) + 1)
    return side, side


def _checked(shape: Any) -> tuple[int, ...]:
    """Of an image, in whole numbers."""
    sides = tuple(shape) if hasattr(shape, "__iter__") else ()
    if len(sides) not in (2, 3) or not all(isinstance(side, WHOLE) and side >= 1 for side in sides):
        raise ImagesError(f"images of shape {shape!r}; give (H, W), (H, W, C) or (C, H, W)")
    return tuple(int(side) for side in sides)


def _paths(X: Any) -> list[str] | None:
    """Of image files, where X names such; None for arrays."""
    one_dimensional = isinstance(X, (list, tuple)) or getattr(X, "ndim", None) == 1
    values = list(X) if one_dimensional else []
    if not values or not all(isinstance(value, (str, os.PathLike)) for value in values):
        return None
    paths = [os.path.expanduser(os.fspath(value)) for value in values]
    if gone := [path for path in paths if not os.path.isfile(path)]:
        raise ImagesError(f"there is no file {gone[0]!r} ({len(gone)} of {len(paths)} are missing); check X")
    return paths


def _seed(random_state: int | np.random.RandomState | None) -> int:
    """None: from the system, so that numpy's own random numbers stay as they were."""
    if isinstance(random_state, WHOLE):
        return int(random_state)
    generator = np.random.RandomState() if random_state is None else check_random_state(random_state)
    return int(generator.randint(1 << 31, dtype=np.int64))


def _scalar(value: Any) -> Any:
    """A grid of parameters may be an array of numbers."""
    return value.item() if isinstance(value, np.generic) else value


def _plain(value: Any) -> Any:
    """What JSON does not know."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} {value!r}")


def _make_room(path: Path) -> None:
    """A folder that is new, or empty, or what `save` has written before."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        free = (path / PARAMS).is_file() or not any(path.iterdir())
    except OSError as error:
        raise InputError(f"cannot write to {path} ({error.strerror}); choose another folder") from None
    if not free:
        raise InputError(f"{path} holds something else; choose another folder")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
