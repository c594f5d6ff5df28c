/* SPDX-License-Identifier: MIT */
/* The window calls, on the software device. */
#include <sys/wait.h>

#include "rig.h"

#define LEN RIG_MIB(1)

static struct pst_mem *soft(uint64_t len)
{
	struct pst_mem *m = NULL;

	T_OK(pst_mem_alloc("soft", len, NULL, &m));
	return m;
}

static struct pst_window *open_at(struct pst_mem *m, uint64_t off, uint64_t len)
{
	struct pst_window *w = NULL;

	T_OK(pst_window_open(m, off, len, NULL, &w));
	return w;
}

/* Copy in both directions at odd offsets: nothing outside the range may change. */
static void bytes_go_both_ways(void)
{
	struct pst_mem *m = soft(LEN);
	struct pst_window *w = open_at(m, 4097, 10007);
	unsigned char in[1000], out[1002], all[1002];

	t_fill(in, 7, 0, sizeof(in));
	memset(out, 0xee, sizeof(out));
	T_OK(pst_mem_copy_in(m, 4097 + 32, out, sizeof(out)));
	T_OK(pst_window_store(w, 33, in, sizeof(in)));
	T_OK(pst_mem_copy_out(m, 4097 + 32, all, sizeof(all)));
	T_CHECK(memcmp(all + 1, in, sizeof(in)) == 0);
	T_CHECK(all[0] == 0xee && all[sizeof(all) - 1] == 0xee);
	T_OK(pst_window_load(w, 33, out, sizeof(in)));
	T_CHECK(memcmp(out, in, sizeof(in)) == 0);
	T_CHECK(memcmp((char *)pst_window_ptr(w) + 33, in, sizeof(in)) == 0);
	pst_window_close(w);
	pst_mem_free(m);
}

static void refusals(void)
{
	struct pst_window_opts o = { .sz = sizeof(o), .caching = PST_CACHING_WC };
	struct pst_mem *m = soft(LEN), *host = NULL;
	struct pst_window *w = NULL;
	char b[16] = "";

	T_EQ(pst_window_open(m, 0, 0, NULL, &w), -EINVAL);
	T_EQ(pst_window_open(m, LEN, 1, NULL, &w), -ERANGE);
	T_EQ(pst_window_open(m, UINT64_MAX, 2, NULL, &w), -ERANGE);
	T_EQ(pst_window_open(m, 0, 64, &o, &w), -EOPNOTSUPP);
	o = (struct pst_window_opts){ .sz = sizeof(o), .backend = "none" };
	T_EQ(pst_window_open(m, 0, 64, &o, &w), -EOPNOTSUPP);
	T_CHECK(strstr(pst_error_text(), "none"));
	T_OK(pst_mem_alloc("host", 4096, NULL, &host));
	T_EQ(pst_window_open(host, 0, 64, NULL, &w), -EOPNOTSUPP);
	w = open_at(m, 100, 50);
	T_EQ(pst_window_store(w, 50, b, 1), -ERANGE);
	T_EQ(pst_window_store(w, UINT64_MAX, b, 2), -ERANGE);
	T_EQ(pst_window_load(w, 40, b, 11), -ERANGE);
	T_OK(pst_window_load(w, 50, b, 0));
	pst_window_close(w);
	o = (struct pst_window_opts){ .sz = sizeof(o), .flags = PST_WINDOW_READ_ONLY };
	T_OK(pst_window_open(m, 100, 50, &o, &w));
	T_EQ(pst_window_store(w, 0, b, 1), -EACCES);
	T_OK(pst_window_load(w, 0, b, 1));
	pst_window_close(w);
	pst_mem_free(host);
	pst_mem_free(m);
}

/* Make stores without a fence each, and one fence after the last. */
static void unfenced(void)
{
	struct pst_window_opts o = { .sz = sizeof(o), .flags = PST_WINDOW_UNFENCED };
	struct pst_mem *m = soft(LEN);
	struct pst_window *w = NULL;
	unsigned char in[4096], out[4096];

	t_fill(in, 9, 0, sizeof(in));
	T_OK(pst_window_open(m, 77, sizeof(in), &o, &w));
	for (unsigned i = 0; i < sizeof(in); i += 64)
		T_OK(pst_window_store(w, i, in + i, 64));
	pst_window_fence();
	T_OK(pst_mem_copy_out(m, 77, out, sizeof(out)));
	T_CHECK(memcmp(in, out, sizeof(in)) == 0);
	pst_window_close(w);
	pst_mem_free(m);
}

/* Use the kernel's dma-bufs of host memory, if it supports them. */
static void by_dmabuf(void)
{
	struct pst_window_opts o = { .sz = sizeof(o), .backend = "dmabuf" };
	struct pst_window_info info = { .sz = sizeof(info) };
	struct pst_mem *m = soft(LEN);
	struct pst_window *w = NULL;
	unsigned char in[10007], out[10007];

	if (access("/dev/udmabuf", R_OK | W_OK) < 0) {
		T_EQ(pst_window_open(m, 0, LEN, &o, &w), -EOPNOTSUPP);
		T_CHECK(strstr(pst_error_text(), "udmabuf"));
		pst_mem_free(m);
		T_SKIP("/dev/udmabuf");
	}
	t_fill(in, 13, 0, sizeof(in));
	T_OK(pst_window_open(m, 4097, sizeof(in), &o, &w));
	T_OK(pst_window_info(w, &info));
	T_CHECK(strcmp(info.backend, "dmabuf") == 0);
	T_EQ(info.state, PST_STATE_PROVEN);
	T_OK(pst_window_store(w, 0, in, sizeof(in)));
	T_OK(pst_mem_copy_out(m, 4097, out, sizeof(out)));
	T_CHECK(memcmp(in, out, sizeof(in)) == 0);
	t_fill(in, 14, 0, sizeof(in));
	T_OK(pst_mem_copy_in(m, 4097, in, sizeof(in)));
	T_OK(pst_window_load(w, 0, out, sizeof(out)));
	T_CHECK(memcmp(in, out, sizeof(in)) == 0);
	pst_mem_free(m);
	T_OK(pst_window_load(w, 0, out, sizeof(out)));
	T_CHECK(memcmp(in, out, sizeof(in)) == 0);
	pst_window_close(w);
}

