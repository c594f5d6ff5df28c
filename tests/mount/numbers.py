# SPDX-License-Identifier: MIT
"""Metrics of a mount: numbers and text are right, and no client, well-behaved or not, delays
others."""
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

from served import PROGRAM, Ringer, Served, Skip, case, eq, need_root, read_all, run, true, until

NOBODY = 65534
ASK = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


# ----------------------------------------------------------------- the text

def parse_labels(text):
    labels = re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)', text)
    eq(",".join(f'{k}="{v}"' for k, v in labels), text)
    return dict(labels)


def check_histogram(name, samples):
    groups = {}
    for sample, labels, value in samples:
        rest = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        groups.setdefault(rest, []).append((sample, labels, value))
    for rest, parts in groups.items():
        buckets = [(labels["le"], value) for sample, labels, value in parts
                   if sample == f"{name}_bucket"]
        eq(buckets[-1][0], "+Inf")
        ends = [float(le) for le, _ in buckets]
        eq(ends, sorted(set(ends)))
        counts = [value for _, value in buckets]
        eq(counts, sorted(counts))
        others = {sample: value for sample, labels, value in parts if "le" not in labels}
        eq(set(others), {f"{name}_sum", f"{name}_count"})
        eq(others[f"{name}_count"], counts[-1])
        true(others[f"{name}_sum"] >= 0, rest)


