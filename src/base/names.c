/* SPDX-License-Identifier: MIT */
/*
 * Names and sentences for the numbers in completions.
 */
#include <stdio.h>
#include <string.h>

#include <penstock.h>

#include "base/err.h"
#include "base/names.h"

static const char *path_names[PST_PATH_MAX + 1] = {
	[PST_PATH_DIRECT] = "direct",     [PST_PATH_CACHED] = "cached",
	[PST_PATH_BUFFERED] = "buffered", [PST_PATH_STAGED] = "staged",
	[PST_PATH_WINDOW] = "window",     [PST_PATH_PAGECACHE] = "pagecache",
	[PST_PATH_GATHER] = "gather",     [PST_PATH_GDS] = "gds",
	[PST_PATH_TCP] = "tcp",           [PST_PATH_P2P] = "p2p",
	[PST_PATH_RDMA] = "rdma",         [PST_PATH_PEER] = "peer",
};

static const char *const why_names[PST_WHY_MAX + 1] = {
	[PST_WHY_NONE] = "none",
	[PST_WHY_NO_DEVICE] = "no-device",
	[PST_WHY_NO_DIRECT] = "no-direct",
	[PST_WHY_UNALIGNED] = "unaligned",
	[PST_WHY_NOT_RESIDENT] = "not-resident",
	[PST_WHY_MEMLOCK] = "memlock",
	[PST_WHY_NO_URING] = "no-io_uring",
	[PST_WHY_NO_PROVIDER] = "no-provider",
	[PST_WHY_NOT_PROVEN] = "not-proven",
	[PST_WHY_DIRECTION] = "direction",
	[PST_WHY_NOT_STABLE] = "not-stable",
	[PST_WHY_DIRECT_ERROR] = "direct-error",
	[PST_WHY_NO_WINDOW] = "no-window",
	[PST_WHY_NO_GDS] = "no-gds",
	[PST_WHY_MIXED] = "mixed",
	[PST_WHY_NO_P2P] = "no-p2p",
	[PST_WHY_NO_RDMA] = "no-rdma",
	[PST_WHY_NO_PEER] = "no-peer",
};

void names_path_add(uint32_t path, const char *name)
{
	path_names[path] = name;
}

const char *pst_path_name(uint32_t path)
{
	return path <= PST_PATH_MAX && path_names[path] ? path_names[path] : "unknown";
}

const char *pst_why_name(uint32_t why)
{
	return why <= PST_WHY_MAX && why_names[why] ? why_names[why] : "unknown";
}

/* Return text to append to a sentence: ": " and the name of err, or "" for 0. */
static const char *because(int err, char *buf, size_t len)
{
	buf[0] = '\0';
	if (err)
		(void)snprintf(buf, len, ": %s", err_name(err));
	return buf;
}

/* Translate the errno with which cuFile was not used; "" if the errno's own name is enough. */
static const char *names_no_gds(int err)
{
	switch (err) {
	case EAGAIN:
		return "it is busy, or it is not known yet whether it has a direct way here; "
		       "ask again in some seconds";
	case ECANCELED:
		return "PST_GDS=off in the environment forbids it";
	case ENODEV:
		return "libcufile is not here, or neither the module nvidia-fs nor P2PDMA is; "
		       "penstock doctor --gds says what is missing";
	case EOPNOTSUPP:
		return "it has no direct way between this file and this memory, only slow copies; "
		       "penstock doctor --gds says what is missing";
	case ENODATA:
		return "the file has no bytes yet with which its way could be tried; write some";
	case EMEDIUMTYPE:
		return "it would copy this file, which has holes, or is compressed, encrypted, "
		       "append-only, immutable, under fs-verity or journals data (see lsattr); "
		       "copy it to a plain one";
	case EBADF:
		return "its way is tried by reading, and this file cannot be opened for reading; "
		       "use one first that can";
	case ENOSYS:
		return "this libcufile is too old; install that of CUDA 12.2 or newer, with "
		       "PST_GDS=exclusive of 12.9";
	case EILSEQ:
		return "it moved wrong bytes, and is not trusted any more with this device and "
		       "file system";
	case ETIMEDOUT:
		return "it hangs; look at the kernel's log for nvidia-fs";
	case ENOMEM:
	case ENOBUFS:
		return "memory is short, or what the GPU shows other devices of its own (BAR1); "
		       "use less at a time";
	case EBUSY:
		return "somebody else in this process has registered this memory with it; end that "
		       "use";
	case EPERM:
		return "this container forbids a system call: as a rule unshare(2), which keeps "
		       "its log out of the current directory; set CUFILE_LOGFILE_PATH=/dev/null";
	case EACCES:
		return "/dev/nvidia-fs* is not open to this user or container; give it all of "
		       "these nodes";
	case EINVAL:
		return "its settings or this file do not suit it; look at cufile.json, and "
		       "PST_LOG=info has its sentence";
	case EUSERS:
		return "PST_GDS=exclusive is not true, somebody else in this process had opened "
		       "it; set PST_GDS=auto, or end that use";
	case ENOENT:
		return "penstock-gds-probe is not there; install Penstock as a whole";
	default:
		return "";
	}
}

