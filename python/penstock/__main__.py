# SPDX-License-Identifier: MIT
"""python -m penstock: a report about this machine, copies of files, and checksums.

    python -m penstock info
    python -m penstock doctor [--json] [FILE]
    python -m penstock cp [--verify] SRC DST
    python -m penstock sum [--check] FILE...
"""
import argparse
import json
import os
import platform
import sys
import zlib
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Set

from . import File, Memory, __version__, devices, doctor, library_path, version
from ._progress import reports
from ._replace import Replacement
from .safetensors import check_sums, write_sums

_BLOCK = 64 << 20   # bytes per read, and of the memory of a copy


def _info(_: argparse.Namespace) -> None:
    print(f"penstock {__version__}, Python {platform.python_version()}")
    print(f"libpenstock {version()}, {library_path}")
    for device in devices():
        facts = [device["model"], device["pci"],
                 f"{device['total'] / 1e9:.1f} GB" if device["total"] else ""]
        print(f"device {device['name']}: {', '.join(filter(None, facts)) or device['kind']}")


def _lines(checks: List[Dict[str, Any]]) -> None:
    for check in checks:
        print(f"{check['name']}: {check['state']}" +
              (f", {check['text']}" if check["text"] else ""))


def _doctor(args: argparse.Namespace) -> None:
    report = doctor(args.file)
    if args.json:
        print(json.dumps(report, indent=2))
        return
    _info(args)
    _lines(report["io"])
    for device, paths in report.get("paths", {}).items():
        for path in paths:
            print(f"{device} {path['path']}: {path['state']}" +
                  (f", {path['why']}" if path["why"] else ""))
    _lines(report.get("gds", []))


def _pieces(file: File, size: int, memory: Memory, paths: Set[str]) -> Iterator[int]:
    """Read a file into memory piece by piece.  Yield the bytes of each piece."""
    offset = 0
    while offset < size:
        result = file.read(memory, offset, min(size - offset, memory.nbytes))
        paths.add(result.path)
        yield result.nbytes
        offset += result.nbytes


def _crc(memory: Memory, nbytes: int, crc: int) -> int:
    with memory.view() as view, view[:nbytes] as part:
        return zlib.crc32(part, crc)


def _copy(args: argparse.Namespace) -> None:
    target = args.target
    if os.path.isdir(target):
        target = os.path.join(target, os.path.basename(args.source))
    if os.path.exists(target):
        if os.path.samefile(args.source, target):
            raise ValueError(f"{args.source} and {target} are the same file")
        if not os.path.isfile(target):
            raise ValueError(f"{target} is no regular file; name one, or a folder")
    target = os.path.realpath(target)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise ValueError(f"{folder} is no folder; make it first")
    read: Set[str] = set()
    written: Set[str] = set()
    crc = 0
    with File(args.source) as source, Replacement(
            target, permissions=os.stat(args.source).st_mode & 0o777) as new:
        size = source.size
        with Memory.alloc("host", max(min(size, _BLOCK), 1)) as memory, reports(
                sys.stderr.isatty(), size) as done:
            offset = 0
            for nbytes in _pieces(source, size, memory, read):
                written.add(new.file.write(memory, offset, nbytes).path)
                crc = _crc(memory, nbytes, crc) if args.verify else crc
                offset += nbytes
                if done is not None:
                    done(nbytes)
            new.file.sync()
            if args.verify:
                again = 0
                for nbytes in _pieces(new.file, size, memory, set()):
                    again = _crc(memory, nbytes, again)
                if again != crc:
                    raise ValueError(f"{target} has other bytes than were read from "
                                     f"{args.source}; the copy was removed")
        new.publish(True)
    print(f"{size} bytes to {target}: read by {', '.join(sorted(read)) or 'no path'}, written by "
          f"{', '.join(sorted(written)) or 'no path'}" + (", verified" if args.verify else ""))


def _sum(args: argparse.Namespace) -> None:
    for name in args.files:
        if args.check:
            check_sums(name)
            print(f"{name}: as its checksums say")
        else:
            print(write_sums(name))


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program, description="Move bytes between files and host or accelerator memory.")
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    command = commands.add_parser("info", help="print versions, the library's path and devices")
    command.set_defaults(run=_info)

    command = commands.add_parser("doctor",
                                  help="say what this machine can do, and what is missing")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("file", nargs="?", metavar="FILE", help="a file that reads would be of")
    command.set_defaults(run=_doctor)

    command = commands.add_parser(
        "cp", help="copy a file to a file", description="Copy a file to a file or into a folder. "
        "The target gets its name when its bytes are on the disk.")
    command.add_argument("--verify", action="store_true", help="read the copy back and compare")
    command.add_argument("source", metavar="SRC")
    command.add_argument("target", metavar="DST")
    command.set_defaults(run=_copy)

    command = commands.add_parser(
        "sum", help="write checksums of safetensors files, or check them",
        description="Write the CRC-32C of the parts of each safetensors file into FILE.crc32c, for "
        "load_file(verify=True).")
    command.add_argument("--check", action="store_true",
                         help="read the files and compare them with their checksums")
    command.add_argument("files", nargs="+", metavar="FILE")
    command.set_defaults(run=_sum)
    return parser


def main(program: str = "python -m penstock", arguments: Optional[List[str]] = None) -> int:
    """Run one command.  Return the exit status."""
    args = _parser(program).parse_args(arguments)
    try:
        args.run(args)
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else error
        name = getattr(error, "filename", None)
        where = f"{name}: " if name is not None and str(name) not in str(text) else ""
        print(f"penstock: {where}{text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _installed_command() -> Optional[str]:
    """Return the path of libpenstock's own command penstock if it is in PATH; a script of that name
    is skipped."""
    for folder in os.get_exec_path():
        path = os.path.join(folder, "penstock")
        if os.path.isabs(folder) and os.path.isfile(path) and os.access(path, os.X_OK):
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    return path
    return None


def script() -> NoReturn:
    """Run the wheel's command penstock; if libpenstock's own command is installed, run that
    instead."""
    try:
        path = _installed_command()
        if path is not None:
            os.execv(path, ["penstock", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"penstock: {error}")
    sys.exit(main("penstock"))


if __name__ == "__main__":
    sys.exit(main())
