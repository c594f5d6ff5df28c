/* SPDX-License-Identifier: MIT */
/*
 * The path p2p: O_DIRECT between a disk and memory that a PCI device provides.
 *
 * The device is a folder like the kernel's, whose file "allocate" is an ordinary file: the library,
 * the planner and the proofs are the real ones, and the kernel moves the bytes.  Faults of a PCI
 * bus are planted by calls.h.  lab/guest-p2p runs this program on real devices:
 *
 * test-p2p reaches|refused
 */
#include <sys/mman.h>

#include "rig.h"

#include "calls.h"
#include "child.h"
#include "mem/p2pmem.h"

#define LEN RIG_MIB(2)
#define SEED 17

/* -------------------------------------------------------------- a PCI device */

static const char *root; /* the folder that stands for the kernel's list of PCI devices */

static void put(const char *pci, const char *name, const char *text)
{
	char path[600];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s/p2pmem/%s", root, pci, name);
	f = fopen(path, "we");
	T_CHECK(f);
	(void)fputs(text, f);
	(void)fclose(f);
}

static void lender_make(const char *pci)
{
	char path[600];

	(void)snprintf(path, sizeof(path), "%s/%s", root, pci);
	T_EQ(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/%s/p2pmem", root, pci);
	T_EQ(mkdir(path, 0700), 0);
	put(pci, "size", "8388608\n");
	put(pci, "available", "8388608\n");
	put(pci, "allocate", "");
	(void)snprintf(path, sizeof(path), "%s/%s/p2pmem/allocate", root, pci);
	T_EQ(truncate(path, 8 << 20), 0);
}

static void device_make(void)
{
	char path[600];

	root = strdup(rig_path("devices"));
	T_EQ(mkdir(root, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/0000:00:06.0", root); /* a device without memory */
	T_EQ(mkdir(path, 0700), 0);
	lender_make("0000:00:07.0");
	lender_make("10000:00:07.0"); /* domains of more than four digits */
	lender_make("10000:00:07.1");
	lender_make("10000001:00:07.1");
	p2pmem_root = root;
}

/* ------------------------------------------------------------------- helpers */

static bool took(const struct pst_done *d, uint32_t path)
{
	return d->paths & PST_PATH_BIT(path);
}

static struct pst_path_info check(struct pst_file *f, struct pst_mem *m, uint32_t op, uint32_t path)
{
	struct pst_path_info info = { .sz = sizeof(info) };

	T_OK(pst_path_check(f, m, op, path, &info));
	return info;
}

static struct pst_file *data_open(const char *name, uint32_t flags)
{
	struct pst_mem *host = rig_alloc("host", 1);
	struct pst_path_info info;
	struct pst_file *f;

	rig_make(rig_path(name), SEED, LEN);
	rig_cold(rig_path(name));
	f = rig_open(rig_path(name), flags);
	info = check(f, host, PST_OP_READ, PST_PATH_DIRECT);
	pst_mem_free(host);
	if (info.why == PST_WHY_NO_DIRECT)
		T_SKIP("O_DIRECT on the file system of the test");
	return f;
}

/* ------------------------------------------------------------------- honest */

static void bytes_go_both_ways(void)
{
	struct pst_device dev = { .sz = sizeof(dev) };
	struct pst_mem_info info = { .sz = sizeof(info) };
	struct pst_file *f = data_open("data", RIG_RW);
	struct pst_mem *m = rig_alloc("p2pmem:0", LEN);
	struct pst_done d;
	char *buf = malloc(LEN);

	T_CHECK(buf);
	T_OK(pst_device_find("0000:00:07.0", &dev));
	T_CHECK(!strcmp(dev.name, "p2pmem:0"));
	T_EQ(dev.total, 8 << 20);
	T_OK(pst_mem_info(m, &info));
	T_EQ(info.kind, PST_KIND_P2PMEM);
	T_CHECK(pst_mem_ptr(m));
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_P2P).why, PST_WHY_NONE);
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_DIRECT).why, PST_WHY_NO_PROVIDER);
	/* other bytes than the file's, so that unchanged memory is noticed */
	rig_mem_fill(m, 0, LEN, SEED + 2, 0);
	d = rig_read(f, m, 0, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(d.paths, PST_PATH_BIT(PST_PATH_P2P));
	T_EQ(d.why, PST_WHY_NONE);
	T_EQ(t_differs(pst_mem_ptr(m), SEED, 0, LEN), LEN);
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_P2P).state, PST_STATE_PROVEN);
	T_CHECK(check(f, m, PST_OP_WRITE, PST_PATH_P2P).state != PST_STATE_IMPOSSIBLE);
	rig_mem_fill(m, 0, LEN, SEED + 1, 0);
	d = rig_write(f, m, LEN, 0, LEN);
	T_EQ(d.res, LEN);
	T_EQ(d.paths, PST_PATH_BIT(PST_PATH_P2P));
	T_EQ(rig_slurp(rig_path("data"), LEN, buf, LEN), LEN);
	T_EQ(t_differs(buf, SEED + 1, 0, LEN), LEN);
	T_EQ(check(f, m, PST_OP_WRITE, PST_PATH_P2P).state, PST_STATE_PROVEN);
	/* Unaligned edges go through the page cache, even for a read that lists only this path. */
	rig_cold(rig_path("data"));
	d = rig_read(f, m, 4099, 3, 65536);
	T_EQ(d.res, 65536);
	T_EQ(t_differs((char *)pst_mem_ptr(m) + 3, SEED, 4099, 65536), 65536);
	/* pst_mem_copy_out() is a copy by the CPU. */
	T_EQ(rig_mem_differs(m, 3, 65536, SEED, 4099), 65536);
	free(buf);
	pst_file_close(f);
	pst_mem_free(m);
}

