#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""faults.py SOURCE CC ARCHIVE LIBRARY [WRAP...]: plant faults in the store, one at a time.

Each fault removes a check.  The tests are linked with the changed file in front of the archive, and
one of them must fail: tests/planted.py.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import planted

SOURCE, CC, ARCHIVE, LIBRARY, *WRAPS = sys.argv[1:]

# (name, file, text, replacement); the name says what the fault removes.
FAULTS = [
    ("CRC-32C of the foot", "block.c", "offsetof(struct foot, foot_crc)) != le32toh(f.foot_crc))",
     "offsetof(struct foot, foot_crc)) == 0x12345)"),
    ("space and hash of the foot", "block.c",
     "if (id && (le64toh(f.space) != id->space || le64toh(f.hash) != id->hash))", "if (0)"),
    ("key of the foot", "block.c", "if (id && id->key && (key_len", "if (0 && id->key && (key_len"),
    ("length in the foot", "block.c", "if (le64toh(f.len) != file_len",
     "if (0 && f.len != file_len"),
    ("CRC-32C of the bytes", "worker.c", "if (crc != src->crc)", "if (0)"),
    ("CRC-32C of device memory", "worker.c", "PST_IO_CRC32C | PST_IO_CRC32C_MEM", "PST_IO_CRC32C"),
    ("memory whose device computes no CRC-32C", "worker.c", "if (r != -EOPNOTSUPP)", "if (1)"),
    ("room of the caller", "worker.c", "if (src->len > job->item.len)", "if (0)"),
    ("removal of wrong blocks", "worker.c", "if ((r == -EBADMSG || r == -ENOENT) && !kv->reader)",
     "if (0)"),
    ("checked before it is copied", "worker.c", "if (w->kv->bounce)", "if (0)"),
    ("time of use in the file", "worker.c", "return !kv->reader && clock_ns",
     "return 0 && clock_ns"),
    ("CRC-32C of what was in memory", "worker.c", "crc32c_combine(src->sum,", "crc32c_combine(0,"),
    ("room in the memory of a handle", "worker.c", "end > info.len - job->item.mem_off)", "0)"),
    ("end of a job that is prepared", "worker.c",
     "src->len, &src->sum);\n\tleave_io(job);", "src->len, &src->sum);"),
    ("short reads of memory", "warm.c", "if ((uint64_t)n < want)", "if (0)"),
    ("a caller that reads", "cache.c", "i < kv->nr_workers + CALLERS_MAX", "i < CALLERS_MAX - 16"),
    ("budget", "cache.c", "} else if (kv->used + size > kv->budget) {", "} else if (0) {"),
    ("number of blocks", "cache.c", "} else if (kv->files >= kv->max_blocks) {",
     "} else if (0) {"),
    ("who gives for the number of blocks", "cache.c", "if (!evict_one(kv, fullest(kv)))",
     "if (!evict_one(kv, &kv->common))"),
    ("number of evicted keys", "cache.c", "kv->remembered > kv->max_blocks", "0"),
    ("number of files that end", "cache.c", "kv->files -= files;", ""),
    ("memory of the index", "cache.c", "\tindex_shrink(ix);\n", ""),
    ("number of blocks when a store is opened", "cache.c",
     "while (more && kv->files > kv->max_blocks)", "while (0)"),
    ("number of blocks of a client", "lend.c", "(kv->max_blocks / 2 - other_files) / 2;",
     "kv->max_blocks;"),
    ("quota", "cache.c", "if (c->used + size > c->capacity) {", "if (0) {"),
    ("reserve", "cache.c", "st.f_frsize >= kv->reserve + pending", "st.f_frsize >= 0"),
    ("bytes of a file that is read", "cache.c", "if (w->is_reading && w->reading == hash",
     "if (0 && w->reading == hash"),
    ("bytes of a block that is replaced", "cache.c",
     "if (old)\n\t\t\tgive_bytes(kv, c, hash, old, 1);", ""),
    ("the owner's lock", "root.c", "if (flock(r->lock, LOCK_EX | LOCK_NB) < 0) {", "if (0) {"),
    ("foreign files", "root.c", "at = at == 1 ? 0 : check_empty(r->dir[i], r->path[i]);",
     "at = 0;"),
    ("order of directories", "root.c", "if (le32toh(c->nr) != r->nr || le32toh(c->idx) != idx)",
     "if (0)"),
    ("check of penstock-kv", "root.c", "le32toh(ret->crc) != config_crc(ret))", "0)"),
    ("temporary files of a dead owner", "root.c", "res = root_remove_tree(r->dir[i], names[k]);",
     "res = 0;"),
    ("removal of the index", "snapshot.c", "if (unlinkat(dir, NAME, 0) < 0 || fsync(dir) < 0)",
     "if (0)"),
    ("CRC-32C of the index", "snapshot.c", "|| want != crc))", "))"),
    ("salt", "space.c", "{ salt, strlen(salt) },", "{ \"\", 0 },"),
    ("lengths in a hash", "hash.c", "hash_word(&s, parts[i].len);", ""),
    ("budget of what is found", "scan.c",
     "if (kv->used + size > kv->budget || c->used + size > c->capacity)", "if (0)"),
    ("blocks of a tenant that is dropped", "space.c", "if (user_space(e->user) != space)",
     "if (1)"),
    ("who waits for a publication", "lend.c",
     "cache_lock_file(kv, l->space, l->id.hash);\n\tlend_add(l);",
     "lend_add(l);\n\tcache_lock_file(kv, l->space, l->id.hash);"),
    ("share of a client", "lend.c", "(kv->budget / 2 - others) / 2", "kv->budget / 2"),
    ("new blocks whose room nobody needs", "lend.c",
     "r = lend_reserve(l, who);\n\tif (r == -ENOSPC && lend_expire(kv))",
     "(void)lend_expire(kv);\n\tr = lend_reserve(l, who);\n\tif (0)"),
    ("new blocks whose time is over", "lend.c", "if (r == -ENOSPC && lend_expire(kv))", "if (0)"),
    ("room for one more file", "cache.c",
     "if (n == FULL_TRIES || !cache_thin_out(kv))\n\t\t\treturn err_set",
     "if (1)\n\t\t\treturn err_set"),
    ("room for one more name", "cache.c", "if (r != -ENOSPC || n == FULL_TRIES", "if (1"),
    ("key of an evicted block", "cache.c", "if (asked && !id.key)", "if (0)"),
    ("events after a lost one", "event.c", "|| q->fill.lost ||", "||"),
    ("room of a queue of events", "event.c", "bytes > q->room - q->fill.len)", "0)"),
    ("space of an event", "event.c", "if (q->space != PST_KV_ANY_SPACE && q->space != space)",
     "if (0)"),
    ("events of a reader", "event.c", "if (!store_has_index(kv))", "if (0)"),
    ("number of lost events", "event.c", "q->lost += q->read.lost;", ""),
    ("event of a drop", "space.c", "event_add(kv, PST_KV_DROPPED, space, NULL, 0);", ""),
    ("queues that begin during a removal", "cache.c", "if (!again)\n\t\tevent_add(",
     "if (asked)\n\t\tevent_add("),
    ("sets during a drop", "space.c", "(void)pthread_rwlock_wrlock(&sp->dropping);",
     "(void)pthread_rwlock_rdlock(&sp->dropping);"),
    ("a loss in an empty queue", "event.c", "if (!q->read.len)", "if (0)"),
    ("event of a set", "cache.c", "if (r == 0)\n\t\t\tevent_add(", "if (0)\n\t\t\tevent_add("),
    ("event of a removal", "cache.c", "if (!again)\n\t\tevent_add(", "if (0)\n\t\tevent_add("),
    ("readers do not write", "front.c", "job_end(job, -EROFS);", "job_end(job, 0);"),
]


