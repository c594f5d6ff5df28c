/* SPDX-License-Identifier: MIT */
#include "load.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ALIGN 256            /* bytes; alignment of tensors in a file's memory */
#define CHECK_BUF MIB(4)     /* bytes copied from the device at a time */
#define CRC_TABLE 8          /* bytes per step; each has a table */
#define CRC_POLY 0xedb88320u /* polynomial of zlib and gzip, as in Python */

/* ------------------------------------------------------------------ memory */

static int model_mem_new(struct shard *s, uint64_t len, struct pst_mem **ret, uint64_t *ret_addr)
{
	struct pst_mem_info info = { .sz = sizeof(info) };
	uint64_t begun = now_ns();
	int r = pst_mem_alloc(set.device.name, len, NULL, ret);

	s->alloc_ns += now_ns() - begun;
	if (r < 0)
		return fail_pst(r, set.device.name);
	s->mems[s->nr_mems++] = *ret;
	r = pst_mem_info(*ret, &info);
	if (r < 0)
		return fail_pst(r, set.device.name);
	*ret_addr = info.addr;
	return 0;
}

static int places_in_one(struct shard *s)
{
	struct pst_mem *mem = NULL;
	uint64_t len = 0, addr = 0;
	int r;

	for (size_t i = 0; i < s->st->nr; i++) {
		s->places[i].off = len;
		len += align_up(s->st->tensors[i].len, ALIGN);
	}
	r = model_mem_new(s, len, &mem, &addr);
	for (size_t i = 0; r == 0 && i < s->st->nr; i++) {
		s->places[i].mem = mem;
		s->places[i].addr = addr + s->places[i].off;
	}
	return r;
}

int model_shard_open(struct shard *s)
{
	_cleanup_(closep) int fd = open(s->path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char why[300];
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail(errno, "%s: %s", s->path, strerror(errno));
	s->size = (uint64_t)st.st_size;
	r = safetensors_read(fd, &s->st, why, sizeof(why));
	if (r < 0)
		return fail(r, "%s: %s", s->path, why);
	s->places = calloc(s->st->nr + 1, sizeof(*s->places));
	s->mems = calloc(s->st->nr + 1, sizeof(struct pst_mem *));
	if (!s->places || !s->mems)
		return fail(ENOMEM, "out of memory");
	return 0;
}

int shard_place(struct shard *s, size_t i)
{
	struct place *p = &s->places[i];

	if (p->mem || !s->st->tensors[i].len)
		return 0;
	return set.per_file ? places_in_one(s)
			    : model_mem_new(s, s->st->tensors[i].len, &p->mem, &p->addr);
}

void shard_drop(struct shard *s)
{
	for (size_t i = 0; i < s->nr_mems; i++)
		(void)pst_mem_free(s->mems[i]);
	(void)safetensors_free(s->st);
	free(s->places);
	free(s->mems);
	*s = (struct shard){ .path = s->path };
}

/* --------------------------------------------------------------------- CRC */

static uint32_t crc_table[CRC_TABLE][256];

static void crc_tables(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ CRC_POLY : c >> 1;
		crc_table[0][i] = c;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int t = 1; t < CRC_TABLE; t++)
			crc_table[t][i] = crc_table[t - 1][i] >> 8 ^
					  crc_table[0][crc_table[t - 1][i] & 255];
}

static uint32_t crc_add(uint32_t crc, const uint8_t *p, size_t len)
{
	for (crc = ~crc; len >= CRC_TABLE; p += CRC_TABLE, len -= CRC_TABLE) {
		uint32_t lo = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
				     (uint32_t)p[3] << 24);

		crc = crc_table[7][lo & 255] ^ crc_table[6][lo >> 8 & 255] ^
		      crc_table[5][lo >> 16 & 255] ^ crc_table[4][lo >> 24] ^ crc_table[3][p[4]] ^
		      crc_table[2][p[5]] ^ crc_table[1][p[6]] ^ crc_table[0][p[7]];
	}
	while (len--)
		crc = crc >> 8 ^ crc_table[0][(crc ^ *p++) & 255];
	return ~crc;
}

static int place_crc(const struct place *p, uint64_t len, uint8_t *buf, uint32_t *ret)
{
	uint32_t crc = 0;

	for (uint64_t done = 0; done < len;) {
		uint64_t n = MIN(CHECK_BUF, len - done);
		int r = pst_mem_copy_out(p->mem, p->off + done, buf, n);

		if (r < 0)
			return fail_pst(r, "reading back");
		crc = crc_add(crc, buf, n);
		done += n;
	}
	*ret = crc;
	return 0;
}

int shard_crc(const struct shard *s, uint32_t *ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	_cleanup_(freep) uint8_t *buf = malloc(CHECK_BUF);
	int r = buf ? 0 : fail(ENOMEM, "out of memory");

	(void)pthread_once(&once, crc_tables);
	for (size_t i = 0; r == 0 && i < s->st->nr; i++)
		r = place_crc(&s->places[i], s->st->tensors[i].len, buf, &ret[i]);
	return r;
}

/* ----------------------------------------------------------------- threads */

struct crew {
	int (*work)(void *arg, unsigned idx);
	void *arg;
	unsigned nr;
	_Atomic unsigned next;
	pthread_mutex_t lock;
	int r; /* first failure and its sentence, under lock */
	char why[400];
};

static void *crew_main(void *arg)
{
	struct crew *c = arg;

	for (;;) {
		unsigned idx = atomic_fetch_add(&c->next, 1);
		int r;

		if (idx >= c->nr)
			return NULL;
		r = c->work(c->arg, idx);
		if (r < 0) {
			(void)pthread_mutex_lock(&c->lock);
			if (c->r == 0) {
				c->r = r;
				(void)snprintf(c->why, sizeof(c->why), "%s", fail_text());
			}
			(void)pthread_mutex_unlock(&c->lock);
			/* Let no thread begin another piece. */
			atomic_store(&c->next, c->nr);
			return NULL;
		}
	}
}

int each(unsigned nr, unsigned at_once, int (*work)(void *arg, unsigned idx), void *arg)
{
	struct crew c = { .work = work, .arg = arg, .nr = nr };
	unsigned threads = MIN(nr, at_once), begun = 0;
	pthread_t thread[THREADS_MAX];

	if (threads > THREADS_MAX)
		threads = THREADS_MAX;
	(void)pthread_mutex_init(&c.lock, NULL);
	/* The calling thread takes part, so a single piece needs no other thread. */
	while (begun + 1 < threads && pthread_create(&thread[begun], NULL, crew_main, &c) == 0)
		begun++;
	(void)crew_main(&c);
	while (begun)
		(void)pthread_join(thread[--begun], NULL);
	(void)pthread_mutex_destroy(&c.lock);
	return c.r < 0 ? fail(c.r, "%s", c.why) : 0;
}
