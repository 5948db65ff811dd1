#include "params_stand.h"

#include "params_calls.h"

#include <muster/stream.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "params/server/core/server_internal.h"
#include "params/server/seat/seat.h"

void params_stand_serve(struct params_stand *stand)
{
    const struct muster_params_seat_options seat = {.shard_count = stand->shard_count};
    struct muster_params_server_options options = {.job = "test"};
    struct muster_address address;
    struct muster_error error;
    char text[64];

    snprintf(text, sizeof(text), "127.0.0.1:%u", stand->port);
    if (muster_address_parse_listen(text, &address, &error) != MUSTER_OK ||
        muster_params_seat_wrap(stand->memory, stand->bytes, &seat, &stand->seat, &error) !=
            MUSTER_OK)
        fail_msg("%s", error.text);
    options.listen = &address;
    options.seat = stand->seat;
    options.authorization = stand->authorization;
    options.receive_max_bytes = stand->receive_max_bytes;
    if (muster_params_server_open(&stand->test.env, &options, &stand->server, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_params_server_set_data(stand->server, stand);
    muster_address_format(muster_params_server_address(stand->server), stand->address);
}

void params_stand_open(struct params_stand *stand, uint32_t shard_count)
{
    params_stand_open_in(stand, shard_count, MUSTER_PARAMS_REGION_BYTES_MIN);
}

void params_stand_open_in(struct params_stand *stand, uint32_t shard_count, size_t bytes)
{
    struct muster_address own;

    memset(stand, 0, sizeof(*stand));
    stand->shard_count = shard_count;
    stand->bytes = bytes;
    held_ports_take(&stand->ports, &own);
    stand->port = own.port;
    stand->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(stand->memory != MAP_FAILED);
    test_env_open(&stand->test);
    assert_int_equal(muster_net_system_open(&stand->test.env, &stand->test.env.net), MUSTER_OK);
    params_stand_serve(stand);
}

void params_stand_open_seat(struct params_stand *stand, uint32_t shard_count, uint64_t memory_max)
{
    const struct muster_params_seat_options options = {.memory_max = memory_max,
                                                       .shard_count = shard_count};
    struct muster_params_server_options server = {.job = "test"};
    struct muster_address address;
    struct muster_error error;

    memset(stand, 0, sizeof(*stand));
    stand->shard_count = shard_count;
    test_env_open(&stand->test);
    assert_int_equal(muster_net_system_open(&stand->test.env, &stand->test.env.net), MUSTER_OK);
    if (muster_address_parse_listen("127.0.0.1:0", &address, &error) != MUSTER_OK ||
        muster_params_seat_new(&options, &stand->seat, &error) != MUSTER_OK ||
        muster_params_seat_take(stand->seat, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    server.listen = &address;
    server.seat = stand->seat;
    stand->test.env.rng =
        muster_rng_system(); /* sockets on this host are named by the id of the server */
    if (muster_params_server_open(&stand->test.env, &server, &stand->server, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    stand->test.env.rng = &stand->test.rng.rng;
    muster_params_server_set_data(stand->server, stand);
    muster_address_format(muster_params_server_address(stand->server), stand->address);
}

static bool is_settled(void *data)
{
    return ((struct params_stand *)data)->closing == 0;
}

static void on_server_closed(struct muster_params_server *server)
{
    struct params_stand *stand = muster_params_server_data(server);

    stand->closing--;
}

void params_stand_kill(struct params_stand *stand)
{
    stand->closing++;
    muster_params_server_close(stand->server, on_server_closed);
    test_env_run_until(&stand->test.env, is_settled, stand);
    muster_params_seat_free(stand->seat);
    stand->server = NULL;
    stand->seat = NULL;
}

void params_stand_close(struct params_stand *stand)
{
    if (stand->server != NULL)
        params_stand_kill(stand);
    muster_net_system_close(stand->test.env.net);
    test_env_close(&stand->test);
    if (stand->memory == NULL) /* a seat's */
        return;
    munmap(stand->memory, stand->bytes);
    held_ports_release(&stand->ports);
}

uint64_t params_stand_deadline(const struct params_stand *stand)
{
    return muster_loop_now_ns(stand->test.env.loop) + 60 * MUSTER_NS_PER_S;
}

struct muster_params_stats params_stand_stats(const struct params_stand *stand)
{
    struct muster_params_stats stats;

    muster_params_server_stats(stand->server, &stats);
    return stats;
}

/* --- Clients --- */

static struct params_outcome clients_outcome; /* one at a time: the cases are sequential */

struct muster_params *params_stand_client(struct params_stand *stand, const char *name)
{
    return params_stand_source(stand, name, 0);
}

struct muster_params *params_stand_source(struct params_stand *stand, const char *name,
                                          uint32_t clock_sources)
{
    struct muster_params_options options = {.server = stand->address,
                                            .job = "test",
                                            .source = name,
                                            .clock_sources = clock_sources,
                                            .connect_deadline_ns = params_stand_deadline(stand),
                                            .data = &clients_outcome};
    struct muster_params *params = NULL;
    struct muster_error error;

    clients_outcome.is_done = false;
    if (muster_params_open(&stand->test.env, &options, params_on_client, &params, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
    if (params_outcome_await(&stand->test.env, &clients_outcome) != MUSTER_OK)
        fail_msg("%s", muster_params_error(params)->text);
    return params;
}

enum muster_rc params_stand_leave(struct params_stand *stand, struct muster_params *params)
{
    clients_outcome.is_done = false;
    muster_params_close(params, params_stand_deadline(stand), params_on_client);
    return params_outcome_await(&stand->test.env, &clients_outcome);
}

static void on_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct params_outcome *outcome = op->data;

    *outcome = (struct params_outcome){true, rc};
}

static enum muster_rc op_await(struct params_stand *stand, struct muster_params_op *op,
                               struct muster_error *ret_error)
{
    struct params_outcome *outcome = op->data;

    (void)params_outcome_await(&stand->test.env, outcome);
    if (ret_error != NULL)
        *ret_error = op->error;
    return outcome->rc;
}

struct muster_params_table *params_stand_table(struct params_stand *stand,
                                               struct muster_params *params,
                                               const struct muster_params_schema *schema)
{
    struct muster_params_table *table = NULL;
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    struct muster_error error;

    if (muster_params_table_start(&op, params, schema, &table, params_stand_deadline(stand),
                                  on_op) != MUSTER_OK)
        fail_msg("%s", op.error.text);
    if (op_await(stand, &op, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return table;
}

enum muster_rc params_stand_push(struct params_stand *stand, struct muster_params_table *table,
                                 const uint64_t *keys, void *values, uint32_t count,
                                 struct muster_error *ret_error)
{
    const struct muster_params_rows rows = {.keys = keys, .values = values, .count = count};
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc =
        muster_params_push_start(&op, table, &rows, params_stand_deadline(stand), on_op);

    return rc != MUSTER_OK ? rc : op_await(stand, &op, ret_error);
}

enum muster_rc params_stand_push_pull(struct params_stand *stand, struct muster_params_table *table,
                                      const uint64_t *keys, void *values, uint32_t count,
                                      void *ret_values, struct muster_error *ret_error)
{
    const struct muster_params_rows rows = {.keys = keys, .values = values, .count = count};
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc = muster_params_push_pull_start(&op, table, &rows, ret_values,
                                                      params_stand_deadline(stand), on_op);

    return rc != MUSTER_OK ? rc : op_await(stand, &op, ret_error);
}

enum muster_rc params_stand_pull_after(struct params_stand *stand,
                                       struct muster_params_table *table, const uint64_t *keys,
                                       void *values, uint32_t count, uint64_t min_clock,
                                       uint64_t deadline_ns, struct muster_error *ret_error)
{
    const struct muster_params_rows rows = {.keys = keys, .values = values, .count = count};
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc =
        muster_params_pull_after_start(&op, table, &rows, min_clock, deadline_ns, on_op);

    return rc != MUSTER_OK ? rc : op_await(stand, &op, ret_error);
}

enum muster_rc params_stand_cut(struct params_stand *stand, struct muster_params *params,
                                const char *folder, struct muster_error *ret_error)
{
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    struct muster_params_cut cut;
    enum muster_rc rc = muster_params_cut_start(&op, params, folder, &cut,
                                                params_stand_deadline(stand), on_op);

    if (rc == MUSTER_OK)
        return op_await(stand, &op, ret_error);
    if (ret_error != NULL)
        *ret_error = op.error;
    return rc;
}

enum muster_rc params_stand_tick(struct params_stand *stand, struct muster_params *params,
                                 uint64_t clock, double weight, struct muster_error *ret_error)
{
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc = muster_params_tick_weighted_start(&op, params, clock, weight,
                                                          params_stand_deadline(stand), on_op);

    return rc != MUSTER_OK ? rc : op_await(stand, &op, ret_error);
}

enum muster_rc params_stand_pull(struct params_stand *stand, struct muster_params_table *table,
                                 const uint64_t *keys, void *values, uint32_t count,
                                 struct muster_error *ret_error)
{
    const struct muster_params_rows rows = {.keys = keys, .values = values, .count = count};
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc =
        muster_params_pull_start(&op, table, &rows, params_stand_deadline(stand), on_op);

    return rc != MUSTER_OK ? rc : op_await(stand, &op, ret_error);
}
