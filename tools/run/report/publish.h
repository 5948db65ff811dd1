/* The record that this launcher leaves in the registry for `muster status`. */
#ifndef MUSTER_RUN_PUBLISH_H
#define MUSTER_RUN_PUBLISH_H

struct run;
struct run_publish;

/** Once there is a registry client: a record when something changes, and when somebody asks; at most
 * two a second. */
void run_publish_open(struct run *run);
/** Before the registry client is closed. Turns the loop for a moment. */
void run_publish_close(struct run *run);

#endif
