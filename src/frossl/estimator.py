"""scikit-learn estimator that learns features from images."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from frossl._api.common import MAX_STORED_SIZE
from frossl._api.eval_context import measuring_device
from frossl._api.options import RunOptions
from frossl._api.train import train_encoder
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
from frossl.exporting import EncoderSpec, from_bytes, load_encoder, save_encoder, to_bytes
from frossl.options import ENCODER_OPTIONS, EncoderOptions, list_options, takes_options
from frossl.recipes import recipe
from frossl.runs import RunFolder
from frossl.text import split_method

INTEGER_TYPES = (int, np.integer)
MIN_SIDE = 4
"""Smallest side of an image in pixels."""
PARAMS_FILE = "params.json"
"""File beside the encoder with the parameters and fitted attributes."""
FITTED_ATTRIBUTES = ("image_shape_", "value_range_", "n_features_in_", "feature_names_in_")
"""Attributes that a fit on arrays sets besides the encoder and its configuration."""


class ImagesError(InputError, ValueError):
    """Input that cannot be interpreted as images; also a ValueError, as scikit-learn expects."""


class FroSSLEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer that learns an encoder from unlabelled images and returns their features, float32 (n, F).

    X may be
    - an array of images (n, H, W), (n, H, W, C) or (n, C, H, W), with fewer channels than pixels along a
      side;
    - an array of rows (n, features), each an image of `image_shape`. Without it, a row is a gray image of the
      smallest square that holds it, at least 4 × 4, padded with black: 64 numbers are 8 × 8;
    - paths of image files: a list, an array or a Series;
    - one path that `frossl.pretrain` accepts: a folder, an archive, a list, … If the data has several parts,
      its training part is used. Rows are in the order of the sorted file names.

    uint8 values are used unchanged. Other numbers are mapped to 256 shades, from the smallest value of the
    fit (black) to the largest (white), and clipped to this range in `transform`. y is ignored.

    A pickle stores the weights as safetensors; use `save` and `load` for files that execute no code when they
    are read. Ctrl-C ends a fit with KeyboardInterrupt.

    Args:
        recipe: Recipe to start from. `default` is FroSSL with half a ResNet-18, two views and 100 epochs in
            batches of 128. Parameters that are None keep the value of the recipe.
        views: Number of views of each image, at least 2.
        **options: Options of the run.
        settings: Other settings by their dotted names, such as {"optim.weight_decay": 0.05}.
        image_shape: Shape of an image in an array of rows: (H, W), (H, W, C) or (C, H, W).
        device: cpu, cuda or mps.
        random_state: Random seed or generator; None uses a new seed for each fit.

    Attributes:
        encoder_: Torch module that maps images (N, C, H, W) to features.
        config_: Resolved settings of the fit.
        n_features_out_: Number of features F.
        n_features_in_: Numbers per image; only after a fit on arrays.
        image_shape_: Shape of an image; only after a fit on arrays.
        value_range_: Smallest and largest value of the fit, None for uint8; only after a fit on arrays.
    """

    @takes_options(EncoderOptions)
    def __init__(
        self,
        *,
        recipe: str = "default",
        views: int | None = None,
        settings: Mapping[str, Any] | None = None,
        image_shape: Sequence[int] | None = None,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = 0,
        **options: Unpack[EncoderOptions],
    ) -> None:
        if strange := set(options) - set(ENCODER_OPTIONS):
            raise TypeError(f"FroSSLEncoder has no parameter {min(strange)!r}")
        self.recipe = recipe
        self.views = views
        self.settings = settings
        self.image_shape = image_shape
        self.device = device
        self.random_state = random_state
        for name, option in ENCODER_OPTIONS.items():
            setattr(self, name, options.get(name, option.default))

    def fit(self, X: Any, y: Any = None) -> FroSSLEncoder:
        """Train the encoder on the images X; y is ignored."""
        for name in ("encoder_", "config_", *FITTED_ATTRIBUTES):
            self.__dict__.pop(name, None)
        data = self._dataset(X)
        options = self._options()
        self.encoder_, self.config_ = train_encoder(data, options)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the features of the images, (n, F): the pooled output of the backbone.

        Raises:
            ImagesError: If an image cannot be read, or X does not match the images of the fit.
        """
        check_is_fitted(self, "encoder_")
        source = self._source(X)
        if source.channels != (channels := self.config_.network.channels):
            raise ImagesError(
                f"images of {source.channels} channels, where the fit had {channels}; give {channels}"
            )
        ids = torch.arange(len(source))
        encoder = self.encoder_.ready_on(measuring_device(self.config_))
        features, read = extract(encoder, Labelled(source, ids, ids))
        if len(read) < len(ids):
            name = source.name(int(ids[~torch.isin(ids, read)][0]))
            reason = source.bad_files().get(name, "it is damaged")
            raise ImagesError(f"{name!r} cannot be read as an image ({reason}); remove it")
        return cast(NDArray[np.float32], features.numpy())

    @property
    def n_features_out_(self) -> int:
        """Number of features F of an image."""
        check_is_fitted(self, "encoder_")
        return int(self.encoder_.num_features)

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to a folder.

        The folder gets encoder.safetensors, preprocess.json and config.toml, which `frossl.load_encoder`
        reads too, and params.json.

        Args:
            path: Folder to write to; new, empty, or written by `save` before.

        Raises:
            InputError: If the folder cannot be used, or a parameter cannot be written as JSON.
        """
        check_is_fitted(self, "encoder_")
        folder, params = RunFolder(os.path.expanduser(path)), self.get_params(deep=False)
        if not isinstance(params["random_state"], (*INTEGER_TYPES, type(None))):
            params["random_state"] = (
                self.config_.train.seed
            )  # the state of a generator has changed since the fit
        fitted = {name: vars(self)[name] for name in FITTED_ATTRIBUTES if name in vars(self)}
        try:
            text = json.dumps({"params": params, "fitted": fitted}, default=_plain, indent=2)
        except TypeError as error:
            raise InputError(f"the parameters cannot be written ({error}); give plain values") from None
        _prepare_folder(folder.path)
        save_encoder(self.encoder_, self.config_, folder)
        folder.write_text(folder.config_file.name, self.config_.to_toml())
        folder.write_text(PARAMS_FILE, text + "\n")

    @classmethod
    def load(cls, path: str | Path, *, method: str | None = None) -> FroSSLEncoder:
        """Read a fitted estimator from a folder that `save` has written; nothing is unpickled.

        Args:
            path: Folder that `save` has written.
            method: `FILE.py:NAME`, if the estimator was fitted with a method in a file of yours. It must be
                given again, because `fit` executes the file.

        Raises:
            InputError: If the folder was not written by `save`, or is damaged, or its method is in a file
                and `method` is not given.
        """
        folder = RunFolder.open(os.path.expanduser(path))
        if not (folder.path / PARAMS_FILE).is_file():
            raise InputError(
                f"{path} holds no {PARAMS_FILE}; give a folder that FroSSLEncoder.save has written"
            )
        stored = folder.read_json(PARAMS_FILE)
        try:
            fitted, params = dict(stored["fitted"]), dict(stored["params"])
            _check_method(params, method, folder.path)
            params |= {} if method is None else {"method": method}
            estimator = cls(**{name: _tuple(value) for name, value in params.items()})
        except (TypeError, KeyError, AttributeError) as error:
            raise InputError(
                f"{folder.path / PARAMS_FILE} is damaged, or of another version ({error}); save it again"
            ) from None
        if (names := fitted.pop("feature_names_in_", None)) is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        for name in FITTED_ATTRIBUTES:
            if name in fitted:
                setattr(estimator, name, _tuple(fitted[name]))
        estimator.encoder_, estimator.config_ = load_encoder(folder.path), Config.read(folder.config_file)
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "encoder_" in state:
            spec = EncoderSpec.of(self.encoder_, self.config_)
            state |= {"encoder_": to_bytes(self.encoder_, spec), "config_": self.config_.to_toml()}
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

    def _options(self) -> RunOptions:
        given = {name: _scalar(getattr(self, name)) for name in (*ENCODER_OPTIONS, "views")}
        settings = {name: _scalar(value) for name, value in (self.settings or {}).items()}
        device = {} if self.device is None else {"train.device": self.device}
        config = recipe(self.recipe, method=given["method"], views=given["views"])
        chosen = {"config": config, "settings": {**settings, **device}, "seed": _seed(self.random_state)}
        return cast(RunOptions, given | chosen)

    def _dataset(self, X: Any) -> Dataset | str:
        """Return the training data."""
        if isinstance(X, (str, os.PathLike)):
            return os.fspath(X)
        paths = _paths(X)
        if paths is None:
            return array_dataset(ArraySource(self._images(X, fitting=True)))
        if len(paths) < 2:
            raise ImagesError(f"n_samples = {len(paths)}; give at least two images to learn from")
        return listed_dataset(paths, largest=MAX_STORED_SIZE.get(self.device or best_device(), LARGEST))

    def _source(self, X: Any) -> Source:
        """Return the images to compute features of."""
        if isinstance(X, (str, os.PathLike)):
            return open_dataset(os.fspath(X), size=self.config_.data.size, max_bad=1.0).train.source
        paths = _paths(X)
        if paths is None:
            return ArraySource(self._images(X, fitting=False))
        return listed_dataset(paths, size=self.config_.data.size, max_bad=1.0).train.source

    def _images(self, X: Any, *, fitting: bool) -> torch.Tensor:
        """Return arrays as uint8 (N, C, H, W); a fit stores the shape and range, `transform` applies them."""
        is_frame = hasattr(X, "columns")
        if is_frame:  # names first: values of a frame with other columns are not examined
            validate_data(self, X, reset=fitting, skip_check_array=True)
        array = check_array(X, allow_nd=True, ensure_min_samples=2 if fitting else 1)
        if not is_frame:
            validate_data(self, array.reshape(len(array), -1), reset=fitting, skip_check_array=True)
        shape = self._shape(array, None if fitting else getattr(self, "image_shape_", None))
        shades = self._shades(array, fitting=fitting).reshape(len(array), -1)
        if fitting:
            self.image_shape_ = shape
        missing = math.prod(shape) - shades.shape[1]
        return as_tensor(np.pad(shades, ((0, 0), (0, missing))).reshape(-1, *shape))

    def _shape(self, array: NDArray[Any], fitted: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return the shape of one image, in the order in which its numbers are stored in a row."""
        own, asked = array.shape[1:], None if self.image_shape is None else _checked(self.image_shape)
        known = fitted or asked
        if array.ndim == 2 and known is None:
            return square(own[0])
        if array.ndim > 2 and known not in (None, own):
            raise ImagesError(f"images of shape {own}, where {known} is expected; reshape them")
        if array.ndim == 2 and fitted is None and math.prod(known or ()) != own[0]:
            raise ImagesError(
                f"rows of {own[0]} numbers are not images of shape {known}; give another image_shape"
            )
        return known or _checked(own)

    def _shades(self, array: NDArray[Any], *, fitting: bool) -> NDArray[np.uint8]:
        """Return uint8 values unchanged, and other numbers mapped to 256 shades."""
        is_uint8 = array.dtype == np.uint8
        if fitting:
            self.value_range_ = None if is_uint8 else (float(array.min()), float(array.max()))
        value_range: tuple[float, float] | None = getattr(
            self, "value_range_", None
        )  # not set by a fit on files
        if is_uint8 != (value_range is None):
            kinds = ("uint8", "other numbers") if is_uint8 else (str(array.dtype), "uint8 images, or files")
            raise ImagesError(f"X is {kinds[0]}, where the fit had {kinds[1]}; convert it in the same way")
        if value_range is None:
            return cast(NDArray[np.uint8], array)
        low, high = value_range
        share = (array.astype(np.result_type(array, np.float32)) - low) / (high - low or 1.0)
        return cast(NDArray[np.uint8], np.rint(255 * share.clip(0, 1)).astype(np.uint8))


FroSSLEncoder.__doc__ = list_options(FroSSLEncoder.__doc__ or "", ENCODER_OPTIONS)


def square(numbers: int) -> tuple[int, int]:
    """Return the smallest square image that holds this many numbers.

    Raises:
        ImagesError: If the number fits a square color image, so that the shape is ambiguous.
    """
    side = math.isqrt(numbers // 3)
    if numbers == 3 * side * side and side >= MIN_SIDE:
        raise ImagesError(
            f"rows of {numbers} numbers may be {side} × {side} pixels in color; give "
            f"image_shape=({side}, {side}, 3), or (3, {side}, {side}) if the channels come first"
        )
    side = max(MIN_SIDE, math.isqrt(numbers - 1) + 1)
    return side, side


def _checked(shape: Any) -> tuple[int, ...]:
    """Return a shape of an image as a tuple of ints, after checking it."""
    sides = tuple(shape) if hasattr(shape, "__iter__") else ()
    if len(sides) not in (2, 3) or not all(isinstance(side, INTEGER_TYPES) and side >= 1 for side in sides):
        raise ImagesError(f"images of shape {shape!r}; give (H, W), (H, W, C) or (C, H, W)")
    return tuple(int(side) for side in sides)


def _paths(X: Any) -> list[str] | None:
    """Return the paths if X is a sequence of image files, None for arrays."""
    one_dimensional = isinstance(X, (list, tuple)) or getattr(X, "ndim", None) == 1
    values = list(X) if one_dimensional else []
    if not values or not all(isinstance(value, (str, os.PathLike)) for value in values):
        return None
    paths = [os.path.expanduser(os.fspath(value)) for value in values]
    if missing := [path for path in paths if not os.path.isfile(path)]:
        raise ImagesError(
            f"there is no file {missing[0]!r} ({len(missing)} of {len(paths)} are missing); check X"
        )
    return paths


def _seed(random_state: int | np.random.RandomState | None) -> int:
    """Return a seed; None takes it from the system and leaves numpy's global generator unchanged."""
    if isinstance(random_state, INTEGER_TYPES):
        return int(random_state)
    generator = np.random.RandomState() if random_state is None else check_random_state(random_state)
    return int(generator.randint(1 << 31, dtype=np.int64))


def _scalar(value: Any) -> Any:
    """Return a numpy scalar as a Python one: a parameter grid may be an array."""
    return value.item() if isinstance(value, np.generic) else value


def _plain(value: Any) -> Any:
    """Convert values that JSON does not support."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} {value!r}")


def _check_method(params: Mapping[str, Any], method: str | None, path: Path) -> None:
    """Raise an error if stored parameters name a method in a file, which `fit` would execute."""
    settings = params.get("settings") or {}
    named = [params.get("method"), *(settings.values() if isinstance(settings, dict) else ())]
    own = [value for value in named if isinstance(value, str) and split_method(value) is not None]
    if own and (method is None or own != [params.get("method")]):
        raise InputError(
            f"{path} names the method {own[0]} in a file, which `fit` would execute; if it is yours, give it "
            "as method=, else use frossl.load_encoder"
        )


def _prepare_folder(path: Path) -> None:
    """Create the folder; it must be new, empty, or written by `save` before."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        free = (path / PARAMS_FILE).is_file() or not any(path.iterdir())
    except OSError as error:
        raise InputError(f"cannot write to {path} ({error.strerror}); choose another folder") from None
    if not free:
        raise InputError(f"{path} is not empty; choose another folder")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
