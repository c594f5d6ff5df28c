# SPDX-License-Identifier: MIT
"""Find and bind the library; its errors as exceptions; its structures as values."""
import copy
import ctypes
import errno
import operator
import os
import re
import time
from typing import Any, Callable, Dict, Iterable, Optional, Tuple, Type, cast

from . import _abi
from ._types import Path, Policy

NAME = "libpenstock.so.0"
VARIABLE = "PST_LIBPENSTOCK"


class Error(OSError):
    """An error of the library.

    ``errno`` is positive, ``strerror`` is the library's text with cause and cure.  If Python has a
    class for the errno (FileNotFoundError, TimeoutError, ...), the exception is also of that class.
    ``result`` is the Result of a failed request, or None.
    """

    result: "Optional[Result]" = None


# {Python's class: our class}.  Each class is an attribute of this module, where pickle finds it.
_KINDS: Dict[Type[OSError], Type[Error]] = {OSError: Error}
for _base in {type(OSError(number, "")) for number in errno.errorcode} - {OSError}:
    _name = f"Error{_base.__name__}"
    _KINDS[_base] = globals()[_name] = type(_name, (Error, _base), {"__module__": __name__})


def plain_name(name: Any) -> Any:
    """Return the name of a file for an exception, which other processes may read.

    Removes the query of a URL, which may grant the right to read the file, and the text before an
    @, which may be a password.
    """
    if isinstance(name, os.PathLike):
        return os.fspath(name)
    if isinstance(name, str) and re.match(r"[a-z][a-z0-9+.-]*://", name):
        return re.sub("(://)[^/?#]*@", r"\1", re.split("[?#]", name, maxsplit=1)[0])
    return name if isinstance(name, (str, bytes, int)) else str(name)


def failure(number: int, sentence: str, filename: Any = None,
            result: "Optional[Result]" = None) -> Error:
    """Return the exception for a negative or positive errno."""
    number = abs(int(number))
    text = sentence or os.strerror(number)
    if number == errno.EOWNERDEAD:
        text += "; multiprocessing starts its workers so by 'spawn' and 'forkserver'"
    kind = _KINDS[type(OSError(number, text))]
    error = kind(number, text) if filename is None else kind(number, text, plain_name(filename))
    error.result = result
    return error


def again(error: BaseException) -> BaseException:
    """Return a copy, without a traceback, of an exception that is kept: raise the copy.

    A traceback references all frames that the exception passed, with the program's objects in them.
    If one of these frames references the exception, that is a cycle.
    """
    try:
        twin = copy.copy(error)
    except Exception:  # pylint: disable=broad-except # not every class can be copied
        return error
    if error.__cause__ is not None:
        twin.__cause__ = again(error.__cause__)
    return twin


def _places() -> Tuple[str, str]:
    """Return the places of the library in order, each with its reason; the first that is set is
    used."""
    named = os.environ.get(VARIABLE)
    if named:
        return named, f"the environment variable {VARIABLE} names it"
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", NAME)
    if os.path.exists(beside):
        return beside, "it came with the package"
    return NAME, "the system's loader looks for it"


def _load() -> Tuple[Any, str]:
    path, why = _places()
    try:
        library = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(f"penstock: {path} cannot be loaded ({why}): {e}; install Penstock, or "
                          f"name its {NAME} in {VARIABLE}") from None
    missing = [name for name in _abi.CALLS if not hasattr(library, name)]
    if missing:
        raise ImportError(f"penstock: {path} ({why}) has no {missing[0]}(): it is no libpenstock, "
                          f"or one older than this package, which wants {VERSION} or newer")
    for name, (gives, takes) in _abi.CALLS.items():
        call = getattr(library, name)
        call.restype, call.argtypes = gives, takes
    return library, path


VERSION = f"{_abi.PST_VERSION_MAJOR}.{_abi.PST_VERSION_MINOR}.{_abi.PST_VERSION_PATCH}"
lib, library_path = _load()


def version() -> str:
    """Return the version of the loaded library, "major.minor.patch"."""
    return cast(bytes, lib.pst_version()).decode()


def check(status: int, filename: Any = None) -> int:
    """Return status; raise Error with the library's text if it is negative."""
    if status < 0:
        raise failure(status, lib.pst_error_text().decode("utf-8", "replace"), filename)
    return status


def sized(kind: Any, /, **members: Any) -> Any:
    """Return a structure that begins with sz."""
    return kind(sz=ctypes.sizeof(kind), **members)


def near(name: Any, names: Iterable[str]) -> str:
    """Return "; did you mean 'strict'?" if a name is similar to one of these, else ""."""
    import difflib
    found = difflib.get_close_matches(str(name), list(names), 1)
    return f"; did you mean '{found[0]}'?" if found else ""


def keywords(call: str, options: Iterable[str], names: Iterable[str],
             others: Iterable[str] = ()) -> None:
    """Raise TypeError for an option that is not one of names.

    others: other arguments of the call, for suggestions
    """
    for name in options:
        if name not in names:
            raise TypeError(f"{call}() got an unexpected keyword argument '{name}'" +
                            near(name, [*names, *others]))


