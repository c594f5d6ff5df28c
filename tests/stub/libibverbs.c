/* SPDX-License-Identifier: MIT */
/* A stub of libibverbs.so.1: the fabric, devices, protection domains, faults. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "stub/ibverbs_stub_int.h"

#define DEVICE_WRS 256
#define GIDS 4u /* default size of a GID table */

static unsigned gids(void)
{
	const char *env = getenv("STUB_IBVERBS_GIDS");

	return env && *env ? (unsigned)atoi(env) : GIDS;
}

struct stub_device {
	struct vb_device dev;
	unsigned number;
	char name[16];
};

static const struct stub_device *stub_device_of(const struct vb_device *dev)
{
	return container_of((struct vb_device *)dev, struct stub_device, dev);
}

struct stub_process stub_process;

static struct {
	pthread_mutex_t lock;
	struct stub_fabric *f;
} fabric = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct {
	pthread_mutex_t lock;
	char spec[200];
	bool read; /* STUB_IBVERBS_FAIL was read */
} faults = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ------------------------------------------------------------------- fabric */

static void fabric_init(struct stub_fabric *f)
{
	pthread_mutexattr_t attr;

	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	(void)pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	(void)pthread_mutex_init(&f->lock, &attr);
	(void)pthread_mutexattr_destroy(&attr);
	f->next_key = 0x1001;
	f->next_pd = 1;
	f->next_channel = 1;
	f->ready = 1;
}

const char *stub_fabric_path(void)
{
	const char *path = getenv("STUB_IBVERBS_FABRIC");

	return path ? path : getenv("PST_TEST_IBVERBS_FABRIC");
}

static struct stub_fabric *fabric_map(void)
{
	const char *path = stub_fabric_path();
	struct stub_fabric *f;
	int fd = -1;

	if (path && *path) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || flock(fd, LOCK_EX) < 0 || ftruncate(fd, sizeof(*f)) < 0)
			abort();
	}
	f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE,
		 fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	if (f == MAP_FAILED)
		abort();
	if (!f->ready)
		fabric_init(f);
	if (fd >= 0) { /* the mapping would keep the lock after close() */
		(void)flock(fd, LOCK_UN);
		(void)close(fd);
	}
	return f;
}

struct stub_fabric *stub_lock(void)
{
	struct stub_fabric *f;

	(void)pthread_mutex_lock(&fabric.lock);
	if (!fabric.f)
		fabric.f = fabric_map();
	f = fabric.f;
	(void)pthread_mutex_unlock(&fabric.lock);
	if (pthread_mutex_lock(&f->lock) == EOWNERDEAD)
		(void)pthread_mutex_consistent(&f->lock);
	return f;
}

void stub_unlock(struct stub_fabric *f)
{
	(void)pthread_mutex_unlock(&f->lock);
}

bool stub_alive(pid_t pid)
{
	return pid == getpid() || kill(pid, 0) == 0 || errno == EPERM;
}

/* ------------------------------------------------------------------- faults */

/* Count the call in each "NAME:N:CODE" of the list; an entry with N 1 is used up. */
int stub_fault(const char *name)
{
	char left[sizeof(faults.spec)] = "", *save = NULL;
	int code = 0;

	(void)pthread_mutex_lock(&faults.lock);
	if (!faults.read) {
		const char *env = getenv("STUB_IBVERBS_FAIL");

		faults.read = true;
		(void)snprintf(faults.spec, sizeof(faults.spec), "%s", env ? env : "");
	}
	for (char *e = strtok_r(faults.spec, ",", &save); e; e = strtok_r(NULL, ",", &save)) {
		size_t len = strcspn(e, ":");
		unsigned nth = 0;
		int what = 0;

		(void)sscanf(e + len, ":%u:%d", &nth, &what);
		if (strlen(name) == len && !strncmp(name, e, len)) {
			if (nth <= 1)
				code = what;
			if (nth == 1)
				continue;
			nth -= nth > 1;
		}
		(void)snprintf(left + strlen(left), sizeof(left) - strlen(left), "%s%.*s:%u:%d",
			       *left ? "," : "", (int)len, e, nth, what);
	}
	memcpy(faults.spec, left, sizeof(left));
	(void)pthread_mutex_unlock(&faults.lock);
	return code;
}

