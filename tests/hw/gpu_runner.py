# SPDX-License-Identifier: MIT
"""Base of gpu-all's sections: the report, the programs and their runs, and files."""
import atexit
import glob
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
GIB = 1 << 30
REFUSED = 3  # exit status of raw: the machine lacks something

HERE = os.path.dirname(os.path.realpath(__file__))


class Late(Exception):
    """The time limit has passed."""


def why_failed(status, err):
    what = "it did not end in time" if status is None else f"status {status}"
    if status is not None and status < 0:
        what = f"signal {-status}"
    lines = [line for line in err.strip().splitlines() if line.strip()]
    return f"{what}: {' / '.join(lines[-3:])}"[:600] if lines else what


class Report:
    """Cases, tables and measurements; written to the disk after each section."""

    def __init__(self, out):
        self.path = os.path.join(out, "gpu-all.json")
        self.data = {"tool": "gpu-all", "cases": [], "sections": {}}
        self.count = {"passed": 0, "failed": 0, "skipped": 0}
        self.section = ""

    def begin(self, key, title):
        self.section = key
        self.data["sections"][key] = {"title": title, "tables": []}
        print(f"\n{key}. {title}", flush=True)

    def case(self, name, what, note=""):
        """Count and report a case; what: passed, failed or skipped."""
        self.count[what] += 1
        case = {"section": self.section, "case": name, "result": what}
        if note:
            case["note"] = note
        self.data["cases"].append(case)
        if what != "passed":
            print(f"{'FAILED ' if what == 'failed' else what} {name}: {note}", flush=True)

    def check(self, name, good, note=""):
        self.case(name, "passed" if good else "failed", note)

    def note(self, key, value):
        self.data["sections"][self.section][key] = value

    def table(self, heads, rows, title=""):
        self.data["sections"][self.section]["tables"].append(
            {"title": title, "heads": heads, "rows": rows})
        cells = [heads] + [[show(c) for c in row] for row in rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
        words = [all(isinstance(row[i], str) for row in rows) for i in range(len(heads))]
        if title:
            print(title)
        for row in cells:
            print("  " + "  ".join(c.ljust(w) if left else c.rjust(w)
                                   for c, w, left in zip(row, widths, words)).rstrip())
        sys.stdout.flush()

    def write(self):
        self.data["count"] = self.count
        part = self.path + ".part"
        with open(part, "w", encoding="utf-8") as f:
            json.dump(self.data, f, indent=1)
        os.replace(part, self.path)


def show(value):
    if isinstance(value, float):
        digits = 3 if 0 < abs(value) < 0.1 else 2 if abs(value) < 1000 else 0
        return f"{value:.{digits}f}"
    return str(value)


def median(values):
    return float(statistics.median(values)) if values else 0.0


def percentile(runs, key):
    """Return the median of the runs that had enough requests for this percentile."""
    known = [r[key] for r in runs if r[key] is not None]
    return median(known) if known else "-"


def size_text(n):
    return f"{n / GIB:g} GiB" if n >= GIB else f"{n // MIB} MiB"


def parse_size(text):
    units = {"k": 1 << 10, "m": MIB, "g": GIB}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def free_bytes(path):
    v = os.statvfs(path)
    return v.f_bavail * v.f_frsize


def memory_available():
    with open("/proc/meminfo", encoding="ascii") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


class Tools:
    """Paths of the binaries."""

    def __init__(self):
        self.penstock, self.programs, self.raw, self.lib = self.find()

    @staticmethod
    def of_build(build):
        return (os.path.join(build, "cli", "penstock"), os.path.join(build, "tests", "hw"),
                os.path.join(build, "bench", "raw"), os.path.join(build, "src", "libpenstock.so.0"))

    @staticmethod
    def of_bundle(bundle):
        hw = os.path.join(bundle, "tests", "hw")
        return (os.path.join(bundle, "bin", "penstock"), hw, os.path.join(hw, "raw"),
                os.path.join(bundle, "lib", "libpenstock.so.0"))

    def find(self):
        root = os.path.dirname(os.path.dirname(HERE))
        named = os.environ.get("PENSTOCK")
        if named:
            above = os.path.dirname(os.path.dirname(os.path.realpath(named)))
            places = [self.of_build(above), self.of_bundle(above)]
        else:
            builds = [self.of_build(b) for b in glob.glob(os.path.join(root, "build", "*"))
                      if not any(w in os.path.basename(b) for w in ("san", "coverage", "fuzz"))]
            builds = [b for b in builds if all(os.path.exists(p) for p in b)]
            builds.sort(key=lambda b: os.path.getmtime(b[0]), reverse=True)
            places = [self.of_bundle(root)] + builds
        for place in places:
            if all(os.path.exists(p) for p in place):
                return place
        sys.exit("gpu-all: no penstock with its programs is found; build it (./dev bundle), or "
                 "name the binary by PENSTOCK=")

    def program(self, name):
        return os.path.join(self.programs, name)

    def one_of(self, *names):
        """Return the first program that exists; its path differs between bundle and build."""
        paths = [self.program(name) for name in names]
        return next((path for path in paths if os.path.exists(path)), paths[0])


class Runner:
    """One run of gpu-all."""

    def __init__(self, args):
        self.args = args
        self.tools = Tools()
        self.report = Report(args.out)
        self.started = time.monotonic()
        self.work = tempfile.mkdtemp(prefix="gpu-all-", dir=args.disk)
        os.chmod(self.work, 0o711)  # for other users, who access a mount in it
        self.shm = tempfile.mkdtemp(prefix="gpu-all-", dir=args.shm)
        atexit.register(self.clean)
        self.device = args.device
        self.gpu = args.device.split(":")[1] if ":" in args.device else "0"
        self.cores = len(os.sched_getaffinity(0))
        self.warm_file = self.cold_file = self.write_file = None
        self.children = set()
        self.cufile = self.find_cufile()
        self.cufile_refused = None
        self.udev = self.udev_inode = None

    def clean(self):
        for pid in list(self.children):
            try:
                os.killpg(pid, signal.SIGKILL)
            except OSError:
                pass
        for path in (self.work, self.shm):
            shutil.rmtree(path, ignore_errors=True)

    def left(self):
        return self.args.limit - (time.monotonic() - self.started)

    # ------------------------------------------------------------ commands

    def run(self, cmd, timeout=120, env=None):
        """Run a command; return (status, stdout, stderr), with status None after a timeout."""
        if self.left() <= 0:
            raise Late()
        full = dict(os.environ, XDG_CACHE_HOME=self.work, **(env or {}))
        # Run it in the work folder, because other libraries leave logs in the current one.
        with subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace", cwd=self.work, env=full,
                              start_new_session=True) as p:
            self.children.add(p.pid)
            try:
                out, err = p.communicate(timeout=min(timeout, self.left() + 30))
                status = p.returncode
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                out, err = p.communicate()
                status = None
            self.children.discard(p.pid)
        return status, out, err

    def json_of(self, name, cmd, timeout=120, env=None):
        """Return the JSON object that a command prints; None: report a failed case."""
        status, out, err = self.run(cmd, timeout, env)
        if status == 0:
            try:
                return json.loads(out)
            except ValueError:
                err = "it printed no JSON: " + out[-300:]
        self.report.case(name, "failed", why_failed(status, err))
        return None

    def tap(self, prefix, cmd, timeout=180, env=None):
        """Count the cases of a program that prints TAP."""
        status, out, err = self.run(cmd, timeout, env)
        cases = bad = 0
        plan = None
        lines = out.splitlines()
        notes = [line for line in lines if line.startswith("#")]
        for i, line in enumerate(lines):
            if line.startswith("1.."):
                plan = int(line[3:].split()[0])
            if not line.startswith(("ok ", "not ok ")):
                continue
            cases += 1
            name, _, skip = line.partition(" # SKIP ")
            # "ok 3 name" or "not ok 3 name"
            name = f"{prefix}: {name.split(' ', 3 if line[0] == 'n' else 2)[-1]}"
            if skip:
                self.report.case(name, "skipped", skip)
            elif line[0] == "n":
                bad += 1
                why = lines[i + 1][2:] if lines[i + 1:i + 2] else ""
                self.report.case(name, "failed", why)
            else:
                self.report.case(name, "passed")
        if status is None or plan != cases or (status != 0 and not bad):
            self.report.case(f"{prefix}: runs to its end", "failed", why_failed(status, err))
        print(f"  {prefix}: {cases} cases, {bad} failed")
        for line in notes:
            print("   ", line)
        self.report.note(prefix, lines)

    def penstock(self, name, file, *more, sizes, seconds=0.8, timeout=120):
        """Run penstock bench; it prints one row per pass."""
        cmd = [self.tools.penstock, "bench", "-f", file, "-m", self.device, "--baseline", "none",
               "--json", "--sizes", ",".join(sizes), "--runtime", str(seconds), *more]
        return self.json_of(name, cmd, timeout)

    def raw(self, name, mode, file, *more, timeout=120):
        cmd = [self.tools.raw, mode, file, "--gpu", self.gpu, "--json", *more]
        if mode == "cufile":
            if self.cufile_refused:
                self.report.case(name, "skipped", self.cufile_refused)
                return None
            cmd += ["--libcufile", self.cufile]
        status, out, err = self.run(cmd, timeout)
        if status == REFUSED:
            why = err.strip().splitlines()[-1] if err.strip() else "refused"
            if mode == "cufile":
                self.cufile_refused = why
            self.report.case(name, "skipped", why)
            return None
        if status != 0:
            self.report.case(name, "failed", why_failed(status, err))
            return None
        return json.loads(out)

    @staticmethod
    def find_cufile():
        if os.environ.get("PST_LIBCUFILE"):
            return os.environ["PST_LIBCUFILE"]
        places = ["/usr/local/cuda/lib64/libcufile.so.0",
                  "/usr/local/cuda/targets/x86_64-linux/lib/libcufile.so.0"]
        for path in sys.path:
            places += sorted(glob.glob(os.path.join(path, "nvidia", "*", "lib", "libcufile.so.0")))
        for path in places:
            if os.path.exists(path):
                return path
        return "libcufile.so.0"

    # --------------------------------------------------------------- files

    def make(self, path, size, seed):
        status, _, err = self.run([self.tools.program("gpu-verify"), "--make", path, str(size),
                                   str(seed)], 300)
        if status != 0:
            sys.exit(f"gpu-all: cannot make {path}: {why_failed(status, err)}")
        return path

    def fit(self, path, parts, what):
        """Return the size for a file: --size, or less if space is short."""
        size = min(self.args.size, free_bytes(path) // parts)
        if path == self.shm:
            size = min(size, memory_available() // 4)
        size -= size % (64 * MIB)
        if size < 128 * MIB:
            sys.exit(f"gpu-all: {what} has not enough space: {path}")
        if size < self.args.size:
            print(f"{what}: {size_text(size)} instead of {size_text(self.args.size)}, because "
                  "space is short")
        return size

    def make_files(self, sections):
        if set("cdeghir") & sections:
            size = self.fit(self.shm, 3, "memory file")
            self.warm_file = self.make(os.path.join(self.shm, "warm"), size, 1)
        if set("df") & sections:
            size = self.fit(self.work, 4, "disk file")
            self.cold_file = self.make(os.path.join(self.work, "cold"), size, 2)
        if "f" in sections:
            self.write_file = self.make(os.path.join(self.work, "write"),
                                        max(size // 2, 128 * MIB), 3)

    # ------------------------------------------------------------ sections

    def rates(self, label, threads, doc, piece):
        """Return a row of a table from the JSON of raw or penstock bench."""
        if "rows" in doc:
            runs = [row["penstock"] for row in doc["rows"]]
            paths = "+".join(sorted({p for r in runs for p in r["paths"]}))
        else:
            runs, paths = doc["passes"], doc["io"]
        gb = [r["gb_per_s"] for r in runs]
        return [piece, label, threads, median(gb), min(gb), max(gb),
                percentile(runs, "p50_us"), percentile(runs, "p99_us"),
                median([r["cpu_s_per_10gb"] for r in runs]), paths]

    HEADS = ["piece", "what", "threads", "GB/s", "least", "most", "p50 us", "p99 us",
             "CPU s/10 GB", "path"]
