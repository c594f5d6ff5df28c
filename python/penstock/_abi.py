# SPDX-License-Identifier: MIT
# Made by python/generate.py out of include/; tests/python/abi.py compares both.
"""Constants, structures and calls of the public headers."""
# flake8: noqa
from ctypes import (Structure, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint,
                    c_uint8, c_uint32, c_uint64, c_void_p)

PST_DEVICE_NAME_MAX = 64
PST_KIND_HOST = 1
PST_KIND_SOFT = 2
PST_KIND_CUDA = 3
PST_KIND_GAUDI = 4
PST_KIND_DMABUF = 5
PST_KIND_P2PMEM = 6
PST_PATH_DIRECT = 1
PST_PATH_CACHED = 2
PST_PATH_BUFFERED = 3
PST_PATH_STAGED = 4
PST_PATH_WINDOW = 5
PST_PATH_PAGECACHE = 6
PST_PATH_GATHER = 7
PST_PATH_GDS = 8
PST_PATH_TCP = 9
PST_PATH_P2P = 10
PST_PATH_RDMA = 11
PST_PATH_PEER = 12
PST_PATH_MAX = 15
PST_WHY_NONE = 0
PST_WHY_NO_DEVICE = 1
PST_WHY_NO_DIRECT = 2
PST_WHY_UNALIGNED = 3
PST_WHY_NOT_RESIDENT = 4
PST_WHY_MEMLOCK = 5
PST_WHY_NO_URING = 6
PST_WHY_NO_PROVIDER = 7
PST_WHY_NOT_PROVEN = 8
PST_WHY_DIRECTION = 10
PST_WHY_NOT_STABLE = 11
PST_WHY_DIRECT_ERROR = 12
PST_WHY_NO_WINDOW = 13
PST_WHY_NO_GDS = 14
PST_WHY_MIXED = 15
PST_WHY_NO_P2P = 16
PST_WHY_NO_RDMA = 17
PST_WHY_NO_PEER = 18
PST_WHY_MAX = 31
PST_OP_READ = 1
PST_OP_WRITE = 2
PST_OP_SYNC = 3
PST_STATE_IMPOSSIBLE = 0
PST_STATE_POSSIBLE = 1
PST_STATE_PROVEN = 2
PST_CHECK_MISSING = 0
PST_CHECK_UNKNOWN = 1
PST_CHECK_OK = 2
PST_CHECK_UNNEEDED = 3
PST_CHECK_TRIAL = 1
PST_DEVICE_TEXT_MAX = 0x1000
PST_FILE_READ = 1
PST_FILE_WRITE = 2
PST_FILE_CREATE = 4
PST_FILE_EXCL = 8
PST_FILE_TRUNC = 16
PST_FILE_STABLE = 32
PST_FILE_PLAIN = 64
PST_RIGHT_READ = 1
PST_RIGHT_WRITE = 2
PST_SEGS_MAX = 0x100000
PST_PIECES_MAX = 0x1000000
PST_IO_STRICT = 1
PST_IO_CRC32C = 2
PST_IO_DATASYNC = 4
PST_IO_STREAM_WAIT = 8
PST_IO_VERIFY = 16
PST_IO_CRC32C_MEM = 32
PST_NO_DEADLINE = 0xffffffffffffffff
PST_POLICY_AUTO = 0
PST_DONE_BUSY = 1
PST_DONE_CRC32C = 2
PST_DONE_PINNED = 4
PST_DONE_PROOF = 8
PST_VECS_MAX = 0x100000
PST_MEM_SHARED = 1
PST_MEM_PINNED = 2
PST_MEM_LATER = 4
PST_MEM_DMABUF = 8
PST_MEM_NO_DMABUF = 16
PST_NAME_FILE = 1
PST_NAME_DIR = 2
PST_NAME_OTHER = 3
PST_NAME_HAS_SIZE = 1
PST_NAME_HAS_MTIME = 2
PST_NAME_FACTS = 1
PST_NAME_TREE = 2
PST_PEER_PLAIN = 1
PST_PEER_LOCAL = 1
PST_PEER_TLS = 2
PST_SHARE_GRANT = 1
PST_KEY_MAX = 0x100
PST_MESSAGE_INLINE = 0x4000
PST_BACKEND_AUTO = 0
PST_BACKEND_URING = 1
PST_BACKEND_THREADS = 2
PST_QUEUE_FD_ONCE = 1
PST_CACHING_WC = 1
PST_CACHING_CACHED = 2
PST_CACHING_DEVICE = 3
PST_WINDOW_READ_ONLY = 1
PST_WINDOW_UNFENCED = 2
PST_VERSION_MAJOR = 0
PST_VERSION_MINOR = 2
PST_VERSION_PATCH = 0
PST_LOG_ERROR = 1
PST_LOG_WARN = 2
PST_LOG_INFO = 3
PST_LOG_DEBUG = 4


