/* The end of the run: text for people, and --json. */
#ifndef MUSTER_RUN_SUMMARY_H
#define MUSTER_RUN_SUMMARY_H

#include <stdbool.h>

struct run;

void run_summary_print(struct run *run);
/** False: told why. */
bool run_summary_write(struct run *run);

#endif
