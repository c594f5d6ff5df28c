# SPDX-License-Identifier: MIT
"""The log of lazyfs, and the states that a power loss at any point of it may leave on a disk."""
import hashlib
import os
import struct

(CREATE, MKDIR, WRITE, TRUNCATE, RENAME, UNLINK, RMDIR, LINK, FSYNC, FSYNCDIR, ATTR,
 MARK) = range(1, 13)
ROOT = 1


def read_log(path):
    with open(path, "rb") as f:
        data = f.read()
    at, found = 0, []
    while at < len(data):
        kind = data[at]
        a, b, off, length = struct.unpack_from("<4Q", data, at + 1)
        at += 33
        found.append((kind, a, b, off, data[at:at + length]))
        at += length
    return found


# -------------------------------------------------------------- the disk

class Disk:
    """Durable state and pending changes at one point of the log."""

    def __init__(self):
        self.dirs = {ROOT: {}}     # durable: directory -> name -> inode
        self.kind = {ROOT: MKDIR}
        self.names = []            # pending changes of names, in order
        self.data = {}             # inode -> durable bytes
        self.writes = {}           # inode -> pending writes and truncations
        self.mtime, self.mode = {}, {}

    def apply(self, rec):
        kind, a, b, off, payload = rec
        if kind in (CREATE, MKDIR):
            self.kind[b] = kind
            self.mode[b] = off
            if kind == MKDIR:
                self.dirs[b] = {}
            else:
                self.data[b], self.writes[b] = b"", []
            self.names.append(((a, payload, b),))
        elif kind == LINK:
            self.names.append(((a, payload, b),))
        elif kind in (UNLINK, RMDIR):
            self.names.append(((a, payload, None),))
        elif kind == RENAME:
            old, new = payload.split(b"\0")[:2]
            self.names.append(((a, old, None), (b, new, off)))
        elif kind in (WRITE, TRUNCATE):
            self.writes[a].append((kind, off, payload))
        elif kind == ATTR:
            self.mode[a], self.mtime[a] = b, off
        elif kind == FSYNC:
            if a in self.writes:
                self.data[a] = play(self.data[a], self.writes[a])
                self.writes[a] = []
        elif kind == FSYNCDIR:
            self.sync_dir(a)

    def sync_dir(self, a):
        """Make changes in a directory durable, with those that they depend on.

        After a rename, the new name may be durable before the old one is gone, never the reverse.
        A change of a name depends on earlier changes of the same name.
        """
        split = []
        for c in self.names:
            if len(c) == 2 and c[1][0] == a and c[0][0] != a:
                split += [(c[1],), (c[0],)]
            else:
                split.append(c)
        self.names = split
        need, chosen = set(), []
        for i in reversed(range(len(self.names))):
            keys = {(d, n) for d, n, _ in self.names[i]}
            if any(d == a for d, _ in keys) or keys & need:
                need |= keys
                chosen.append(i)
        for i in reversed(chosen):
            change(self.dirs, self.names[i])
        self.names = [c for i, c in enumerate(self.names) if i not in set(chosen)]

    def states(self, rng, nr_random):
        """Yield (directories, data) that a power loss may leave."""
        everything = {i: dict(d) for i, d in self.dirs.items()}
        for c in self.names:
            change(everything, c)
        full = {i: play(d, self.writes[i]) for i, d in self.data.items()}
        # Delayed allocation: sizes are durable, bytes are not.
        holes = {i: self.data[i] + bytes(max(0, len(full[i]) - len(self.data[i]))) for i in full}
        yield self.dirs, self.data
        yield everything, full
        yield everything, self.data
        yield everything, holes
        yield self.dirs, full
        for _ in range(nr_random):
            yield self.random_state(rng)

    def random_state(self, rng):
        dirs = {i: dict(d) for i, d in self.dirs.items()}
        dropped = set()
        for c in self.names:
            keys = {(d, n) for d, n, _ in c}
            # A change of a name depends on earlier changes of that name.
            if keys & dropped or rng.random() < 0.4:
                dropped |= keys
            else:
                change(dirs, c)
        data = {}
        for i, durable in self.data.items():
            kept = []
            for kind, off, payload in self.writes[i]:
                if rng.random() < 0.4:
                    continue
                if rng.random() < 0.3 and len(payload) > 512:
                    payload = payload[:rng.randrange(0, len(payload), 512)]
                kept.append((kind, off, payload))
            data[i] = play(durable, kept)
        return dirs, data

    def key(self, state):
        """Return a key that is equal for states that cannot be told apart."""
        dirs, data = state
        h = hashlib.sha256()

        def walk(ino):
            for name, child in sorted(dirs[ino].items()):
                h.update(name + b"\0")
                if self.kind[child] == MKDIR:
                    walk(child)
                else:
                    h.update(hashlib.sha256(data[child]).digest())
            h.update(b"\1")
        walk(ROOT)
        return h.digest()

    def build(self, state, path, mount_dir):
        dirs, data = state

        def walk(ino, at):
            os.makedirs(at, exist_ok=True)
            for name, child in dirs[ino].items():
                to = os.path.join(at, os.fsdecode(name))
                if self.kind[child] == MKDIR:
                    walk(child, to)
                    continue
                content = data[child]
                if name == b"set.conf":
                    content = content.replace(os.fsencode(mount_dir), os.fsencode(path))
                with open(to, "wb") as f:
                    f.write(content)
                if child in self.mtime:
                    os.utime(to, ns=(self.mtime[child], self.mtime[child]))
        walk(ROOT, path)


def change(dirs, parts):
    for directory, name, ino in parts:
        if ino is None:
            dirs[directory].pop(name, None)
        else:
            dirs[directory][name] = ino


def play(data, writes):
    out = bytearray(data)
    for kind, off, payload in writes:
        if kind == TRUNCATE:
            del out[off:]
            out.extend(bytes(off - len(out)))
            continue
        out.extend(bytes(max(0, off - len(out))))
        out[off:off + len(payload)] = payload
    return bytes(out)
