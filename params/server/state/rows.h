/* Pushes and pulls behind their doors: the checks and the application that links and gRPC share. */
#ifndef MUSTER_PARAMS_SERVER_ROWS_H
#define MUSTER_PARAMS_SERVER_ROWS_H

#include "params/server/core/push.h"
#include "params/server/core/server_internal.h"

struct muster_params_pushed {
    uint32_t duplicate; /* rows that had been applied before */
    uint32_t refused;   /* new rows for which there was no memory */
};

/** As muster_params_source_open with generation 0, else as muster_params_source_reopen. */
MUSTER_MUST_CHECK enum muster_rc muster_params_server_source_open(
    struct muster_params_server *server, const struct muster_params_opener *opener,
    uint64_t *ret_slot, struct muster_error *ret_error);
/** A source that another server has given this generation. As muster_params_source_adopt. */
MUSTER_MUST_CHECK enum muster_rc muster_params_server_source_join(
    struct muster_params_server *server, const struct muster_params_opener *opener,
    uint64_t *ret_slot, struct muster_error *ret_error);
/** A client opens this table, or makes it. As muster_params_table_open; INVALID_ARGUMENT also for names of
 * the server's own tables. */
MUSTER_MUST_CHECK enum muster_rc muster_params_server_table_open(
    struct muster_params_server *server, const struct muster_params_schema *schema,
    struct muster_params_store_table **ret_table, struct muster_error *ret_error);
/** NULL: there is no table of this number. */
struct muster_params_store_table *muster_params_server_table(
    const struct muster_params_server *server, uint32_t number);
/**
 * Whether whoever opened the source in this generation may push this sequence number.
 *
 * Errors: ABORTED (the source was opened again), INVALID_ARGUMENT (the number).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_push_check(const struct muster_params_source *source,
                                                          uint64_t generation, uint64_t sequence,
                                                          struct muster_error *ret_error);
/** Apply what is not applied yet, here and at the followers of its shards. RESOURCE_EXHAUSTED: there was
 * no memory to convert the values or to copy them for followers, and nothing has happened. */
MUSTER_MUST_CHECK enum muster_rc muster_params_push_apply(struct muster_params_server *server,
                                                          const struct muster_params_push *push,
                                                          struct muster_params_pushed *ret_pushed);
/** How many bytes the values of so many rows have. INVALID_ARGUMENT: more than one answer holds. */
MUSTER_MUST_CHECK enum muster_rc muster_params_pull_check(
    const struct muster_params_store_table *table, uint32_t row_count, enum muster_dtype dtype,
    size_t *ret_bytes, struct muster_error *ret_error);
/** How many bytes of values answer a message that is not checked; 0: none, or it will be refused. */
size_t muster_params_answer_bytes(const struct muster_params_server *server,
                                  const struct muster_frame_header *header, const uint8_t *payload);
/** Room to convert so many values: pull_read of them cannot fail then. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_pull_prepare(struct muster_params_server *server,
                                                            size_t value_count);
/** Read a range of a tensor as dtype. RESOURCE_EXHAUSTED: as muster_params_push_apply. */
MUSTER_MUST_CHECK enum muster_rc muster_params_range_read(
    struct muster_params_server *server, const struct muster_params_store_table *table,
    const struct muster_params_rows_frame *frame, void *ret_values);
/** Read rows as dtype. RESOURCE_EXHAUSTED: as muster_params_push_apply. */
MUSTER_MUST_CHECK enum muster_rc muster_params_pull_read(
    struct muster_params_server *server, const struct muster_params_store_table *table,
    const struct muster_params_rows_frame *frame, void *ret_values);

#endif
