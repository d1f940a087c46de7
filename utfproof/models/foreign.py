"""Objects of other people's code: what they raise, what configures them, and their functions in float64."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any

from utfproof.errors import MalformedInput, ResourceLimit


@contextmanager
def callers_code(doing: str) -> Iterator[None]:
    """Code of the caller's choice runs here: whatever ends it is MalformedInput, sys.exit too, whose code would pass for a
    verdict; ResourceLimit where memory is used up. Ctrl-C stays an interrupt."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except MemoryError as error:
        raise ResourceLimit(f"{doing}: out of memory") from error
    except BaseException as error:
        lines = str(error).splitlines() or [""]
        said = f"sys.exit({error.code!r})" if isinstance(error, SystemExit) else f"{type(error).__name__}: {lines[0]}"
        raise MalformedInput(f"{doing}: {said[:200]}") from error


def config_object(module: Any) -> Any:
    """The configuration of a module, or of the one that it wraps; None where there is none."""
    return next((part.config for part in module.modules() if hasattr(part, "config")), None)


def config_fields(module: Any) -> dict[str, Any]:
    """The fields of a module's configuration, which may be a dict, a dataclass, a namespace or have `to_dict`, as JSON would
    hold them; none where there is no configuration."""
    config = config_object(module)
    if config is None:
        return {}
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if isinstance(config, Mapping):
        return {str(name): plain(value) for name, value in config.items()}
    names = [name for name in dir(config) if not name.startswith("_") and hasattr(config, name)]
    stored = {name: inspect.getattr_static(config, name) for name in names}
    computed = [name for name, value in stored.items() if callable(value) or isinstance(value, property)]
    return {name: plain(getattr(config, name)) for name in names if name not in computed}


def plain(value: Any) -> Any:
    """A configuration's value as JSON would hold it."""
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else str(value)


def widened(function: Any, *others: str) -> Any:
    """A function of this code in which float32 is float64, in the functions of its module of these names too, and in what its
    decorators call: those are kept, as they may change what it gives."""
    import torch

    class Wide:
        float32 = torch.float64

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    names = {**function.__globals__, "torch": Wide(), "double": float}
    for other in others:
        if other != function.__name__ and other in names:
            names[other] = widened(names[other])
    code = function.__code__.replace(
        co_names=tuple("double" if name == "float" else name for name in function.__code__.co_names)
    )
    inner = getattr(function, "__wrapped__", None)
    cells = tuple(
        CellType(widened(inner, *others)) if isinstance(inner, FunctionType) and _content(cell) is inner else cell
        for cell in function.__closure__ or ()
    )
    made = FunctionType(code, names, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _content(cell: CellType) -> Any:
    """What a cell holds; None where nothing has been put there."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