def build(scratch, file, name, others, wraps):
    subprocess.run([*CC.split(), "-w", "-g", "-O1", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64",
                    *(f"-I{SOURCE}/{d}" for d in (".", "src", "include", "tests")), "-I", HERE,
                    "-o", os.path.join(scratch, name), os.path.join(HERE, name + ".c"),
                    *(os.path.join(HERE, o) for o in others), file, ARCHIVE, *wraps, LIBRARY,
                    f"-Wl,-rpath,{os.path.dirname(LIBRARY)}", "-pthread"], check=True)


def found_by(_, file, scratch):
    """Return the name of the test that fails, or None."""
    lend = [f"-Wl,--wrap={w}" for w in ("ftruncate64", "unlinkat", "renameat")]
    tests = {"test-kv-lend": ([], lend), "test-kv-events": ([], []),
             "test-kv": ([], []), "test-kv-room": ([], []), "test-kv-device": ([], []),
             "test-kv-calls": (["calls.c"], [f"-Wl,--wrap={w}" for w in WRAPS]),
             "test-kv-kill": ([], [])}
    env = planted.environment(scratch, PST_KILLS="30")
    for name, (others, wraps) in tests.items():
        build(scratch, file, name, others, wraps)
        case = planted.first_failure([os.path.join(scratch, name)], env)
        if case:
            return f"{name}: {case}"
    return None


sys.exit(planted.run(FAULTS, os.path.join(SOURCE, "kv"), found_by))
