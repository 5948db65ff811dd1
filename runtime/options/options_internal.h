/* Shared by the files of the option table. */
#ifndef MUSTER_RUNTIME_OPTIONS_INTERNAL_H
#define MUSTER_RUNTIME_OPTIONS_INTERNAL_H

#include <muster/options.h>

/** Store `text` as the value of `row` in *settings. `culprit` ("--flag" or "VARIABLE") begins the
 * error's text. */
MUSTER_MUST_CHECK enum muster_rc muster_option_store(const struct muster_option *row,
                                                     const char *culprit, const char *text,
                                                     void *settings,
                                                     struct muster_error *ret_error);

/** The nearest of the names with at most so many letters wrong, or NULL. */
const char *muster_options_nearest_within(const char *name, const char *const *names, size_t count,
                                          size_t distance_max);

#endif
