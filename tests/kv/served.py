#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A store behind a server: clients of the library, hostile clients, and hostile servers."""
import ctypes
import errno
import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import types

from served_case import c, MISS, NEW, Server, fails, fresh, get, name, put, soon, tail, work
from cases import case, data, eq, gives, run_cases, true
from penstock import kv, lmcache

KEYS = {"alice": "00112233445566778899aabbccddeeff", "bob": "ffeeddccbbaa99887766554433221100"}


def penstock(*arguments):
    return subprocess.run([os.environ["PENSTOCK"], *arguments], capture_output=True, text=True,
                          timeout=60, check=False)


# ------------------------------------------------------------------- clients of the library

@case
def two_clients_share_blocks():
    with Server() as server, server.store() as one, server.store(threads=1) as two:
        a, b = one.space("m", "t", "s"), two.space("m", "t", "s")
        for size in (1, 4096, (1 << 20) - 97, 3 << 20):
            block = data(size, size)
            eq(one.set(a, [b"k%d" % size], [block]), [0])
            eq(get(two, b, b"k%d" % size, 4 << 20), block)
        eq(two.lookup(b, [b"k4096", b"none", b"k1"]), [4096, MISS, 1])
        eq(get(two, b, b"k4096", 4095), -errno.EMSGSIZE)
        eq(get(two, b, b"none", 1), MISS)
        eq(one.set(a, [b"k1"], [b"new"]), [0])
        eq(get(two, b, b"k1", 9), b"new")
        eq([two.delete(b, [b"k1"]), two.delete(b, [b"k1"])], [[0], [MISS]])
        eq(one.lookup(a, [b"k1"]), [MISS])
        eq([two.stat()[n] for n in ("gets", "hits", "corrupt", "errors")], [7, 5, 0, 1])


@case
def the_owner_of_the_directories_has_the_same_blocks():
    with Server() as server, server.store() as store:
        eq(store.set(store.space("m", "t", "s"), [b"k"], [data(5000)]), [0])
    with kv.Store(server.root, 1 << 26) as store:
        eq(get(store, store.space("m", "t", "s"), b"k", 5000), data(5000))
        eq(store.set(store.space("m", "t", "s"), [b"own"], [data(7)]), [0])
    with Server() as server, server.store() as store:
        eq(get(store, store.space("m", "t", "s"), b"own", 7), data(7))


@case
def a_unix_socket():
    with Server(listen=f"unix:{work}/socket") as server, \
            kv.Store(f"pst+unix://{server.address}:") as store:
        space = store.space("m")
        eq([store.set(space, [b"k"], [b"bytes"]), get(store, space, b"k", 5)], [[0], b"bytes"])


