/* Checks of the calls of muster.params.v1, and rows as messages: the same for a server that is alone and for
 * one of a job. */
#include "params/server/services/params_service.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <muster/collective.h>

#include "params/server/core/push.h"

enum muster_rc muster_params_call_source(const Muster__Params__V1__OpenRequest *request,
                                         struct muster_incarnation *ret_id,
                                         struct muster_error *ret_error)
{
    char name[MUSTER_PARAMS_NAME_BYTES] = "";
    size_t bytes;

    switch (request->source_case) {
    case MUSTER__PARAMS__V1__OPEN_REQUEST__SOURCE_NAME:
        bytes = strlen(request->name);
        if (bytes > 0 && bytes < sizeof(name))
            memcpy(name, request->name, bytes);
        if (name[0] == '\0' || !muster_params_name_is_valid(name))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "the name of a source must have 1 to %zu bytes and no control "
                                    "characters, got %zu bytes",
                                    sizeof(name) - 1, bytes);
        *ret_id = muster_params_source_id(name);
        return MUSTER_OK;
    case MUSTER__PARAMS__V1__OPEN_REQUEST__SOURCE_ID:
        bytes = request->id.len;
        if (bytes != sizeof(ret_id->bytes))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "the id of a source must have %zu bytes, got %zu",
                                    sizeof(ret_id->bytes), bytes);
        memcpy(ret_id->bytes, request->id.data, bytes);
        if (!muster_incarnation_is_zero(ret_id))
            return MUSTER_OK;
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the id of a source must be random, got zeroes");
    default:
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "Open needs the name or the id of a source");
    }
}

enum muster_rc muster_params_call_source_find(const struct muster_params_server *server,
                                              const Muster__Params__V1__Source *named,
                                              struct muster_params_source **ret_source,
                                              struct muster_error *ret_error)
{
    struct muster_params_source *source;

    if (named == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the call needs the source that Open has given");
    /* The id tells a server that has lost its memory from the one that gave the slot. */
    source = muster_params_source_at(server->region, named->slot);
    if (source == NULL || named->id.len != sizeof(source->id.bytes) ||
        memcmp(named->id.data, source->id.bytes, sizeof(source->id.bytes)) != 0)
        return muster_error_set(
            ret_error, MUSTER_FAILED_PRECONDITION,
            "the server does not know this source, or has lost its memory of it: "
            "open it again");
    if (source->generation != named->generation)
        return muster_error_set(ret_error, MUSTER_ABORTED, MUSTER_PARAMS_YOUNGER);
    *ret_source = source;
    return MUSTER_OK;
}

enum muster_rc muster_params_call_origin(const Muster__Params__V1__Source *named,
                                         struct muster_params_origin *ret_origin,
                                         struct muster_error *ret_error)
{
    if (named == NULL || named->id.len != sizeof(ret_origin->source.bytes) ||
        named->generation == 0 || named->generation > UINT32_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the call needs the source that Open has given");
    memcpy(ret_origin->source.bytes, named->id.data, sizeof(ret_origin->source.bytes));
    ret_origin->generation = named->generation;
    return MUSTER_OK;
}

enum muster_rc muster_params_call_tick(const Muster__Params__V1__TickRequest *request,
                                       struct muster_params_tick *ret_tick,
                                       struct muster_error *ret_error)
{
    if (request->is_done && request->clock != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "Tick must have a clock or is_done, got both");
    if (request->clock >= MUSTER_PARAMS_CLOCK_DONE - 1)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the clock must be below 2^64 - 2, got %" PRIu64, request->clock);
    if (request->sources == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "sources must be how many sources of the job tick, got 0");
    if (!isfinite(request->weight) || request->weight < 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the weight must be a number from 0, got %g", request->weight);
    *ret_tick = (struct muster_params_tick){
        .clock = request->is_done ? MUSTER_PARAMS_CLOCK_DONE : request->clock,
        .weight = request->weight > 0 ? request->weight : 1,
        .source_count = request->sources};
    return MUSTER_OK;
}

enum muster_rc muster_params_call_keys(size_t count, struct muster_error *ret_error)
{
    if (count > 0 && count <= MUSTER_PARAMS_FRAME_ROWS_MAX)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "a call must have 1 to %u keys, got %zu", MUSTER_PARAMS_FRAME_ROWS_MAX,
                            count);
}

enum muster_rc muster_params_call_has_rows(const struct muster_params_store_table *table,
                                           struct muster_error *ret_error)
{
    if (!table->is_by_round && table->tensor_elements == 0)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "table %s is %s: a push is not answered with its rows", table->name,
                            table->is_by_round ? "by round" : "a tensor");
}

void muster_params_call_rows(const struct muster_params_store_table *table, void *values,
                             size_t bytes, bool as_bytes,
                             Muster__Params__V1__PullResponse *ret_response)
{
    muster__params__v1__pull_response__init(ret_response);
    ret_response->row_elements = table->row_elements;
    if (as_bytes) {
        ret_response->value_bytes.data = values;
        ret_response->value_bytes.len = bytes;
    } else {
        ret_response->values = values;
        ret_response->n_values = bytes / sizeof(float);
    }
}

/* The policy has allowed PushPull already; Push and Pull are needed, too. */
bool muster_params_call_both(const struct muster_params_server *server, struct muster_rpc *rpc)
{
    static const char *const methods[] = {"/muster.params.v1.Params/Push",
                                          "/muster.params.v1.Params/Pull"};

    for (size_t i = 0; server->authorization != NULL && i < 2; i++) {
        if (!muster_authorization_is_allowed(server->authorization, muster_rpc_identity(rpc),
                                             methods[i])) {
            muster_rpc_finish(rpc, MUSTER_PERMISSION_DENIED,
                              "PushPull needs the permissions to call Push and Pull");
            return false;
        }
    }
    return true;
}

/* Generic tools name no job: for them the address is enough. */
static enum muster_rc job_check(struct muster_intercepted *call, struct muster_error *ret_error)
{
    const struct muster_params_server *server = call->interceptor->data;
    const struct muster_metadata_entry *named =
        muster_metadata_find(&call->metadata, MUSTER_PARAMS_JOB_METADATA);
    size_t bytes = strlen(server->hello.job);

    if (named == NULL ||
        (named->value_bytes == bytes && memcmp(named->value, server->hello.job, bytes) == 0))
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                            "jobs differ: \"%s\" here, \"%.*s\" in the call", server->hello.job,
                            (int)(named->value_bytes < MUSTER_JOB_NAME_BYTES ? named->value_bytes
                                                                             : MUSTER_JOB_NAME_BYTES),
                            (const char *)named->value);
}

const struct muster_interceptor *muster_params_job_guard(struct muster_params_server *server)
{
    server->job_guard = (struct muster_interceptor){.data = server, .on_start = job_check};
    return &server->job_guard;
}
