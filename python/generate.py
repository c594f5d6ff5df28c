#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Convert the public headers to ctypes in python/penstock/_abi.py, and to a C program that prints
the compiler's values of the same names.

    generate.py INCLUDE             print _abi.py
    generate.py INCLUDE --write     write it
    generate.py INCLUDE --c         print the C program

Only the forms below are understood.  Anything else in a header is an error, so that nothing is
silently omitted.
"""
import os
import re
import sys

SIMPLE = {
    "char": "c_char", "int": "c_int", "unsigned": "c_uint", "size_t": "c_size_t",
    "int8_t": "c_int8", "int16_t": "c_int16", "int32_t": "c_int32", "int64_t": "c_int64",
    "uint8_t": "c_uint8", "uint16_t": "c_uint16", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
}
POINTERS_TO_FUNCTIONS = {"pst_log_fn", "pst_name_fn"}

HEAD = '''# SPDX-License-Identifier: MIT
# Made by python/generate.py out of include/; tests/python/abi.py compares both.
"""Constants, structures and calls of the public headers."""
# flake8: noqa
from ctypes import (Structure, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint,
                    c_uint8, c_uint32, c_uint64, c_void_p)
'''


def stop(what):
    sys.exit(f"generate.py: {what}")


def headers(include):
    """Return the text of all headers without comments, in the order of their dependencies."""
    names = ["penstock/types.h"]
    names += sorted(f"penstock/{name}" for name in os.listdir(f"{include}/penstock")
                    if name.endswith(".h") and name != "types.h")
    text = ""
    for name in names + ["penstock.h"]:
        with open(f"{include}/{name}", encoding="utf-8") as file:
            text += file.read() + "\n"
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S).replace("\\\n", " ")


def number(text, known):
    """Evaluate a constant expression of numbers, +, | and <<."""
    plain = re.sub(r"\bUINT64_C\((\w+)\)", r"\1", text)
    plain = plain.replace("UINT64_MAX", str(2**64 - 1))
    plain = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)[uUlL]*\b", r"\1", plain)
    plain = re.sub(r"\bPST_\w+\b", lambda m: str(known[m.group(0)]), plain)
    if not re.fullmatch(r"[0-9a-fA-FxX ()+|<]+", plain):
        stop(f"'{text}' is no number")
    return eval(plain, {"__builtins__": {}})  # pylint: disable=eval-used


def constants(text):
    """Return names and values of #define and of enumerations, in order."""
    known = {}
    found = re.finditer(r"^#define (PST_\w+)(\(?)[ \t]*([^\n]*)$|\benum \w+ \{([^}]*)\}", text,
                        re.M)
    for match in found:
        name, call, value, values = match.groups()
        if values is not None:
            for item in filter(None, (part.strip() for part in values.split(","))):
                name, value = item.split("=")
                known[name.strip()] = number(value.strip(), known)
        elif not call and value.strip() and not value.startswith("__attribute__"):
            known[name] = number(value.strip(), known)
    return known


def c_type(words, pointer, where):
    words = words.replace("const ", "").strip()
    if pointer:
        return "c_char_p" if words == "char" and "const" in where else "c_void_p"
    if words in POINTERS_TO_FUNCTIONS:
        return "c_void_p"
    if words not in SIMPLE:
        stop(f"'{words}' in '{where}' is no type that is known")
    return SIMPLE[words]


def member(line, known):
    match = re.fullmatch(r"((?:const )?(?:struct )?\w+) (\*?)(\w+)(?:\[([^\]]+)\])?", line)
    if not match:
        stop(f"'{line}' is no member that is known")
    words, pointer, name, count = match.groups()
    kind = c_type(words, pointer, line)
    return name, kind + (f" * {number(count, known)}" if count else "")


def structures(text, known):
    for name, body in re.findall(r"^struct (\w+) \{([^}]*)\};", text, re.M):
        lines = filter(None, (" ".join(line.split()) for line in body.split(";")))
        members = []
        for line in lines:
            # "uint64_t a, b"
            first, *more = [part.strip() for part in line.split(",")]
            members.append(member(first, known))
            members += [member(f"{first.rsplit(' ', 1)[0]} {part}", known) for part in more]
        yield name, members


def calls(text):
    for proto in re.findall(r"^PST_API ([^;]*);", text, re.M):
        proto = " ".join(proto.split())
        match = re.fullmatch(r"(.*?)(\*?)(pst_\w+)\((.*)\)", proto)
        if not match:
            stop(f"'{proto}' is no call that is known")
        words, pointer, name, arguments = match.groups()
        kind = "None" if words.strip() == "void" and not pointer else c_type(words, pointer, words)
        kinds = []
        for argument in arguments.split(", ") if arguments != "void" else []:
            words, pointers = re.fullmatch(r"(.*?) ?(\**)\w+", argument).groups()
            kinds.append("c_void_p" if len(pointers) > 1 else c_type(words, pointers, argument))
        yield name, kind, kinds


def python(text):
    known = constants(text)
    out = [HEAD]
    out += [f"{name} = {value:#x}" if value > 99 else f"{name} = {value}"
            for name, value in known.items()]
    names = []
    for name, members in structures(text, known):
        names.append(name)
        out.append(f"\n\nclass {name}(Structure):\n    _fields_ = [")
        out += [f'        ("{member}", {kind}),' for member, kind in members]
        out.append("    ]")
    out.append("\n\nSTRUCTURES = (" + "".join(f"\n    {name}," for name in names) + "\n)")
    out.append("\n# Functions by name: result and arguments of each.\nCALLS = {")
    for name, kind, kinds in calls(text):
        line = f'    "{name}": ({kind}, ['
        for index, item in enumerate(kinds):
            more = item + (", " if index + 1 < len(kinds) else "")
            if len(line) + len(more.rstrip()) > 96:
                out.append(line.rstrip())
                line = " " * 8
            line += more
        out.append(f"{line}]),")
    out.append("}")
    return "\n".join(out) + "\n"


def c_program(text):
    known = constants(text)
    out = ["#include <penstock.h>", "#include <stdio.h>", "", "int main(void)", "{"]
    for name in known:
        out.append(f'\tprintf("{name} %llu\\n", (unsigned long long){name});')
    for name, members in structures(text, known):
        out.append(f'\tprintf("{name} %zu\\n", sizeof(struct {name}));')
        for field, _ in members:
            at = f"offsetof(struct {name}, {field})"
            size = f"sizeof(((struct {name} *)0)->{field})"
            out.append(f'\tprintf("{name}.{field} %zu %zu\\n", {at}, {size});')
    for name, _, kinds in calls(text):
        out.append(f"\t(void){name};")
    return "\n".join(out) + "\n\treturn 0;\n}\n"


def main():
    text = headers(sys.argv[1])
    what = sys.argv[2] if len(sys.argv) > 2 else ""
    if what == "--c":
        sys.stdout.write(c_program(text))
    elif what == "--write":
        where = os.path.join(os.path.dirname(os.path.abspath(__file__)), "penstock", "_abi.py")
        with open(where, "w", encoding="utf-8") as file:
            file.write(python(text))
    else:
        sys.stdout.write(python(text))


if __name__ == "__main__":
    main()
