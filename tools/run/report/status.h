/* `muster run --status`: what the job does, for probes, for Prometheus and for people. */
#ifndef MUSTER_RUN_STATUS_H
#define MUSTER_RUN_STATUS_H

#include <muster/json.h>
#include <muster/status.h>

struct run;

/** Serve the pages if --status is given, and say where. False: told why; *ret_exit. */
bool run_status_open(struct run *run, int *ret_exit);
/** Turns the loop. */
void run_status_close(struct run *run);
/** "http://HOST:PORT/", or "" without --status. */
const char *run_status_url(const struct run *run);
/** The job as this launcher knows it: view, step, state and members of this machine. NULL: no
 * memory. Gives. */
struct muster_json *run_status_json(const struct run *run);
/** OK, or why the job does not get on. */
enum muster_rc run_status_check(const struct run *run, struct muster_error *ret_error);

/* tools/run/report/metrics.c */
struct muster_http_reply;
void run_metrics_write(const struct run *run, struct muster_http_reply *reply);

#endif