class pst_path_info(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("path", c_uint32),
        ("state", c_uint32),
        ("why", c_uint32),
        ("detail", c_int32),
    ]


class pst_check(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("name", c_char * 16),
        ("state", c_uint32),
        ("err", c_int32),
        ("text", c_char * 488),
    ]


class pst_check_opts(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("device", c_char_p),
        ("path", c_char_p),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    ]


class pst_device(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("kind", c_uint32),
        ("index", c_uint32),
        ("name", c_char * 64),
        ("model", c_char * 64),
        ("pci", c_char * 24),
        ("uuid", c_uint8 * 16),
        ("numa_node", c_int32),
        ("reserved", c_uint32),
        ("total", c_uint64),
    ]


class pst_file_opts(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("mode", c_uint32),
        ("flags", c_uint32),
    ]


class pst_file_info(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("size", c_uint64),
        ("flags", c_uint32),
        ("direct", c_uint32),
        ("mem_align", c_uint32),
        ("off_align", c_uint32),
        ("why", c_uint32),
        ("detail", c_int32),
        ("fs", c_char * 16),
    ]


class pst_grant(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("kind", c_uint32),
        ("rights", c_uint32),
        ("uuid", c_uint8 * 16),
        ("size", c_uint64),
        ("off", c_uint64),
        ("len", c_uint64),
        ("fd", c_int32),
        ("reserved", c_uint32),
        ("ipc", c_uint8 * 64),
    ]


class pst_seg(Structure):
    _fields_ = [
        ("file_off", c_uint64),
        ("mem_off", c_uint64),
        ("len", c_uint64),
        ("file_stride", c_uint64),
        ("mem_stride", c_uint64),
        ("count", c_uint64),
    ]


class pst_io(Structure):
    _fields_ = [
        ("op", c_uint32),
        ("flags", c_uint32),
        ("policy", c_uint64),
        ("file", c_void_p),
        ("mem", c_void_p),
        ("segs", c_void_p),
        ("nr_segs", c_uint64),
        ("file_off", c_uint64),
        ("mem_off", c_uint64),
        ("len", c_uint64),
        ("stream", c_void_p),
        ("deadline_ns", c_uint64),
        ("user_data", c_uint64),
        ("crc32cs", c_void_p),
        ("reserved", c_uint64 * 3),
    ]


class pst_done(Structure):
    _fields_ = [
        ("user_data", c_uint64),
        ("res", c_int64),
        ("prefix", c_uint64),
        ("paths", c_uint32),
        ("why", c_uint32),
        ("detail", c_int32),
        ("flags", c_uint32),
        ("crc32c", c_uint32),
        ("op", c_uint32),
        ("wrong_piece", c_uint64),
        ("reserved", c_uint64),
    ]


class pst_vec(Structure):
    _fields_ = [
        ("mem", c_void_p),
        ("mem_off", c_uint64),
        ("file_off", c_uint64),
        ("len", c_uint64),
        ("reserved", c_uint64),
    ]


class pst_call_opts(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("policy", c_uint64),
        ("deadline_ns", c_uint64),
        ("stream", c_void_p),
    ]


class pst_mem_opts(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("flags", c_uint32),
        ("kind", c_uint32),
    ]


class pst_mem_info(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("kind", c_uint32),
        ("flags", c_uint32),
        ("addr", c_uint64),
        ("len", c_uint64),
        ("base", c_uint64),
        ("size", c_uint64),
        ("buffer_id", c_uint64),
        ("device", c_char * 64),
    ]


class pst_name_info(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("kind", c_uint32),
        ("has", c_uint32),
        ("size", c_uint64),
        ("mtime_ns", c_int64),
    ]


class pst_peer_opts(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("keys", c_char_p),
        ("key", c_char_p),
    ]


class pst_peer_info(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("flags", c_uint32),
        ("err", c_int32),
        ("uid", c_uint32),
        ("pid", c_uint32),
        ("nr_messages", c_uint64),
    ]


