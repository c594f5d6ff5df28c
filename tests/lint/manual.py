#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""manual.py ROOT [CC]: manual pages, headers and documents agree.

Each check takes a tree and returns its errors.  The last case plants an error for each check into a
copy of the tree, to prove that the check can fail.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

CC = sys.argv[2:] or ["cc"]
NAME = r"\b(?:pst|PST)_[A-Za-z0-9_]+"
ERRNO = r"-E[A-Z0-9]{2,}\b"
TESTS_READ = {"PST_FILES", "PST_KILLS", "PST_SOAK", "PST_TEST_AGENT", "PST_TEST_CASE"}
COMMENT = re.compile(r"/\*.*?\*/", re.S)
# Functions that pass on a reason use this member instead of the reason's name.
CARRIED = {"->backend_reason": "PST_WHY_NO_URING"}


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def below(root, folder, ends):
    for base, _, names in os.walk(os.path.join(root, folder)):
        for name in sorted(names):
            if re.search(ends, name):
                yield os.path.relpath(os.path.join(base, name), root)


def plain(code):
    """Return a declaration in a normal form, without its line breaks and spacing."""
    return re.sub(r"\* ", "*", re.sub(r"\s*([(),;*])\s*", r" \1 ", code).replace("  ", " ")).strip()


class Headers:
    def __init__(self, root):
        text = read(root, "include/penstock.h")
        self.opening = text[: text.index("#ifndef")]
        for path in below(root, "include/penstock", r"\.h$"):
            text += read(root, path)
        call = re.compile(r"/\*\*((?:(?!\*/).)*)\*/\s*PST_API[^;]*?(\bpst_\w+)\(", re.S)
        self.comments = {m.group(2): m.group(1) for m in call.finditer(text)}
        code = COMMENT.sub(" ", text)
        self.functions = {
            m.group(2): plain(m.group(1))
            for m in re.finditer(r"^PST_API\s+([^;]*?(\bpst_\w+)\([^;]*\));", code, re.M)
        }
        self.structs = {
            m.group(1): re.findall(r"(\w+)(?:\[[^]]*\])?;", m.group(2))
            for m in re.finditer(r"struct (pst_\w+) \{(.*?)\};", code, re.S)
        }
        self.constants = set(re.findall(r"^#define (PST_\w+)", code, re.M)) - {"PST_API"}
        for body in re.findall(r"enum pst_\w+ \{(.*?)\};", code, re.S):
            self.constants |= set(re.findall(r"\bPST_\w+", re.sub(r"=[^,]*", "", body)))
        self.names = set(re.findall(NAME, code))
        self.pages = set(re.findall(r"(\w+)\(3\)", text))


class Page:
    def __init__(self, root, path):
        self.name = os.path.basename(path)
        self.text = read(root, path)
        parts = re.split(r"^\.Sh (.*)$", self.text, flags=re.M)
        self.sections = dict(zip(parts[1::2], parts[2::2]))

    def blocks(self, section):
        """Return heading and text of each .Ss; the text before the first has an empty heading."""
        parts = re.split(r"^\.Ss (.*)$", self.sections.get(section, ""), flags=re.M)
        return [("", parts[0])] + list(zip(parts[1::2], parts[2::2]))

    def prototypes(self):
        kind = ""
        for line in self.sections.get("SYNOPSIS", "").splitlines():
            words = shlex.split(line) if line.startswith((".Ft ", ".Fn ")) else [""]
            if words[0] == ".Ft":
                kind = " ".join(words[1:])
            elif words[0] == ".Fn" and words[1].startswith("pst_"):
                yield words[1], "%s %s(%s)" % (kind, words[1], ", ".join(words[2:]))

    def examples(self):
        found = re.findall(
            r"^\.Bd -literal.*?\n(.*?)^\.Ed$", self.sections.get("EXAMPLES", ""), re.M | re.S
        )
        return [b.replace("\\-", "-").replace("\\e", "\\") for b in found]


def pages(root, ends=r"\.3$"):
    return [Page(root, path) for path in below(root, "man", ends)]


# ------------------------------------------------------------------ checks


def functions_are_in_one_synopsis(root):
    want, found = Headers(root).functions, {}
    for page in pages(root):
        for name, text in page.prototypes():
            if name in found:
                yield "%s is in the SYNOPSIS of %s and %s" % (name, found[name], page.name)
            found[name] = page.name
            if name in want and plain(text) != want[name]:
                yield "%s has %s, the header %s" % (page.name, plain(text), want[name])
    for name in sorted(set(want) - set(found)):
        yield "%s() is in no SYNOPSIS" % name
    for page in pages(root):
        names = re.findall(r"^\.Nm (\w+)", page.sections["NAME"], re.M)
        for name, _ in page.prototypes():
            if name not in names:
                yield "%s is not in the NAME of %s" % (name, page.name)


