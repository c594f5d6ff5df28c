/* SPDX-License-Identifier: MIT */
/*
 * The driver's calls, one function each, and its status codes.
 *
 * An escape can fail in two places.  The ioctl() fails if number, size or descriptor is wrong.  The
 * resource manager then fails with a status in the structure.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "window/nvrm/nvrm.h"

/* The known statuses.  If the cause depends on the call, the text names both causes. */
static const struct {
	uint32_t status;
	int err;
	const char *name, *text;
} statuses[] = {
	{ NVRM_GPU_IS_LOST, ENODEV, "GPU_IS_LOST", "the GPU has fallen off the bus" },
	{ NVRM_GPU_IN_RESET, EBUSY, "GPU_IN_FULLCHIP_RESET", "the GPU is being reset" },
	{ NVRM_NO_RESOURCES, ENOMEM, "INSUFFICIENT_RESOURCES",
	  "no room left, most likely in the BAR through which the CPU sees the GPU's memory" },
	{ NVRM_NO_PERMISSION, EACCES, "INSUFFICIENT_PERMISSIONS",
	  "the memory is of another user's process, or the GPU's device file is not open here" },
	{ NVRM_INVALID_ARGUMENT, EINVAL, "INVALID_ARGUMENT",
	  "memory that may only be read, or not of this GPU" },
	{ NVRM_INVALID_BASE, EINVAL, "INVALID_BASE", "the range begins past the memory" },
	{ NVRM_INVALID_CLASS, EOPNOTSUPP, "INVALID_CLASS", "the driver has no such object" },
	{ NVRM_INVALID_CLIENT, EINVAL, "INVALID_CLIENT", "the memory's process is gone" },
	{ NVRM_INVALID_LIMIT, EINVAL, "INVALID_LIMIT", "the range reaches past the memory" },
	{ NVRM_INVALID_OBJECT, EINVAL, "INVALID_OBJECT", "this is no memory" },
	{ NVRM_INVALID_HANDLE, EINVAL, "INVALID_OBJECT_HANDLE", "there is no such object" },
	{ NVRM_INVALID_PARENT, EINVAL, "INVALID_OBJECT_PARENT",
	  "the memory is on another GPU, or on a part of a divided one (MIG)" },
	{ NVRM_INVALID_STRUCT, EOPNOTSUPP, "INVALID_PARAM_STRUCT",
	  "this driver's structures are different" },
	{ NVRM_INVALID_PARAMETER, EINVAL, "INVALID_PARAMETER",
	  "the descriptor holds no memory of the driver" },
	{ NVRM_NO_MEMORY, ENOMEM, "NO_MEMORY",
	  "no room left, most likely in the BAR through which the CPU sees the GPU's memory" },
	{ NVRM_NOT_SUPPORTED, EOPNOTSUPP, "NOT_SUPPORTED",
	  "the CPU may not see this memory (confidential computing, protected memory), or the "
	  "driver has no such call" },
	{ NVRM_NOT_FOUND, EINVAL, "OBJECT_NOT_FOUND", "the memory was freed by its owner" },
	{ NVRM_OUT_OF_RANGE, EINVAL, "OUT_OF_RANGE", "the descriptor holds fewer objects" },
	{ NVRM_STATE_IN_USE, EBUSY, "STATE_IN_USE", "the descriptor has a mapping already" },
	{ NVRM_TIMEOUT, EIO, "TIMEOUT", "the GPU does not answer" },
};

/* Return the result of an escape.  "what" completes "the NVIDIA driver does not ...". */
static int answer(const char *what, int ioctl_err, uint32_t status)
{
	if (ioctl_err) {
		log_debug("nvrm: %s: ioctl gave %s", what, err_name(ioctl_err));
		return err_set(ioctl_err == EFAULT || ioctl_err == ENOTTY ? EOPNOTSUPP : ioctl_err,
			       "the NVIDIA driver does not %s: %s", what, err_name(ioctl_err));
	}
	if (status == NVRM_OK) {
		log_debug("nvrm: %s: status 0", what);
		return 0;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(statuses); i++) {
		if (statuses[i].status != status)
			continue;
		log_debug("nvrm: %s: status 0x%" PRIx32 " %s", what, status, statuses[i].name);
		return err_set(statuses[i].err, "the NVIDIA driver does not %s: %s; %s", what,
			       statuses[i].name, statuses[i].text);
	}
	log_debug("nvrm: %s: status 0x%" PRIx32, what, status);
	return err_set(EIO, "the NVIDIA driver does not %s: status 0x%" PRIx32, what, status);
}

/* Log a failure, and keep the sentence, which may be that of an earlier failure. */
static void ended(const char *what, int ioctl_err, uint32_t status)
{
	if (ioctl_err || status)
		log_warn("nvrm: the driver does not %s: %s, status 0x%" PRIx32 ", ignoring", what,
			 ioctl_err ? err_name(ioctl_err) : "ioctl done", status);
	else
		log_debug("nvrm: %s: status 0", what);
}

