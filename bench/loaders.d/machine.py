# SPDX-License-Identifier: MIT
"""Facts about the machine that is measured."""
import os
import platform


def line_of(path, key, default=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(key):
                    return line.split(":", 1)[-1].strip()
    except OSError:
        pass
    return default


def processor():
    return line_of("/proc/cpuinfo", "model name", platform.machine())


def memory_bytes():
    return int(line_of("/proc/meminfo", "MemTotal", "0 kB").split()[0]) * 1024


def driver():
    """Return NVIDIA's driver version, as its kernel module reports it."""
    words = line_of("/proc/driver/nvidia/version", "NVRM version").split()
    numbers = [word for word in words if word[:1].isdigit() and "." in word]
    return numbers[0] if numbers else ""


def file_system(path):
    """Return the file system type of the longest mount point above the path."""
    path, best, kind = os.path.realpath(path), "", "unknown"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                fields, _, rest = line.partition(" - ")
                point = fields.split()[4].replace("\\040", " ")
                inside = path == point or path.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best):
                    best, kind = point, rest.split()[0]
    except OSError:
        pass
    return kind


def facts():
    return {"processor": processor(), "cpus": len(os.sched_getaffinity(0)),
            "memory_bytes": memory_bytes(), "kernel": "Linux " + platform.release(),
            "python": platform.python_version(), "nvidia_driver": driver()}
