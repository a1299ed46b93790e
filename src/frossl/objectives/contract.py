"""Interface of all objectives: a pure function from projections to `LossTerms`, and a thin Module.

    @objective
    def name_loss(z, *, options, extra tensors, running state) -> LossTerms

`OBJECTIVES` lists the Modules. A Module stores the options and owns the running state; the mathematics is
in the function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast, get_type_hints

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from frossl.config import convert
from frossl.errors import InputError, NotFiniteError, unknown
from frossl.objectives.criteria import Criteria
from frossl.types import LossTerms

Views = Tensor | Sequence[Tensor]
"""Views of a batch: one tensor (V, N, D), or V tensors (N, D)."""

INPUTS = ("target", "queue", "rng")
"""Keyword arguments of objectives that are passed with every call and are not options."""

P = ParamSpec("P")
Self = TypeVar("Self", bound="Objective")


def hints_of(*functions: Callable[..., Any]) -> dict[str, Any]:
    """Return the type hints, with ranges, of the options of functions: their keywords except `INPUTS`."""
    return {
        name: _hints(function).get(name, Any)
        for function in functions
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in INPUTS
    }


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError:  # a name that is imported under TYPE_CHECKING only
        return {}


def checked_option(function: Callable[..., Any], name: str, value: Any) -> Any:
    """Convert an option to the type and range of the function's signature.

    Tensors, such as a learned temperature, are returned unchanged.

    Raises:
        ConfigError: If the value does not fit.
    """
    if isinstance(value, Tensor):
        return value
    plain = isinstance(value, (bool, int, float, str))
    return (_convert_option_cached if plain else _convert_option)(function, name, value)


def _convert_option(function: Callable[..., Any], name: str, value: Any) -> Any:
    return convert(_hints(function).get(name, Any), value, name)


_convert_option_cached = functools.lru_cache(maxsize=1024, typed=True)(_convert_option)


def full_precision(z: Tensor) -> AbstractContextManager[None]:
    """Return a context without autocast: squared norms of N × D numbers overflow half precision."""
    kind = z.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def upcast(z: Tensor) -> Tensor:
    """Convert to float32, except for float64."""
    return z if z.dtype == torch.float64 else z.float()


def transformed(*tensors: Tensor) -> bool:
    """Return whether tensors are inside torch.func or forward-mode differentiation.

    Custom autograd functions have no derivatives there.
    """
    return torch._C._are_functorch_transforms_active() or any(
        forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
    )


def check_views(z: Views) -> None:
    """Raise a ValueError if views have a wrong shape or dtype."""
    if isinstance(z, Tensor):
        shape, dtypes = tuple(z.shape), {z.dtype}
    else:
        shapes = [tuple(view.shape) for view in z]
        if len(set(shapes)) > 1:
            raise ValueError(f"views of z differ in shape: {shapes}; every view must be (N, D)")
        shape, dtypes = (len(shapes), *shapes[0]) if shapes else (0,), {view.dtype for view in z}
    if len(shape) != 3 or shape[0] < 2 or shape[1] < 2 or shape[2] < 1:
        raise ValueError(f"z has shape {shape}; expected (V, N, D) with V ≥ 2 and N ≥ 2")
    if len(dtypes) > 1 or not all(dtype.is_floating_point for dtype in dtypes):
        raise ValueError(f"z has dtype {', '.join(map(str, dtypes))}; expected one of floating point")


def as_views(z: Views) -> Tensor:
    """Return views as one tensor (V, N, D)."""
    return z if isinstance(z, Tensor) else torch.stack(list(z))


def as_target(target: Views | None, z: Tensor, *, fewer: bool = False) -> Tensor:
    """Return the target without gradient, in the precision of z.

    Args:
        target: Target of each view, or None for z itself.
        z: Projections (V, N, D).
        fewer: Whether the target may be of the first views only.

    Raises:
        ValueError: If the shapes do not match.
    """
    if target is None:
        return z.detach()
    views = target if isinstance(target, Tensor) else torch.stack(list(target))
    same = views.ndim == 3 and views.shape[1:] == z.shape[1:]
    if not same or not (1 if fewer else len(z)) <= len(views) <= len(z):
        raise ValueError(f"target has shape {tuple(views.shape)}; z has {tuple(z.shape)}")
    return views.detach().to(z)


def past_state(name: str, state: Tensor | None, first: Tensor) -> Tensor:
    """Return the running state, or its initial value.

    Args:
        name: Name of the state, for the error message.
        state: Running state; None at the first step.
        first: Initial value.

    Raises:
        ValueError: If the state has another shape than the initial value.
    """
    if state is None:
        return first
    if state.shape != first.shape:
        raise ValueError(
            f"the running {name} has shape {tuple(state.shape)}; these projections need {tuple(first.shape)}"
        )
    return state.to(first)


def check_finite(views: Views, terms: LossTerms | None = None) -> None:
    """Raise a NotFiniteError (a ValueError) if a loss is not finite because its projections are not.

    It checks only where that costs nothing: on the CPU in eager mode, or without terms, after a solver has
    failed. On a device it would synchronize.
    """
    if terms is not None and (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or views[0].device.type != "cpu"
        or terms.total.isfinite()
    ):
        return
    for v, view in enumerate(views):
        bad = (~view.isfinite()).nonzero()
        if len(bad):
            n, d = bad[0].tolist()
            value = view[n, d].item()
            raise NotFiniteError(f"z is {value} at view {v}, image {n}, column {d}; expected finite numbers")
    if terms is None:
        largest = max(view.abs().max().item() for view in views)
        raise NotFiniteError(f"z reaches {largest:.3g}: no spectrum can be computed; try a lower --lr")


def objective(
    function: Callable[Concatenate[Tensor, P], LossTerms],
) -> Callable[Concatenate[Views, P], LossTerms]:
    """Decorate a loss of one tensor (V, N, D) to meet the interface.

    The loss then also takes a list of views, computes in full precision, and raises errors on bad input.
    """

    return objective_of_views(
        lambda views, *args, **kwargs: function(as_views(views), *args, **kwargs), function
    )


def objective_of_views(
    function: Callable[Concatenate[Views, P], LossTerms], described: Callable[..., Any] | None = None
) -> Callable[Concatenate[Views, P], LossTerms]:
    """Decorate a loss that takes a tensor or a list of views itself; see `objective`."""

    @functools.wraps(described or function)
    def loss(z: Views, *args: P.args, **kwargs: P.kwargs) -> LossTerms:
        check_views(z)
        if not torch.compiler.is_compiling():
            for name, value in kwargs.items():
                if name not in INPUTS:
                    kwargs[name] = checked_option(loss, name, value)
        views = upcast(z) if isinstance(z, Tensor) else [upcast(view) for view in z]
        with full_precision(views[0]):
            try:
                terms = function(views, *args, **kwargs)
            except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # an eigensolver, on NaN
                check_finite(views)
                raise
        check_finite(views, terms)
        return terms

    return cast(Callable[Concatenate[Views, P], LossTerms], loss)


Preset = Callable[[int], dict[str, Any]]
"""Function from the number of views V to the options of a loss."""


class Objective(nn.Module):
    """Module of a loss function, with its options and, in persistent buffers, its running state.

    The state is updated in training mode only. Its shape comes from the first batch or from a loaded state
    dict, so no dimension has to be given.

    Args:
        **options: Options of the function.

    Raises:
        InputError: If an option is unknown.
        ConfigError: If the value of an option does not fit.
    """

    function: ClassVar[Callable[..., LossTerms]]
    """Loss function."""
    presets: ClassVar[Mapping[str, Preset]] = MappingProxyType({"default": lambda V: {}})
    """Options by origin; by default those of the function's signature."""
    criteria: ClassVar[Criteria]
    """Tested properties; every objective in `OBJECTIVES` has them."""
    state: ClassVar[tuple[str, ...]] = ()
    """Names of the keyword arguments of the function that are running state."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                parameter
                for source in (cls.__init__, cls.function)
                for parameter in inspect.signature(source).parameters.values()
                if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in (*INPUTS, *cls.state)
            ]
        )

    def __init__(self, **options: Any) -> None:
        super().__init__()
        known = inspect.signature(type(self)).parameters
        for name in options:
            if name not in known:
                raise unknown(f"option of {type(self).__name__}", name, known)
        function = type(self).function
        self.options = {
            name: checked_option(function, name, options.get(name, parameter.default))
            for name, parameter in inspect.signature(function).parameters.items()
            if name in known
        }
        for name in self.state:
            self.register_buffer(name, None)

    @classmethod
    def preset(cls: type[Self], name: str = "default", *, views: int = 2) -> Self:
        """Build the loss with the options of a preset.

        Args:
            name: Key of `presets`.
            views: Number of views V.

        Raises:
            InputError: If the preset is unknown, or `views` is less than 2.
        """
        if name not in cls.presets:
            raise unknown(f"{cls.__name__} preset", name, cls.presets)
        if views < 2:
            raise InputError(f"views = {views}; views are compared, so give at least 2")
        return cls(**cls.presets[name](views))

    def forward(self, z: Views, **inputs: Any) -> LossTerms:
        """Compute the loss and, in training mode, update the running state.

        Args:
            z: Projections (V, N, D), or V tensors (N, D).
            **inputs: `target`, `queue` or `rng`, if the function takes them.
        """
        terms = self.terms(z, **inputs)
        if self.training:
            self.keep(terms.state)
        return terms

    def terms(self, z: Views, **inputs: Any) -> LossTerms:
        """Compute the loss without updating the state.

        It is for training loops that call `keep` after a successful update.

        Args:
            z: Projections (V, N, D), or V tensors (N, D).
            **inputs: `target`, `queue` or `rng`, if the function takes them.
        """
        check_views(z)
        return type(self).function(z, **{**self.options, **self.running(z[0].shape[-1]), **inputs})

    def running(self, D: int) -> dict[str, Tensor | None]:
        """Return the state that the function reads, for projections of width D."""
        return {name: getattr(self, name) for name in self.state}

    @torch.no_grad()
    def keep(self, state: Mapping[str, Tensor]) -> None:
        """Store the state that the loss of a step returned (`LossTerms.state`)."""
        for name, tensor in state.items():
            setattr(self, name, tensor)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        for name in self.state:
            stored = state_dict.get(prefix + name)
            if stored is not None and getattr(self, name) is None:
                setattr(self, name, torch.empty_like(stored))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())
