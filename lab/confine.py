#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""confine.py COMMAND...: run a command with the rights of a container by Docker's defaults: 14 of
root's capabilities, and a filter that refuses io_uring, namespaces, mounts and memory policies."""
import ctypes
import os
import platform
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
PR_CAPBSET_DROP, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 24, 22, 2
EPERM, ENOSYS = 1, 38

# Capabilities: chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap,
# net_bind_service, net_raw, sys_chroot, mknod, audit_write, setfcap
KEPT = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)

# System call numbers of x86-64.
REFUSED = {
    425: EPERM, 426: EPERM, 427: EPERM,                    # io_uring_*
    272: EPERM, 308: EPERM, 165: EPERM, 166: EPERM,        # unshare, setns, mount, umount2
    155: EPERM, 428: EPERM, 429: EPERM, 430: EPERM,        # pivot_root and the new mounts
    237: EPERM, 238: EPERM, 239: EPERM, 279: EPERM,        # mbind, *_mempolicy, move_pages
    298: EPERM, 321: EPERM, 323: EPERM,                    # perf_event_open, bpf, userfaultfd
    435: ENOSYS,                                           # clone3, so that programs use clone
}


def instruction(code, value, yes=0, no=0):
    return struct.pack("HBBI", code, yes, no, value)


def must(result, what):
    if result != 0:
        sys.exit(f"confine.py: {what}: {os.strerror(ctypes.get_errno())}")


def filter_calls():
    load, equal, give = 0x20, 0x15, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000
    words = [instruction(load, 0)]
    for number, error in REFUSED.items():
        words += [instruction(equal, number, 0, 1), instruction(give, refuse | error)]
    words.append(instruction(give, allow))
    program = ctypes.create_string_buffer(b"".join(words))
    header = struct.pack("HxxxxxxP", len(words), ctypes.addressof(program))
    must(LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0), "a filter of calls")


def main():
    if platform.machine() != "x86_64":
        sys.exit("confine.py: the numbers of the calls are those of x86-64")
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as last:
        for cap in range(int(last.read()) + 1):
            if cap not in KEPT:
                must(LIBC.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0), "dropping a capability")
    # Install the filter first, while that is permitted; exec keeps the capabilities of the bounding
    # set.
    filter_calls()
    os.execvp(sys.argv[1], sys.argv[1:])


main()
