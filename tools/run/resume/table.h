/* The table of a resumable run: the facts that a successor of this launcher needs. Without --resumable all of these
 * do nothing, and succeed. */
#ifndef MUSTER_RUN_TABLE_H
#define MUSTER_RUN_TABLE_H

#include <stdbool.h>

struct run;

void run_table_open(struct run *run);
void run_table_close(struct run *run);
/** A fact has changed: the table is written within a second. */
void run_table_changed(struct run *run);
bool run_table_save(struct run *run);
/** Take the facts from the table of a predecessor. False: *ret_why, static. */
bool run_table_load(struct run *run, const char **ret_why);

#endif
