/* Hostile clients, one per row. */
#include "rpc_attack.h"

#include <stdlib.h>

#define ATTACKS_MAX 64

void rpc_raw_ask(struct rpc_raw *raw, uint32_t stream, const char *path)
{
    rpc_raw_headers(raw, stream, path, NULL, NULL, 0);
    rpc_raw_message(raw, stream, 0, 2, "hi", 2, FLAG_END_STREAM);
}

void rpc_raw_check_served(struct rpc_raw *raw, uint32_t stream)
{
    rpc_raw_ask(raw, stream, "/t/Echo");
    rpc_stand_advance(raw->stand, 0);
    assert_int_equal(rpc_raw_status(raw, stream), MUSTER_OK);
    assert_int_equal(rpc_raw_data_bytes(raw, stream), 7);
}

static void check_told(const char *what, int64_t told, int64_t expected)
{
    if (expected != RPC_ATTACK_ANY && told != expected)
        fail_msg("%s is %ld, not %ld", what, (long)told, (long)expected);
}

static void run_attack(void **state)
{
    static const struct muster_rpc_server_options options = {.memory_max_bytes = 16 * MIB,
                                                             .connection_memory_max_bytes = 8 * MIB,
                                                             .reader_timeout_ns =
                                                                 60 * MUSTER_NS_PER_S};
    const struct rpc_attack *attack = *state;
    struct rpc_stand *stand = calloc(1, sizeof(*stand));
    struct rpc_raw *bystander, *raw;
    size_t before;

    rpc_stand_open(stand, &options);
    bystander = rpc_raw_open(stand);
    rpc_raw_check_served(bystander, 1);
    before = stand->test.mem.held_bytes;
    stand->test.mem.held_peak_bytes = before;
    raw = rpc_raw_connect(stand);

    attack->run(raw);
    rpc_stand_advance(stand, 0);
    rpc_raw_check_served(bystander, 3);

    if (stand->test.mem.held_peak_bytes - before > attack->memory_max)
        fail_msg("%zu bytes were held", stand->test.mem.held_peak_bytes - before);
    check_told("GOAWAY", rpc_raw_goaway_code(raw), attack->goaway);
    check_told("RST_STREAM", rpc_raw_reset_code(raw, 1), attack->reset);
    if (attack->status != RPC_ATTACK_ANY)
        check_told("grpc-status", rpc_raw_status(raw, 1), attack->status);
    assert_int_equal(!raw->played.is_closed, attack->is_open);
    rpc_stand_close(stand);
    free(stand);
}

int rpc_attacks_run(const struct rpc_attack *attacks, size_t count)
{
    struct CMUnitTest cases[ATTACKS_MAX];

    assert_true(count <= ATTACKS_MAX);
    for (size_t i = 0; i < count; i++)
        cases[i] = (struct CMUnitTest){.name = attacks[i].name,
                                       .test_func = run_attack,
                                       .initial_state = (void *)(uintptr_t)&attacks[i]};
    return _cmocka_run_group_tests("attacks", cases, count, NULL, NULL);
}
