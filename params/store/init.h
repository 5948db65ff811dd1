/* Initial values of rows: the same on every machine, whatever its C library. */
#ifndef MUSTER_PARAMS_INIT_H
#define MUSTER_PARAMS_INIT_H

#include "params/store/table.h"

/** The initial values of the row of `key`: row_elements of them. */
void muster_params_init_values(const struct muster_params_store_table *table, uint64_t key,
                               float *ret_values);

#endif
