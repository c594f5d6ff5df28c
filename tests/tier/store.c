/* SPDX-License-Identifier: MIT */
#include "store.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"

bool store_down, store_corrupts;
static char folder[300];

void store_begin(const char *dir)
{
	(void)snprintf(folder, sizeof(folder), "%s/store", dir);
	(void)mkdir(folder, 0755);
}

static int store_fail(const char *call, char why[OBJECT_WHY_SIZE])
{
	int err = store_down ? ECONNREFUSED : calls_hook ? calls_hook(call) : 0;

	if (err)
		(void)snprintf(why, OBJECT_WHY_SIZE, "%s: %s", call, strerror(err));
	return -err;
}

/* An object is a file: its ETag, its metadata, a line each, and its bytes. */
static const char *file_of(const char *url)
{
	static char path[2000];
	size_t n = (size_t)snprintf(path, sizeof(path), "%s/", folder);

	for (url += strlen("s3://"); *url && n < sizeof(path) - 1; url++)
		path[n++] = *url == '/' ? '%' : *url;
	path[n] = '\0';
	return path;
}

static void store_write(const char *url, const char *meta, const void *data, size_t len)
{
	char path[2000], part[2100];
	static unsigned nr;
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s", file_of(url));
	(void)snprintf(part, sizeof(part), "%s/.part", folder);
	f = fopen(part, "we");
	if (!f)
		abort();
	(void)fprintf(f, "\"%d-%u\"\n%s\n", (int)getpid(), nr++, meta);
	(void)fwrite(data, 1, len, f);
	if (fclose(f) != 0 || rename(part, path) < 0)
		abort();
}

/* Open an object at its first byte.  Return NULL if there is none. */
static FILE *store_open(const char *url, struct object_facts *ret)
{
	FILE *f = fopen(file_of(url), "re");
	long from, end;

	if (!f)
		return NULL;
	if (!fgets(ret->etag, sizeof(ret->etag), f) || !fgets(ret->meta, sizeof(ret->meta), f) ||
	    (from = ftell(f)) < 0 || fseek(f, 0, SEEK_END) < 0 || (end = ftell(f)) < 0 ||
	    fseek(f, from, SEEK_SET) < 0)
		abort();
	ret->etag[strcspn(ret->etag, "\n")] = '\0';
	ret->meta[strcspn(ret->meta, "\n")] = '\0';
	ret->size = (uint64_t)(end - from);
	return f;
}

static int store_missing(char why[OBJECT_WHY_SIZE])
{
	(void)snprintf(why, OBJECT_WHY_SIZE, "the bucket has no object of that key");
	return -ENOENT;
}

static void store_table_begin(const struct objects_host *host)
{
	(void)host;
}

static int store_head(const char *url, struct object_facts *ret, char why[OBJECT_WHY_SIZE])
{
	int r = store_fail("store_head", why);
	FILE *f;

	if (r < 0)
		return r;
	f = store_open(url, ret);
	if (!f)
		return store_missing(why);
	(void)fclose(f);
	return store_fail("store_head_done", why);
}

static int store_put(const char *url, const struct object_source *src, const char *meta,
		     char why[OBJECT_WHY_SIZE])
{
	char *buf = malloc(src->size + 1);
	int r = store_fail("store_put", why);

	if (!buf)
		abort();
	if (r == 0 && src->size)
		r = src->read(src->arg, buf, src->size, 0);
	if (r == 0) {
		store_write(url, meta, buf, src->size);
		r = store_fail("store_put_done", why);
	}
	free(buf);
	return r;
}

static int store_get(const char *url, const struct object_facts *of, void *buf, size_t len,
		     uint64_t off, char why[OBJECT_WHY_SIZE])
{
	struct object_facts now;
	int r = store_fail("store_get", why);
	FILE *f;

	if (r < 0)
		return r;
	f = store_open(url, &now);
	if (!f)
		return store_missing(why);
	if (strcmp(now.etag, of->etag) != 0 || now.size != of->size) {
		(void)snprintf(why, OBJECT_WHY_SIZE, "the object was replaced");
		r = -ESTALE;
	} else if (fseek(f, (long)off, SEEK_CUR) < 0 || fread(buf, 1, len, f) != len) {
		abort();
	}
	(void)fclose(f);
	if (store_corrupts && len)
		*(char *)buf ^= 1;
	return r < 0 ? r : store_fail("store_get_done", why);
}

static int store_remove(const char *url, char why[OBJECT_WHY_SIZE])
{
	int r = store_fail("store_remove", why);

	if (r < 0)
		return r;
	(void)unlink(file_of(url));
	return store_fail("store_remove_done", why);
}

static int store_list(const char *dir, object_list_fn fn, void *arg, char why[OBJECT_WHY_SIZE])
{
	char prefix[600];
	int r = store_fail("store_list", why);
	DIR *d = opendir(folder);
	struct dirent *e;

	(void)snprintf(prefix, sizeof(prefix), "%s%%", strrchr(file_of(dir), '/') + 1);
	while (d && r == 0 && (e = readdir(d))) {
		char *key = e->d_name + strlen(prefix);

		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
			continue;
		for (char *c = key; *c; c++)
			*c = *c == '%' ? '/' : *c;
		r = fn(arg, key, 0);
	}
	if (d)
		(void)closedir(d);
	return r;
}

unsigned store_each(const char *prefix, void (*fn)(const char *key))
{
	DIR *d = opendir(folder);
	unsigned nr = 0;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char *key = strstr(e->d_name, prefix);

		if (e->d_name[0] == '.' || !key)
			continue;
		key += strlen(prefix);
		for (char *c = key; *c; c++)
			*c = *c == '%' ? '/' : *c;
		if (!strncmp(key, ".tier/", 6))
			continue;
		nr++;
		if (fn)
			fn(key);
	}
	if (d)
		(void)closedir(d);
	return nr;
}

void store_replace(const char *url, const char *text)
{
	if (text)
		store_write(url, "", text, strlen(text));
	else
		(void)unlink(file_of(url));
}

const struct objects_table store_table = {
	.version = OBJECTS_VERSION,
	.sz = sizeof(struct objects_table),
	.begin = store_table_begin,
	.head = store_head,
	.put = store_put,
	.get = store_get,
	.remove = store_remove,
	.list = store_list,
};
