#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""faults.py SOURCE CC ARCHIVE LAZYFS [WRAP...]: plant faults in the mover, one at a time.

Each fault removes a sync, an order or a check.  The tests are linked with the changed file in front
of the archive, and one of them must fail: tests/planted.py.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import planted

SOURCE, CC, ARCHIVE, LAZYFS, *WRAPS = sys.argv[1:]
# Seconds; far more than a test takes on a busy machine.
HANGS_S = 3000 if planted.SOAK else 500

# (name, file, text, replacement); the name says what the fault removes.
FAULTS = [
    ("sync of the copy", "copy.c", "if (fsync(job->dst) < 0)", "if (0)"),
    ("sync of the copy's directory", "move.c", "if (fsync(v->dst_dir) < 0)", "if (0)"),
    ("sync of the source's directory", "move.c",
     "unlinkat(v->src_tmp, v->old_name, 0) < 0 || fsync(v->src_dir) < 0",
     "unlinkat(v->src_tmp, v->old_name, 0) < 0"),
    ("sync of the source's tmp", "move.c", "||\n\t    fsync(v->src_tmp) < 0)", ")"),
    ("syncs after a commit that is taken back", "move.c",
     "if (fsync(v->src_dir) < 0 || fsync(v->src_tmp) < 0)", "if (0)"),
    ("syncs of recovery", "recover.c", "r = sync_dirs(&l);", "r = 0;"),
    ("sync of new directories", "name.c", "if (fsync(made) < 0 || fsync(parent) < 0)", "if (0)"),
    ("sync of set.conf and markers", "set.c", "if (fsync(fd) < 0 || renameat", "if (renameat"),
    ("sync of the directory of set.conf", "set.c", "parent < 0 || fsync(parent) < 0", "parent < 0"),
    ("sync of the journal", "catalog.c", "synchronous=FULL", "synchronous=OFF"),
    ("source removed before the commit", "move.c", "\tif (r == 0)\n\t\tr = commit(v);",
     "\tif (r == 0)\n\t\tr = move_remove_source(v);\n\tif (r == 0)\n\t\treturn commit(v);"),
    ("source unlinked, not moved aside", "move.c",
     "if (renameat2(v->src_dir, v->src_base, v->src_tmp, v->old_name, RENAME_NOREPLACE) < 0)",
     "if (unlinkat(v->src_dir, v->src_base, 0) == 0)\n\t\treturn fsync(v->src_dir);\n\tif (1)"),
    ("copy named before it is complete", "move.c", "\t\tr = move_copy(v, done);\n",
     "\t\tr = make_parent(v);\n\tif (r == 0)\n\t\tr = move_name_copy(v);\n"
     "\tif (r == 0)\n\t\tr = move_copy(v, done);\n"
     "\tif (r == 0)\n\t\tr = commit(v);\n\tif (r == 0)\n\t\tr = move_remove_source(v);\n"
     "\tif (r == 0)\n\t\treturn catalog_move_end(v->set->catalog, &v->m);\n"),
    ("the name is not replaced", "move.c", "v->dst_base, RENAME_NOREPLACE) < 0",
     "v->dst_base, 0) < 0"),
    ("the written file's name is not replaced", "recover.c", "l->src_base, RENAME_NOREPLACE)",
     "l->src_base, 0)"),
    ("stamp before the copy is named", "move.c",
     "!stamp_same(&stamp, &v->stamp) || move_disturbed(v)", "0"),
    ("stamp after the source is aside", "move.c", "!stamp_same_content(&stamp, &v->stamp) || ", ""),
    ("lease after the source is aside", "move.c", " || st.st_nlink != 1 || move_disturbed(v))",
     " || st.st_nlink != 1)"),
    ("lease at all", "move.c", "if (fcntl(v->src, F_SETLEASE, F_RDLCK) == 0)", "if (0)"),
    ("who has it open for writing", "move.c", "if (errno == EAGAIN)\n\t\treturn err_set(EBUSY",
     "if (0)\n\t\treturn err_set(EBUSY"),
    ("time since the last change", "move.c", "if (age >= 0 && age < SETTLED_NS)", "if (0)"),
    ("watch where there is no lease", "move.c", "v->watch = watch_begin(v->src);", ""),
    ("sync of mapped pages before the stamp", "move.c", "if (fsync(v->src) != 0)", "if (0)"),
    ("hard links", "move.c", "if (v->st.st_nlink > 1)", "if (0)"),
    ("pins", "move.c", "if (v->file.pinned)", "if (0)"),
    ("read-only tiers", "move.c", "if (v->from->read_only || v->to->read_only)", "if (0)"),
    ("room", "move.c", "if (need > class.avail || need > root.avail)", "if (0)"),
    ("room reserved", "copy.c", "r = copy_reserve(job->src, job->dst, job->size);", "r = 0;"),
    ("a file of that name on the target", "move.c", "if (there == -ENOENT)", "if (1)"),
    ("the name's form", "move.c", "int r = name_check(name);", "int r = 0;"),
    ("read-back of the copy", "move.c", "if (there != job->crc)", "if (0)"),
    ("the known checksum", "move.c", "v->file.crc != job.crc)", "0)"),
    ("the commit's record", "move.c", "r = catalog_move_commit(v->set->catalog, &v->m, &moved);",
     "r = 0;"),
    ("the intent's record", "move.c", "\tr = catalog_move_begin(v->set->catalog, &v->m);",
     "\tv->m.id = 1;"),
    ("removal of the copy of a failed move", "move.c",
     "(void)unlinkat(v->dst_tmp, v->new_name, 0);\n\t}\n", "}\n"),
    ("comparing before removal", "recover.c", "r = copy_equal(l->src, l->dst);", "r = 1;"),
    ("what the copy was when it was made", "move.c",
     "\tif (r == 0)\n\t\tr = catalog_move_copied(c, &v->m, v->stamp.size, job->crc);\n", ""),
    ("who wrote to the copy", "recover.c", "\tif (dst) {\n\t\tr = remove_at",
     "\tif (1) {\n\t\tr = remove_at"),
    ("who wrote to the source", "recover.c", "if (src && l->m.committed) {", "if (0) {"),
    ("sync of the source's bytes", "move.c", "if (fsync(v->src) < 0)", "if (0)"),
    ("lock before the copy", "move.c", "\t\tr = move_check_lock(v);", "\t\tr = 0;"),
    ("lock of the copy", "move.c", "if (flock(v->dst, LOCK_EX | LOCK_NB) < 0)", "if (0)"),
    ("lock before the copy is named", "move.c", "\t\tr = move_lock_source(v);", "\t\tr = 0;"),
    ("the source's name before a directory is made", "move.c",
     "\t\tr = move_check_source(v);\n\tif (r == 0)\n\t\tr = make_parent(v);",
     "\t\tr = make_parent(v);"),
    ("the source moved aside", "recover.c", "r = settle_old(&l);", "r = 0;"),
    ("which copy is removed", "recover.c", "if (l->m.committed)\n\t\tr = remove_at",
     "if (!l->m.committed)\n\t\tr = remove_at"),
    ("incomplete copies", "recover.c", "r = recover_sweep(&set->roots[i]);", "r = 0;"),
    ("the marker", "set.c", "if (!strcmp(text, want))\n\t\treturn;", "return;"),
    ("a missing marker", "set.c", "if (r == -ENOENT) {\n\t\troot_fails",
     "if (r == -ENOENT)\n\t\treturn;\n\tif (0) {\n\t\troot_fails"),
    ("one file system for two roots", "set.c", "set->roots[i].dev == set->roots[k].dev)", "0)"),
    ("names beneath the root", "name.c", "RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV",
     "0"),
    ("mode", "copy.c", "if (fchmod(dst, st->st_mode & 07777) < 0)", "if (0)"),
    ("owner", "copy.c", "if (fchown(dst, st->st_uid, st->st_gid) < 0)", "if (0)"),
    ("attributes", "copy.c", "\tr = copy_xattrs(src, dst);", "\tr = 0;"),
    ("times", "copy.c", "if (futimens(dst, times) < 0)", "if (0)"),
    ("size of a file that ends with a hole", "copy.c",
     "if (ftruncate(job->dst, (off_t)job->size) < 0)", "if (0)"),
    ("holes", "copy.c", "off_t from = lseek(fd, (off_t)off, SEEK_DATA), to;",
     "off_t from = (off_t)off, to;\n\tif (1) {\n\t\t*ret_from = off;\n"
     "\t\t*ret_to = size;\n\t\treturn 0;\n\t}"),
    ("source removed before the object's commit", "move_object.c",
     "\tr = down_commit(v);\n\tif (r == 0)\n\t\tr = move_remove_source(v);",
     "\tr = move_remove_source(v);\n\tif (r == 0)\n\t\tr = down_commit(v);"),
    ("read-back of the object", "move_object.c", "if (crc != t->job.crc)", "if (0)"),
    ("checksum of an object that becomes a file", "move_object.c",
     "if (r == 0 && t->job.crc != attrs->crc)", "if (0)"),
    ("key in the journal", "move_object.c",
     "\tr = catalog_move_begin(c, &v->m);\n\tif (r == 0)\n\t\tr = catalog_sent_put",
     "\tr = catalog_move_begin(c, &v->m);\n\tif (0)\n\t\tr = catalog_sent_put"),
    ("lock of the source before the object's commit", "move_object.c",
     "\t\tr = move_lock_source(v);", "\t\tr = 0;"),
    ("object of a move that is undone", "move_object.c",
     "r = catalog_garbage_put(c, v->object.key, v->stamp.size, object_due());", "r = 0;"),
    ("object of a file that is on a disk again", "catalog_object.c",
     "int r = catalog_object_release(c, object, due);", "int r = 0;"),
    ("a file that was removed while it moved up", "move_object.c", "if (r == -ENOENT ||",
     "if (r == -ENOENT)\n\t\tr = 0;\n\telse if ("),
    ("sync of the copy's directory before the object is released", "move_object.c",
     "if (fsync(v->dst_dir) < 0)", "if (0)"),
    ("telling readers of a move that was killed", "recover_object.c",
     "counts->completed++;\n\tset_moved(set, m->name);", "counts->completed++;"),
    ("a file that was made after one that moved up was removed", "recover_object.c",
     "object = is_object_still(set, m);", "object = 1;"),
    ("a file that was made after one that moved down was removed", "recover_object.c",
     "r = object_is_file(l);", "r = 1;"),
    ("time for readers of an object", "object.c", "+ OBJECT_GRACE_S;", "- 1;"),
    ("the ETag", "object.c", "strcmp(ret->etag, o->etag) != 0", "0"),
    ("the marker of the store", "object.c", "if (strcmp(f.meta, want) != 0)", "if (0)"),
    ("attributes that do not fit", "object.c", "if (m.len >= OBJECT_META_SIZE)\n\t\treturn err",
     "if (0)\n\t\treturn err"),
    ("the object before its source is removed", "recover_object.c",
     "r = same ? object_same(root, &l->object, l->m.size, &facts) : -ESTALE;",
     "r = same ? 0 : -ESTALE;"),
    ("the source before it is removed for its object", "recover_object.c",
     "same = left_is_copied(l, fd);", "same = 1;"),
    ("the copy of an object at its name", "recover_object.c",
     "\tif (same > 0)\n\t\tr = remains_remove(&l);\n", ""),
    ("source aside for its object", "recover_object.c",
     "\tif (l->old >= 0)\n\t\tr = remove_old(l);", ""),
]
# Found by test-object.c.
OBJECT_FILES = ("catalog_object.c", "move_object.c", "object.c", "recover_object.c")