def constants_are_named(root):
    said = "\n".join(page.text for page in pages(root))
    for name in sorted(Headers(root).constants):
        if not re.search(r"^\.(?:It )?[FD][nv] (?:.* )?%s\b" % name, said, re.M):
            yield "%s is in no page" % name


def members_are_described(root):
    """A struct has a subsection, whose list names exactly its members."""
    said = {}
    for page in pages(root):
        for head, text in page.blocks("DESCRIPTION"):
            if head.startswith("struct "):
                items = " ".join(re.findall(r"^\.It (Fa .*)$", text, re.M))
                said[head[7:]] = (page.name, set(re.findall(r"Fa (\w+)", items)))
    structs = Headers(root).structs
    for name in sorted(set(structs) ^ set(said)):
        yield "struct %s is in the %s alone" % (name, "headers" if name in structs else "pages")
    for name in sorted(set(structs) & set(said)):
        for member in sorted(set(structs[name]) ^ said[name][1]):
            where = said[name][0] if member in said[name][1] else "header"
            yield "%s of struct %s is in the %s alone" % (member, name, where)


def names_exist(root):
    headers, all_pages = Headers(root), pages(root, r"\.[1-8]$")
    known = headers.names | {page.name[:-2] for page in all_pages}
    known |= set(re.findall(NAME, read(root, "include/penstock_kv.h")))
    variables = set(re.findall(r"^\| `([A-Z0-9_]+)` \|", read(root, "SECURITY.md"), re.M))
    for page in all_pages:
        for line in re.sub(r"^\.Dt .*", "", page.text, flags=re.M).splitlines():
            for m in re.finditer(NAME, line):
                name = m.group()
                if line[m.end() : m.end() + 1] == "*" and name.endswith("_"):
                    good = any(k.startswith(name) for k in known)
                elif re.search(r"\bEv %s\b" % name, line):
                    good = name in variables
                else:
                    good = name in known
                if not good:
                    yield "%s names %s, which does not exist" % (page.name, name)
    said = "\n".join(page.text for page in all_pages)
    for name in sorted(v for v in variables if v.startswith("PST_")):
        if not re.search(r"\bEv %s\b" % name, said):
            yield "the variable %s is in no page" % name


def errors_are_there(root):
    headers, said = Headers(root), {}
    for page in pages(root):
        for head, text in page.blocks("ERRORS"):
            for name in re.findall(r"(pst_\w+)\(\)", head):
                said[name] = set(re.findall(r"\bEr (%s)" % ERRNO, text))
    for name, comment in sorted(headers.comments.items()):
        for err in sorted(set(re.findall(ERRNO, comment)) - said.get(name, set())):
            yield "%s of %s() is in no page's ERRORS" % (err, name)
    common = read(root, "man/libpenstock.3")
    for err in sorted(set(re.findall(ERRNO, headers.opening))):
        if err not in common:
            yield "%s, for every call, is not in libpenstock.3" % err


def references_lead_somewhere(root):
    have = {page.name for page in pages(root, r"\.[1-8]$")}
    for page in pages(root, r"\.[1-8]$"):
        for name, section in re.findall(r"\bXr ((?:pst_|penstock|libpenstock)\S*) (\d)", page.text):
            name = page_of(root, name)
            if "%s.%s" % (name, section) not in have:
                yield "%s refers to %s(%s)" % (page.name, name, section)
        if page.name.endswith(".3") and page.name not in ("libpenstock.3",):
            if ".It Xr %s 3" % page.name[:-2] not in read(root, "man/libpenstock.3"):
                yield "%s is not in the list of libpenstock.3" % page.name
    for name in sorted(Headers(root).pages):
        if name.startswith(("pst_", "lib")) and name + ".3" not in have:
            yield "a header refers to %s(3)" % name
    for name in sorted(have):
        if "'%s'" % name not in read(root, "man/meson.build"):
            yield "%s is not installed" % name


def page_of(root, name):
    """Return the page whose SYNOPSIS has the function."""
    for page in pages(root):
        if name in dict(page.prototypes()):
            return page.name[:-2]
    return name