/* Translate the kernel's errno for pages of a PCI device. */
static const char *names_no_p2p(int err)
{
	switch (err) {
	case EREMOTEIO:
		return "the disk's driver or file system takes no pages of other devices, or no "
		       "way between the two is known; use an NVMe disk with ext4 or XFS, behind "
		       "the same PCIe switch as the memory";
	case EINVAL:
		return "the kernel knows no way between the two; put both behind one PCIe switch";
	case ENOMEM:
		return "there is no memory to note whether it does";
	default:
		return "put both behind one PCIe switch, and see the kernel's log";
	}
}

/* Translate the errno with which RDMA was not used. */
static const char *names_no_rdma(int err)
{
	switch (err) {
	case ENODEV:
		return "one of the two sides has no RDMA device, or no libibverbs; penstock doctor "
		       "--rdma says what is missing there";
	case ECANCELED:
		return "PST_RDMA=off in the environment of one side forbids it";
	case EPROTONOSUPPORT:
		return "the other side knows no RDMA: a server of the storage service has no "
		       "device, or runs with --rdma=no or with --keys and no --rdma; a peer runs "
		       "an older version";
	case EPERM:
		return "RDMA was not asked for: it encrypts nothing, and a server of this machine "
		       "is reached without; PST_RDMA names the device for psts:// and for such a "
		       "server";
	case EBUSY:
		return "the server has as many connections by RDMA as it takes; raise "
		       "--rdma-clients there";
	case EALREADY:
		return "the memory is mapped here, which is the shorter way; leave "
		       "PST_SHARE_GRANT out for RDMA";
	case EFAULT:
	case EOPNOTSUPP:
		return "the device of a peer, or that of this machine for a storage service, does "
		       "not reach this kind of memory, or its stores there are not ordered, as in "
		       "a dma-buf of an accelerator or one in use; penstock doctor --rdma says "
		       "there what is missing";
	case ENOMEM:
		return "memory could not be pinned for the device; raise RLIMIT_MEMLOCK (ulimit "
		       "-l)";
	case EACCES:
		return "the other side's device refused the key; the connection by RDMA has ended";
	case ETIMEDOUT:
		return "the other side's device did not answer; check the network between the two";
	case EPROTOTYPE:
		return "the devices of the two sides are of different networks; PST_RDMA names "
		       "others";
	default:
		return "the connection by RDMA has ended; penstock doctor --rdma tries the device";
	}
}

/* Return which flag of a request prevents the path from serving it. */
static const char *no_provider(int flag)
{
	if (flag & PST_IO_CRC32C)
		return "the path gives no checksum, for which the CPU would have to load bytes "
		       "from the device; leave PST_IO_CRC32C out";
	if (flag & PST_IO_STREAM_WAIT)
		return "the path keeps no stream waiting, which could keep its own calls "
		       "waiting; leave PST_IO_STREAM_WAIT out";
	return "this kind of memory or file does not offer the path";
}

