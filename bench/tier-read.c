/* SPDX-License-Identifier: MIT */
/*
 * tier-read NAME PATH [PAIRS]: compare the CPU time of reads through a set (tier://SET/FILE) with
 * reads of the file's own path, in turns, for 4 KiB and 1 MiB.
 */
#include <stdio.h>
#include <stdlib.h>

#include <penstock.h>

#include "tools/common/spread.h"

#define PAIRS_MAX 31u

/* Return the CPU time of this process in microseconds. */
static double cpu_us(void)
{
	return (double)cpu_ns_of(0) / 1e3;
}

static void tier_read_check(int64_t r, const char *what)
{
	if (r >= 0)
		return;
	(void)fprintf(stderr, "tier-read: %s: %s\n", what, pst_error_text());
	exit(1);
}

/* Microseconds of CPU time for one read. */
static inline double reads(struct pst_file *f, void *buf, uint64_t len, uint64_t size, unsigned nr)
{
	double began = cpu_us();

	for (unsigned i = 0; i < nr; i++)
		tier_read_check(pst_read(f, (uint64_t)i * len % (size - len + 1) / len * len, NULL,
					 (uintptr_t)buf, len, NULL),
				"read");
	return (cpu_us() - began) / nr;
}

/* Two functions, so that bench/tier-instructions can count each of them alone. */
__attribute__((noinline)) static double reads_by_set(struct pst_file *f, void *buf, uint64_t len,
						     uint64_t size, unsigned nr)
{
	return reads(f, buf, len, size, nr);
}

__attribute__((noinline)) static double reads_by_path(struct pst_file *f, void *buf, uint64_t len,
						      uint64_t size, unsigned nr)
{
	return reads(f, buf, len, size, nr);
}

int main(int argc, char *argv[])
{
	static const uint64_t sizes[] = { 4096, 1 << 20 };
	struct pst_file_info info = { .sz = sizeof(info) };
	struct pst_file *file[2];
	unsigned pairs = argc > 3 ? (unsigned)atoi(argv[3]) : PAIRS_MAX;
	void *buf = aligned_alloc(4096, 1 << 20);

	if (argc < 3 || argc > 4 || !pairs || pairs > PAIRS_MAX || !buf) {
		(void)fprintf(stderr, "usage: tier-read tier://SET/FILE PATH [PAIRS]\n");
		return 2;
	}
	for (int i = 0; i < 2; i++)
		tier_read_check(pst_file_open(argv[i + 1], PST_FILE_READ, NULL, &file[i]),
				argv[i + 1]);
	tier_read_check(pst_file_info(file[1], &info), argv[2]);
	for (unsigned s = 0; s < 2; s++) {
		unsigned nr = sizes[s] == 4096 ? 20000 : 300;
		double us[2][PAIRS_MAX], ratio[PAIRS_MAX], middle;
		struct spread took[2];

		for (unsigned p = 0; p < pairs; p++) {
			for (unsigned k = 0; k < 2; k++) {
				unsigned i = (k + p) % 2;

				us[i][p] = (i ? reads_by_path : reads_by_set)(
					file[i], buf, sizes[s], info.size, nr);
			}
			ratio[p] = us[0][p] / us[1][p];
		}
		for (unsigned i = 0; i < 2; i++)
			took[i] = spread_of(us[i], pairs);
		/* median_of() also sorts the ratios, for the quartiles. */
		middle = median_of(ratio, pairs);
		(void)printf("%7llu bytes: median %.3f us by the set, %.3f by the path; fastest "
			     "%.3f, %.3f; ratio of a pair %.3f (quartiles %.3f to %.3f of %u)\n",
			     (unsigned long long)sizes[s], took[0].median, took[1].median,
			     took[0].lowest, took[1].lowest, middle, ratio[pairs / 4],
			     ratio[3 * pairs / 4], pairs);
	}
	for (int i = 0; i < 2; i++)
		(void)pst_file_close(file[i]);
	free(buf);
	return 0;
}
