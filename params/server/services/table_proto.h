/* Tables as messages of muster.params.v1. */
#ifndef MUSTER_PARAMS_TABLE_PROTO_H
#define MUSTER_PARAMS_TABLE_PROTO_H

#include "params/server/core/server_internal.h"
#include "proto/params.muster.h"

/** NOT_FOUND names the table. */
MUSTER_MUST_CHECK enum muster_rc muster_params_server_table_find(
    const struct muster_params_server *server, const char *name,
    struct muster_params_store_table **ret_table, struct muster_error *ret_error);
/** As muster_params_table_open. */
MUSTER_MUST_CHECK enum muster_rc muster_params_server_table_make(
    struct muster_params_server *server, const Muster__Params__V1__Schema *asked,
    struct muster_params_store_table **ret_table, struct muster_error *ret_error);
/** A table as a message. Borrows table; ret_schema belongs to ret_table. */
void muster_params_table_describe(const struct muster_params_server *server,
                                  const struct muster_params_store_table *table,
                                  Muster__Params__V1__Table *ret_table,
                                  Muster__Params__V1__Schema *ret_schema);

#endif
