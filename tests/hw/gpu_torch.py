#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Use memory of PyTorch's allocators with libpenstock, by ctypes.

gpu_torch.py --lib LIB --importer GPU-IMPORT --lender GPU-LEND --file FILE --scratch DIR
             memory|capture|window

Prints a line of JSON per case: {"case", "result": passed, failed or skipped, "note"}.
PYTORCH_CUDA_ALLOC_CONF in the environment selects the allocator.
"""
import argparse
import ctypes as C
import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time

READ, WRITE = 1, 2
RIGHTS = 3
NO_DEADLINE = (1 << 64) - 1
KIND_CUDA = 3
MIB = 1 << 20


class MemInfo(C.Structure):
    _fields_ = [("sz", C.c_size_t), ("kind", C.c_uint32), ("flags", C.c_uint32),
                ("addr", C.c_uint64), ("len", C.c_uint64), ("base", C.c_uint64),
                ("size", C.c_uint64), ("buffer_id", C.c_uint64), ("device", C.c_char * 64)]


class Grant(C.Structure):
    _fields_ = [("sz", C.c_size_t), ("kind", C.c_uint32), ("rights", C.c_uint32),
                ("uuid", C.c_uint8 * 16), ("size", C.c_uint64), ("off", C.c_uint64),
                ("len", C.c_uint64), ("fd", C.c_int32), ("reserved", C.c_uint32),
                ("ipc", C.c_uint8 * 64)]


class Io(C.Structure):
    _fields_ = [("op", C.c_uint32), ("flags", C.c_uint32), ("policy", C.c_uint64),
                ("file", C.c_void_p), ("mem", C.c_void_p),
                ("segs", C.c_void_p), ("nr_segs", C.c_uint64),
                ("file_off", C.c_uint64), ("mem_off", C.c_uint64), ("len", C.c_uint64),
                ("stream", C.c_void_p), ("deadline_ns", C.c_uint64), ("user_data", C.c_uint64),
                ("reserved", C.c_uint64 * 4)]


class Done(C.Structure):
    _fields_ = [("user_data", C.c_uint64), ("res", C.c_int64), ("prefix", C.c_uint64),
                ("paths", C.c_uint32), ("why", C.c_uint32), ("detail", C.c_int32),
                ("flags", C.c_uint32), ("crc32c", C.c_uint32), ("op", C.c_uint32),
                ("reserved", C.c_uint64 * 2)]


class WindowOpts(C.Structure):
    _fields_ = [("sz", C.c_size_t), ("flags", C.c_uint32), ("caching", C.c_uint32),
                ("backend", C.c_char_p)]


assert C.sizeof(Io) == 128 and C.sizeof(Done) == 64


class Skip(Exception):
    """The machine lacks something that a case needs."""


class PenstockError(Exception):
    """An error of the library, with its text."""

    def __init__(self, code, text):
        super().__init__(text)
        self.errno = -code


class Penstock:
    """Functions of libpenstock; an error raises PenstockError."""

    P = C.POINTER
    CALLS = {
        "pst_mem_wrap": [C.c_uint64, C.c_uint64, C.c_void_p, P(C.c_void_p)],
        "pst_mem_info": [C.c_void_p, P(MemInfo)],
        "pst_mem_export": [C.c_void_p, C.c_uint64, C.c_uint64, C.c_uint32, P(Grant)],
        "pst_grant_send": [C.c_int, P(Grant), C.c_uint64],
        "pst_window_open": [C.c_void_p, C.c_uint64, C.c_uint64, P(WindowOpts), P(C.c_void_p)],
        "pst_window_store": [C.c_void_p, C.c_uint64, C.c_char_p, C.c_uint64],
        "pst_window_load": [C.c_void_p, C.c_uint64, C.c_char_p, C.c_uint64],
        "pst_file_open": [C.c_char_p, C.c_uint32, C.c_void_p, P(C.c_void_p)],
        "pst_queue_new": [C.c_void_p, P(C.c_void_p)],
        "pst_queue_prep": [C.c_void_p, P(Io)],
        "pst_queue_submit": [C.c_void_p],
        "pst_queue_reap": [C.c_void_p, P(Done), C.c_uint, C.c_uint, C.c_uint64],
    }
    ENDS = {"pst_mem_free": C.c_void_p, "pst_file_close": C.c_void_p,
            "pst_queue_free": C.c_void_p, "pst_window_close": C.c_void_p,
            "pst_grant_done": C.POINTER(Grant)}

    def __init__(self, path):
        self.lib = C.CDLL(path)
        self.lib.pst_error_text.restype = C.c_char_p
        self.lib.pst_path_name.restype = C.c_char_p
        self.lib.pst_done_text.argtypes = [C.POINTER(Done), C.c_char_p, C.c_size_t]
        for name, args in self.CALLS.items():
            getattr(self.lib, name).argtypes = args
        for name, arg in self.ENDS.items():
            getattr(self.lib, name).argtypes = [arg]
            getattr(self.lib, name).restype = C.c_void_p if name != "pst_grant_done" else None

    def call(self, name, *args):
        r = getattr(self.lib, name)(*args)
        if r < 0:
            raise PenstockError(r, self.lib.pst_error_text().decode(errors="replace"))
        return r

    def make(self, name, *args):
        ret = C.c_void_p()
        self.call(name, *args, C.byref(ret))
        return ret

    def wrap(self, addr, length):
        return self.make("pst_mem_wrap", addr, length, None)

    def move(self, op, path, mem, file_off, mem_off, length):
        """Execute one request on a new queue; return its paths."""
        queue = self.make("pst_queue_new", None)
        # 7: PST_FILE_READ | WRITE | CREATE.
        file = self.make("pst_file_open", path.encode(), 1 if op == READ else 7, None)
        try:
            io = Io(op=op, file=file, mem=mem, file_off=file_off, mem_off=mem_off, len=length)
            self.call("pst_queue_prep", queue, C.byref(io))
            self.call("pst_queue_submit", queue)
            done = Done()
            if self.call("pst_queue_reap", queue, C.byref(done), 1, 1, NO_DEADLINE) != 1:
                raise PenstockError(-errno.EIO, "there is no completion")
        finally:
            self.lib.pst_queue_free(queue)
            self.lib.pst_file_close(file)
        if done.res != length:
            text = C.create_string_buffer(400)
            self.lib.pst_done_text(C.byref(done), text, 400)
            raise PenstockError(-errno.EIO, text.value.decode(errors="replace"))
        return "+".join(self.lib.pst_path_name(i).decode() for i in range(16)
                        if done.paths >> i & 1)


class Cases:
    """Cases with tensors."""

    def __init__(self, args, torch):
        self.args = args
        self.torch = torch
        self.device = torch.device("cuda", args.gpu)
        self.pst = Penstock(args.lib)
        self.failed = False

    def file(self, off, length):
        """Return a part of the file as a tensor on the GPU."""
        with open(self.args.file, "rb") as f:
            f.seek(off)
            data = bytearray(f.read(length))
        assert len(data) == length
        return self.torch.frombuffer(data, dtype=self.torch.uint8).to(self.device)

    def filled(self, length, value):
        t = self.torch.full((length,), value, dtype=self.torch.uint8, device=self.device)
        self.torch.cuda.synchronize(self.device)
        return t

    def same(self, tensor, off, what):
        self.torch.cuda.synchronize(self.device)
        want = self.file(off, tensor.numel())
        if not self.torch.equal(tensor, want):
            wrong = int((tensor != want).nonzero()[0])
            raise AssertionError(f"{what}: byte {wrong} is wrong")

    def kept(self, tensor, value, what):
        if tensor.numel() and not bool((tensor == value).all()):
            raise AssertionError(f"{what}: bytes beside the range were changed")

    def read(self, addr, length, file_off):
        mem = self.pst.wrap(addr, length)
        try:
            return self.pst.move(READ, self.args.file, mem, file_off, 0, length)
        finally:
            self.pst.lib.pst_mem_free(mem)

    # ---------------------------------------------------------------- cases

    def allocator(self):
        """Check that the allocator is the one that the environment selects."""
        t = self.filled(30 * MIB, 1)
        grows = any(s.get("is_expandable") for s in self.torch.cuda.memory_snapshot())
        wanted = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
        if "expandable_segments:True" in wanted and not grows:
            raise Skip("PyTorch made no expandable segment")
        return f"{t.numel() >> 20} MiB, {'expandable' if grows else 'plain'} segments"

    def whole_tensor(self):
        t = self.filled(64 * MIB + 12345, 7)
        paths = self.read(t.data_ptr(), t.numel(), 4097)
        self.same(t, 4097, "tensor")
        return f"{t.numel() >> 20} MiB by {paths}"

    def part_at_odd_offset(self):
        t = self.filled(50 * MIB, 8)
        for off, length in ((1, 5), (4095, 1000003), (7 * MIB + 13, 30 * MIB + 1)):
            t.fill_(8)
            self.torch.cuda.synchronize(self.device)
            self.read(t.data_ptr() + off, length, 11)
            self.same(t[off:off + length], 11, f"{length} bytes at {off}")
            self.kept(t[:off], 8, "before")
            self.kept(t[off + length:], 8, "behind")
        return "3 parts"

    def small_tensors(self):
        ts = [self.filled(1000 + 37 * i, 9) for i in range(64)]
        for i, t in enumerate(ts):
            if i % 2:
                self.read(t.data_ptr(), t.numel(), i * 5003)
        for i, t in enumerate(ts):
            if i % 2:
                self.same(t, i * 5003, f"tensor {i}")
            else:
                self.kept(t, 9, f"tensor {i}")
        return "32 of 64"

    def matrix(self):
        t = self.torch.empty((1000, 3001), dtype=self.torch.bfloat16, device=self.device)
        n = t.numel() * t.element_size()
        self.torch.cuda.synchronize(self.device)
        self.read(t.data_ptr(), n, 64)
        self.same(t.view(self.torch.uint8).flatten(), 64, "matrix")
        return f"{n} bytes of bfloat16"

    def write_to_file(self):
        path = os.path.join(self.args.scratch, "tensor.out")
        t = self.torch.randint(0, 256, (20 * MIB + 77,), dtype=self.torch.uint8,
                               device=self.device)
        self.torch.cuda.synchronize(self.device)
        mem = self.pst.wrap(t.data_ptr() + 3, t.numel() - 3)
        try:
            paths = self.pst.move(WRITE, path, mem, 5, 0, t.numel() - 3)
        finally:
            self.pst.lib.pst_mem_free(mem)
        with open(path, "rb") as f:
            data = f.read()
        os.unlink(path)
        if data[:5] != bytes(5) or data[5:] != t[3:].cpu().numpy().tobytes():
            raise AssertionError("the file is not the tensor")
        return f"{len(data) >> 20} MiB by {paths}"

    def lend(self, mem, mem_off, length, file_off):
        """Send a grant to the importer, which reads the file into the memory; return its paths."""
        grant = Grant(sz=C.sizeof(Grant))
        self.pst.call("pst_mem_export", mem, mem_off, length, RIGHTS, C.byref(grant))
        ours, theirs = socket.socketpair()
        try:
            with subprocess.Popen([self.args.importer, str(theirs.fileno()), self.args.file,
                                   str(file_off), str(length)], pass_fds=[theirs.fileno()],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) as p:
                theirs.close()
                deadline = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 30 * 10**9
                self.pst.call("pst_grant_send", ours.fileno(), C.byref(grant), deadline)
                out, err = p.communicate(timeout=60)
            if p.returncode != 0:
                raise AssertionError(f"the other process failed: {err.strip()[-300:]}")
            return json.loads(out)["paths"]
        finally:
            self.pst.lib.pst_grant_done(C.byref(grant))
            ours.close()

    def lend_part(self):
        """Lend an odd part of a tensor, inside one chunk if memory is mapped in chunks."""
        t = self.filled(48 * MIB, 10)
        off, length = 123457, 1000001
        mem = self.pst.wrap(t.data_ptr() + off, length)
        info = MemInfo(sz=C.sizeof(MemInfo))
        try:
            self.pst.call("pst_mem_info", mem, C.byref(info))
            assert info.kind == KIND_CUDA
            paths = self.lend(mem, 0, length, 99)
        except PenstockError as e:
            if e.errno == errno.EOPNOTSUPP:
                raise Skip(str(e)) from e
            raise
        finally:
            self.pst.lib.pst_mem_free(mem)
        self.same(t[off:off + length], 99, "lent part")
        self.kept(t[:off], 10, "before")
        self.kept(t[off + length:], 10, "behind")
        return f"by {paths}, allocation of {info.size / MIB:g} MiB"

    def lend_whole(self):
        """Lend all of a tensor; EOPNOTSUPP for memory of several chunks skips the case."""
        t = self.filled(48 * MIB + 5, 11)
        mem = self.pst.wrap(t.data_ptr(), t.numel())
        try:
            paths = self.lend(mem, 0, t.numel(), 1)
        except PenstockError as e:
            if e.errno == errno.EOPNOTSUPP:
                raise Skip(str(e)) from e
            raise
        finally:
            self.pst.lib.pst_mem_free(mem)
        self.same(t, 1, "lent tensor")
        return f"{t.numel() >> 20} MiB by {paths}"

    def graph_on_another_thread(self):
        """Capture a graph while another thread reads a file on its own queue."""
        torch = self.torch
        target = self.filled(96 * MIB, 12)
        x = torch.arange(4096, dtype=torch.float32, device=self.device)
        y = torch.zeros_like(x)
        errors = []

        def reader():
            try:
                self.read(target.data_ptr(), target.numel(), 17)
            except Exception as e:  # raised again by the waiting thread
                errors.append(e)

        warm = torch.cuda.Stream(self.device)
        with torch.cuda.stream(warm):
            y.copy_(x * 2 + 1)
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y.copy_(x * 2 + 1)
            thread = threading.Thread(target=reader)
            thread.start()
            thread.join()
            y.add_(1)
        if errors:
            raise errors[0]
        x.fill_(5)
        y.zero_()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize(self.device)
        if not bool((y == 12).all()):
            raise AssertionError("the graph gives wrong values")
        self.same(target, 17, "target")
        return f"{target.numel() >> 20} MiB read while capturing"

    def window_both_ways(self, t, off, length):
        """Store by the CPU and compare by PyTorch, then the reverse."""
        torch = self.torch
        mem = self.pst.wrap(t.data_ptr() + off, length)
        window = None
        try:
            opts = WindowOpts(sz=C.sizeof(WindowOpts), backend=b"nvrm")
            window = self.pst.make("pst_window_open", mem, 0, length, C.byref(opts))
            data = os.urandom(length)
            t.fill_(20)
            torch.cuda.synchronize(self.device)
            self.pst.call("pst_window_store", window, 0, data, length)
            if t[off:off + length].cpu().numpy().tobytes() != data:
                raise AssertionError(f"{length} bytes at {off}: PyTorch sees others")
            self.kept(t[:off], 20, "before")
            self.kept(t[off + length:], 20, "behind")
            part = torch.randint(0, 256, (length,), dtype=torch.uint8, device=self.device)
            t[off:off + length] = part
            torch.cuda.synchronize(self.device)
            buf = C.create_string_buffer(length)
            self.pst.call("pst_window_load", window, 0, buf, length)
            if buf.raw != part.cpu().numpy().tobytes():
                raise AssertionError(f"{length} bytes at {off}: the CPU sees others")
        except PenstockError as e:
            if e.errno == errno.EOPNOTSUPP and "was not made to be shared" in str(e):
                raise Skip(str(e)) from e
            raise
        finally:
            if window:
                self.pst.lib.pst_window_close(window)
            self.pst.lib.pst_mem_free(mem)

    def window_on_tensor(self):
        t = self.filled(64 * MIB + 12345, 1)
        self.window_both_ways(t, 0, t.numel())
        return f"{t.numel() >> 20} MiB"

    def window_on_parts(self):
        t = self.filled(50 * MIB, 1)
        for off, length in ((1, 5), (4095, 3), (123457, 1000003), (7 * MIB + 13, 30 * MIB + 1)):
            self.window_both_ways(t, off, length)
        return "4 parts"

    def window_on_small_tensors(self):
        ts = [self.filled(1000 + 37 * i, 9) for i in range(64)]
        for i in range(0, 64, 2):
            self.window_both_ways(ts[i], i % 7, 990 + 37 * i)
        for i in range(1, 64, 2):
            self.kept(ts[i], 9, f"tensor {i}")
        return "32 of 64"

    def window_by_grant(self):
        """A process without CUDA must add 1 to each byte of a part inside one chunk."""
        t = self.filled(48 * MIB, 10)
        off, length = 123457, 1000001
        mem = self.pst.wrap(t.data_ptr() + off, length)
        grant = Grant(sz=C.sizeof(Grant))
        ours, theirs = socket.socketpair()
        try:
            self.pst.call("pst_mem_export", mem, 0, length, RIGHTS, C.byref(grant))
            with subprocess.Popen([self.args.lender, "--map", str(theirs.fileno())],
                                  pass_fds=[theirs.fileno()], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as p:
                theirs.close()
                deadline = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 30 * 10**9
                self.pst.call("pst_grant_send", ours.fileno(), C.byref(grant), deadline)
                out, err = p.communicate(timeout=60)
            if p.returncode != 0:
                raise AssertionError(f"the other process failed: {(out + err).strip()[-400:]}")
        except PenstockError as e:
            if e.errno == errno.EOPNOTSUPP:
                raise Skip(str(e)) from e
            raise
        finally:
            self.pst.lib.pst_grant_done(C.byref(grant))
            self.pst.lib.pst_mem_free(mem)
            ours.close()
        self.torch.cuda.synchronize(self.device)
        self.kept(t[:off], 10, "before")
        self.kept(t[off:off + length], 11, "lent part")
        self.kept(t[off + length:], 10, "behind")
        return f"opened in {json.loads(out)['open_us']} us"

    MEMORY = (allocator, whole_tensor, part_at_odd_offset, small_tensors, matrix, write_to_file,
              lend_part, lend_whole)
    CAPTURE = (graph_on_another_thread,)
    WINDOW = (allocator, window_on_tensor, window_on_parts, window_on_small_tensors,
              window_by_grant)

    def run(self, cases):
        for case in cases:
            name = case.__name__.replace("_", " ")
            try:
                say(name, "passed", case(self))
            except Skip as e:
                say(name, "skipped", str(e))
            except Exception as e:  # run the next cases nevertheless
                self.failed = True
                say(name, "failed", f"{type(e).__name__}: {e}"[:500])


def say(case, result, note):
    print(json.dumps({"case": case, "result": result, "note": note}), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lib", required=True)
    p.add_argument("--importer", required=True)
    p.add_argument("--lender", required=True)
    p.add_argument("--file", required=True)
    p.add_argument("--scratch", required=True)
    p.add_argument("--gpu", type=int, default=0)
    p.add_argument("what", choices=("memory", "capture", "window"))
    args = p.parse_args()
    try:
        import torch
    except ImportError as e:
        say("tensors", "skipped", f"PyTorch cannot be imported: {e}")
        return 0
    if not torch.cuda.is_available():
        say("tensors", "skipped", "PyTorch sees no GPU")
        return 0
    torch.cuda.set_device(args.gpu)
    cases = {"memory": Cases.MEMORY, "capture": Cases.CAPTURE, "window": Cases.WINDOW}
    Cases(args, torch).run(cases[args.what])
    # Each case has reported its failure.
    return 0


if __name__ == "__main__":
    sys.exit(main())