@case
def the_budget_holds():
    block = data(300000)
    with Server(budget="4m") as server:
        rounds = []

        def client(seed):
            with server.store() as store:
                space = store.space("m")
                for i in range(30):
                    key = b"%d %d" % (seed, i)
                    eq(store.set(space, [key], [block]), [0])
                    result = get(store, space, key, len(block))
                    true(result in (block, MISS), "wrong bytes")
                    used = server.disk(removed=False)
                    true(used <= 4 << 20, used)
                    rounds.append(i)
        threads = [threading.Thread(target=client, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        eq(len(rounds), 90)
        with server.store() as store:
            found = store.lookup(store.space("m"),
                                 [b"%d %d" % (s, i) for s in range(3) for i in range(30)])
            true(5 <= sum(size == len(block) for size in found) <= 13, found)


@case
def the_number_of_blocks_holds():
    with Server("--max-blocks", "50") as server, server.store() as store:
        for i in range(300):
            space = store.space(f"m{i % 40}")
            eq(store.set(space, [b"%d" % i], [b"tiny"]), [0])
        eq(len(server.files()), 50)
        shown = penstock("kv", "stat", server.root).stdout
        true("64 MiB, 50 blocks, for which the index takes 7.8 KiB of memory" in shown, shown)
        shown = penstock("kv", "stat", server.root, "--prometheus").stdout
        true("\npenstock_kv_max_blocks 50\n" in shown, shown)
    eq(penstock("serve", "--kv", work, "--budget", "1m", "--max-blocks", "15", "--listen",
                ":0").returncode, 2)


@case
def a_quota_of_each_space():
    with Server("--quota", "1m", "--policy", "lru") as server, server.store() as store:
        one, two = store.space("one"), store.space("two")
        eq(store.set(two, [b"k"], [data(1000)]), [0])
        for i in range(30):
            eq(store.set(one, [b"%d" % i], [data(100000)]), [0])
        eq(sum(size > 0 for size in store.lookup(one, [b"%d" % i for i in range(30)])), 10)
        eq(store.lookup(two, [b"k"]), [1000])


@case
def a_quota_of_spaces_that_are_there():
    def there(store, identity):
        return [i for i, size in enumerate(store.lookup(
            store.space(identity), [b"%d" % i for i in range(40)])) if size > 0]
    for how in (signal.SIGTERM, signal.SIGKILL):
        server = Server("--policy", "lru")
        with server.store() as store:
            for i in range(40):
                eq(store.set(store.space("one"), [b"%d" % i], [data(100000)]), [0])
            eq(store.set(store.space("two"), [b"0"], [data(1000)]), [0])
        server.end(how)
        with Server("--policy", "lru", "--quota", "1m") as server, server.store() as store:
            eq([len(there(store, "one")), there(store, "two")], [10, [0]])
            for i in range(20):
                eq(store.set(store.space("one"), [b"%d" % i], [data(100000)]), [0])
            eq([there(store, "one"), there(store, "two")], [list(range(10, 20)), [0]])
            eq(len(server.files()), 11)
        # The next server has no quota.
        with Server("--policy", "lru") as server, server.store() as store:
            eq([there(store, "one"), there(store, "two")], [list(range(10, 20)), [0]])
            for i in range(40):
                eq(store.set(store.space("one"), [b"%d" % i], [data(100000)]), [0])
            eq([there(store, "one"), there(store, "two")], [list(range(40)), [0]])
        fresh()


@case
def a_check_changes_nothing():
    def check(*options, root=f"{work}/store", budget="1m"):
        done = subprocess.run(
            [os.environ["PENSTOCK"], "serve", "--kv", root, "--budget", budget, "--listen",
             "127.0.0.1:0", "--check", *options], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def state():
        return sorted((os.path.join(at, name), os.stat(os.path.join(at, name)).st_mtime_ns)
                      for at, folders, names in os.walk(work) for name in folders + names)
    with Server() as server, server.store() as store:
        for i in range(30):
            eq(store.set(store.space("m"), [b"%d" % i], [data(100000)]), [0])
        status, says = check()
        true(status == 1 and "owns the store" in says, says)
    os.mkdir(f"{work}/empty")
    os.mkdir(f"{work}/other")
    os.mkdir(f"{work}/other/file")
    before = state()
    for options, status, text in (
            ({}, 0, "can be served"), ({"root": f"{work}/empty"}, 0, "can be served"),
            ({"root": f"{work}/other"}, 1, "is no store"), ({"budget": "1000"}, 1, "1 MiB"),
            ({"root": f"{work}/nix"}, 1, "cannot open"), ({"root": "pst://h:1"}, 1, "directories")):
        got, says = check(**options)
        true(got == status and text in says, (options, got, says))
    got, says = check("--rdma=yes")
    true(got == 2 and "--rdma" in says, says)
    eq(check("--rdma=try")[0], 0)
    eq(state(), before)
    with Server() as server:
        eq(len(server.files()), 30)


@case
def a_killed_server_is_misses_and_then_hits():
    server = Server()
    with server.store() as one, server.store() as two:
        a, b = one.space("m"), two.space("m")
        eq(one.set(a, [b"k"], [data(2 << 20)]), [0])
        eq(get(two, b, b"k", 2 << 20), data(2 << 20))
        server.end(signal.SIGKILL)
        eq(get(one, a, b"k", 2 << 20), -errno.ECONNREFUSED)
        eq(one.lookup(a, [b"k"]), [-errno.ECONNREFUSED])
        eq(one.set(a, [b"other"], [b"bytes"]), [-errno.ECONNREFUSED])
        with server.again():
            eq(get(one, a, b"k", 2 << 20), data(2 << 20))
            # This connection is to the server that was killed.
            eq(get(two, b, b"k", 2 << 20), data(2 << 20))
            eq(two.lookup(b, [b"other"]), [MISS])
            eq(two.set(b, [b"other"], [b"bytes"]), [0])


@case
def a_kill_while_clients_write():
    blocks = {b"%d" % i: data(200000, i) for i in range(20)}
    server = Server()
    with server.store(timeout=5) as store:
        space, stop = store.space("m"), threading.Event()

        def write():
            while not stop.is_set():
                store.set(space, list(blocks), list(blocks.values()))
        thread = threading.Thread(target=write)
        thread.start()
        soon(lambda: len(server.files()) > 5)
        server.end(signal.SIGKILL)
        with server.again() as second:
            soon(lambda: store.set(space, [b"last"], [b"x"]) == [0])
            stop.set()
            thread.join()
            for key, block in blocks.items():
                true(get(store, space, key, 200000) in (block, MISS), "wrong bytes")
            eq(second.files("tmp"), [])


@case
def a_hanging_server_is_a_miss_by_the_deadline():
    with Server() as server, server.store() as store:
        space = store.space("m")
        eq(store.set(space, [b"k"], [data(100000)]), [0])
        server.process.send_signal(signal.SIGSTOP)
        try:
            eq(get(store, space, b"k", 100000, timeout=0.3), -errno.ETIMEDOUT)
            eq(store.set(space, [b"n"], [b"bytes"], 0.3), [-errno.ETIMEDOUT])
            eq(store.stat()["timeouts"], 2)
        finally:
            server.process.send_signal(signal.SIGCONT)
        eq(get(store, space, b"k", 100000), data(100000))


@case
def tenant_and_salt_must_be_known():
    with Server() as server, server.store() as store:
        eq(store.set(store.space("m", "t", "s"), [b"k"], [b"secret"]), [0])
        for words in (("m", "t", ""), ("m", "", "s"), ("m", "t", "S"), ("n", "t", "s"), ("m",)):
            space = store.space(*words)
            eq([store.lookup(space, [b"k"]), get(store, space, b"k", 9),
                store.delete(space, [b"k"])], [[MISS], MISS, [MISS]])
        eq(get(store, store.space("m", "t", "s"), b"k", 9), b"secret")


@case
def a_key_has_its_own_tenant():
    path = f"{work}/keys"
    with open(path, "w", encoding="ascii") as f:
        f.writelines(f"{who}:{key}\n" for who, key in KEYS.items())
    os.chmod(path, 0o600)
    os.environ["PST_KEYS"] = path
    with Server("--keys", path) as server, server.store("psts", "alice@") as alice, \
            server.store("psts", "bob@") as bob:
        block = data(3 << 20)
        eq(alice.set(alice.space("m"), [b"k"], [block]), [0])
        eq(get(alice, alice.space("m", "alice"), b"k", 3 << 20), block)
        eq(get(bob, bob.space("m"), b"k", 3 << 20), MISS)
        theirs = bob.space("m", "alice")
        eq([get(bob, theirs, b"k", 9), bob.lookup(theirs, [b"k"]), bob.delete(theirs, [b"k"]),
            bob.set(theirs, [b"k"], [b"x"])], [-errno.EACCES] + 3 * [[-errno.EACCES]])
        eq(get(alice, alice.space("m"), b"k", 3 << 20), block)
        gives(errno.ENOKEY, server.store)


@case
def a_server_for_reading():
    with Server() as server, server.store() as store:
        eq(store.set(store.space("m"), [b"k"], [b"bytes"]), [0])
    with Server(write=False) as server, server.store() as store:
        space = store.space("m")
        eq(store.set(space, [b"n"], [b"x"]), [-errno.EROFS])
        eq(store.delete(space, [b"k"]), [-errno.EROFS])
        eq(get(store, space, b"k", 5), b"bytes")


@case
def options_that_are_the_servers():
    with Server() as server:
        for options in ({"budget": 1 << 20}, {"reserve": 1}, {"policy": "lru"}, {"sync": True}):
            gives(errno.EINVAL, server.store, **options)
        with server.store() as store:
            gives(errno.EINVAL, store.space, "m", quota=1 << 20)
            gives(errno.ENAMETOOLONG, store.space, "m", salt="s" * 513)
            gives(errno.EROFS, store.drop, "m")
            space = store.space("i" * 512, "t" * 512, "s" * 512)
            eq(store.set(space, [b"k" * 1024], [b"bytes"]), [0])
            eq(get(store, space, b"k" * 1024, 5), b"bytes")
        gives(errno.EINVAL, kv.Store, f"pst://127.0.0.1:{server.address[1]}/path")
    gives(errno.ECONNREFUSED, server.store)


@case
def a_server_of_files_is_no_store():
    with subprocess.Popen([os.environ["PENSTOCK"], "serve", "--root", work, "--listen",
                           f"unix:{work}/files"], stderr=subprocess.PIPE, text=True) as server:
        server.stderr.readline()
        error = gives(errno.ENOENT, kv.Store, f"pst+unix://{work}/files:")
        true("serve --kv" in str(error), error)
        server.terminate()


@case
def lmcache_over_a_server():
    with Server() as server:
        client = lmcache.Client([f"pst://127.0.0.1:{server.address[1]}"], None, "m")

        def wait(number):
            soon(lambda: wait.found.extend(client.drain_completions()) or wait.found)
            done = wait.found.pop()
            eq(done[0], number)
            return done[1:]
        wait.found = []
        block, room = data(70000), bytearray(70000)
        eq(wait(client.submit_batch_set(["a@1"], [memoryview(block)])), (True, "", None))
        eq(wait(client.submit_batch_exists(["a@1", "b@1"])), (True, "", [True, False]))
        eq(wait(client.submit_batch_get(["a@1"], [memoryview(room)])), (True, "", [True]))
        eq(bytes(room), block)
        eq(wait(client.submit_batch_delete(["a@1"])), (True, "", [True]))
        client.close()
    # Without a budget, a store of directories would be read-only.
    gives(ValueError, lmcache.Client, [server.root], None, "m")


@case
def a_request_that_hangs_beyond_the_drain():
    server = Server("--drain", "0")
    try:
        hangs_beyond_the_drain(server)
    finally:
        server.end(signal.SIGKILL)
    # The server did not close its store while a thread used it.
    eq([os.path.exists(f"{server.root}/index"), len(server.files())], [False, 2])
    with server.again(), server.store() as store:
        eq(get(store, store.space("m"), b"l", 2000), data(2000))


def hangs_beyond_the_drain(server):
    with server.store() as store:
        space = store.space("m")
        eq(store.set(space, [b"k", b"l"], [data(1000), data(2000)]), [0, 0])
        path = next(path for path in server.files() if os.path.getsize(path) < 2000)
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        with open(path, "rb") as f:
            # The server's open(2) waits until the lease ends.
            fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            # Keep the connection: its end, if the server sees it with the request, ends both.
            client = c.Client(server.address)
            client.send(c.request(c.OPEN, name(b"k").encode(), how=c.O_READ))
            soon(lambda: fcntl.fcntl(f, fcntl.F_GETLEASE) != fcntl.F_RDLCK)
            server.process.send_signal(signal.SIGTERM)
            eq(server.process.wait(60), 1)
            true("did not end" in server.process.stderr.read())


class Pages:
    """A host pool with one piece per page; only the parts of SGLang's that are needed."""

    def __init__(self, count):
        self.memory = ctypes.create_string_buffer(data(count * 4096), count * 4096)

    def get_page_buffer_meta(self, numbers):
        start = ctypes.addressof(self.memory)
        return [start + n * 4096 for n in numbers], [4096] * len(numbers)


@case
def sglang_without_a_space():
    class Base:
        def register_mem_pool_host(self, pool):
            self.mem_pool_host = pool
    stub = types.ModuleType("sglang.srt.mem_cache.hicache_storage")
    stub.HiCacheStorage, stub.PoolName = Base, types.SimpleNamespace(KV="kv", MAMBA="mamba")
    stub.PoolTransferResult = stub.PoolHitPolicy = tuple
    sys.modules[stub.__name__] = stub
    from penstock.sglang_hicache import PenstockStorage
    fields = ("dp_rank", "tp_rank", "tp_size", "pp_rank", "pp_size", "attn_cp_rank", "attn_cp_size",
              "tp_lcm_size", "should_split_heads", "dcp_rank", "dcp_size", "logical_page_size")
    with Server() as server:
        where = f"pst://127.0.0.1:{server.address[1]}"
        for salt, good in (("s", True), ("s" * 513, False)):
            config = types.SimpleNamespace(
                model_name="m", is_mla_model=False, **dict.fromkeys(fields, 0), extra_config={
                    "interface_v1": 1, "penstock": {"dirs": [where], "salt": salt}})
            storage = PenstockStorage(config)
            storage.register_mem_pool_host(Pages(2))
            for _ in range(2):
                eq(storage.batch_set_v1(["a", "b"], [0, 1]), [good, good])
                eq(storage.batch_get_v1(["a"], [1]), [good])
                eq([storage.batch_exists(["a", "b"]), storage.exists("b")], [2 * good, good])
            eq(len(server.files()), 2)
            storage.close()


# ------------------------------------------------------------------- damage and hostile clients

@case
def damage_on_the_servers_disk():
    with Server() as server, server.store() as store:
        space = store.space("m")
        for at, key in ((100, b"bytes"), (-120, b"key"), (-90, b"foot")):
            eq(store.set(space, [key], [data(5000)]), [0])
            with open(server.files()[0], "r+b") as f:
                f.seek(at, os.SEEK_SET if at > 0 else os.SEEK_END)
                old = f.read(1)
                f.seek(-1, os.SEEK_CUR)
                f.write(bytes([old[0] ^ 1]))
            true(get(store, space, key, 5000) in (MISS, -errno.EBADMSG), key)
            eq([server.files(), store.lookup(space, [key])], [[], [MISS]])
        eq(store.set(space, [b"cut"], [data(5000)]), [0])
        os.truncate(server.files()[0], 50)
        eq([get(store, space, b"cut", 5000), server.files()], [MISS, []])


@case
def a_file_of_another_block():
    with Server() as server, server.store() as store:
        space = store.space("m")
        eq(store.set(space, [b"a"], [b"bytes of a"]), [0])
        first = server.files()[0]
        eq(store.set(space, [b"b"], [b"bytes of b"]), [0])
        second = next(path for path in server.files() if path != first)
        shutil.copyfile(first, second)
        eq(get(store, space, b"b", 10), MISS)


@case
def names_that_are_none():
    with Server() as server:
        client = c.Client(server.address)
        good = name(b"k")
        for bad in ("penstock-kv", "lock", "../store/lock", "b", "kv1/", "kv1//", "kv1/bQ/",
                    "kv1////aw", good + "/", good + "/1", good[:-1], good + "=", good + "!",
                    good.replace("kv1", "kv2"), "kv1/bQ///", "kv1/AA///aw",
                    name(b"k" * 1025), name(b"k", identity=b"i" * 513)):
            fails(errno.ENOENT, client, c.OPEN, bad.encode(), how=c.O_READ)
            fails(errno.ENOENT, client, c.STAT, bad.encode())
            fails(errno.ENOENT, client, c.UNLINK, bad.encode())
        for bad in (good, good + "/0", good + "/01", good + "/-1", good + "/1x",
                    good + f"/{(1 << 30) + 1}", good + "/99999999999999999999"):
            fails(errno.ENOENT, client, c.OPEN, bad.encode(), how=NEW)
        for how in (c.O_WRITE, c.O_READ | c.O_WRITE, c.O_WRITE | c.O_CREATE, NEW | c.O_TRUNC,
                    NEW | c.O_READ):
            fails(errno.EOPNOTSUPP, client, c.OPEN, name(b"k", 9).encode(), how=how)
        fails(errno.EOPNOTSUPP, client, c.LIST, b"kv1", count=4096)
        eq(client.rename(good, "kv1/x"), errno.EOPNOTSUPP)
        eq(client.ask(c.STAT, b"kv1").err, 0)
        eq([server.files(), server.files("tmp"), server.files("spaces")], [[], [], []])


@case
def writes_that_are_none():
    with Server() as server, server.store() as store:
        client, block = c.Client(server.address), data(1000)
        whole = block + tail(b"k", block)
        handle = client.open(name(b"k", 1000), NEW)
        fails(errno.EFBIG, client, c.WRITE, b"x", handle=handle, count=1, off=len(whole))
        fails(errno.EFBIG, client, c.WRITE, whole, handle=handle, count=len(whole), off=1)
        fails(errno.EFBIG, client, c.WRITE, b"x", handle=handle, count=1, off=1 << 62)
        fails(errno.EBADF, client, c.READ, handle=handle, count=1)
        fails(errno.EOPNOTSUPP, client, c.TRUNCATE, handle=handle, off=1 << 40)
        fails(errno.EOPNOTSUPP, client, c.STAT, handle=handle)
        fails(errno.EBADMSG, client, c.SYNC, handle=handle)
        for foot in (tail(b"K", block), tail(b"kk", block)[1:], tail(b"k", block[1:]),
                     tail(b"k", block)[:-1] + b"\0"):
            client.ask(c.WRITE, foot, handle=handle, count=len(foot), off=1000)
            fails(errno.EBADMSG, client, c.SYNC, handle=handle)
        eq([server.files(), len(server.files("tmp"))], [[], 1])
        eq(client.ask(c.WRITE, whole, handle=handle, count=len(whole)).err, 0)
        fails(0, client, c.SYNC, handle=handle)
        fails(errno.ESTALE, client, c.WRITE, b"x", handle=handle, count=1)
        fails(errno.ESTALE, client, c.SYNC, handle=handle)
        eq(get(store, store.space("m"), b"k", 1000), block)
        # Bytes that do not match their CRC: every client detects that.
        handle = client.open(name(b"lie", 9), NEW)
        lie = b"wrongones" + tail(b"lie", b"ninebytes")
        client.ask(c.WRITE, lie, handle=handle, count=len(lie))
        fails(0, client, c.SYNC, handle=handle)
        eq(get(store, store.space("m"), b"lie", 9), -errno.EBADMSG)
        eq(store.lookup(store.space("m"), [b"lie", b"k"]), [MISS, 1000])


@case
def a_client_that_goes_leaves_nothing():
    with Server() as server:
        client = c.Client(server.address)
        handle = client.open(name(b"k", 1 << 20), NEW)
        eq(client.ask(c.WRITE, b"x" * 4096, handle=handle, count=4096).err, 0)
        eq(len(server.files("tmp")), 1)
        client.close()
        soon(lambda: not server.files("tmp"))
        eq([server.files(), server.disk()], [[], 0])


@case
def open_files_hold_no_room():
    with Server(budget="2m") as server, server.store() as store:
        client, space, handles = c.Client(server.address), store.space("m"), []
        for i in range(20):
            key = b"%d" % i
            eq(store.set(space, [key], [data(500000, i)]), [0])
            handles.append((client.open(name(key), c.O_READ), i))
            true(server.disk() <= 2 << 20, server.disk())
        # The handle of an evicted block reads no bytes, that of the newest block its bytes.
        eq(client.ask(c.READ, handle=handles[0][0], count=4096).payload, b"")
        eq(client.ask(c.READ, handle=handles[-1][0], count=4096).payload, data(500000, 19)[:4096])
        for how in ("set", "delete"):
            eq(store.set(space, [b"19"], [b"new"]) if how == "set" else
               store.delete(space, [b"19"]), [0])
            eq(client.ask(c.READ, handle=handles[-1][0], count=4096).payload, b"")
            eq(store.set(space, [b"19"], [data(500000, 19)]), [0])
            handles.append((client.open(name(b"19"), c.O_READ), 19))


@case
def reservations_leave_room_for_others():
    with Server(budget="8m") as server, server.store() as store:
        # Connections from one address are one client, which may use a quarter of the budget.
        clients, space = [c.Client(server.address) for _ in range(2)], store.space("m")
        eq(store.set(space, [b"k"], [data(1 << 20)]), [0])
        size = (1 << 20) - 4096
        handles = [client.open(name(b"%d" % i, size), NEW) for i, client in enumerate(clients)]
        for client in clients:
            fails(errno.ENOSPC, client, c.OPEN, name(b"2", size).encode(), how=NEW)
            fails(errno.ENOSPC, client, c.OPEN, name(b"2", 1 << 30).encode(), how=NEW)
        other = c.Client(server.address, source="127.0.0.2")
        eq(put(other, b"o", data(size)), 0)
        eq(get(store, space, b"k", 1 << 20), data(1 << 20))
        clients[0].ask(c.CLOSE, handle=handles[0])
        soon(lambda: clients[0].ask(c.OPEN, name(b"2", size).encode(), how=NEW).err == 0)
        for client in clients:
            client.close()
        soon(lambda: not server.files("tmp"))
        eq(store.set(space, [b"n"], [data(2 * size)]), [0])
        eq(store.set(space, [b"n"], [data(2 << 20)]), [-errno.ENOSPC])


def numbers():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(f"{work}/numbers")
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        return b"".join(iter(lambda: s.recv(1 << 16), b"")).decode()


@case
def numbers_of_the_store():
    def of_the_store():
        found = re.findall(r"\n# TYPE (penstock_kv_(\w+?)(?:_total)?) (\w+)\n\1 (\d+)", numbers())
        return {name: int(value) for _, name, _, value in found}, {
            name: kind for _, name, kind, _ in found}
    with Server("--metrics", f"unix:{work}/numbers") as server, server.store() as store:
        space = store.space("m")
        eq(store.set(space, [b"a", b"b"], [data(1000), data(2000)]), [0, 0])
        eq(len(get(store, space, b"a", 1000)), 1000)
        eq(get(store, space, b"c", 1000), MISS)
        eq(store.delete(space, [b"b"]), [0])
        eq(store.set(space, [b"large"], [data(30 << 20)]), [-errno.ENOSPC])
        got, kinds = of_the_store()
        # The names must be those of penstock.kv, with the same kinds.
        mine = dict(re.findall(r"# TYPE penstock_kv_(\w+?)(?:_total)? (\w+)", store.metrics()))
        eq(kinds, mine)
        want = {"sets": 2, "set_bytes": 3000, "gets": 2, "hits": 1, "got_bytes": 1000,
                "removed": 1, "blocks": 1, "budget": 64 << 20, "max_blocks": 65536, "no_room": 1}
        eq({name: got[name] for name in want}, want)


@case
def a_reservation_counts_for_the_rate():
    def slowed():
        return int(re.search(r"\npenstock_serve_slowed_total (\d+)", numbers())[1])
    with Server("--rate", "32k", "--metrics", f"unix:{work}/numbers") as server:
        client = c.Client(server.address)
        client.open(name(b"k", 1 << 20), NEW)
        eq(slowed(), 0)
        client.send(c.request(c.STAT, b"kv1"))
        soon(lambda: slowed() > 0)


@case
def an_open_without_a_handle_changes_nothing():
    with Server("--files", "2", budget="8m") as server:
        client, size = c.Client(server.address), (1 << 20) - 4096
        for i in range(8):
            eq(put(client, b"%d" % i, data(size)), 0)
        handles = [client.open(name(b"7"), c.O_READ) for _ in range(2)]
        for _ in range(3):
            fails(errno.EMFILE, client, c.OPEN, name(b"n", size).encode(), how=NEW)
        eq([len(server.files()), server.files("tmp")], [8, []])
        client.ask(c.CLOSE, handle=handles[0])
        eq(put(client, b"n", data(size)), 0)
        # Requests that began at the same time end without a handle.
        client.ask(c.CLOSE, handle=handles[1])
        for i in range(20):
            client.send(c.request(c.OPEN, name(b"m%d" % i, 100).encode(), how=NEW, ident=100 + i))
        eq(sorted(client.receive().err for _ in range(20)), 2 * [0] + 18 * [errno.EMFILE])
        soon(lambda: len(server.files("tmp")) == 2)


@case
def spaces_that_a_tenant_may_have():
    with Server() as server:
        client = c.Client(server.address)
        eq(put(client, b"k", b"x", tenant=b"u"), 0)
        for i in range(64):
            eq(put(client, b"k", b"x", identity=b"%d" % i, tenant=b"t"), 0)
        fails(errno.ENOSPC, client, c.OPEN, name(b"k", 1, b"64", b"t").encode(), how=NEW)
        eq(put(client, b"n", b"x", identity=b"1", tenant=b"t"), 0)
        eq(put(client, b"k", b"x", identity=b"1", tenant=b"u"), 0)


# ------------------------------------------------------------------- hostile servers

class Liar:
    """A server with one block; file is the path that it gives for the block."""

    def __init__(self, size, file):
        self.size, self.file = size, file
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.asked = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                peer = self.sock.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        stream = peer.makefile("rb")
        while head := stream.read(48):
            length, op, _, ident, off, count, *_ = c.REQUEST.unpack(head[:44])
            stream.read(length - 48)
            self.asked.append(op)
            number, payload = 0, b""
            if op == c.HELLO:
                payload = struct.pack("<8sIIQIII28x", b"PENSTOCK", 1, 1 << 20, 0, 128, 256, 0)
            elif op in (c.STAT, c.OPEN):
                number = op == c.OPEN
                payload = c.ATTR.pack(self.size if number else 0, 0, 0, 0, 0, 0, 0,
                                      1 if number else 2)
            elif op == c.READ:
                payload = self.file[off:off + count]
                number = len(payload)
            reply = c.REPLY.pack(48 + len(payload), op, 0, ident, 1, 0, number, 0, 0)
            peer.sendall(reply + struct.pack("<I", c.crc32c(reply)) + payload)


@case
def servers_that_lie():
    block = data(1000)
    good = block + tail(b"k", block)
    bad = -errno.EBADMSG
    for size, file, want in (
            (len(good), good, block),
            (len(good), good[:-1], MISS),
            (len(good), b"x" + good[1:], bad),
            (len(good), block + tail(b"K", block), bad),
            (len(good), block + tail(b"k", block, crc=1), bad),
            (len(good) + 1, b"x" + good, -errno.EMSGSIZE),
            (len(good) - 1, good[1:], bad),
            (0, good, bad), (96, good[-96:], bad), (97, good[-97:], bad), (50, good, bad),
            ((1 << 30) + 98, good, bad), ((1 << 63) - 1, good, bad),
            (1 << 63, good, -errno.EPROTO)):
        server = Liar(size, file)
        with kv.Store(f"pst://127.0.0.1:{server.sock.getsockname()[1]}", threads=1) as store:
            eq((size, get(store, store.space("m"), b"k", 1000)), (size, want))
            eq(c.UNLINK in server.asked, want == bad)
        server.sock.close()


GOOD = run_cases(after=fresh)
shutil.rmtree(work, ignore_errors=True)
sys.exit(0 if GOOD else 1)
