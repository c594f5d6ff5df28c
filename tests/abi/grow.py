#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""grow.py STAMP OUT HEADER...: write the public headers as a later release would have them.

Each structure that begins with sz gets 16 more bytes at its end, each enumeration one more value.
Headers keep their relative paths below OUT.  STAMP is a header that is written last, for meson.
"""
import os
import re
import sys


def grow_struct(match):
    return match.group(1) + "\tuint64_t grown[2];\n};\n"


def grow_enum(match):
    body = match.group(2)
    # Ignore *_MAX: it is the largest value that may ever be used, and no enumerator in use.
    used = [int(n) for name, n in re.findall(r"(\w+) = (\d+)", body) if not name.endswith("_MAX")]
    line = "\t{}_GROWN = {},\n".format(match.group(1).upper(), max(used) + 1)
    if not body.rstrip().endswith(","):
        line = "\t, " + line.lstrip()
    return "enum {} {{{}{}}};".format(match.group(1), body, line)


def main():
    out = sys.argv[2]
    structs = enums = 0
    for path in sys.argv[3:]:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        # Remove comments, which may contain braces and commas.
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        text, n = re.subn(r"(struct \w+ \{\n\tsize_t sz;[^}]*)\};\n", grow_struct, text)
        structs += n
        text, n = re.subn(r"enum (\w+) \{([^}]*)\};", grow_enum, text)
        enums += n
        name = os.path.basename(path)
        if name != "penstock.h":
            name = os.path.join("penstock", name)
        os.makedirs(os.path.dirname(os.path.join(out, name)) or ".", exist_ok=True)
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            f.write(text)
    if structs < 15 or enums < 8:
        sys.exit("grow.py: {} structures and {} enumerations grew; where are the others?".format(
            structs, enums))
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("/* The headers of {}. */\n".format(os.path.basename(out)))


main()