def name_of(text: Path) -> bytes:
    """Return a path or a name as bytes for C."""
    raw = os.fsencode(text)
    if b"\0" in raw:
        raise ValueError("embedded null byte")
    return raw


def deadline(timeout: Optional[float], default: int = 0) -> int:
    """Return an absolute time in nanoseconds for seconds from now; default for None."""
    if timeout is None:
        return default
    if timeout < 0:
        raise ValueError("a timeout is not negative")
    # A timeout of inf becomes the longest time that the clock can express.
    return time.monotonic_ns() + int(min(timeout, 4e9) * 1e9) if timeout else 0


def patience(nbytes: int) -> float:
    """Return the default timeout of blocking calls for that many bytes, in seconds."""
    return 300 + nbytes / 10_000_000


def text_of(call: Callable[..., Any], *arguments: Any) -> str:
    buffer = ctypes.create_string_buffer(1024)
    call(*arguments, buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace")


_PATHS: Dict[int, str] = {}
_WHYS: Dict[Tuple[int, int], str] = {}
_WHY_NAMES: Dict[int, str] = {}


def paths_text(paths: int) -> str:
    """Return the names of a set of path bits: "staged+direct"."""
    if paths not in _PATHS:
        _PATHS[paths] = text_of(lib.pst_paths_text, paths)
    return _PATHS[paths]


def why_text(why: int, detail: int) -> str:
    if not why:
        return ""
    if (why, detail) not in _WHYS:
        if len(_WHYS) > 1000:
            _WHYS.clear()
        _WHYS[why, detail] = text_of(lib.pst_why_text, why, detail)
    return _WHYS[why, detail]


def why_name(why: int) -> str:
    if why not in _WHY_NAMES:
        _WHY_NAMES[why] = lib.pst_why_name(why).decode()
    return _WHY_NAMES[why]


class Result:
    """The result of a request.

    nbytes: bytes that were moved
    prefix: bytes that are complete from the first piece on, also after a failure
    path:   the paths that ran, the device's hop first: "staged+direct"
    why:    why a better path was not taken, as text; "" if there is no reason
    why_name: the reason's name, "none" if there is none
    crc32c: CRC-32C of the bytes in the order of the pieces, or None if it was not requested
    busy:   hardware or kernel may still touch the memory
    wrong_piece: index of the first piece that does not match verify, or None
    """

    __slots__ = ("nbytes", "prefix", "path", "why", "why_name", "crc32c", "busy", "wrong_piece",
                 "index")

    def __init__(self, done: Any) -> None:
        self.nbytes: int = max(done.res, 0)
        self.prefix: int = done.prefix
        self.path = paths_text(done.paths)
        self.why = why_text(done.why, done.detail)
        self.why_name = why_name(done.why)
        self.crc32c: Optional[int] = done.crc32c if done.flags & _abi.PST_DONE_CRC32C else None
        self.busy = bool(done.flags & _abi.PST_DONE_BUSY)
        self.wrong_piece: Optional[int] = (done.wrong_piece if done.res == -errno.EBADMSG
                                           else None)
        self.index: int = done.user_data

    def __int__(self) -> int:
        return self.nbytes

    __index__ = __int__

    def __reduce__(self) -> Tuple[Any, ...]:
        return _result_of, tuple(getattr(self, name) for name in self.__slots__)

    def __repr__(self) -> str:
        why = f", {self.why}" if self.why else ""
        return f"<Result {self.nbytes} bytes by {self.path or 'no path'}{why}>"


def _result_of(*values: Any) -> Result:
    """Return the Result with these attributes, for pickle and copy."""
    result = Result.__new__(Result)
    for name, value in zip(Result.__slots__, values):
        setattr(result, name, value)
    return result


def stream_of(stream: Optional[int]) -> Optional[int]:
    """Return a stream's number.  Raises ValueError for 0: CUDA's legacy default stream also has the
    number 1."""
    if stream is None:
        return None
    if not stream:
        raise ValueError("a stream is no 0; CUDA's legacy default stream has the number 1 too")
    return unsigned(stream)


def unsigned(value: Any) -> int:
    """Return an integer that fits uint64_t; ctypes would truncate others."""
    number: int = operator.index(value)
    if not 0 <= number < 2**64:
        raise ValueError(f"{number} is no offset or length")
    return number


_NAMES = {lib.pst_path_name(number).decode(): number
          for number in range(1, _abi.PST_PATH_MAX + 1)
          if lib.pst_path_name(number) != b"unknown"}


def policy_of(policy: Policy) -> int:
    """Return the library's policy for None or up to eight names of paths, in order of preference.
    """
    if policy is None:
        return _abi.PST_POLICY_AUTO
    if isinstance(policy, str):
        policy = policy.split("+")
    if not 1 <= len(policy) <= 8:
        raise ValueError("a policy names one to eight paths")
    value = 0
    for place, name in enumerate(policy):
        if name not in _NAMES:
            raise ValueError(f"'{name}' is no path; there are {', '.join(_NAMES)}")
        value |= _NAMES[name] << 4 * place
    return value
