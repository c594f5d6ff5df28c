/* SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/nearest.h"
#include "t.h"

static const struct {
	int before;
	const char *name;
} names[] = { { 0, "policy" }, { 1, "depth" }, { 2, NULL }, { 3, "size" }, { 4, "sizes" } };

static const char *of(const char *word)
{
	return nearest(word, strlen(word), &names[0].name, sizeof(names[0]), ARRAY_SIZE(names));
}

static void words(void)
{
	static const struct {
		const char *word, *want;
	} pairs[] = {
		{ "polcy", "policy" }, { "poilcy", "policy" }, { "policies", NULL },
		{ "dpeth", "depth" },  { "depht", "depth" },   { "siqe", "size" },
		{ "sizess", "sizes" }, { "frobnicate", NULL }, { "", NULL },
		{ "x", NULL },         { "size", "size" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		const char *got = of(pairs[i].word);

		if (!pairs[i].want != !got || (got && strcmp(got, pairs[i].want) != 0))
			T_FAIL("%s: %s and not %s", pairs[i].word, got ? got : "none",
			       pairs[i].want ? pairs[i].want : "none");
	}
}

static void long_words(void)
{
	char word[200];

	memset(word, 's', sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	T_CHECK(!of(word));
	/* Only len bytes are compared. */
	T_CHECK(!strcmp(nearest("depth=5", 5, &names[0].name, sizeof(names[0]), 2), "depth"));
}

static void devices(void)
{
	static const struct {
		const char *text, *want; /* NULL: it may be a file */
	} pairs[] = {
		{ "cuda0", "cuda:0" },  { "CUDA:0", "cuda:0" },
		{ "Cuda", "cuda:0" },   { "gpu", "cuda:0" },
		{ "gpu:3", "cuda:3" },  { "GPU1", "cuda:1" },
		{ "gpu-1", "cuda:1" },  { "nvidia0", "cuda:0" },
		{ "cuda_2", "cuda:2" }, { "cuda:", "cuda:0" },
		{ "cuda:x", "cuda:0" }, { "cdua:1", "cuda:1" },
		{ "soft0", "soft:0" },  { "SOFT:7", "soft:7" },
		{ "sotf:0", "soft:0" }, { "HOST", "host" },
		{ "cpu", "host" },      { "cpu:0", "host" },
		{ "npu:0", "" },        { "model", NULL },
		{ "model:x", NULL },    { "model.bin", NULL },
		{ "soft.bin", NULL },   { "sort1", NULL },
		{ "post0", NULL },      { "gpu-results", NULL },
		{ "cuda0.bin", NULL },  { "0", NULL },
		{ "", NULL },           { ":0", NULL },
	};
	char ret[NEAREST_DEVICE_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		bool is = nearest_device(pairs[i].text, ret);

		if (is != (pairs[i].want != NULL) || (is && strcmp(ret, pairs[i].want) != 0))
			T_FAIL("%s: %s %s and not %s", pairs[i].text, is ? "a device" : "a file",
			       ret, pairs[i].want ? pairs[i].want : "a file");
	}
}

int main(void)
{
	T_RUN(words);
	T_RUN(long_words);
	T_RUN(devices);
	return t_done();
}