def build(scratch, file, out, sources, wraps):
    subprocess.run([*CC.split(), "-w", "-g", "-O1", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64",
                    *(f"-I{SOURCE}/{d}" for d in ("src", "include", "tests")), "-I", HERE, "-o",
                    os.path.join(scratch, out), *(os.path.join(HERE, s) for s in sources), file,
                    ARCHIVE, *wraps, "-lsqlite3", "-pthread"], check=True)


def found_by(_, file, scratch):
    """Return the name of the test that fails, or None."""
    wraps = [f"-Wl,--wrap={w}" for w in WRAPS]
    rig_wraps = [f"-Wl,--wrap={w}" for w in ("fcntl64", "clock_gettime", "fanotify_init")]
    env = planted.environment(scratch)
    if os.path.basename(file) in OBJECT_FILES:
        build(scratch, file, "test-object",
              ["test-object.c", "store.c", "move_rig.c", "calls.c"], wraps + rig_wraps)
        case = planted.first_failure([os.path.join(scratch, "test-object")], env, HANGS_S)
        return f"object: {case}" if case else None
    crash = [sys.executable, os.path.join(HERE, "crash.py"), os.path.join(scratch, "drive"), LAZYFS,
             "--quick"]
    tests = [("move", [os.path.join(scratch, "test-move")]), ("crash", crash)]
    if planted.SOAK:
        # A disturbance at each call takes minutes, but some faults show only there.
        tests.append(("crash at each call", ["env", "PST_SOAK=1", *crash]))
    build(scratch, file, "test-move", ["test-move.c", "checks.c", "move_rig.c", "calls.c"],
          wraps + rig_wraps)
    build(scratch, file, "drive", ["drive.c", "calls.c", "store.c"], wraps)
    for name, command in tests:
        case = planted.first_failure(command, env, HANGS_S)
        if case:
            return f"{name}: {case}"
    return None


if not os.path.exists(LAZYFS):
    print("1..0 # SKIP the program lazyfs (libfuse3-dev)")
    sys.exit(0)
sys.exit(planted.run(FAULTS, os.path.join(SOURCE, "src/tier"), found_by))