/* Small reads in order stay on this path: with read-ahead the CPU would copy. */
static void sequential(void)
{
	struct pst_file *f = data_open("data", RIG_R);
	struct pst_mem *m = rig_alloc("p2pmem:0", LEN);
	struct pst_done d;

	for (uint64_t at = 0; at < 8 * 4096; at += 4096) {
		rig_cold(rig_path("data")); /* the proof has read through the page cache */
		d = rig_read(f, m, at, at, 4096);
		T_EQ(d.res, 4096);
		T_EQ(d.paths, PST_PATH_BIT(PST_PATH_P2P));
	}
	T_EQ(rig_mem_differs(m, 0, 8 * 4096, SEED, 0), 8 * 4096);
	pst_file_close(f);
	pst_mem_free(m);
}

static void strict_and_listed(void)
{
	struct pst_file *f = data_open("data", RIG_R);
	struct pst_mem *m = rig_alloc("p2pmem:0", LEN), *host = rig_alloc("host", LEN);
	struct pst_io io = rig_io(PST_OP_READ, f, m, 0, 0, 65536);
	struct pst_done d;

	io.policy = PST_POLICY1(PST_PATH_P2P);
	io.flags = PST_IO_STRICT;
	d = rig_do(rig_q, &io);
	T_EQ(d.res, 65536);
	T_EQ(d.paths, PST_PATH_BIT(PST_PATH_P2P));
	io.policy = PST_POLICY1(PST_PATH_DIRECT);
	T_EQ(rig_do(rig_q, &io).res, -EOPNOTSUPP);
	io = rig_io(PST_OP_READ, f, host, 0, 0, 65536);
	io.policy = PST_POLICY1(PST_PATH_P2P);
	T_EQ(rig_do(rig_q, &io).res, -EOPNOTSUPP);
	T_CHECK(!took((io.policy = 0, d = rig_do(rig_q, &io), &d), PST_PATH_P2P));
	pst_file_close(f);
	pst_mem_free(host);
	pst_mem_free(m);
}

/* Addresses with a domain of more than four digits are kept whole, and each device has its own
 * uuid. */
static void long_addresses(void)
{
	static const char *const pci[] = { "0000:00:07.0", "10000:00:07.0", "10000:00:07.1",
					   "10000001:00:07.1" };
	struct pst_device dev[RIG_NR(pci)];

	for (unsigned i = 0; i < RIG_NR(pci); i++) {
		dev[i].sz = sizeof(dev[i]);
		T_OK(pst_device_find(pci[i], &dev[i]));
		T_CHECK(!strcmp(dev[i].pci, pci[i]));
		T_EQ(dev[i].total, 8 << 20);
		for (unsigned k = 0; k < i; k++)
			T_CHECK(memcmp(dev[i].uuid, dev[k].uuid, sizeof(dev[i].uuid)) != 0);
	}
}

