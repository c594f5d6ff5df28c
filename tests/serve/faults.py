#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""faults.py SOURCE CC ARCHIVE LIBRARY COMMAND CLIENT: plant faults in the server of the storage
service, one at a time.

Each fault removes one check.  A program that serves is linked with the changed file in front of the
archive, and a test must then fail: tests/planted.py.

Some checks have no fault here: a second check that refuses the same thing as a first, such as the
least len of a request, RESOLVE_NO_MAGICLINKS with RESOLVE_BENEATH, or a handle's write permission
with its descriptor's; and checks for a machine without memory.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import planted

SOURCE, CC, ARCHIVE, LIBRARY, COMMAND, CLIENT = sys.argv[1:]
WIRE, CONN, EXEC, JOB, RATE = ("src/net/wire.c", "serve/conn.c", "serve/exec.c", "serve/job.c",
                               "serve/rate.c")
HELLO = "serve/hello.c"
SERVER, KEYS, METRICS, CLI, HTTP = ("serve/server.c", "src/net/keys.c", "serve/metrics.c",
                                    "cli/serve/serve.c", "src/net/http.c")

# (name, file, text, replacement, test to run first); the name says what the fault removes.
FAULTS = [
    # ------------------------------------------------------------ headers of requests
    ("CRC of the header", WIRE,
     "if (!head_crc_ok(from) || q.len < WIRE_HEAD || q.flags",
     "if (q.len < WIRE_HEAD || q.flags", "protocol"),
    ("unknown flags", WIRE, "|| q.flags & ~WIRE_F_ALL ", "", "protocol"),
    ("longest hello", WIRE,
     "return pay >= WIRE_HELLO_LEN && pay <= WIRE_HELLO_MAX;\n\tcase WIRE_OPEN:\n"
     "\t\treturn pay >= 1",
     "return pay >= WIRE_HELLO_LEN;\n\tcase WIRE_OPEN:\n\t\treturn pay >= 1", "protocol"),
    ("name of an open", WIRE, "return pay >= 1 && pay <= WIRE_NAME_MAX && open_ok(q);",
     "return pay <= WIRE_NAME_MAX && open_ok(q);", "protocol"),
    ("longest name of an open", WIRE, "return pay >= 1 && pay <= WIRE_NAME_MAX && open_ok(q);",
     "return pay >= 1 && open_ok(q);", "protocol"),
    ("how of an open", WIRE, "if (q->how & ~WIRE_O_ALL || ", "if (", "protocol"),
    ("open for nothing", WIRE, "|| !(q->how & (WIRE_O_READ | WIRE_O_WRITE)) ", "", "protocol"),
    ("mode of an open", WIRE, " || q->mode & ~07777u)", ")", "protocol"),
    ("write to create", WIRE,
     "if (q->how & (WIRE_O_CREATE | WIRE_O_TRUNC) && !(q->how & WIRE_O_WRITE))",
     "if (q->how & WIRE_O_TRUNC && !(q->how & WIRE_O_WRITE))", "protocol"),
    ("write to truncate", WIRE,
     "if (q->how & (WIRE_O_CREATE | WIRE_O_TRUNC) && !(q->how & WIRE_O_WRITE))",
     "if (q->how & WIRE_O_CREATE && !(q->how & WIRE_O_WRITE))", "protocol"),
    ("exclusive without create", WIRE,
     "return !(q->how & WIRE_O_EXCL) || q->how & WIRE_O_CREATE;", "return true;", "protocol"),
    ("payload of close and sync", WIRE,
     "case WIRE_CLOSE:\n\tcase WIRE_SYNC:\n\t\treturn !pay;\n\tcase WIRE_READ:",
     "case WIRE_CLOSE:\n\tcase WIRE_SYNC:\n\t\treturn true;\n\tcase WIRE_READ:", "protocol"),
    ("payload of a read", WIRE, "return !pay && q->count && q->count <= WIRE_DATA_MAX",
     "return q->count && q->count <= WIRE_DATA_MAX", "protocol"),
    ("read of nothing", WIRE, "return !pay && q->count && q->count <= WIRE_DATA_MAX",
     "return !pay && q->count <= WIRE_DATA_MAX", "protocol"),
    ("longest read", WIRE,
     "return !pay && q->count && q->count <= WIRE_DATA_MAX && range_ok(q->off, q->count);",
     "return !pay && q->count && range_ok(q->off, q->count);", "protocol"),
    ("range of a read", WIRE,
     "return !pay && q->count && q->count <= WIRE_DATA_MAX && range_ok(q->off, q->count);",
     "return !pay && q->count && q->count <= WIRE_DATA_MAX;", "protocol"),
    ("write of nothing", WIRE, "return pay && pay <= WIRE_DATA_MAX && q->count == pay &&",
     "return pay <= WIRE_DATA_MAX && q->count == pay &&", "protocol"),
    ("longest write", WIRE, "return pay && pay <= WIRE_DATA_MAX && q->count == pay &&",
     "return pay && q->count == pay &&", "protocol"),
    ("count of a write", WIRE, "return pay && pay <= WIRE_DATA_MAX && q->count == pay &&",
     "return pay && pay <= WIRE_DATA_MAX &&", "protocol"),
    ("range of a write", WIRE, "q->count == pay && range_ok(q->off, q->count);",
     "q->count == pay;", "protocol"),
    ("payload of a truncate", WIRE, "return !pay && range_ok(q->off, 0);",
     "return range_ok(q->off, 0);", "protocol"),
    ("range of a truncate", WIRE, "return !pay && range_ok(q->off, 0);", "return !pay;",
     "protocol"),
    ("longest name of a stat", WIRE,
     "return pay <= WIRE_NAME_MAX && (q->handle ? !pay : pay >= 1);",
     "return q->handle ? !pay : pay >= 1;", "protocol"),
    ("stat of two things", WIRE, "(q->handle ? !pay : pay >= 1);", "(q->handle || pay >= 1);",
     "protocol"),
    ("stat of nothing", WIRE, "(q->handle ? !pay : pay >= 1);", "(!q->handle || !pay);",
     "protocol"),
    ("longest name of a list", WIRE, "return pay <= WIRE_NAME_MAX && q->count >= 512 &&",
     "return q->count >= 512 &&", "protocol"),
    ("least list", WIRE, "q->count >= 512 && ", "", "protocol"),
    ("longest list", WIRE, "q->count >= 512 && q->count <= WIRE_DATA_MAX &&",
     "q->count >= 512 &&", "protocol"),
    ("cursor of a list", WIRE, "&&\n\t\t       q->off <= INT64_MAX;", ";", "protocol"),
    ("name of an unlink", WIRE,
     "case WIRE_UNLINK:\n\t\treturn pay >= 1 && pay <= WIRE_NAME_MAX;",
     "case WIRE_UNLINK:\n\t\treturn pay <= WIRE_NAME_MAX;", "protocol"),
    ("longest name of an unlink", WIRE,
     "case WIRE_UNLINK:\n\t\treturn pay >= 1 && pay <= WIRE_NAME_MAX;",
     "case WIRE_UNLINK:\n\t\treturn pay >= 1;", "protocol"),
    ("first name of a rename", WIRE, "return q->count >= 1 && q->count <= WIRE_NAME_MAX && pay >",
     "return q->count <= WIRE_NAME_MAX && pay >", "protocol"),
    ("longest first name", WIRE, "return q->count >= 1 && q->count <= WIRE_NAME_MAX && pay >",
     "return q->count >= 1 && pay >", "protocol"),
    ("second name of a rename", WIRE, "&& pay > q->count &&\n\t\t       pay - q->count",
     "&& pay >= q->count &&\n\t\t       pay - q->count", "protocol"),
    ("longest second name", WIRE, "&& pay > q->count &&\n\t\t       pay - q->count <= "
     "WIRE_NAME_MAX;", "&& pay > q->count;", "protocol"),
    ("unknown operations", WIRE, "pay - q->count <= WIRE_NAME_MAX;\n\tdefault:\n\t\treturn false;",
     "pay - q->count <= WIRE_NAME_MAX;\n\tdefault:\n\t\treturn true;", "protocol"),
    # ------------------------------------------------------------------- the hello
    ("magic", WIRE,
     "struct wire_hello h;\n\n"
     "\tif (len < WIRE_HELLO_LEN || memcmp(from, magic, sizeof(magic)) != 0)",
     "struct wire_hello h;\n\n\tif (len < WIRE_HELLO_LEN)", "protocol"),
    ("order of versions", WIRE, "if (h.oldest > h.version)", "if (0)", "protocol"),
    ("versions that are newer", WIRE, "if (h.oldest > WIRE_VERSION || ", "if (", "protocol"),
    ("versions that are older", WIRE, " || h.version < WIRE_VERSION)", ")", "protocol"),
    ("end after unknown versions", HELLO,
     "reply_queue_err(j, EPROTONOSUPPORT);\n\t\tc->ends = true;",
     "reply_queue_err(j, EPROTONOSUPPORT);", "protocol"),
    ("hello comes first", CONN, "(q.op == WIRE_HELLO) != !c->greeted",
     "(q.op == WIRE_HELLO && c->greeted)", "protocol"),
    ("hello comes once", CONN, "(q.op == WIRE_HELLO) != !c->greeted",
     "(q.op != WIRE_HELLO && !c->greeted)", "protocol"),
    ("hello without greeting in time", CONN,
     "!c->greeted && !c->hello_job && now > c->born_ns", "0 && now > c->born_ns", "tls"),
    ("epoch", HELLO, "if (other->hello.epoch >= c->hello.epoch)", "if (0)", "protocol"),
    ("end of the older connection", HELLO, "\t\tconn_kill(other, NULL);\n\t}\n\tlist_for_each",
     "\t}\n\tlist_for_each", "protocol"),
    ("requests of the older connection", HELLO,
     "if (other->nr_pool != other->nr_ends && same_channel(c, other))", "if (0)", "operation"),
    ("clients without channels", HELLO,
     "&&\n\t       memcmp(a->hello.client, nobody, sizeof(nobody)) != 0;", ";", "protocol"),
    ("channels", HELLO, "return a->hello.channel == b->hello.channel &&", "return", "protocol"),
    # ---------------------------------------------------------------------- names
    ("a leading slash", WIRE, " && name[0] != '/' &&", " &&", "protocol"),
    ("NUL in a name", WIRE, " && !memchr(name, '\\0', len);", ";", "protocol"),
    ("beneath the root", EXEC, "RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS", "0", "protocol"),
    ("dots in a list", EXEC, "if (exec_is_dots(e->d_name))", "if (0)", "protocol"),
    ("dots as the last part", EXEC, "if (!**ret_base || exec_is_dots(*ret_base))",
     "if (!**ret_base)", "protocol"),
    ("a name with a slash at its end", EXEC, "if (!**ret_base || exec_is_dots(*ret_base))",
     "if (exec_is_dots(*ret_base))", "protocol"),
    ("rename of a directory", EXEC, "if (exec_is_dir(from, base))", "if (0)", "protocol"),
    # ----------------------------------------------------------------- operations
    ("open for writing", EXEC, "if (write && !s->o.write)", "if (0)", "protocol"),
    ("unlink at a server that takes no writes", EXEC,
     "const char *base;\n\n\tif (!s->o.write)", "const char *base;\n\n\tif (0)", "protocol"),
    ("rename at a server that takes no writes", EXEC,
     "const char *base, *to_base;\n\n\tif (!s->o.write)",
     "const char *base, *to_base;\n\n\tif (0)", "protocol"),
    ("look before an open", EXEC, "if (ret->kind != WIRE_KIND_FILE)\n\t\t\treturn ret->kind",
     "if (0)\n\t\t\treturn ret->kind", "protocol"),
    ("exclusive", EXEC, "flags |= O_EXCL;", ";", "protocol"),
    ("permissions of a new file", EXEC, "j->q.mode & 0777 : 0", "j->q.mode : 0", "protocol"),
    ("rights of a handle to truncate", EXEC,
     "case WIRE_TRUNCATE:\n\t\tif (!s->o.write || !j->handle->write)",
     "case WIRE_TRUNCATE:\n\t\tif (0)", "protocol"),
    ("CRC of a payload", EXEC,
     "if (j->q.flags & WIRE_F_CRC && crc32c(0, data, j->q.count) != j->q.crc)", "if (0)",
     "protocol"),
    ("CRC of a reply", EXEC, "if (j->q.flags & WIRE_F_CRC && j->len > WIRE_HEAD)", "if (0)",
     "protocol"),
    ("fields of a failure", EXEC, "if (j->err)\n\t\tj->len = WIRE_HEAD;", "", "protocol"),
    ("reads of files in memory", EXEC, "in_memory ? 0 : RWF_NOWAIT", "RWF_NOWAIT", "operation"),
    ("leases", EXEC, "|| (errno != EINTR && errno != EAGAIN))", "|| errno != EINTR)",
     "operation"),
    ("writes that were lost", EXEC,
     "if (h->nr_writes != h->nr_synced && fdatasync(h->fd) < 0) {",
     "if (0) {", "protocol"),
    ("the boot id after them", EXEC, "\t\tserver_new_boot(s);\n", "", "protocol"),
    ("handles of others", JOB, "return nr && nr <= c->s->o.files && c->handles ?",
     "return c->handles && 1 ?", "protocol"),
    ("handles that are not open", CONN, "if (!j->handle) {", "if (0) {", "protocol"),
    ("number of files", JOB, "for (uint32_t i = 0; c->handles && i < c->s->o.files; i++)\n"
     "\t\tif (!c->handles[i])\n\t\t\treturn i + 1;",
     "for (uint32_t i = 0; c->handles && i < c->s->o.files; i++)\n"
     "\t\tif (!c->handles[i] || i + 1 == c->s->o.files)\n\t\t\treturn i + 1;", "protocol"),
    ("users of a handle", CONN, "if (j->handle)\n\t\tj->handle->refs++;",
     "if (j->handle && j->handle->refs < 1)\n\t\tj->handle->refs++;", "protocol"),
    # --------------------------------------------------------------------- bounds
    ("requests in flight", CONN, "c->nr_jobs < c->s->o.requests ? job_new", "1 ? job_new",
     "operation"),
    ("memory of all", JOB, "if (more && c->s->shared + more > c->s->o.memory)", "if (0)",
     "protocol"),
    ("memory for each", JOB, "return mem > CONN_SURE ? mem - CONN_SURE : 0;", "return mem;",
     "protocol"),
    ("memory that comes back", JOB,
     "c->s->shared -= above_sure(c->mem) - above_sure(c->mem - len);", "", "protocol"),
    ("number of clients", SERVER,
     "if (s->nr_conns >= s->o.clients && !drop_oldest_stranger(s)) {", "if (0) {", "protocol"),
    ("places of strangers", SERVER,
     "if (s->nr_conns >= s->o.clients && !drop_oldest_stranger(s)) {",
     "if (s->nr_conns >= s->o.clients) {", "operation"),
    ("places of those who said who they are", SERVER, "if (!c->greeted && c->born_ns < before",
     "if (c->born_ns < before", "protocol"),
    ("workers for each connection", EXEC, "|| c->nr_slow >= p->share)", ")", "operation"),
    ("workers for reads that wait for nothing", EXEC, "p->slow_max = s->o.threads;",
     "p->slow_max = nr;", "operation"),
    ("clients that take no replies", CONN,
     "else if (reply_is_stalled(c) && age > c->s->o.stall_s * NSEC_PER_SEC)", "else if (0)",
     "protocol"),
    ("bytes are no progress", CONN, "if (reply_all_sent(c))\n\t\t\tc->since_ns", "if (1)\n\t\t\t"
     "c->since_ns", "protocol"),
    ("rate", RATE, "return c->rate && c->rate->full_ns > now + BURST_NS ?", "return 0 ?",
     "operation"),
    ("debt of who has left", RATE, "if (r->refs || r->full_ns > now)", "if (r->refs)",
     "operation"),
    ("rates of others", RATE, "if (!strcmp(r->name, c->who)) {", "if (1) {", "operation"),
    ("hello of a client in debt", CONN, "wait = c->greeted ? rate_wait(c) : 0;",
     "wait = rate_wait(c);", "operation"),
    ("listeners without descriptors", SERVER, "if (errno == EMFILE || errno == ENFILE", "if (0",
     "operation"),
    ("a drain that ends", SERVER, "if (s->draining && now_ns() > s->drain_end_ns)", "if (0)",
     "protocol"),
    ("a dead socket", SERVER, "\t\tremove_dead_socket(a);\n", "\t\t;\n", "protocol"),
    ("a socket that is in use", SERVER,
     "if (connect(fd, (const struct sockaddr *)&a->sa, a->len) < 0 && errno == ECONNREFUSED)",
     "if (1)", "protocol"),
    ("what is no socket", SERVER, "|| !S_ISSOCK(st.st_mode))", ")", "protocol"),
    ("permissions of the numbers", SERVER, "(void)fchmod(fd, 0600);", "", "operation"),
    # ----------------------------------------------------------- keys and addresses
    ("who can read the keys", KEYS, "if (st->st_mode & (S_IWGRP | S_IRWXO))", "if (0)", "tls"),
    ("plain data", CLI, "if (!plain && !o->tls && !net_addr_is_local(a))", "if (0)", "protocol"),
    ("numbers for this machine alone", CLI, "if (!net_addr_is_local(&o.metrics))", "if (0)",
     "operation"),
    ("a boot id that is 0 or the same", SERVER, "s->boot = boot;", "s->boot = 1;", "protocol"),
]

