#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""samples.py SEED [COMMENTS [SENTENCES]]: draw comments of the sources and sentences of the docs.

Two people who did not write them read the samples, and mark what they had to read twice.  The same
seed draws the same samples from the same tree.  Without numbers: 100 comments, 60 sentences.
"""
import os
import random
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LITERAL_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|/\*.*?\*/', re.S)
NO_PROSE = re.compile(r"^(\||    |#|<!--)")
ITEM = re.compile(r"^ *([-*]|\d+\.) ")


def tracked(*patterns):
    out = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", *patterns], check=True,
                         stdout=subprocess.PIPE).stdout
    return sorted(name.decode() for name in out.split(b"\0") if name)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def comments_of_c(path):
    text = read(path)
    for m in LITERAL_OR_COMMENT.finditer(text):
        words = " ".join(re.sub(r"(?m)^\s*\*( |$)?", " ", m.group()[2:-2]).split())
        if not m.group().startswith("/*") or words.startswith(("SPDX", "---")):
            continue
        line = text.count("\n", 0, m.start())
        code = " ".join(text.split("\n")[line].split("/*")[0].split())
        after = " ".join(text[m.end():].lstrip().split("\n")[0].split())
        yield path, line + 1, words, code or after


def comments_of_scripts(path):
    block, first = [], 0
    for n, line in enumerate(read(path).split("\n") + [""], 1):
        m = re.match(r"\s*# (.*)", line)
        if m and not line.startswith("#!") and "SPDX" not in line:
            first = first if block else n
            block.append(m.group(1))
        elif block:
            if not block[0].startswith("---"):
                yield path, first, " ".join(block), " ".join(line.split())
            block = []


def sentences(path):
    paragraph, first = [], 0
    text = re.sub(r"(?ms)^```.*?^```$", lambda m: "\n" * m.group().count("\n"), read(path))
    for n, line in enumerate(text.split("\n") + [""], 1):
        if not line.strip() or NO_PROSE.match(line) or ITEM.match(line):
            words = " ".join(paragraph)
            for sentence in re.split(r"(?<=[.?!:])\s+(?=[A-Z`*])", words) if words else []:
                if len(sentence.split()) > 3:
                    yield path, first, sentence, ""
            paragraph = [ITEM.sub("", line)] if ITEM.match(line) else []
            first = n
        else:
            first = first if paragraph else n
            paragraph.append(line.strip())


def draw(title, items, nr, seed):
    items = sorted(items)
    print("%s: %d of %d, seed %s" % (title, min(nr, len(items)), len(items), seed))
    drawn = random.Random(seed).sample(items, min(nr, len(items)))
    for i, (path, line, text, code) in enumerate(drawn, 1):
        print("%3d  %s:%d  %s%s" % (i, path, line, text, "   {%s}" % code[:70] if code else ""))


def main():
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    seed = sys.argv[1]
    nr_comments = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    nr_sentences = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    # Skip the headers of past releases (tests/abi/*/*), which do not change any more.
    found = [c for path in tracked("*.c", "*.h", ":!tests/abi/*/*") for c in comments_of_c(path)]
    found += [c for path in tracked("*.py", "*.sh", "dev") for c in comments_of_scripts(path)]
    draw("comments", found, nr_comments, seed)
    print()
    draw("sentences", [s for path in tracked("*.md") for s in sentences(path)], nr_sentences, seed)


if __name__ == "__main__":
    main()
