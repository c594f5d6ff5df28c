/* SPDX-License-Identifier: MIT */
#include "engine.h"

void report_add(struct engine_report *r, const struct pst_done *done)
{
	/* An empty read counts as an error of the job. */
	int failed = done->res < 0 || (done->res == 0 && done->op == PST_OP_READ);
	unsigned int i;

	for (i = 0; i < r->nr_rows; i++) {
		struct report_row *row = &r->rows[i];

		if (row->op == done->op && row->paths == done->paths && row->why == done->why &&
		    row->failed == failed) {
			row->nr++;
			return;
		}
	}
	if (i == REPORT_ROWS) {
		r->others++;
		return;
	}
	r->rows[r->nr_rows++] = (struct report_row){
		.op = done->op,
		.paths = done->paths,
		.why = done->why,
		.detail = done->detail,
		.failed = failed,
		.nr = 1,
	};
}

static const char *op_name(uint32_t op)
{
	return op == PST_OP_READ ? "reads" : op == PST_OP_WRITE ? "writes" : "syncs";
}

/* With other output formats, programs read standard output: print nothing else there. */
static void fio_report_print(const char *line)
{
	if (output_format & FIO_OUTPUT_NORMAL)
		log_info("%s", line);
	else
		(void)fputs(line, stderr);
}

void report_print(const struct engine_job *job)
{
	const struct engine_report *r = &job->report;
	const char *name = job->td->o.name ? job->td->o.name : "job";
	char paths[256], why[400], line[1200];

	for (unsigned int i = 0; i < r->nr_rows; i++) {
		const struct report_row *row = &r->rows[i];

		(void)pst_paths_text(row->paths, paths, sizeof(paths));
		(void)pst_why_text(row->why, row->detail, why, sizeof(why));
		(void)snprintf(line, sizeof(line), "penstock: %s (%d): %s, %llu %s%s%s%s%s%s%s%s\n",
			       name, (int)gettid(), job->opts->device, (unsigned long long)row->nr,
			       row->failed ? "failed " : "", op_name(row->op),
			       job->opts->rings ? " by rings on " : "",
			       job->opts->rings ? job->opts->rings : "", *paths ? " by " : "",
			       paths, row->why ? "; " : "", row->why ? why : "");
		fio_report_print(line);
	}
	if (r->others) {
		(void)snprintf(line, sizeof(line), "penstock: %s (%d): %llu more by other paths\n",
			       name, (int)gettid(), (unsigned long long)r->others);
		fio_report_print(line);
	}
	/* A forked job exits without flushing its output. */
	(void)log_info_flush();
}