static void bad_requests(void)
{
	struct pst_mem_opts o = { .sz = sizeof(o), .flags = PST_MEM_SHARED };
	struct pst_grant g = { .sz = sizeof(g), .fd = -1 };
	unsigned fds = t_count_fds();
	struct pst_mem *m = NULL;
	char text[PST_DEVICE_TEXT_MAX];

	T_EQ(pst_mem_alloc("p2pmem:4", 4096, NULL, &m), -ENODEV);
	T_EQ(pst_mem_alloc("p2pmem:0", 4096, &o, &m), -EOPNOTSUPP);
	T_CHECK(pst_device_text("p2pmem:0", text, sizeof(text)) > 0);
	T_CHECK(strstr(text, "available: 8388608"));
	m = rig_alloc("p2pmem:0", 5000);
	T_EQ(pst_mem_export(m, 0, 4096, PST_RIGHT_READ, &g), -EOPNOTSUPP);
	g.kind = PST_KIND_P2PMEM, g.rights = PST_RIGHT_READ, g.size = g.len = 4096;
	m = pst_mem_free(m);
	T_EQ(pst_mem_import(&g, &m), -EINVAL);
	T_EQ(t_count_fds(), fds);
}

/* ------------------------------------------------------------------ refusals */

static _Atomic int refuse_with;
static _Atomic unsigned refused;

static ssize_t refuses(const struct call *c)
{
	if ((c->kind == CALL_READ || c->kind == CALL_WRITE) && call_is_direct(c) && refuse_with) {
		refused++;
		errno = refuse_with;
		return -1;
	}
	return call_real(c, c->len);
}

/*
 * The kernel refuses once: later requests of this file and memory use the page cache, and other
 * memory still uses O_DIRECT.
 */
static void refused_topology(int err)
{
	struct pst_file *f = data_open("data", RIG_RW);
	struct pst_mem *m = rig_alloc("p2pmem:0", LEN), *host = rig_alloc("host", LEN);
	struct pst_io io = rig_io(PST_OP_READ, f, m, 65536, 65536, 65536);
	struct pst_path_info info;
	struct pst_done d;
	char text[300];

	rig_q = rig_queue(PST_BACKEND_THREADS, 0); /* calls.h cannot see operations of io_uring */
	refuse_with = err;
	refused = 0;
	call_hook = refuses;
	d = rig_read(f, m, 0, 0, 65536);
	T_EQ(d.res, 65536);
	T_EQ(d.paths, PST_PATH_BIT(PST_PATH_BUFFERED));
	T_EQ(d.why, PST_WHY_NO_P2P);
	T_EQ(d.detail, err);
	T_CHECK(strstr(pst_why_text(d.why, d.detail, text, sizeof(text)), "PCIe switch"));
	T_EQ(rig_mem_differs(m, 0, 65536, SEED, 0), 65536);
	T_EQ(refused, 1);
	T_CHECK(check(f, m, PST_OP_WRITE, PST_PATH_P2P).state != PST_STATE_IMPOSSIBLE);
	info = check(f, m, PST_OP_READ, PST_PATH_P2P);
	T_EQ(info.state, PST_STATE_IMPOSSIBLE);
	T_EQ(info.detail, err);
	d = rig_read(f, m, 131072, 131072, 65536);
	T_EQ(d.res, 65536);
	T_EQ(d.why, PST_WHY_NO_P2P);
	T_EQ(refused, 1); /* the path was not tried again */
	io.flags = PST_IO_STRICT;
	T_EQ(rig_do(rig_q, &io).res, -EOPNOTSUPP);
	refuse_with = 0;
	rig_cold(rig_path("data"));
	d = rig_read(f, host, 0, 0, LEN);
	T_EQ(d.paths, PST_PATH_BIT(PST_PATH_DIRECT));
	call_hook = NULL;
	pst_file_close(f);
	pst_mem_free(host);
	pst_mem_free(m);
}

/* After bytes have moved, the error of one operation does not turn the path off. */
static void one_is_refused(void)
{
	static const int errs[] = { EREMOTEIO, EINVAL };
	struct pst_file *f = data_open("data", RIG_RW);
	struct pst_mem *m = rig_alloc("p2pmem:0", LEN);
	struct pst_done d;

	rig_q = rig_queue(PST_BACKEND_THREADS, 0);
	T_EQ(rig_read(f, m, 0, 0, 65536).paths, PST_PATH_BIT(PST_PATH_P2P));
	call_hook = refuses;
	for (unsigned i = 0; i < RIG_NR(errs); i++) {
		rig_cold(rig_path("data"));
		refuse_with = errs[i];
		d = rig_read(f, m, 0, 0, 65536);
		T_EQ(d.res, 65536);
		T_EQ(d.paths, PST_PATH_BIT(PST_PATH_BUFFERED));
		T_EQ(d.why, PST_WHY_NO_P2P);
		T_EQ(d.detail, errs[i]);
		refuse_with = 0;
		rig_cold(rig_path("data"));
		T_EQ(rig_read(f, m, 0, 0, 65536).paths, PST_PATH_BIT(PST_PATH_P2P));
	}
	call_hook = NULL;
	pst_file_close(f);
	pst_mem_free(m);
}