def strict(text):
    """Parse a text of version 0.0.4 strictly, each line of it.  Return its families."""
    true(text.endswith("\n"))
    families, name = {}, None
    seen = set()
    for line in text.splitlines():
        true("\r" not in line and line == line.strip(), line)
        if line.startswith("# HELP "):
            name, words = line[7:].split(" ", 1)
            true(name not in families and words.endswith((".", "?")), line)
            true(re.fullmatch(r"penstock_[a-z_]+", name), line)
            families[name] = [None]
        elif line.startswith("# TYPE "):
            eq(line[7:].split(" ")[0], name)
            families[name][0] = line.split(" ")[3]
            true(families[name][0] in ("counter", "gauge", "histogram"), line)
            eq(name.endswith("_total"), families[name][0] == "counter")
        else:
            match = re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\+Inf|[0-9]+(?:\.[0-9]+)?)", line)
            true(match, line)
            sample, labels, value = match.groups()
            labels = parse_labels(labels or "")
            key = (sample, tuple(sorted(labels.items())))
            true(key not in seen, f"twice: {line}")
            seen.add(key)
            own = {name} if families[name][0] != "histogram" else \
                {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
            true(sample in own, f"{line} stands below {name}")
            families[name].append((sample, labels, float(value)))
    for name, (kind, *samples) in families.items():
        if kind == "histogram":
            check_histogram(name, samples)
    return families


@case
def text_is_strict():
    with Served() as mount:
        os.listdir(mount.dir)
        with Ringer(mount, 10):
            families = strict(mount.text())
    for name in ("penstock_fuse_operations_total", "penstock_fuse_operation_seconds",
                 "penstock_ring_request_seconds", "penstock_ring_paths_total",
                 "penstock_worker_info", "penstock_broker_messages_total"):
        true(len(families[name]) > 1, name)


@case
def prometheus_reads_it():
    try:
        sys.path.append("/usr/lib/python3/dist-packages")
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as e:
        raise Skip("python3-prometheus-client") from e
    with Served() as mount:
        os.listdir(mount.dir)
        with Ringer(mount, 10):
            text = mount.text()
    theirs = {s.name: s.value for family in text_string_to_metric_families(text)
              for s in family.samples}
    ours = {sample for _, *samples in strict(text).values() for sample, _, _ in samples}
    eq({name for name in ours if name not in theirs}, set())
    eq(theirs["penstock_passthrough"] in (0.0, 1.0), True)


@case
def odd_names_are_escaped():
    with Served() as mount:
        eq(mount.ready, f"{mount.dir} serves {mount.source}\n")
        odd = f'{mount.base}/a"b\\c\nd\033[31m\u00e9\udcff'
        os.rename(mount.source, odd)
        os.mkdir(mount.source)
        with subprocess.Popen([os.environ["PENSTOCK_MOUNT"], "--foreground", "--metrics",
                               f"{mount.base}/other", "--source", odd, mount.dir],
                              stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            other.stdout.readline()
            mount.socket = f"{mount.base}/other"
            families = strict(mount.text())
            other.terminate()
            other.communicate()
        eq(families["penstock_mount_info"][1][1]["source"],
           f'{mount.base}/a\\"b\\\\c\\\\012d\\\\033[31m\u00e9\\\\377')


# -------------------------------------------------------------- the numbers

@case
def operations_are_counted():
    with Served("--kernel-cache") as mount:
        path = mount.file("data", 50000)
        before = mount.numbers()
        with open(path, "r+b", buffering=0) as f:
            eq(len(f.read(50000)), 50000)
            f.write(b"x" * 1000)
        try:
            os.stat(f"{mount.dir}/none")
        except FileNotFoundError:
            pass
        try:
            os.rmdir(path)
        except NotADirectoryError:
            pass
        lookups = 'penstock_fuse_errors_total{op="lookup",error="ENOENT"}'
        reads = 'penstock_fuse_bytes_total{op="read"}'
        writes = 'penstock_fuse_bytes_total{op="write"}'

        # An operation is counted after its answer, so its caller may be faster than the counter.
        def counted():
            numbers = mount.numbers()
            return numbers if all(map(numbers.get, (lookups, reads, writes))) else None
        after = until(counted)

        def more(key):
            return after.get(key, 0) - before.get(key, 0)
        eq(more('penstock_fuse_operations_total{op="open"}'), 1)
        eq(more('penstock_opens_total{way="cache",reason="option"}'), 1)
        eq(more('penstock_opens_total{way="passthrough",reason=""}'), 0)
        true(more(reads) >= 50000)
        eq(more(writes), 1000)
        true(more(lookups) >= 1, lookups)
        for op in ("open", "lookup", "write", "read"):
            eq(more(f'penstock_fuse_operation_seconds_count{{op="{op}"}}'),
               more(f'penstock_fuse_operations_total{{op="{op}"}}'))
        eq(after["penstock_passthrough"], 0)


def asks(mount, ops, call, want):
    """Call a function that opens a file 10 times.  The kernel must ask for each operation want
    times.  Operations are counted after their answers, so earlier ones may be counted late."""
    keys = [f'penstock_fuse_operations_total{{op="{op}"}}' for op in ops]
    opens = 'penstock_fuse_operations_total{op="open"}'

    def asked():
        before = mount.numbers()
        for _ in range(10):
            call()
        after = until(lambda: (n := mount.numbers())[opens] >= before.get(opens, 0) + 10 and n)
        return [after.get(key, 0) - before.get(key, 0) for key in keys]
    until(lambda: asked() == want, f"it asks {asked()}, not {want}")


@case
def opening_a_file_again_asks_for_nothing_more():
    with Served("--timeout", "3600") as mount:
        path = mount.file("data", 5000)

        def look():
            os.close(os.open(path, os.O_RDONLY))
        look()
        os.stat(path)
        asks(mount, ("open", "lookup", "getattr", "flush"), look, [10, 0, 0, 0])
        # A program that opens the file sees its size, even after a change of the source.
        os.truncate(f"{mount.source}/data", 3)
        with open(path, "rb") as f:
            eq(os.fstat(f.fileno()).st_size, 3)
            eq(os.stat(path).st_size, 3)
        os.truncate(f"{mount.source}/data", 4)
        with open(path, "rb") as f:
            eq(os.fstat(f.fileno()).st_size, 4)
        look()
        asks(mount, ("open", "getattr", "flush"), look, [10, 0, 0])


@case
def closing_a_cached_file_flushes_it():
    with Served("--kernel-cache") as mount:
        path = mount.file("data", 5000)
        asks(mount, ("flush",), lambda: os.close(os.open(path, os.O_RDWR)), [10])


@case
def passthrough_is_counted():
    with Served() as mount:
        path = mount.file("data", 5000)
        if not mount.numbers()["penstock_passthrough"]:
            raise Skip("FUSE passthrough (Linux 6.9)")
        with open(path, "rb"), open(path, "rb"):
            pass
        n = mount.numbers()
        eq(n['penstock_opens_total{way="passthrough",reason=""}'], 2)
        eq(n.get('penstock_fuse_bytes_total{op="read"}'), 0)


@case
def refused_passthrough_is_told():
    """An overlay on an overlay is one level too deep for passthrough."""
    need_root()
    with Served(env={"PST_LOG": "warn"}) as mount:
        if not mount.numbers()["penstock_passthrough"]:
            raise Skip("FUSE passthrough (Linux 6.9)")
        deep = f"{mount.source}/merged"
        for name in ("merged", "lower", "upper", "work", "lower2", "upper2", "work2", "tmp"):
            os.mkdir(f"{mount.source}/{name}")

        def overlay(lower, upper, work, at):
            done = subprocess.run(
                ["mount", "-t", "overlay", "overlay", "-o",
                 f"lowerdir={lower},upperdir={upper},workdir={work}", at],
                capture_output=True, check=False)
            if done.returncode:
                raise Skip("an overlay")
        subprocess.run(["mount", "-t", "tmpfs", "tmp", f"{mount.source}/tmp"], check=True)
        try:
            base = f"{mount.source}/tmp"
            for name in ("a", "b", "c", "d", "e", "f", "g"):
                os.mkdir(f"{base}/{name}")
            overlay(f"{base}/a", f"{base}/b", f"{base}/c", f"{base}/d")
            overlay(f"{base}/d", f"{base}/e", f"{base}/f", deep)
            with open(f"{deep}/secret-name", "wb") as f:
                f.write(b"x" * 5000)
            for _ in range(50):
                with open(f"{mount.dir}/merged/secret-name", "rb") as f:
                    eq(len(f.read()), 5000)
            with open(f"{mount.dir}/merged/secret-name", "rb"), \
                    open(f"{mount.dir}/merged/secret-name", "rb"):
                pass
            n = mount.numbers()
        finally:
            for at in (deep, f"{mount.source}/tmp/d", f"{mount.source}/tmp"):
                subprocess.run(["umount", "-l", at], check=False, capture_output=True)
        # The kernel reports a close some time after close(2) has returned.  An open before that
        # report uses the same way as the file that is still open (reason "shared").
        refused = n['penstock_opens_total{way="cache",reason="refused"}']
        shared = n['penstock_opens_total{way="cache",reason="shared"}']
        eq(refused + shared, 52)
        true(shared >= 1 and refused >= 21, (refused, shared))
        eq(n['penstock_passthrough_refusals_total{error="ELOOP"}'], refused)
        eq(len(mount.lines("does not pass the bytes of a file on")), 20)
        eq(n["penstock_log_suppressed_total"], refused - 20)
        true("secret-name" not in mount.words(), mount.words())


@case
def rings_are_counted():
    with Served("--memory", "100000000") as mount:
        with Ringer(mount, 100), Ringer(mount, 30, NOBODY):
            n = mount.numbers()
            for uid, reads in ((0, 100), (NOBODY, 30)):
                who = f'{{uid="{uid}"}}'
                got = n[f"penstock_ring_requests_total{who}"]
                eq(got, reads + 1)
                eq(n[f"penstock_ring_errors_total{who}"], 1)
                eq(n[f"penstock_ring_read_bytes_total{who}"], 4096 * (got - 1))
                eq(n[f"penstock_ring_written_bytes_total{who}"], 0)
                eq(n[f"penstock_ring_request_seconds_count{who}"], got)
                eq(n[f"penstock_rings{who}"], 1)
                eq(n[f"penstock_iovs{who}"], 1)
                true(n[f"penstock_quota_bytes_used{who}"] > 8192, n)
                paths = {k: v for k, v in n.items()
                         if k.startswith(f'penstock_ring_paths_total{{uid="{uid}"')}
                true(sum(paths.values()) >= got - 1, paths)
                true(all(re.search('path="(cached|direct|buffered)"', k) for k in paths), paths)
                eq(n[f"penstock_worker_starts_total{who}"], 1)
                eq(n[f"penstock_worker_lies_total{who}"], 0)
            eq(n["penstock_quota_bytes_limit"], 100000000)
            eq(n['penstock_broker_messages_total{op="ring_add"}'], 2)
            eq(n['penstock_broker_message_errors_total{op="ring_add"}'], 0)


def worker_of(mount, uid):
    for key in mount.numbers():
        match = re.match(rf'penstock_worker_info{{uid="{uid}",pid="(\d+)",state="(\w+)"}}', key)
        if match:
            return int(match[1]), match[2]
    return None


@case
def a_worker_that_ends_is_followed():
    """Counters continue after the worker's end; its state is reported."""
    with Served() as mount:
        with Ringer(mount, 50):
            pid, state = worker_of(mount, 0)
            eq(state, "running")
            os.kill(pid, signal.SIGSTOP)
            until(lambda: worker_of(mount, 0) == (pid, "stopped"))
            os.kill(pid, signal.SIGCONT)
            until(lambda: worker_of(mount, 0) == (pid, "running"))
            first = mount.numbers()
            os.kill(pid, signal.SIGKILL)
            until(lambda: worker_of(mount, 0) == (0, "none"))
            gone = mount.numbers()
            for name in ("requests_total", "errors_total", "read_bytes_total"):
                key = f'penstock_ring_{name}{{uid="0"}}'
                eq(gone[key], first[key])
            eq(gone['penstock_rings{uid="0"}'], 0)
        with Ringer(mount, 50):
            n = mount.numbers()
            eq(n['penstock_worker_restarts_total{uid="0"}'], 1)
            eq(n['penstock_ring_requests_total{uid="0"}'], 102)
        true(mount.lines("signal=KILL"), mount.words())


# ------------------------------------------------------------- the requests

def check_answers_by_request(port):
    with Served(port=port) as mount:
        for request, status in (
                (ASK, 200), (b"GET /metrics?a=b HTTP/1.0\n\n", 200),
                (b"GET /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 200),
                (b"GET / HTTP/1.1\r\n\r\n", 404), (b"GET /metrics/ HTTP/1.1\r\n\r\n", 404),
                (b"GET http://x/metrics HTTP/1.1\r\n\r\n", 404),
                (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
                (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
                (b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
                (b"GET /metrics HTTP/2.0\r\n\r\n", 505), (b"GET /metrics\r\n\r\n", 400),
                (b"\r\n\r\n", 400), (b"\0\0\0\0\n\n", 400),
                (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
                (b"GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n", 400),
                (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
                (b"GET /metrics HTTP/1.1\r\nA: \x01\r\n\r\n", 400),
                (b"A" * 5000, 431), (b"GET /metrics HTTP/1.1\r\nA: " + b"x" * 5000, 431)):
            answer = mount.ask(request)
            true(answer.startswith(b"HTTP/1.1 %d " % status), (request[:80], answer[:80]))
            head, body = answer.split(b"\r\n\r\n", 1)
            true(b"Content-Length: %d\r\n" % len(body) in head + b"\r\n", head)
            true(b"Connection: close" in head, head)
        head, body = mount.ask(b"HEAD /metrics HTTP/1.1\r\n\r\n").split(b"\r\n\r\n", 1)
        eq(body, b"")
        true(b"text/plain; version=0.0.4" in head, head)
        # A request in pieces, and two requests at once: only the first is answered.
        with mount.connect() as s:
            for i in range(len(ASK)):
                s.send(ASK[i:i + 1])
            true(b" 200 OK" in read_all(s))
        answer = mount.ask(ASK + ASK)
        eq(answer.count(b"HTTP/1.1 200"), 1)


@case
def answers_by_request():
    check_answers_by_request(None)


@case
def answers_by_request_of_a_port():
    check_answers_by_request("127.0.0.1:0")


def check_nobody_holds_others_up(port):
    """Clients that send nothing or a part, read nothing, or come in large numbers."""
    with Served(port=port) as mount:
        silent = [mount.connect() for _ in range(6)]
        half = mount.connect()
        half.send(b"GET /metrics HT")
        deaf = [mount.connect() for _ in range(3)]
        for s in deaf:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.send(ASK)
        for _ in range(20):
            start = time.monotonic()
            strict(mount.text())
            true(time.monotonic() - start < 4, "it took as long as a time limit")
        os.listdir(mount.dir)
        # A silent client gets an error, or was disconnected.
        ends = [read_all_or_reset(s) for s in silent + [half]]
        true(all(e in (b"", None) or e.startswith(b"HTTP/1.1 408") for e in ends), ends)
        for s in silent + [half] + deaf:
            s.close()
        crowd = [threading.Thread(target=lambda: [mount.connect().close() for _ in range(50)])
                 for _ in range(8)]
        for t in crowd:
            t.start()
        for t in crowd:
            t.join()
        strict(mount.text())
        n = mount.numbers()
        true(n["penstock_metrics_clients_turned_away_total"] > 0, n)
        fds = os.listdir(f"/proc/{mount.process.pid}/fd")
        true(len(fds) < 64, fds)


@case
def nobody_holds_others_up():
    check_nobody_holds_others_up(None)


@case
def nobody_holds_others_up_of_a_port():
    check_nobody_holds_others_up("127.0.0.1:0")


def read_all_or_reset(s):
    try:
        return read_all(s)
    except ConnectionResetError:
        return None


def check_noise_is_answered(port):
    """Random bytes of any length give an error, never a hang or the server's end."""
    with Served(port=port) as mount:
        for i in range(200):
            answer = mount.ask(os.urandom(i * 7) + b"\n\n")
            true(re.match(rb"HTTP/1.1 (400|431|405|505) ", answer), answer[:100])
        strict(mount.text())


@case
def noise_is_answered():
    check_noise_is_answered(None)


@case
def noise_is_answered_of_a_port():
    check_noise_is_answered("127.0.0.1:0")


# --------------------------------------------------------------- the socket

@case
def socket_is_private():
    with Served() as mount:
        st = os.stat(mount.socket)
        eq(stat.S_IMODE(st.st_mode), 0o600)
        eq(st.st_uid, os.geteuid())
        code = ("import os, socket, sys\n"
                "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
                "try:\n    socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
                "except PermissionError:\n    sys.exit(7)\n")
        eq(subprocess.run([sys.executable, "-I", "-c", code, mount.socket],
                          check=False).returncode, 7)
    true(not os.path.exists(mount.socket))


def fails(mount, *options):
    """Start a second server, which must fail.  Return its message."""
    other = f"{mount.base}/other"
    os.makedirs(other, exist_ok=True)
    done = subprocess.run([os.environ["PENSTOCK_MOUNT"], "--foreground", *options, "--source",
                           mount.source, other], capture_output=True, check=False, timeout=60)
    eq(done.returncode, 1)
    true(not os.path.ismount(other))
    return done.stderr.decode()


@case
def ports_of_the_loopback():
    with Served(port="127.0.0.1:0") as mount:
        strict(mount.text())
        # Addresses of this machine only.
        hosts = {line.split()[1].split(":")[0] for line in listening(mount.process.pid, "tcp")}
        eq(hosts, {"0100007F"})
        eq(listening(mount.process.pid, "tcp6"), [])
        # A port in use is refused; a port that was just released is available, as after a restart.
        place = "%s:%d" % mount.socket
        true("in use" in fails(mount, "--metrics", place))
        strict(mount.text())
    with Served(port=place) as mount:
        strict(mount.text())
    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
    except OSError as e:
        raise Skip("IPv6 on the loopback") from e
    with Served(port="[::1]:0") as mount:
        eq(mount.socket[0], "::1")
        strict(mount.text())


def listening(pid, kind):
    """Return the lines of /proc/net/tcp for ports on which a process listens."""
    fds = f"/proc/{pid}/fd"
    mine = {os.readlink(f"{fds}/{fd}") for fd in os.listdir(fds)}
    with open(f"/proc/net/{kind}", encoding="ascii") as f:
        return [line for line in f.readlines()[1:]
                if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in mine]


@case
def other_addresses_are_refused():
    """The server itself refuses addresses of other machines, because it may be started without
    the command."""
    with Served() as mount:
        for place in ("0.0.0.0:9000", "[::]:9000", "localhost:9000", "127.0.0.1:65536", ":9000",
                      "127.0.0.1:", "[::1:9000", "::1:9000", "1.2.3.4:9000", "127.1:9000"):
            done = subprocess.run([PROGRAM, "--foreground", "--metrics", place, "--source",
                                   mount.source, mount.dir], capture_output=True, check=False,
                                  timeout=60)
            eq(done.returncode, 2)
            true(b"ADDRESS:PORT" in done.stderr, done.stderr)


@case
def names_are_taken_with_care():
    with Served() as mount:
        # A living server keeps its name.
        true("in use" in fails(mount, "--metrics", mount.socket))
        strict(mount.text())
        # A regular file or a link is not replaced.
        with open(f"{mount.base}/file", "w", encoding="ascii") as f:
            f.write("mine")
        true("exists" in fails(mount, "--metrics", f"{mount.base}/file"))
        os.symlink(mount.socket, f"{mount.base}/link")
        true("exists" in fails(mount, "--metrics", f"{mount.base}/link"))
        # A directory in which others could replace the socket is refused.
        os.mkdir(f"{mount.base}/open")
        os.chmod(f"{mount.base}/open", 0o777)
        true("not permitted" in fails(mount, "--metrics", f"{mount.base}/open/socket"))
        true("No such file" in fails(mount, "--metrics", f"{mount.base}/none/socket"))
        with open(f"{mount.base}/file", encoding="ascii") as f:
            eq(f.read(), "mine")


@case
def names_of_the_dead_are_replaced():
    with Served() as mount:
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(f"{mount.base}/dead")
        dead.close()
        with subprocess.Popen([os.environ["PENSTOCK_MOUNT"], "--foreground", "--metrics",
                               f"{mount.base}/dead", "--source", mount.source, mount.dir],
                              stdout=subprocess.PIPE) as other:
            true(other.stdout.readline())
            mount.socket, first = f"{mount.base}/dead", mount.socket
            strict(mount.text())
            other.terminate()
            other.communicate()
        true(not os.path.exists(mount.socket))
        mount.socket = first


@case
def many_begin_at_once():
    """If several servers want one name at once, one gets it."""
    with Served() as mount:
        path = f"{mount.base}/one"
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(path)
        dead.close()
        servers = []
        for i in range(6):
            os.mkdir(f"{mount.base}/m{i}")
            servers.append(subprocess.Popen(
                [os.environ["PENSTOCK_MOUNT"], "--foreground", "--metrics", path, "--source",
                 mount.source, f"{mount.base}/m{i}"], stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL))
        ready = [bool(s.stdout.readline()) for s in servers]
        try:
            eq(ready.count(True), 1)
            mount.socket = path
            text = mount.text()
            true(f'dir="{mount.base}/m{ready.index(True)}"' in text, text[:500])
        finally:
            for s in servers:
                s.terminate()
                s.communicate()
        true(not os.path.exists(path))


@case
def none_is_none():
    with Served("--metrics", "none", metrics=False) as mount:
        eq(os.listdir(mount.base).count("socket"), 0)
        with open("/proc/net/unix", encoding="ascii") as f:
            mine = {os.readlink(f"/proc/{mount.process.pid}/fd/{fd}")
                    for fd in os.listdir(f"/proc/{mount.process.pid}/fd")}
            listening = {line.split()[6] for line in f if line.split()[3] == "00010000"}
        true(not any(f"socket:[{inode}]" in mine for inode in listening))


run()