/* Call ioctl().  Return 0 or a positive errno. */
static int escape(int fd, unsigned long request, void *arg)
{
	int r;

	do
		r = ioctl(fd, request, arg);
	while (r < 0 && errno == EINTR);
	return r < 0 ? errno : 0;
}

int nvrm_esc_version(int ctl, char ret[64])
{
	struct nvrm_version v = { .cmd = NVRM_VERSION_QUERY };
	int r = answer("tell its version",
		       escape(ctl, NVRM_IOCTL(NVRM_VERSION, struct nvrm_version), &v), NVRM_OK);

	if (r < 0)
		return r;
	v.text[sizeof(v.text) - 1] = '\0';
	log_debug("nvrm: driver version \"%s\", reply %" PRIu32, v.text, v.reply);
	if (v.reply != NVRM_VERSION_KNOWN)
		return err_set(EOPNOTSUPP, "the NVIDIA driver does not tell its version");
	memcpy(ret, v.text, sizeof(v.text));
	return 0;
}

int nvrm_esc_cards(int ctl, struct nvrm_cards *ret)
{
	*ret = (struct nvrm_cards){ 0 };
	return answer("list its GPUs", escape(ctl, NVRM_IOCTL(NVRM_CARDS, struct nvrm_cards), ret),
		      NVRM_OK);
}

int nvrm_esc_tie(int fd, int ctl)
{
	struct nvrm_tie t = { .ctl_fd = ctl };

	return answer("tie a GPU's descriptor to the control descriptor",
		      escape(fd, NVRM_IOCTL(NVRM_TIE, struct nvrm_tie), &t), NVRM_OK);
}

int nvrm_esc_alloc(int ctl, uint32_t client, uint32_t parent, uint32_t *object, uint32_t class,
		   void *params, uint32_t size)
{
	struct nvrm_alloc a = { .client = client,
				.parent = parent,
				.object = *object,
				.class = class,
				.params = (uintptr_t)params,
				.params_size = size };
	char what[64];
	int e = escape(ctl, NVRM_IOCTL(NVRM_ALLOC, struct nvrm_alloc), &a), r;

	(void)snprintf(what, sizeof(what), "make an object of class 0x%" PRIx32, class);
	r = answer(what, e, a.status);
	if (r == 0)
		*object = a.object;
	return r;
}

int nvrm_esc_control(int ctl, uint32_t client, uint32_t object, uint32_t cmd, void *params,
		     uint32_t size)
{
	struct nvrm_control c = { .client = client,
				  .object = object,
				  .cmd = cmd,
				  .params = (uintptr_t)params,
				  .params_size = size };
	char what[64];
	int e = escape(ctl, NVRM_IOCTL(NVRM_CONTROL, struct nvrm_control), &c);

	(void)snprintf(what, sizeof(what), "answer control 0x%" PRIx32, cmd);
	return answer(what, e, c.status);
}

int nvrm_esc_dup(int ctl, uint32_t client, uint32_t parent, uint32_t object,
		 const struct nvrm_handle *src)
{
	struct nvrm_dup d = { .client = client,
			      .parent = parent,
			      .object = object,
			      .src_client = src->client,
			      .src_object = src->object };
	int e = escape(ctl, NVRM_IOCTL(NVRM_DUP, struct nvrm_dup), &d);
	uint32_t status = d.status;

	explicit_bzero(&d, sizeof(d));
	return answer("duplicate the memory's object", e, status);
}

int nvrm_esc_map(int ctl, struct nvrm_map *map)
{
	int e = escape(ctl, NVRM_IOCTL(NVRM_MAP, struct nvrm_map), map);
	char what[96];

	(void)snprintf(what, sizeof(what), "map %" PRIu64 " bytes at %#" PRIx64 " of the object",
		       map->length, map->offset);
	return answer(what, e, map->status);
}

void nvrm_esc_unmap(int ctl, uint32_t client, uint32_t device, uint32_t object, uint64_t linear)
{
	struct nvrm_unmap u = {
		.client = client, .device = device, .object = object, .linear = linear
	};
	int e = escape(ctl, NVRM_IOCTL(NVRM_UNMAP, struct nvrm_unmap), &u);

	/* The caller frees the object next, which also ends the mapping. */
	ended("unmap", e, u.status);
}

void nvrm_esc_free(int ctl, uint32_t client, uint32_t parent, uint32_t object)
{
	struct nvrm_free f = { .client = client, .parent = parent, .object = object };
	int e = escape(ctl, NVRM_IOCTL(NVRM_FREE, struct nvrm_free), &f);

	/* If this call fails, the object ends with the client's descriptor. */
	ended("free an object", e, f.status);
}