static void refused_remote(void)
{
	refused_topology(EREMOTEIO);
}

static void refused_invalid(void)
{
	refused_topology(EINVAL);
}

/* An I/O error is not a refusal of the path. */
static void errors_stay_errors(void)
{
	struct pst_file *f = data_open("data", RIG_R);
	struct pst_mem *m = rig_alloc("p2pmem:0", LEN);

	rig_q = rig_queue(PST_BACKEND_THREADS, 0);
	refuse_with = EIO;
	call_hook = refuses;
	T_EQ(rig_read(f, m, 0, 0, 65536).res, -EIO);
	refuse_with = 0;
	call_hook = NULL;
	T_EQ(rig_read(f, m, 0, 0, 65536).res, 65536);
	T_EQ(rig_mem_differs(m, 0, 65536, SEED, 0), 65536);
	pst_file_close(f);
	pst_mem_free(m);
}

/* ---------------------------------------------------------------------- lies */

static ssize_t (*lie)(const struct call *c);
static _Atomic unsigned lies;

/* Move the bytes by O_DIRECT, but 512 bytes off. */
static ssize_t shifted(const struct call *c)
{
	struct call other = *c;
	char *buf = aligned_alloc(4096, c->len);
	ssize_t n;

	other.buf = buf;
	if (c->kind == CALL_WRITE) {
		memcpy(buf + 512, c->buf, c->len - 512);
		memcpy(buf, (char *)c->buf + c->len - 512, 512);
	}
	n = call_real(&other, c->len);
	if (c->kind == CALL_READ && n == (ssize_t)c->len) {
		memcpy((char *)c->buf + 512, buf, c->len - 512);
		memcpy(c->buf, buf + c->len - 512, 512);
	}
	free(buf);
	return n;
}

static ssize_t zeros(const struct call *c)
{
	struct call other = *c;
	ssize_t n;

	other.buf = aligned_alloc(4096, c->len);
	memset(other.buf, 0, c->len);
	n = call_real(&other, c->len);
	free(other.buf);
	if (c->kind == CALL_READ && n > 0)
		memset(c->buf, 0, (size_t)n);
	return n;
}

/* Move nothing and report success. */
static ssize_t stale(const struct call *c)
{
	return (ssize_t)c->len;
}

/* Return true for memory of the PCI device; only operations on it are spoiled. */
static bool is_peer(const void *addr)
{
	FILE *f = fopen("/proc/self/maps", "re");
	uint64_t start, end, at = (uintptr_t)addr;
	bool found = false;
	char line[4352];

	while (f && !found && fgets(line, sizeof(line), f))
		found = sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2 && start <= at &&
			at < end && strstr(line, "p2pmem/allocate");
	if (f)
		(void)fclose(f);
	return found;
}

static ssize_t lies_to(const struct call *c)
{
	if ((c->kind != CALL_READ && c->kind != CALL_WRITE) || !call_is_direct(c) ||
	    !is_peer(c->buf))
		return call_real(c, c->len);
	lies++;
	return lie(c);
}

static void check_bytes(uint32_t op, struct pst_mem *m, uint64_t at, uint64_t len)
{
	char *buf = malloc(len);

	T_CHECK(buf);
	if (op == PST_OP_READ)
		T_OK(pst_mem_copy_out(m, at, buf, len));
	else
		T_EQ(rig_slurp(rig_path("data"), at, buf, len), len);
	T_EQ(t_differs(buf, op == PST_OP_READ ? SEED : SEED + 1, at, len), len);
	free(buf);
}

