/* Lists of task names with blanks between, as a change of view has them. */
#ifndef MUSTER_RUN_NAMES_H
#define MUSTER_RUN_NAMES_H

#include <stdbool.h>

#include <muster/json.h>

#define RUN_NAMES_BYTES 512

/** A walk over a list: `for (name = run_names_first(&names, list); name != NULL; name = run_names_next(&names))`. */
struct run_names {
    char text[RUN_NAMES_BYTES];
    char *rest;
};
const char *run_names_first(struct run_names *names, const char list[RUN_NAMES_BYTES]);
const char *run_names_next(struct run_names *names);

bool run_names_contain(const char list[RUN_NAMES_BYTES], const char *name);
/** Fill an empty list from an array of texts. False: the list has names already, or the array is empty. */
bool run_names_copy(char list[RUN_NAMES_BYTES], const struct muster_json *array);

#endif
