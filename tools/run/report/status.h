/* `muster run --status`: pages about the job, for probes, for Prometheus and for people. */
#ifndef MUSTER_RUN_STATUS_H
#define MUSTER_RUN_STATUS_H

#include <stdbool.h>

struct run;

/** Serve the pages if --status is given, and say where. False: told why; *ret_exit. */
bool run_status_open(struct run *run, int *ret_exit);
/** Turns the loop. */
void run_status_close(struct run *run);
/** "http://HOST:PORT/", or "" without --status. */
const char *run_status_url(const struct run *run);

#endif