MAIN = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/serve/store.h"
int store_begin(struct served_store *s)
{
	(void)s;
	return -1;
}
int store_check(const struct served_store *s)
{
	(void)s;
	return -1;
}
void store_end(struct served_store *s)
{
	(void)s;
}
int main(int argc, char *argv[])
{
	if (argc > 1 && !strcmp(argv[1], "serve"))
		return cmd_serve(argc - 1, argv + 1);
	argv[0] = getenv("WHOLE_COMMAND");
	execv(argv[0], argv);
	return 127;
}
"""
REST = [CLI, "tools/common/fail.c", "tools/common/numbers.c", "tools/common/shown.c",
        "src/base/nearest.c", "src/base/err_name.c", "src/base/shown.c"]


def build(scratch, planted_file, file):
    main = os.path.join(scratch, "main.c")
    with open(main, "w", encoding="utf-8") as f:
        f.write(MAIN)
    rest = [os.path.join(SOURCE, r) for r in REST if r != file]
    subprocess.run([*CC.split(), "-w", "-g", "-O1", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64",
                    *(f"-I{SOURCE}/{d}" for d in (".", "src", "include", "cli")),
                    "-iquote", os.path.dirname(os.path.join(SOURCE, file)),
                    "-o", os.path.join(scratch, "penstock"), main, planted_file, *rest, ARCHIVE,
                    LIBRARY, f"-Wl,-rpath,{os.path.dirname(LIBRARY)}", "-pthread", "-ldl"],
                   check=True)


def found_by(fault, file, scratch):
    """Return the name of the test that fails, or None."""
    build(scratch, file, fault[1])
    tests = {name: [sys.executable, os.path.join(HERE, f"{name}.py")]
             for name in ("protocol", "operation", "tls")}
    tests["client"] = [CLIENT]
    env = planted.environment(scratch, PENSTOCK=os.path.join(scratch, "penstock"),
                              WHOLE_COMMAND=COMMAND, TMPDIR=scratch, PST_TEST_WAIT="20")
    for name in sorted(tests, key=lambda t: t != fault[4]):
        case = planted.first_failure(tests[name], env)
        if case:
            return f"{name}: {case}"
    return None


sys.exit(planted.run(FAULTS, SOURCE, found_by))