static void lied_to(uint32_t op)
{
	struct pst_file *f = data_open("data", RIG_RW);
	struct pst_mem *m = rig_alloc("p2pmem:0", LEN);
	struct pst_done d;
	unsigned before;

	lies = 0;
	call_hook = lies_to;
	if (op == PST_OP_WRITE)
		rig_mem_fill(m, 0, LEN, SEED + 1, 0);
	else
		rig_mem_fill(m, 0, LEN, SEED + 2, 0);
	for (unsigned i = 0; i < 3; i++) {
		struct pst_io io = rig_io(op, f, m, i * 65536, i * 65536, 65536);

		d = rig_do(rig_q, &io);
		T_EQ(d.res, 65536);
		T_EQ(d.why, PST_WHY_NOT_PROVEN);
		T_CHECK(!took(&d, PST_PATH_P2P)); /* the bytes of this path were discarded */
		T_EQ(d.flags & PST_DONE_PROOF, 0);
		/* one read for the request, and three that confirm the difference */
		T_EQ(lies, 4 * (i + 1));
		check_bytes(op, m, i * 65536, 65536);
		rig_cold(rig_path("data"));
	}
	T_EQ(check(f, m, op, PST_PATH_P2P).state, PST_STATE_IMPOSSIBLE);
	T_EQ(check(f, m, op, PST_PATH_P2P).why, PST_WHY_NOT_PROVEN);
	/* The path is not tried again. */
	before = lies;
	{
		struct pst_io io = rig_io(op, f, m, 1 << 20, 1 << 20, 65536);

		d = rig_do(rig_q, &io);
	}
	T_EQ(d.res, 65536);
	T_EQ(lies, before);
	check_bytes(op, m, 1 << 20, 65536);
	call_hook = NULL;
	pst_file_close(f);
	pst_mem_free(m);
}

static void lying_reads_child(void)
{
	rig_q = rig_queue(PST_BACKEND_THREADS, 0);
	lied_to(PST_OP_READ);
	rig_q = pst_queue_free(rig_q);
}

static void lying_writes_child(void)
{
	rig_q = rig_queue(PST_BACKEND_THREADS, 0);
	lied_to(PST_OP_WRITE);
	rig_q = pst_queue_free(rig_q);
}

/* Plant one kind of wrong bytes, in processes that have no proof of the path. */
static void lying(ssize_t (*how)(const struct call *c))
{
	lie = how;
	child_run(lying_reads_child);
	child_run(lying_writes_child);
}

static void shifted_bytes_are_caught(void)
{
	lying(shifted);
}

static void zeros_are_caught(void)
{
	lying(zeros);
}

static void stale_bytes_are_caught(void)
{
	lying(stale);
}

/* The bus drops all bytes that the disk moves, but the memory already has the right ones: this must
 * not prove the path.  Later requests with other bytes must be right. */
static void right_by_chance(uint32_t op)
{
	struct pst_file *f = data_open("data", RIG_RW);
	struct pst_mem *m = rig_alloc("p2pmem:0", LEN);
	struct pst_io io;

	lies = 0;
	lie = stale;
	call_hook = lies_to;
	rig_mem_fill(m, 0, LEN, SEED, 0); /* the same bytes as the file */
	for (unsigned i = 0; i < 2; i++) {
		io = rig_io(op, f, m, i * 65536, i * 65536, 65536);
		T_EQ(rig_do(rig_q, &io).res, 65536);
		T_EQ(lies, i + 1);
		rig_cold(rig_path("data"));
		T_EQ(check(f, m, op, PST_PATH_P2P).state, PST_STATE_POSSIBLE);
	}
	rig_mem_fill(m, 1 << 20, 65536, SEED + 1, 1 << 20);
	io = rig_io(op, f, m, 1 << 20, 1 << 20, 65536);
	T_EQ(rig_do(rig_q, &io).res, 65536);
	T_CHECK(lies > 2); /* the path was tried again */
	check_bytes(op, m, 1 << 20, 65536);
	call_hook = NULL;
	pst_file_close(f);
	pst_mem_free(m);
}

static void chance_reads_child(void)
{
	rig_q = rig_queue(PST_BACKEND_THREADS, 0);
	right_by_chance(PST_OP_READ);
	rig_q = pst_queue_free(rig_q);
}

static void chance_writes_child(void)
{
	rig_q = rig_queue(PST_BACKEND_THREADS, 0);
	right_by_chance(PST_OP_WRITE);
	rig_q = pst_queue_free(rig_q);
}

static void chance_proves_nothing(void)
{
	child_run(chance_reads_child);
	child_run(chance_writes_child);
}

/*
 * Writes by O_DIRECT are proven, writes by p2p are not: even a file open for writing only is
 * read back.
 */
