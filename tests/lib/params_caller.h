/* A stranger at the gRPC door of a server of parameters, in one process with it: blocking calls, and
 * what their answers say. */
#ifndef MUSTER_TEST_PARAMS_CALLER_H
#define MUSTER_TEST_PARAMS_CALLER_H

#include <muster/rpc.h>

#include "params/store/region.h"
#include "params_stand.h"
#include "proto/params.muster.h"

#define PARAMS_CALLER_ELEMENTS   2u
#define PARAMS_CALLER_SHARDS     8u
#define PARAMS_CALLER_KEYS       24u /* enough that all shards have rows */
#define PARAMS_CALLER_VALUES_MAX 64u

/* A server, and a stranger's channel to it. */
struct params_caller {
    struct params_stand stand;
    struct muster_channel *channel;
    Muster__Params__V1__Source source;
    uint8_t id[16];
};

/* The outcome of a call, without what is borrowed. */
struct params_answer {
    bool is_done;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES];
    uint64_t slot, generation, next_sequence;
    uint8_t id[16];
    uint32_t number, row_elements;
    uint64_t descriptor;
    float learning_rate;
    uint32_t applied, duplicate, refused;
    float values[PARAMS_CALLER_VALUES_MAX];
    size_t value_count;
    uint16_t halves[PARAMS_CALLER_VALUES_MAX];
    size_t halves_bytes;
    size_t tables, found;
    uint64_t rows;
    uint8_t digest[16];
    size_t digest_bytes;
    bool exists[2];
    bool has_low;
    uint64_t low, high;
    uint32_t known, expected;
};

/** A server, a channel to it, the source "trainer", and the table "counters", which adds. */
void params_caller_enter(struct params_caller *caller);
/** The same, in memory of so many bytes (params_stand_open_in). */
void params_caller_enter_in(struct params_caller *caller, size_t bytes);
void params_caller_leave(struct params_caller *caller);
void params_caller_dial(struct params_caller *caller);
void params_caller_hang_up(struct params_caller *caller);
/** Open the source, and push for it from now on. */
void params_caller_become(struct params_caller *caller, const char *name);
struct muster_params_region *params_caller_region(struct params_caller *caller);

struct params_answer params_caller_open(struct params_caller *caller,
                                        const Muster__Params__V1__OpenRequest *request);
struct params_answer params_caller_table(struct params_caller *caller,
                                         const Muster__Params__V1__TableRequest *request);
struct params_answer params_caller_push(struct params_caller *caller,
                                        const Muster__Params__V1__PushRequest *request);
struct params_answer params_caller_pull(struct params_caller *caller,
                                        const Muster__Params__V1__PullRequest *request);
struct params_answer params_caller_push_pull(struct params_caller *caller,
                                             const Muster__Params__V1__PushPullRequest *request);
struct params_answer params_caller_inspect(struct params_caller *caller,
                                           const Muster__Params__V1__InspectRequest *request);
struct params_answer params_caller_tick(struct params_caller *caller,
                                        const Muster__Params__V1__TickRequest *request);
/** Begin without waiting; call->data is the answer. */
void params_caller_begin_inspect(struct params_caller *caller,
                                 struct muster_params_v1_params_inspect_call *call,
                                 const Muster__Params__V1__InspectRequest *request);
void params_caller_begin_push(struct params_caller *caller,
                              struct muster_params_v1_params_push_call *call,
                              const Muster__Params__V1__PushRequest *request);
void params_caller_begin_pull(struct params_caller *caller,
                              struct muster_params_v1_params_pull_call *call,
                              const Muster__Params__V1__PullRequest *request);
void params_caller_begin_tick(struct params_caller *caller,
                              struct muster_params_v1_params_tick_call *call,
                              const Muster__Params__V1__TickRequest *request);
void params_caller_await(struct params_caller *caller, struct params_answer *answer);

/* Short forms, of the table "counters". */
struct params_answer params_caller_ask_open(struct params_caller *caller, const char *name);
struct params_answer params_caller_ask_table(struct params_caller *caller,
                                             Muster__Params__V1__Schema *schema);
struct params_answer params_caller_ask_push(struct params_caller *caller, uint64_t sequence,
                                            const uint64_t *keys, size_t key_count,
                                            const float *values, size_t value_count);
struct params_answer params_caller_ask_pull(struct params_caller *caller, const uint64_t *keys,
                                            size_t count);
Muster__Params__V1__PushRequest params_caller_push_of(struct params_caller *caller,
                                                      uint64_t sequence, const uint64_t *keys,
                                                      size_t key_count, const float *values,
                                                      size_t value_count);
/** The source's clock, of so many sources. */
struct params_answer params_caller_ask_tick(struct params_caller *caller, uint64_t clock,
                                            uint32_t sources);
/** PARAMS_CALLER_ELEMENTS in a row, and defaults. */
Muster__Params__V1__Schema params_caller_schema(const char *name);
/** PARAMS_CALLER_KEYS of them, and as many rows of ones. Static. */
const uint64_t *params_caller_many_keys(void);
const float *params_caller_many_ones(void);
/** Pull all of these keys, and add their values up. */
float params_caller_sum(struct params_caller *caller);

#endif