class pst_queue_opts(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("depth", c_uint32),
        ("backend", c_uint32),
        ("timeout_ms", c_uint32),
        ("flags", c_uint32),
    ]


class pst_stats(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("requests", c_uint64),
        ("errors", c_uint64),
        ("timeouts", c_uint64),
        ("canceled", c_uint64),
        ("fallbacks", c_uint64),
        ("inflight", c_uint64),
        ("busy", c_uint64),
        ("bytes", c_uint64 * 16),
        ("why", c_uint64 * 32),
        ("pool_bytes", c_uint64),
        ("pool_limit", c_uint64),
        ("pages_bytes", c_uint64),
        ("pages_ns", c_uint64),
        ("pages_limit", c_uint64),
        ("pages_waiting", c_uint64),
    ]


class pst_limits(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("pool_bytes", c_uint64),
        ("pages_bytes", c_uint64),
    ]


class pst_window_opts(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("flags", c_uint32),
        ("caching", c_uint32),
        ("backend", c_char_p),
        ("kernel", c_char_p),
    ]


class pst_window_info(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("len", c_uint64),
        ("caching", c_uint32),
        ("rights", c_uint32),
        ("state", c_uint32),
        ("reserved", c_uint32),
        ("backend", c_char * 16),
        ("store", c_char * 16),
        ("load", c_char * 16),
    ]


class pst_window_backend(Structure):
    _fields_ = [
        ("sz", c_size_t),
        ("name", c_char * 16),
        ("state", c_uint32),
        ("err", c_int32),
        ("text", c_char * 232),
    ]


STRUCTURES = (
    pst_path_info,
    pst_check,
    pst_check_opts,
    pst_device,
    pst_file_opts,
    pst_file_info,
    pst_grant,
    pst_seg,
    pst_io,
    pst_done,
    pst_vec,
    pst_call_opts,
    pst_mem_opts,
    pst_mem_info,
    pst_name_info,
    pst_peer_opts,
    pst_peer_info,
    pst_queue_opts,
    pst_stats,
    pst_limits,
    pst_window_opts,
    pst_window_info,
    pst_window_backend,
)