static void write_only_child(void)
{
	struct pst_file *f = data_open("data", RIG_RW);
	struct pst_mem *m = rig_alloc("p2pmem:0", LEN), *host = rig_alloc("host", LEN);
	struct pst_done d;

	rig_q = rig_queue(PST_BACKEND_THREADS, 0);
	rig_mem_fill(host, 0, 65536, SEED + 1, 0);
	(void)rig_write(f, host, 0, 0, 65536);
	T_EQ(check(f, host, PST_OP_WRITE, PST_PATH_DIRECT).state, PST_STATE_PROVEN);
	pst_file_close(f);
	f = rig_open(rig_path("data"), PST_FILE_WRITE);
	rig_mem_fill(m, 0, 65536, SEED + 2, 0);
	d = rig_write(f, m, 0, 0, 65536);
	T_EQ(d.res, 65536);
	T_EQ(d.paths, PST_PATH_BIT(PST_PATH_P2P));
	T_EQ(check(f, m, PST_OP_WRITE, PST_PATH_P2P).state, PST_STATE_PROVEN);
	rig_q = pst_queue_free(rig_q);
	pst_file_close(f);
	pst_mem_free(host);
	pst_mem_free(m);
}

static void write_only_files(void)
{
	child_run(write_only_child);
}

/* -------------------------------------------------------------- real devices */

static const char *expected;

static void real_devices(void)
{
	bool reaches = !strcmp(expected, "reaches");
	struct pst_file *f = data_open("data", RIG_RW);
	struct pst_mem *m = rig_alloc("p2pmem:0", LEN / 2);
	char *buf = malloc(LEN / 2);
	struct pst_done d;

	T_CHECK(buf);
	rig_mem_fill(m, 0, LEN / 2, SEED + 2, 0); /* so that unchanged memory is noticed */
	d = rig_read(f, m, 0, 0, LEN / 2);
	rig_show(&d);
	T_EQ(d.res, LEN / 2);
	T_EQ(d.why, reaches ? PST_WHY_NONE : PST_WHY_NO_P2P);
	T_EQ(d.paths, PST_PATH_BIT(reaches ? PST_PATH_P2P : PST_PATH_BUFFERED));
	T_EQ(rig_mem_differs(m, 0, LEN / 2, SEED, 0), LEN / 2);
	rig_mem_fill(m, 0, LEN / 2, SEED + 1, 0);
	d = rig_write(f, m, LEN, 0, LEN / 2);
	rig_show(&d);
	T_EQ(d.res, LEN / 2);
	T_EQ(d.paths, PST_PATH_BIT(reaches ? PST_PATH_P2P : PST_PATH_BUFFERED));
	T_OK(pst_file_sync(f));
	rig_cold(rig_path("data"));
	T_EQ(rig_slurp(rig_path("data"), LEN, buf, LEN / 2), LEN / 2);
	T_EQ(t_differs(buf, SEED + 1, 0, LEN / 2), LEN / 2);
	T_EQ(check(f, m, PST_OP_READ, PST_PATH_P2P).state,
	     reaches ? PST_STATE_PROVEN : PST_STATE_IMPOSSIBLE);
	T_EQ(check(f, m, PST_OP_WRITE, PST_PATH_P2P).state,
	     reaches ? PST_STATE_PROVEN : PST_STATE_IMPOSSIBLE);
	free(buf);
	pst_file_close(f);
	pst_mem_free(m);
}

int main(int argc, char **argv)
{
	rig_init();
	if (argc == 2) {
		expected = argv[1];
		RIG_RUN_BACKENDS(real_devices);
		return rig_done();
	}
	T_RUN(device_make);
	/* Run these cases first: their children use the library, so this process must not have used
	 * it. */
	T_RUN(shifted_bytes_are_caught);
	T_RUN(zeros_are_caught);
	T_RUN(stale_bytes_are_caught);
	T_RUN(chance_proves_nothing);
	T_RUN(write_only_files);
	RIG_RUN1(refused_remote);
	RIG_RUN1(refused_invalid);
	RIG_RUN1(one_is_refused);
	RIG_RUN_BACKENDS(bytes_go_both_ways);
	RIG_RUN_BACKENDS(sequential);
	RIG_RUN_BACKENDS(strict_and_listed);
	RIG_RUN1(long_addresses);
	RIG_RUN1(bad_requests);
	RIG_RUN1(errors_stay_errors);
	return rig_done();
}