def reasons_name_their_place(root):
    """pst_why.3 has each reason's short name, and the file and function that decide it."""
    page = Page(root, "man/pst_why.3")
    short = dict(re.findall(r"\[(PST_WHY_\w+)\] = \"([^\"]+)\"", read(root, "src/base/names.c")))
    real = {}
    for path in below(root, "src", r"\.c$"):
        if path.startswith("src/api/") or path == "src/base/names.c":
            continue
        fn = ""
        for line in read(root, path).splitlines():
            m = re.match(r"[a-z].*?\b(\w+)\(", line)
            if m and not line.endswith(";"):
                fn = m.group(1)
            found = re.findall(r"(?<![=!]= )(?<!\[)\bPST_WHY_\w+", line)
            for why in found + [CARRIED[name] for name in CARRIED if name in line]:
                real.setdefault(why, set()).add((path, fn))
    for item in re.split(r"^\.It Dv ", page.text, flags=re.M)[1:]:
        why = re.match(r"\w+", item).group()
        if why not in short:
            continue
        if not re.match(r"%s Pq Dq %s\n" % (why, re.escape(short.pop(why))), item):
            yield "%s has another short name" % why
        fns, files = [], set()
        for macro, word in re.findall(r"^\.(Fn|Pa) (\S+)", item, re.M):
            if macro == "Fn":
                fns += [word] if not word.startswith("pst_") else []
            elif word.startswith("src/"):
                files.add(word)
                for fn in fns:
                    if (word, fn) not in real.get(why, set()):
                        yield "%s is not decided by %s() of %s" % (why, fn, word)
                fns = []
        for path in sorted({p for p, _ in real.get(why, set())} - files):
            if why != "PST_WHY_NONE":
                yield "%s is also decided in %s" % (why, path)
    for why in sorted(short):
        yield "%s is not in pst_why.3" % why


def documents_are_true(root):
    """Names of ours in documents exist, and no document calls an exported function planned."""
    known = Headers(root).names | {page.name[:-2] for page in pages(root)}
    known |= set(re.findall(r"^\| `([A-Z0-9_]+)` \|", read(root, "SECURITY.md"), re.M))
    known |= TESTS_READ
    known |= set(re.findall(NAME, read(root, "include/penstock_kv.h"))) | {"pst_kv"}
    for path in below(root, "python", r"\.py$"):
        known |= set(re.findall(r"^VARIABLE = \"(PST_\w+)\"$", read(root, path), re.M))
    exported = set(re.findall(r"\bhf3fs_\w+(?=;)", read(root, "usrbio/library/hf3fs.map")))
    for path in ["README.md", *below(root, "docs", r"\.md$")]:
        for n, line in enumerate(read(root, path).splitlines(), 1):
            for m in re.finditer(NAME, line):
                if m.group() not in known and line[m.end() : m.end() + 1] != "*":
                    yield "%s:%d names %s, which does not exist" % (path, n, m.group())
            cells = line.split(" | ")
            planned = len(cells) > 1 and cells[-1].startswith("planned")
            for name in re.findall(r"\b((?:hf3fs|pst)_\w+)\(\)", cells[0]) if planned else []:
                if name in exported | known:
                    yield "%s:%d calls %s() planned, which is exported" % (path, n, name)