# Functions by name: result and arguments of each.
CALLS = {
    "pst_path_check": (c_int, [c_void_p, c_void_p, c_uint32, c_uint32, c_void_p]),
    "pst_check": (c_int, [c_char_p, c_void_p, c_void_p, c_uint]),
    "pst_device_list": (c_int, [c_void_p, c_uint]),
    "pst_device_find": (c_int, [c_char_p, c_void_p]),
    "pst_device_text": (c_int, [c_char_p, c_void_p, c_size_t]),
    "pst_file_open": (c_int, [c_char_p, c_uint32, c_void_p, c_void_p]),
    "pst_file_wrap": (c_int, [c_int, c_uint32, c_void_p, c_void_p]),
    "pst_file_close": (c_void_p, [c_void_p]),
    "pst_file_sync": (c_int, [c_void_p]),
    "pst_file_drain": (c_int, [c_void_p, c_uint64]),
    "pst_file_info": (c_int, [c_void_p, c_void_p]),
    "pst_mem_export": (c_int, [c_void_p, c_uint64, c_uint64, c_uint32, c_void_p]),
    "pst_mem_import": (c_int, [c_void_p, c_void_p]),
    "pst_grant_done": (None, [c_void_p]),
    "pst_grant_send": (c_int, [c_int, c_void_p, c_uint64]),
    "pst_grant_recv": (c_int, [c_int, c_void_p, c_uint64]),
    "pst_read": (c_int64, [c_void_p, c_uint64, c_void_p, c_uint64, c_uint64, c_void_p]),
    "pst_write": (c_int64, [c_void_p, c_uint64, c_void_p, c_uint64, c_uint64, c_void_p]),
    "pst_readv": (c_int64, [c_void_p, c_void_p, c_uint, c_void_p, c_void_p]),
    "pst_writev": (c_int64, [c_void_p, c_void_p, c_uint, c_void_p, c_void_p]),
    "pst_mem_crc32c": (c_int, [c_void_p, c_uint, c_void_p, c_void_p]),
    "pst_done_text": (c_char_p, [c_void_p, c_void_p, c_size_t]),
    "pst_path_name": (c_char_p, [c_uint32]),
    "pst_paths_text": (c_char_p, [c_uint32, c_void_p, c_size_t]),
    "pst_why_name": (c_char_p, [c_uint32]),
    "pst_why_text": (c_char_p, [c_uint32, c_int32, c_void_p, c_size_t]),
    "pst_mem_alloc": (c_int, [c_char_p, c_uint64, c_void_p, c_void_p]),
    "pst_mem_wrap": (c_int, [c_uint64, c_uint64, c_void_p, c_void_p]),
    "pst_mem_free": (c_void_p, [c_void_p]),
    "pst_mem_drain": (c_int, [c_void_p, c_uint64]),
    "pst_mem_info": (c_int, [c_void_p, c_void_p]),
    "pst_mem_ptr": (c_void_p, [c_void_p]),
    "pst_mem_copy_in": (c_int, [c_void_p, c_uint64, c_void_p, c_uint64]),
    "pst_mem_copy_out": (c_int, [c_void_p, c_uint64, c_void_p, c_uint64]),
    "pst_mem_sync": (c_int, [c_void_p]),
    "pst_name_stat": (c_int, [c_char_p, c_void_p]),
    "pst_name_list": (c_int, [c_char_p, c_uint32, c_void_p, c_void_p]),
    "pst_name_unlink": (c_int, [c_char_p]),
    "pst_name_rename": (c_int, [c_char_p, c_char_p]),
    "pst_name_truncate": (c_int, [c_char_p, c_uint64]),
    "pst_listener_open": (c_int, [c_char_p, c_void_p, c_void_p]),
    "pst_listener_address": (c_char_p, [c_void_p, c_void_p, c_size_t]),
    "pst_listener_accept": (c_int, [c_void_p, c_uint64, c_void_p]),
    "pst_listener_close": (c_void_p, [c_void_p]),
    "pst_peer_connect": (c_int, [c_char_p, c_void_p, c_uint64, c_void_p]),
    "pst_peer_close": (c_void_p, [c_void_p]),
    "pst_peer_info": (c_int, [c_void_p, c_void_p]),
    "pst_peer_share": (c_int, [c_void_p, c_void_p, c_uint64, c_uint64, c_uint32, c_uint32,
        c_void_p]),
    "pst_share_pack": (c_int, [c_void_p, c_void_p, c_size_t]),
    "pst_share_close": (c_int, [c_void_p, c_uint64]),
    "pst_peer_open": (c_int, [c_void_p, c_void_p, c_size_t, c_uint32, c_uint64, c_void_p]),
    "pst_peer_send": (c_int, [c_void_p, c_void_p, c_uint64, c_uint64, c_uint32, c_uint64]),
    "pst_peer_recv": (c_int64, [c_void_p, c_void_p, c_uint64, c_uint64, c_uint64]),
    "pst_peer_next": (c_int64, [c_void_p, c_uint64]),
    "pst_queue_new": (c_int, [c_void_p, c_void_p]),
    "pst_queue_free": (c_void_p, [c_void_p]),
    "pst_queue_prep": (c_int, [c_void_p, c_void_p]),
    "pst_queue_try": (c_int, [c_void_p, c_void_p, c_uint, c_void_p]),
    "pst_queue_submit": (c_int, [c_void_p]),
    "pst_queue_reap": (c_int, [c_void_p, c_void_p, c_uint, c_uint, c_uint64]),
    "pst_queue_cancel": (c_int, [c_void_p, c_uint64]),
    "pst_queue_fd": (c_int, [c_void_p]),
    "pst_stats": (c_int, [c_void_p, c_void_p]),
    "pst_limits_set": (c_int, [c_void_p]),
    "pst_limits_get": (c_int, [c_void_p]),
    "pst_window_open": (c_int, [c_void_p, c_uint64, c_uint64, c_void_p, c_void_p]),
    "pst_window_open_grant": (c_int, [c_void_p, c_void_p, c_void_p]),
    "pst_window_close": (c_void_p, [c_void_p]),
    "pst_window_ptr": (c_void_p, [c_void_p]),
    "pst_window_info": (c_int, [c_void_p, c_void_p]),
    "pst_window_store": (c_int, [c_void_p, c_uint64, c_void_p, c_uint64]),
    "pst_window_load": (c_int, [c_void_p, c_uint64, c_void_p, c_uint64]),
    "pst_window_fence": (None, []),
    "pst_window_kernels": (c_int, [c_void_p, c_uint]),
    "pst_window_backends": (c_int, [c_char_p, c_void_p, c_uint]),
    "pst_version": (c_char_p, []),
    "pst_error_text": (c_char_p, []),
    "pst_log_set": (None, [c_void_p, c_void_p, c_int]),
}