void stub_hold(void)
{
	const char *file = getenv("STUB_IBVERBS_HOLD");
	char held[300];
	int fd;

	if (!file || access(file, F_OK) != 0)
		return;
	(void)snprintf(held, sizeof(held), "%s.held", file);
	fd = open(held, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		(void)close(fd);
	while (access(file, F_OK) == 0)
		(void)usleep(1000);
}

void stub_ibverbs_fail(const char *spec)
{
	(void)pthread_mutex_lock(&faults.lock);
	faults.read = true;
	(void)snprintf(faults.spec, sizeof(faults.spec), "%s", spec ? spec : "");
	(void)pthread_mutex_unlock(&faults.lock);
}

void stub_broken(const char *fmt, ...)
{
	va_list ap;

	if (*stub_process.st.broken)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(stub_process.st.broken, sizeof(stub_process.st.broken), fmt, ap);
	va_end(ap);
}

void stub_ibverbs_state(struct stub_ibverbs_state *ret)
{
	struct stub_fabric *f = stub_lock();

	*ret = stub_process.st;
	stub_unlock(f);
}

void stub_ibverbs_port(bool up)
{
	struct stub_fabric *f = stub_lock();

	f->port_down = !up;
	stub_progress(f, false);
	stub_unlock(f);
}

void stub_ibverbs_late(bool on)
{
	struct stub_fabric *f = stub_lock();

	stub_process.late = on;
	stub_process.late_read = true;
	stub_unlock(f);
}

void stub_ibverbs_die(bool dead, bool tell)
{
	struct vb_async_event e = { .type = VB_EVENT_DEVICE_FATAL };
	struct stub_fabric *f = stub_lock();

	stub_process.dead = dead;
	for (struct stub_context *c = stub_process.contexts; c && tell; c = c->next)
		(void)send(c->ctx.cmd_fd, &e, sizeof(e), MSG_NOSIGNAL | MSG_DONTWAIT);
	stub_unlock(f);
}

/* ------------------------------------------------------------------ devices */

bool stub_is_ib(void)
{
	const char *link = getenv("STUB_IBVERBS_LINK");

	return link && !strcmp(link, "ib");
}

/* Get a GID: link-local ones first, then 10.9.DEVICE.1, each as RoCE v1 and v2. */
bool stub_gid(unsigned device, unsigned idx, struct vb_gid_entry *ret)
{
	if (idx >= (stub_is_ib() ? 1 : gids()))
		return false;
	*ret = (struct vb_gid_entry){ .index = idx, .port = 1, .ifindex = 2 };
	ret->type = stub_is_ib() ? VB_GID_IB : idx % 2 ? VB_GID_ROCE_V2 : VB_GID_ROCE_V1;
	if (getenv("STUB_IBVERBS_IWARP"))
		ret->type = VB_GID_IB;
	if (idx + 2 < gids()) {
		ret->gid.raw[0] = 0xfe;
		ret->gid.raw[1] = 0x80;
		ret->gid.raw[14] = (uint8_t)(idx / 512);
		ret->gid.raw[15] = (uint8_t)(device + 1);
	} else {
		ret->gid.raw[10] = ret->gid.raw[11] = 0xff;
		ret->gid.raw[12] = 10;
		ret->gid.raw[13] = 9;
		ret->gid.raw[14] = (uint8_t)device;
		ret->gid.raw[15] = 1;
	}
	return true;
}

bool stub_gid_is(unsigned device, const union vb_gid *gid)
{
	struct vb_gid_entry e;

	for (unsigned i = 0; stub_gid(device, i, &e); i++)
		if (!memcmp(&e.gid, gid, sizeof(*gid)))
			return true;
	return false;
}

struct vb_device **ibv_get_device_list(int *ret_nr)
{
	static struct stub_device devices[STUB_DEVICES_MAX];
	const char *env = getenv("STUB_IBVERBS_DEVICES");
	int nr = env && *env ? atoi(env) : 1;
	struct vb_device **list;
	int err = stub_fault("ibv_get_device_list");

	if (nr < 0 || nr > STUB_DEVICES_MAX)
		nr = STUB_DEVICES_MAX;
	list = err ? NULL : calloc((size_t)nr + 1, sizeof(struct vb_device *));
	if (!list) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	for (int i = 0; i < nr; i++) {
		devices[i].number = (unsigned)i;
		devices[i].dev.node_type = getenv("STUB_IBVERBS_IWARP") ? 4 : 1;
		(void)snprintf(devices[i].name, sizeof(devices[i].name), "stub%d", i);
		list[i] = &devices[i].dev;
	}
	if (ret_nr)
		*ret_nr = nr;
	return list;
}

void ibv_free_device_list(struct vb_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct vb_device *dev)
{
	return stub_device_of(dev)->name;
}

struct vb_context *ibv_open_device(struct vb_device *dev)
{
	struct stub_context *c = calloc(1, sizeof(*c));
	int err = stub_fault("ibv_open_device");
	struct stub_fabric *f;
	int fds[2];

	if (!c || err || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		free(c);
		errno = err ? err : ENOMEM;
		return NULL;
	}
	c->device = stub_device_of(dev)->number;
	c->ctx.device = dev;
	c->ctx.cmd_fd = fds[1];
	c->ctx.async_fd = fds[0];
	c->ctx.num_comp_vectors = 1;
	c->ctx.ops.poll_cq = stub_poll_cq;
	c->ctx.ops.req_notify_cq = stub_req_notify_cq;
	c->ctx.ops.post_send = stub_post_send;
	c->ctx.ops.post_recv = stub_post_recv;
	f = stub_lock();
	c->next = stub_process.contexts;
	stub_process.contexts = c;
	stub_process.st.contexts++;
	stub_unlock(f);
	return &c->ctx;
}

int ibv_close_device(struct vb_context *ctx)
{
	struct stub_context *c = container_of(ctx, struct stub_context, ctx);
	struct stub_fabric *f = stub_lock();
	struct stub_context **at = &stub_process.contexts;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	if (c->users)
		stub_broken("ibv_close_device with %u objects left", c->users);
	stub_process.st.contexts--;
	stub_unlock(f);
	(void)close(ctx->cmd_fd);
	(void)close(ctx->async_fd);
	free(c);
	return 0;
}

int ibv_query_device(struct vb_context *ctx, struct vb_device_attr *ret)
{
	int err = stub_fault("ibv_query_device");

	(void)ctx;
	if (err)
		return err;
	*ret = (struct vb_device_attr){
		.fw_ver = "stub",
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 4096,
		.max_qp = STUB_QPS,
		.max_qp_wr = DEVICE_WRS,
		.max_sge = STUB_SGES,
		.max_cq = STUB_CQS,
		.max_cqe = STUB_CQES,
		.max_mr = STUB_MRS,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
		.phys_port_cnt = 1,
	};
	return 0;
}

int ibv_query_port(struct vb_context *ctx, uint8_t port, struct vb_port_attr *ret)
{
	struct stub_context *c = container_of(ctx, struct stub_context, ctx);
	int err = stub_fault("ibv_query_port");
	struct stub_fabric *f;

	if (err || port != 1)
		return err ? err : EINVAL;
	f = stub_lock();
	ret->state = f->port_down ? 1 : VB_PORT_ACTIVE;
	stub_unlock(f);
	ret->max_mtu = 5;
	ret->active_mtu = 5;
	ret->gid_tbl_len = (int)gids();
	ret->max_msg_sz = 1u << 31;
	ret->pkey_tbl_len = 1;
	ret->lid = (uint16_t)(stub_is_ib() ? c->device + 1 : 0);
	ret->link_layer = stub_is_ib() ? VB_LINK_INFINIBAND : VB_LINK_ETHERNET;
	return 0;
}

ssize_t _ibv_query_gid_table(struct vb_context *ctx, struct vb_gid_entry *ret, size_t max,
			     uint32_t flags, size_t size)
{
	struct stub_context *c = container_of(ctx, struct stub_context, ctx);
	int err = stub_fault("_ibv_query_gid_table");
	size_t nr = 0;

	if (err || flags || size != sizeof(*ret))
		return -(err ? err : EINVAL);
	/* An attribute's length has 16 bits in the kernel's interface. */
	if (max * size > UINT16_MAX)
		return -EINVAL;
	/* Return all entries or none, as the kernel does. */
	if (!stub_is_ib() && max < gids())
		return -EINVAL;
	while (nr < max && stub_gid(c->device, (unsigned)nr, &ret[nr]))
		nr++;
	return (ssize_t)nr;
}

int ibv_get_async_event(struct vb_context *ctx, struct vb_async_event *ret)
{
	const char *death = getenv("STUB_IBVERBS_DEATH");
	bool dead = true;

	if (death && access(death, F_OK) == 0) {
		struct stub_fabric *f = stub_lock();

		dead = stub_process.dead;
		stub_unlock(f);
	}
	if (!dead)
		stub_ibverbs_die(true, true);
	return recv(ctx->async_fd, ret, sizeof(*ret), 0) == sizeof(*ret) ? 0 : -1;
}

void ibv_ack_async_event(struct vb_async_event *event)
{
	(void)event;
}

/* ------------------------------------------------------- protection domains */

struct vb_pd *ibv_alloc_pd(struct vb_context *ctx)
{
	struct stub_context *c = container_of(ctx, struct stub_context, ctx);
	struct stub_pd *pd = calloc(1, sizeof(*pd));
	int err = stub_fault("ibv_alloc_pd");
	struct stub_fabric *f;

	if (!pd || err) {
		free(pd);
		errno = err ? err : ENOMEM;
		return NULL;
	}
	f = stub_lock();
	pd->pd.context = ctx;
	pd->pd.handle = f->next_pd++;
	c->users++;
	stub_process.st.pds++;
	stub_unlock(f);
	return &pd->pd;
}

int ibv_dealloc_pd(struct vb_pd *pd)
{
	struct stub_context *c = container_of(pd->context, struct stub_context, ctx);
	struct stub_pd *p = container_of(pd, struct stub_pd, pd);
	struct stub_fabric *f = stub_lock();

	if (p->users) {
		stub_broken("ibv_dealloc_pd with %u objects left", p->users);
		stub_unlock(f);
		return EBUSY;
	}
	c->users--;
	stub_process.st.pds--;
	stub_unlock(f);
	free(p);
	return 0;
}

const char *ibv_wc_status_str(uint32_t status)
{
	static const char *const names[] = {
		"success",
		"local length error",
		"local QP operation error",
		"local EE context operation error",
		"local protection error",
		"Work Request Flushed Error",
		"memory bind operation error",
		"bad response error",
		"local access error",
		"remote invalid request error",
		"remote access error",
		"remote operation error",
		"transport retry counter exceeded",
		"RNR retry counter exceeded",
	};

	return status < ARRAY_SIZE(names) ? names[status] : "unknown";
}