static void outlives_its_memory(void)
{
	struct pst_mem *m = soft(LEN);
	struct pst_window *w = open_at(m, 0, LEN);
	uint64_t v = 42, back = 0;

	pst_mem_free(m);
	T_OK(pst_window_store(w, LEN - 8, &v, 8));
	T_OK(pst_window_load(w, LEN - 8, &back, 8));
	T_EQ(back, 42);
	pst_window_close(w);
}

static void a_grant_is_enough(void)
{
	struct pst_grant g = { .sz = sizeof(g) };
	struct pst_mem *m = soft(LEN);
	struct pst_window *w = NULL;
	uint64_t v = 0x1122334455667788, back = 0;

	T_OK(pst_mem_export(m, 4000, 5000, PST_RIGHT_READ | PST_RIGHT_WRITE, &g));
	T_OK(pst_window_open_grant(&g, NULL, &w));
	T_OK(pst_window_store(w, 4992, &v, 8));
	T_OK(pst_mem_copy_out(m, 8992, &back, 8));
	T_EQ(back, v);
	T_EQ(pst_window_store(w, 4993, &v, 8), -ERANGE);
	pst_window_close(w);
	g.len = LEN;
	T_EQ(pst_window_open_grant(&g, NULL, &w), -EINVAL);
	pst_grant_done(&g);
	pst_mem_free(m);
}

static void a_child_has_no_window(void)
{
	struct pst_mem *m = soft(LEN);
	struct pst_window *w = open_at(m, 0, LEN);
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		char b = 1;

		_exit(pst_window_store(w, 0, &b, 1) == -EOWNERDEAD ? 0 : 1);
	}
	T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	T_EQ(status, 0);
	pst_window_close(w);
	pst_mem_free(m);
}

static void facts(void)
{
	struct pst_window_info info = { .sz = sizeof(info) };
	struct pst_window_backend b[8] = { 0 };
	struct pst_mem *m = soft(LEN);
	struct pst_window *w = open_at(m, 1, 77);
	int n;

	T_OK(pst_window_info(w, &info));
	T_EQ(info.len, 77);
	T_EQ(info.state, PST_STATE_PROVEN);
	T_CHECK(info.backend[0] && info.store[0] && info.load[0]);
	for (unsigned i = 0; i < 8; i++)
		b[i].sz = sizeof(b[i]);
	n = pst_window_backends("soft", b, 8);
	T_CHECK(n >= 2 && n <= 8);
	T_CHECK(strcmp(b[n - 1].name, "soft") == 0 && b[n - 1].state == PST_STATE_PROVEN);
	pst_window_close(w);
	pst_mem_free(m);
}

/* Each named kernel makes the copy itself. */
static void kernels_by_name(void)
{
	struct pst_window_opts o = { .sz = sizeof(o), .kernel = "none" };
	struct pst_window_info info = { .sz = sizeof(info) };
	unsigned char in[1000], out[1000];
	struct pst_mem *m = soft(LEN);
	struct pst_window *w = NULL;
	const char *names[16];
	int nr = pst_window_kernels(names, 16);
	char listed[256];

	T_CHECK(nr >= 2 && nr <= 16);
	T_EQ(pst_window_kernels(NULL, 0), nr);
	T_EQ(pst_window_kernels(NULL, 1), -EINVAL);
	T_EQ(pst_window_open(m, 0, LEN, &o, &w), -EOPNOTSUPP);
	(void)snprintf(listed, sizeof(listed), "%s", pst_error_text());
	for (int i = 0; i < nr; i++) {
		T_CHECK(strstr(listed, names[i]));
		o.kernel = names[i];
		T_OK(pst_window_open(m, 0, LEN, &o, &w));
		T_OK(pst_window_info(w, &info));
		T_CHECK(strcmp(info.store, names[i]) == 0 || strcmp(info.load, names[i]) == 0);
		t_fill(in, (uint64_t)i, 0, sizeof(in));
		T_OK(pst_window_store(w, 33, in, sizeof(in)));
		T_OK(pst_mem_copy_out(m, 33, out, sizeof(out)));
		T_CHECK(memcmp(in, out, sizeof(in)) == 0);
		memset(out, 0, sizeof(out));
		T_OK(pst_window_load(w, 33, out, sizeof(out)));
		T_CHECK(memcmp(in, out, sizeof(in)) == 0);
		pst_window_close(w);
	}
	pst_mem_free(m);
}

int main(void)
{
	T_RUN(bytes_go_both_ways);
	T_RUN(refusals);
	T_RUN(unfenced);
	T_RUN(by_dmabuf);
	T_RUN(outlives_its_memory);
	T_RUN(a_grant_is_enough);
	T_RUN(a_child_has_no_window);
	T_RUN(facts);
	T_RUN(kernels_by_name);
	return t_done();
}