def compile_text(root, what, code):
    cmd = CC + ["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-"]
    r = subprocess.run(
        cmd + ["-I" + os.path.join(root, "include")],
        input=code,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    return ["%s does not compile:\n%s" % (what, r.stdout)] if r.returncode else []


def synopses_compile(root):
    code = "#include <penstock.h>\n"
    for page in pages(root):
        for _, text in page.prototypes():
            code += '#line 1 "%s"\n%s;\n' % (page.name, text)
    yield from compile_text(root, "the SYNOPSIS of the pages", code)


def examples_compile(root):
    for page in pages(root):
        if not page.examples():
            yield "%s has no example" % page.name
        for i, code in enumerate(page.examples(), 1):
            if not code.startswith("#"):
                yield "example %d of %s does not begin with what it includes" % (i, page.name)
            yield from compile_text(root, "example %d of %s" % (i, page.name), code)


# ------------------------------------------------------------------ planted

PLANTED = [
    # check, file, text, its replacement, expected error
    (functions_are_in_one_synopsis, "include/penstock/mem.h",
     "pst_mem_drain(struct pst_mem *mem, uint64_t", "pst_mem_drain(struct pst_mem *mem, uint32_t",
     "pst_mem.3 has int pst_mem_drain"),
    (functions_are_in_one_synopsis, "include/penstock/mem.h",
     "PST_API void *pst_mem_ptr", "PST_API int pst_mem_new(void);\nPST_API void *pst_mem_ptr",
     "pst_mem_new() is in no SYNOPSIS"),
    (functions_are_in_one_synopsis, "man/pst_io.3",
     ".Vt struct pst_io ;", ".Ft int\n.Fn pst_queue_fd \"struct pst_queue *queue\"",
     "pst_queue_fd is in the SYNOPSIS of pst_io.3 and pst_queue.3"),
    (constants_are_named, "include/penstock/io.h",
     "#define PST_SEGS_MAX", "#define PST_SEGS_MIN 1\n#define PST_SEGS_MAX", "PST_SEGS_MIN is"),
    (constants_are_named, "include/penstock/types.h",
     "PST_OP_SYNC = 3", "PST_OP_SYNC = 3, PST_OP_TRIM = 4", "PST_OP_TRIM is"),
    (members_are_described, "include/penstock/stats.h",
     "uint64_t requests;", "uint64_t requests; uint64_t lost[2];", "lost of struct pst_stats"),
    (members_are_described, "man/pst_grant.3", ".It Fa rights", ".It Fa wrongs",
     "wrongs of struct pst_grant is in the pst_grant.3 alone"),
    (names_exist, "man/pst_mem.3", ".Fn pst_mem_info\nreturns", ".Fn pst_mem_facts\nreturns",
     "pst_mem_facts, which"),
    (names_exist, "man/libpenstock.3", ".It Ev PST_POOL", ".It Ev PST_POND", "PST_POND, which"),
    (errors_are_there, "include/penstock/grant.h", "-EPROTOTYPE if", "-ENOTCONN when",
     "-ENOTCONN of pst_grant_send()"),
    (references_lead_somewhere, "man/pst_file.3", ".Xr pst_why 3", ".Xr pst_wherefore 3",
     "pst_file.3 refers to pst_wherefore(3)"),
    (reasons_name_their_place, "src/core/ways/part.c", "part_may_mix(", "part_can_mix(",
     "PST_WHY_MIXED is not decided by part_may_mix()"),
    (reasons_name_their_place, "src/core/ways/plan.c", "void choose_sync(", "void plan_sync(",
     "PST_WHY_NO_URING is not decided by choose_sync()"),
    (reasons_name_their_place, "src/file/op.c", "op->res = res;",
     "op->pin_err = PST_WHY_MEMLOCK;", "PST_WHY_MEMLOCK is also decided in src/file/op.c"),
    (documents_are_true, "README.md", "`pst_readv()`", "`pst_load()`",
     "names pst_load, which does not exist"),
    (documents_are_true, "docs/COVERAGE.md",
     "| `hf3fs_reg_fd()` | done", "| `hf3fs_reg_fd()` | planned",
     "calls hf3fs_reg_fd() planned, which is exported"),
    (synopses_compile, "man/pst_queue.3", "unsigned min", "long min", "does not compile"),
    (examples_compile, "man/pst_check.3", "pst_check(\"io\", NULL, checks, 8)",
     "pst_check(\"io\", checks, 8)", "example 1 of pst_check.3 does not compile"),
]


def planted_drifts_are_found(root):
    with tempfile.TemporaryDirectory() as tmp:
        for folder in ("docs", "include", "man", "src", "usrbio/library"):
            shutil.copytree(os.path.join(root, folder), os.path.join(tmp, folder))
        for name in ("README.md", "SECURITY.md"):
            shutil.copy(os.path.join(root, name), tmp)
        for check, path, old, new, want in PLANTED:
            text = read(tmp, path)
            with open(os.path.join(tmp, path), "w", encoding="utf-8") as f:
                f.write(text.replace(old, new))
            if old not in text:
                yield "'%s' is not in %s: plant something else" % (old, path)
            elif want not in "\n".join(check(tmp)):
                yield "%s does not see '%s' in %s" % (check.__name__, new, path)
            with open(os.path.join(tmp, path), "w", encoding="utf-8") as f:
                f.write(text)


CHECKS = [
    functions_are_in_one_synopsis,
    constants_are_named,
    members_are_described,
    names_exist,
    errors_are_there,
    references_lead_somewhere,
    reasons_name_their_place,
    documents_are_true,
    synopses_compile,
    examples_compile,
    planted_drifts_are_found,
]


def main():
    failed = 0
    for n, check in enumerate(CHECKS, 1):
        wrong = list(check(sys.argv[1]))
        failed |= bool(wrong)
        print("%sok %d %s" % ("not " if wrong else "", n, check.__name__))
        for line in "\n".join(wrong).splitlines():
            print("# " + line)
    print("1..%d" % len(CHECKS))
    return failed


if __name__ == "__main__":
    sys.exit(main())
