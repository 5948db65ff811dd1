/* Rows of a region that another process writes, read through a read-only mapping: no lock, no message.
 * The memory is a stranger's: nothing of it is followed before its bounds are checked. */
#ifndef MUSTER_PARAMS_VIEW_H
#define MUSTER_PARAMS_VIEW_H

#include "params/store/table.h"

struct muster_params_view {
    const uint8_t *memory;
    size_t bytes; /* a multiple of 2 MiB: readers are safe as long as the file cannot shrink */
};

/** A table of a view: a copy of what never changes in it. */
struct muster_params_view_table {
    struct muster_params_store_table fixed; /* its index and its counts are not those of now */
    uint32_t number;
};

/**
 * Borrows memory, which is aligned as that of a region.
 *
 * Errors: UNAVAILABLE: it is not a region of this layout version whose memory has this id.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_view_init(struct muster_params_view *view,
                                                         const void *memory, size_t bytes,
                                                         const struct muster_incarnation *id);
/** Errors: UNAVAILABLE: the table of this number is not there, or is another one. */
MUSTER_MUST_CHECK enum muster_rc muster_params_view_table_init(
    struct muster_params_view_table *table, const struct muster_params_view *view, uint32_t number,
    uint64_t descriptor, uint32_t row_elements);
/**
 * Copy rows as muster_params_rows_read does, each as it was at one moment: its version was even, and is
 * the same after the copy. Rows that are pushed while this runs may be copied before or after.
 *
 * Errors: UNAVAILABLE: a row stays under change (its writer has died or sleeps), the index has changed
 *         too often, or the memory is damaged. Some of ret_values may be written then.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_view_read(
    const struct muster_params_view *view, const struct muster_params_view_table *table,
    const uint64_t *keys, uint32_t count, float *ret_values);

#endif
