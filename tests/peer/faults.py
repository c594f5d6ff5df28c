#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""faults.py SOURCE CC OBJECTS HOSTILE: plant faults in how the library handles a peer's messages,
one at a time.

Each fault removes one check.  The library is linked from OBJECTS and the changed file, and
protocol.py or HOSTILE, test-peer-hostile, must then fail: tests/planted.py.  If two checks refuse
the same thing, only the first has a fault here.
"""
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import planted

SOURCE, CC, OBJECTS, HOSTILE = sys.argv[1:]

# (name, file, text, replacement); the name says what the fault removes.
FAULTS = [
    ("CRC of the header", "msg.c",
     "if (get32(from + 44) != crc32c(0, from, 44) || get16(from + 6)",
     "if (get16(from + 6)"),
    ("zero after the type", "msg.c", "|| get16(from + 6) ||", "||"),
    ("zero before the CRC", "msg.c", "|| get32(from + 40) ||", "||"),
    ("least payload", "msg.c", "if (peer_payload(&m) < types[m.type].min || ", "if ("),
    ("longest payload", "msg.c", "|| peer_payload(&m) > types[m.type].max)", ")"),
    ("id that is not used", "msg.c", "if ((m.id && !(has & HAS_ID)) || ", "if ("),
    ("share that is not used", "msg.c", "|| (m.share && !(has & HAS_SHARE)) ||", "||"),
    ("off that is not used", "msg.c", "(m.off && !(has & HAS_OFF)) || ", ""),
    ("err that is not used", "msg.c", " || (m.err && !(has & HAS_ERR)))", ")"),
    ("count that is not used", "msg.c", "if (!(has & HAS_COUNT))\n\t\treturn !m->count;",
     "if (!(has & HAS_COUNT))\n\t\treturn true;"),
    ("count of 0, and with an error", "msg.c", " || (!m->count != !!m->err))", ")"),
    ("highest count", "msg.c", "if (m->count > PEER_DATA_MAX || ", "if ("),
    ("count of the payload", "msg.c", "return !(has & IS_COUNTED) || peer_payload(m) == m->count;",
     "return true;"),
    ("highest err", "msg.c", "if (m.err > 4095 || ", "if ("),
    ("highest off", "msg.c", "m.off > INT64_MAX - PEER_DATA_MAX || ", ""),
    ("bytes of a grant", "msg.c",
     "if (m.type == PEER_OPENED && peer_payload(&m) && peer_payload(&m) != PEER_GRANT_LEN)",
     "if (0)"),
    ("magic of the hello", "msg.c", "|| get64(from) != HELLO_MAGIC)", ")"),
    ("oldest version", "msg.c", "if (!h.oldest || h.oldest > h.version",
     "if (h.oldest > h.version"),
    ("order of versions", "msg.c", "|| h.oldest > h.version ||", "||"),
    ("data_max", "msg.c", "|| !h.data_max ||", "||"),
    ("inline_max", "msg.c", "|| !h.inline_max ||", "||"),
    ("requests_max", "msg.c", "|| !h.requests_max ||", "||"),
    ("messages_max", "msg.c", "||\n\t    !h.messages_max)", ")"),
    ("versions that are newer", "msg.c", "if (h.oldest > PEER_VERSION || ", "if ("),
    ("magic of a key", "msg.c", "get32(from) != KEY_MAGIC ||\n", "\n"),
    ("version of a key", "msg.c",
     "!get16(from + 4) || get16(from + 6) != len ||\n\t    get32(from + len",
     "get16(from + 6) != len ||\n\t    get32(from + len"),
    ("len of a key", "msg.c", "!get16(from + 4) || get16(from + 6) != len ||",
     "!get16(from + 4) ||"),
    ("CRC of a key", "msg.c",
     "len ||\n\t    get32(from + len - 4) != crc32c(0, from, len - 4))\n\t\treturn -EBADMSG;\n"
     "\tk = (struct peer_key){", "len)\n\t\treturn -EBADMSG;\n\tk = (struct peer_key){"),
    ("length of a key", "msg.c", "if (!k.len || k.len > INT64_MAX", "if (k.len > INT64_MAX"),
    ("longest length of a key", "msg.c", "|| k.len > INT64_MAX ||", "||"),
    ("rights of a key", "msg.c", "|| !k.rights ||", "||"),
    ("unknown rights of a key", "msg.c",
     " ||\n\t    k.rights & ~(PST_RIGHT_READ | PST_RIGHT_WRITE))", ")"),
    ("a hello comes first", "connect.c", "|| m.type != PEER_HELLO)", ")"),
    ("number of requests", "got.c", "if (p->nr_owed == PEER_REQUESTS_MAX)", "if (0)"),
    ("grants by TCP", "got.c", "|| !(p->info & PST_PEER_LOCAL))))", ")))"),
    ("OPENED of nothing", "got.c", "if (!q || (has_grant &&", "if (!q)\n\t\treturn 0;\n\t"
     "if ((has_grant &&"),
    ("replies of another length", "got.c", " || (get && !m->err && m->count != q->len))", ")"),
    ("long replies of another length", "thread.c", "if (!q || m->count != q->len) {", "if (!q) {"),
    ("replies to nothing", "got.c", "if (!q || (get && !m->err", "if (!q)\n\t\treturn 0;\n\tif (("
     "get && !m->err"),
    ("number of messages", "got.c", "if (p->nr_untaken == PEER_MESSAGES_MAX)", "if (0)"),
    ("length of an offer", "got.c", "k.len != m->off || ", ""),
    ("right to read an offer", "got.c", " || !(k.rights & PST_RIGHT_READ)))", "))"),
    ("TAKEN of nothing", "got.c",
     "p->nr_sent--;\n\t\t}\n\t\treturn 0;\n\t}\n\treturn -EPROTO;",
     "p->nr_sent--;\n\t\t}\n\t\treturn 0;\n\t}\n\treturn 0;"),
    ("messages that nobody knows", "got.c", "default:\n\t\treturn -EPROTO;",
     "default:\n\t\treturn 0;"),
    ("nonce of a share", "share.c", "!same_nonce(s->nonce, k.nonce) || ", ""),
    ("length of a share", "share.c", "|| s->len != k.len ||", "||"),
    ("rights of a share", "share.c", "||\n\t\t    s->rights != k.rights)", ")"),
    ("epoch of a share", "share.c", "return s && s->id == id && !s->gone ? s : NULL;",
     "return s && !s->gone ? s : NULL;"),
    ("a share that is closed", "share.c", "return s && s->id == id && !s->gone ? s : NULL;",
     "return s && s->id == id ? s : NULL;"),
    ("a key that was not shown", "share.c",
     "if (!s || !s->opens)\n\t\tr = -ESTALE;\n\telse if (!(s->",
     "if (!s)\n\t\tr = -ESTALE;\n\telse if (!(s->"),
    ("rights of a request", "share.c", "else if (!(s->rights & need))", "else if (0)"),
    ("end of a share", "share.c", "|| m->count > s->len - m->off)", ")"),
    ("beyond a share", "share.c", "else if (m->off > s->len || ", "else if ("),
]


def build(scratch, file):
    name = f"peer_{os.path.basename(file)}.o"
    rest = [o for o in glob.glob(f"{OBJECTS}/*.o") if os.path.basename(o) != name]
    subprocess.run([*CC.split(), "-w", "-g", "-O1", "-fPIC", "-shared", "-fvisibility=hidden",
                    "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64",
                    *(f"-I{SOURCE}/{d}" for d in ("src", "include")),
                    f"-Wl,--version-script={SOURCE}/src/api/penstock.map",
                    "-Wl,-soname,libpenstock.so.0", "-Wl,-z,nodelete", "-o",
                    f"{scratch}/libpenstock.so.0", file, *rest, "-l:liburing.a", "-pthread",
                    "-ldl"], check=True)


def found_by(_, file, scratch):
    """Return the name of the test that fails, or None."""
    build(scratch, file)
    env = planted.environment(scratch, LD_LIBRARY_PATH=scratch,
                              PST_LIBPENSTOCK=f"{scratch}/libpenstock.so.0",
                              PYTHONPATH=f"{SOURCE}/python", PYTHONDONTWRITEBYTECODE="1",
                              PST_TEST_WAIT="15")
    for name, command in (("protocol", [sys.executable, f"{HERE}/protocol.py"]),
                          ("hostile", [HOSTILE])):
        case = planted.first_failure(command, env)
        if case:
            return f"{name}: {case}"
    return None


sys.exit(planted.run(FAULTS, os.path.join(SOURCE, "src/peer"), found_by))