const char *pst_why_text(uint32_t why, int32_t detail, char *buf, size_t len)
{
	char tail[96];

	(void)because(detail, tail, sizeof(tail));
	switch (why) {
	case PST_WHY_NONE:
		(void)snprintf(buf, len, "the path used is the one wanted");
		break;
	case PST_WHY_NO_DEVICE:
		(void)snprintf(buf, len,
			       "the path needs an accelerator or driver that is not here");
		break;
	case PST_WHY_NO_DIRECT:
		if (detail == ERANGE) {
			(void)snprintf(
				buf, len,
				"O_DIRECT on this file asks for memory aligned to more than 4 KiB, "
				"for offsets aligned to more than 64 KiB, or for something that is "
				"no power of two (statx, STATX_DIOALIGN); use another file system");
			break;
		}
		(void)snprintf(buf, len,
			       "this file takes no O_DIRECT%s; use a file system that does (ext4, "
			       "XFS)",
			       tail);
		break;
	case PST_WHY_UNALIGNED:
		(void)snprintf(buf, len,
			       "offset, length or memory is not a multiple of %d bytes; align all "
			       "three",
			       detail);
		break;
	case PST_WHY_NOT_RESIDENT:
		(void)snprintf(buf, len,
			       "the page cache does not hold all of it; read it once "
			       "through the page cache before");
		break;
	case PST_WHY_MEMLOCK:
		(void)snprintf(buf, len,
			       "memory could not be pinned%s; raise RLIMIT_MEMLOCK (ulimit -l)",
			       tail);
		break;
	case PST_WHY_NO_URING:
		(void)snprintf(buf, len,
			       "io_uring is not to be had%s; allow it in sysctl "
			       "kernel.io_uring_disabled and the container's seccomp profile",
			       tail);
		break;
	case PST_WHY_NO_PROVIDER:
		(void)snprintf(buf, len, "%s", no_provider(detail));
		break;
	case PST_WHY_NOT_PROVEN:
		(void)snprintf(buf, len,
			       "what the path moved differed from a plain read, or could "
			       "not be compared with one");
		break;
	case PST_WHY_DIRECTION:
		(void)snprintf(buf, len, "the path does not serve this operation");
		break;
	case PST_WHY_NOT_STABLE:
		(void)snprintf(buf, len, "the path needs a file opened with PST_FILE_STABLE");
		break;
	case PST_WHY_DIRECT_ERROR:
		(void)snprintf(buf, len, "the kernel refused O_DIRECT on this file%s", tail);
		break;
	case PST_WHY_NO_WINDOW:
		(void)snprintf(buf, len,
			       "no window on this memory is to be had%s; penstock doctor says why",
			       tail);
		break;
	case PST_WHY_NO_GDS:
		(void)snprintf(buf, len, "cuFile was not used: %s%s", names_no_gds(detail),
			       names_no_gds(detail)[0] ? "" : err_name(detail));
		break;
	case PST_WHY_MIXED:
		(void)snprintf(buf, len,
			       "other writes of this file go through the page cache, and O_DIRECT "
			       "beside them would leave old bytes there; align all writes of the "
			       "file");
		break;
	case PST_WHY_NO_P2P:
		(void)snprintf(buf, len,
			       "the disk does not reach the memory of the PCI device%s: %s", tail,
			       names_no_p2p(detail));
		break;
	case PST_WHY_NO_RDMA:
		(void)snprintf(buf, len, "the peer's memory was not reached by RDMA%s: %s", tail,
			       names_no_rdma(detail));
		break;
	case PST_WHY_NO_PEER:
		(void)snprintf(buf, len,
			       "the memory behind this file is not mapped here; for that the peer "
			       "runs on this machine under the same user, connects by unix:PATH, "
			       "and shares memory of its own with PST_SHARE_GRANT");
		break;
	default:
		(void)snprintf(buf, len, "reason %u, which this version does not know", why);
		break;
	}
	return buf;
}

const char *pst_paths_text(uint32_t paths, char *buf, size_t len)
{
	int n = 0;

	buf[0] = '\0';
	/* Write the device path first, then the file hops. */
	for (unsigned pass = 0; pass < 2; pass++)
		for (uint32_t path = 1; path <= PST_PATH_MAX; path++) {
			bool file_hop = path <= PST_PATH_BUFFERED;

			if (!(paths & PST_PATH_BIT(path)) || file_hop != (pass == 1) || n < 0 ||
			    (size_t)n >= len)
				continue;
			n += snprintf(buf + n, len - (size_t)n, "%s%s", n ? "+" : "",
				      pst_path_name(path));
		}
	return buf;
}

const char *pst_done_text(const struct pst_done *done, char *buf, size_t len)
{
	static const char *const op_names[] = { "request", "read", "write", "sync" };
	const char *op = op_names[done->op < 4 ? done->op : 0];
	int err = done->res < 0 && done->res >= -4095 ? (int)-done->res : 0;
	char paths[96], why[256], part[64] = "";

	(void)pst_paths_text(done->paths, paths, sizeof(paths));
	if (done->prefix)
		(void)snprintf(part, sizeof(part), "; the first %llu bytes are complete",
			       (unsigned long long)done->prefix);
	if (done->res < 0)
		(void)snprintf(
			buf, len, "%s failed: %s%s%s%s%s", op, err_name(err), part,
			done->flags & PST_DONE_BUSY ? "; it may still touch the memory or the file"
						    : "",
			done->why ? "; " : "",
			done->why ? pst_why_text(done->why, done->detail, why, sizeof(why)) : "");
	else if (done->op == PST_OP_SYNC)
		(void)snprintf(buf, len, "sync done");
	else
		(void)snprintf(
			buf, len, "%s of %lld bytes by %s%s%s", op, (long long)done->res,
			paths[0] ? paths : "no path", done->why ? "; not better because " : "",
			done->why ? pst_why_text(done->why, done->detail, why, sizeof(why)) : "");
	return buf;
}
