"""Digests of tools: schema, code and held values tell tools of the same name apart.

An approval is bound to such a digest, so it never covers another tool.  Code is followed into
functions of the same package.  Objects of other packages count by name, and by the texts and
immutable values that they hold.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import types
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any, cast

from pydantic import SecretBytes, SecretStr

DEEPEST = 8
"""How many levels of functions and objects are followed."""
MOST = 2_000
"""How many objects and containers are read, about 40 ms.  A tool may hold a large table, and it is
made where the event loop runs."""
LONGEST = 100_000
"""How many characters or bytes of a text are read at each of its ends."""
_OWN = "agent_runtime"
"""Our own modules hold state that only they change, such as a process id; it does not count."""
_CHANGING = (int, float, complex, list, dict, set, bytearray)
"""Types that a tool may change while it works; their values count as of the tool's creation."""


def json_digest(*parts: Any) -> str:
    """Return a digest of JSON values, the same in every process."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def code_digest(held: Any, *, made: bool) -> str:
    """Return a digest of a function or an object, the same in every process.

    Args:
        made: whether to include held numbers and containers, which calls may change; otherwise
            only their types count.
    """
    return json_digest(_Look(made).at(held))


class _Look:
    """One walk through a function or an object and the values that it holds."""

    def __init__(self, made: bool) -> None:
        self._made = made
        # Holds the values too, so that their ids are not reused during the walk.
        self._seen: dict[int, tuple[object, Any]] = {}
        self._within: set[int] = set()
        self._looked = 0
        self._package = ""

    def at(self, value: Any, depth: int = 0) -> Any:
        kind = cast("type[object]", type(value))
        if isinstance(value, Enum):
            return [kind.__qualname__, value.name]
        if kind is not bool and issubclass(kind, _CHANGING) and not self._made:
            return kind.__qualname__
        if value is None or isinstance(value, str | int | float | complex | bytes | bytearray):
            return _plain(value)
        if isinstance(value, PurePath):
            return ["path", str(value)]
        if isinstance(value, types.ModuleType) or (
            isinstance(value, type) and _package(value) != self._package
        ):
            return [kind.__qualname__, _name(value)]
        # A circle ends where it closes; what is too deep or too much counts by its type.
        self._looked += 1
        if id(value) in self._within or depth > DEEPEST or self._looked > MOST:
            return ["above", kind.__qualname__]
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        self._within.add(id(value))
        digest = self._inside(value, depth + 1)
        self._within.discard(id(value))
        if not isinstance(value, tuple | frozenset | types.CodeType):
            # Equal constants may be one object in one process and several in another.
            self._seen[id(value)] = value, digest
        return digest

    def _inside(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict | types.MappingProxyType):
            pairs = islice(cast("Mapping[Any, Any]", value).items(), MOST)
            return ["dict", _ordered([self.at(key, depth), self.at(one, depth)]
                                     for key, one in pairs)]  # fmt: skip
        if isinstance(value, list | tuple):
            return ["list", [self.at(one, depth) for one in cast("list[Any]", value)[:MOST]]]
        if isinstance(value, set | frozenset):
            held = cast("set[Any]", value)
            # Its order differs in each process, so that a part of it would too.
            few = held if len(held) <= MOST else ()
            return ["set", len(held), _ordered(self.at(one, depth) for one in few)]
        if isinstance(value, types.FunctionType):
            return self._function(value, depth)
        if isinstance(value, types.MethodType):
            return ["method", self.at(value.__func__, depth), self._object(value.__self__, depth)]
        if isinstance(value, functools.partial):
            made = cast("functools.partial[Any]", value)
            held = (made.func, made.args, made.keywords)
            return ["partial", [self.at(one, depth) for one in held]]
        if isinstance(value, types.CodeType):
            return self._code(value, depth)
        if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            return ["builtin", _name(value), self.at(value.__self__, depth)]
        if isinstance(wrapped := getattr(value, "__wrapped__", None), types.FunctionType):
            return ["wrapped", self.at(wrapped, depth)]
        if isinstance(value, type):
            return [_name(value), *self._class(value, depth)]
        return self._object(value, depth)

    def _function(self, function: types.FunctionType, depth: int) -> Any:
        self._package = self._package or _package(function)
        return [
            "function",
            function.__qualname__,
            self.at(function.__code__, depth),
            # Even mutable defaults count: with another default it is another function.
            _Look(True).at(function.__defaults__, depth),
            _Look(True).at(function.__kwdefaults__, depth),
            [self._cell(cell, depth) for cell in function.__closure__ or ()],
            self._globals(function, depth),
        ]

    def _cell(self, cell: types.CellType, depth: int) -> Any:
        try:
            return self.at(cell.cell_contents, depth)
        except ValueError:
            return "empty"

    def _globals(self, function: types.FunctionType, depth: int) -> Any:
        """Digest the functions and constants of its package that a function names."""
        found: list[Any] = []
        for name in sorted(_names(function.__code__)):
            value: Any = function.__globals__.get(name)
            kind = cast("object", type(value))
            own = isinstance(value, types.FunctionType) and _package(value) == self._package
            constant = name.isupper() and isinstance(value, str | int | float | bytes | tuple)
            # Also objects of the package, such as a client that a module's functions share.
            own = own or (self._package != _OWN and _package(kind) == self._package)
            own = own or (isinstance(value, str) and not name.startswith("__"))
            if own or constant:
                found.append(
                    [name, _Look(True).at(value, depth) if constant else self.at(value, depth)]
                )
        return found

    def _code(self, code: types.CodeType, depth: int) -> Any:
        consts = [_Look(True).at(one, depth) for one in code.co_consts]
        # Not the file and the line numbers: they change without a change of what it does.
        names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
        return [code.co_name, code.co_code.hex(), code.co_flags, names, consts]

    def _object(self, value: Any, depth: int) -> Any:
        """Digest an object: its class, and its attributes unless another package defines it."""
        kind = cast("type[object]", type(value))
        name = kind.__qualname__
        if all(callable(inspect.getattr_static(value, one, None)) for one in ("stream", "info")):
            # A model; its name identifies it.
            return [name, _name(value)]
        self._package = self._package or _package(kind)
        if _package(kind) != self._package and not dataclasses.is_dataclass(value):
            # Its internal state does not count; its texts and immutable values do.
            shown = _value(value)
            held = _attributes(value) if self._made and not shown else []
            return [name, shown, [[key, self.at(one, depth)] for key, one in held if _says(one)]]
        attributes = [[key, self.at(one, depth)] for key, one in _attributes(value)]
        return [name, *self._class(kind, depth), attributes]

    def _class(self, kind: type, depth: int) -> list[Any]:
        """Digest the methods and constants of a class and of its bases in the package."""
        own = [one for one in kind.__mro__ if _package(one) == self._package]
        members = {key: one for each in reversed(own) for key, one in vars(each).items()}
        # By name, because the order in a class's namespace is that of its source.
        code = [
            [key, self.at(function.__code__, depth)]
            for key, one in sorted(members.items())
            if isinstance(function := _unwrapped(one), types.FunctionType)
        ]
        constants = [
            [key, self.at(one, depth)]
            for key, one in sorted(members.items())
            if not key.startswith("__") and (_says(one) or isinstance(one, int | float))
        ]
        return [code, constants]


def _plain(value: Any) -> Any:
    if isinstance(value, str | bytes | bytearray) and len(value) > 2 * LONGEST:
        ends = [_plain(end) for end in (value[:LONGEST], value[-LONGEST:])]
        return [type(value).__qualname__, len(value), ends]
    if isinstance(value, bytes | bytearray):
        return ["bytes", hashlib.sha256(value).hexdigest()]
    return [type(value).__qualname__, repr(value)]


def _says(value: Any) -> bool:
    """Return whether a value is text, a path, or another immutable value."""
    return isinstance(value, str | bytes | PurePath) or bool(_value(value))


def _value(value: Any) -> str:
    """Return the text of an immutable value; empty for other values."""
    if isinstance(value, SecretStr | SecretBytes):
        return repr(value.get_secret_value())
    kind = cast("type[object]", type(value))
    if kind.__hash__ is None or kind.__eq__ is object.__eq__ or value is None:
        return ""
    if isinstance(value, int | float | complex | Enum | tuple | frozenset | Callable):
        return ""
    # A text with a memory address differs in each process.
    return text if " at 0x" not in (text := repr(value)) else ""


def _name(value: Any) -> str:
    for name in ("__qualname__", "__name__", "name"):
        if isinstance(found := getattr(value, name, None), str):
            return found
    return type(value).__qualname__


def _ordered(parts: Iterable[Any]) -> list[Any]:
    # Sets have another order in each process.
    return sorted(parts, key=lambda one: json.dumps(one, sort_keys=True))


def _package(value: Any) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


def _names(code: types.CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _unwrapped(method: Any) -> Callable[..., Any] | None:
    if isinstance(method, property):
        return method.fget
    return getattr(method, "__func__", method)


def _attributes(value: Any) -> list[tuple[str, Any]]:
    found = dict(cast("dict[str, Any]", getattr(value, "__dict__", {})))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    # `_made` is this digest itself, set late.
    return sorted((name, one) for name, one in found.items() if name != "_made")
