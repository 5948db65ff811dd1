/* Shards move between servers amid pipelined pushes and pulls, links are lost, and servers hear of maps
 * at different times: each push counts once, and each pull shows what was pushed before it. The rows of a
 * shard go with it; the case plays the servers, from a seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_puppet_calls.h"

#include <string.h>

#include "params/wire/hash.h"

#define SHARDS          PARAMS_PUPPETS_SHARDS
#define PUPPETS         3u
#define STEPS           600u
#define CALLS_MAX       STEPS
#define SEEDS           30u
#define ACKS_MAX        600u
#define CALL_SHARDS_MAX 4u

/* An answer to a push: values behind it, or none. */
struct outcome {
    struct muster_frame_header request;
    float values[CALL_SHARDS_MAX];
    uint32_t count;
};

struct server {
    struct params_puppet *puppet;
    struct muster_params_map *map;     /* its own, perhaps an older one */
    struct params_puppet_frame early;  /* of a later map; type 0: none */
    uint32_t link;                     /* of early and acks */
    struct outcome outcomes[ACKS_MAX]; /* that wait for its followers, as it were */
    uint32_t outcome_count;
};

struct game;

struct player_call {
    struct params_call call;
    uint32_t shards[CALL_SHARDS_MAX];
    uint32_t count;
    enum muster_params_message kind;
    float least[CALL_SHARDS_MAX]; /* that a pull shows: pushed before it was started */
    float found[CALL_SHARDS_MAX]; /* by a push that is answered with values */
};

struct game {
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct server servers[PUPPETS];
    uint64_t random;
    /* Each shard has a position and a value at the servers, and a sum of what was pushed to it. */
    uint64_t positions[SHARDS];
    float values[SHARDS], pushed[SHARDS];
    struct player_call calls[CALLS_MAX];
    uint32_t call_count;
};

/* xorshift64 */
static uint32_t game_draw(struct game *game, uint32_t bound)
{
    game->random ^= game->random << 13;
    game->random ^= game->random >> 7;
    game->random ^= game->random << 17;
    return (uint32_t)((game->random >> 32) * bound >> 32);
}

/* --- Servers --- */

static bool server_leads(const struct server *server, uint32_t shard, uint64_t epoch)
{
    const struct muster_params_map_shard *entry = &server->map->shards[shard];

    return entry->copies[0] == server->puppet->index && entry->since <= epoch;
}

static uint32_t key_shard(uint64_t key)
{
    return muster_params_shard_of(muster_params_hash(muster_params_hash_seed("counters"), key),
                                  SHARDS);
}

static void push_handle(struct game *game, struct server *server,
                        const struct params_puppet_frame *frame)
{
    struct muster_params_rows_frame rows;
    struct outcome *outcome;
    const float *values;
    bool is_whole = true;

    muster_params_rows_view(frame->payload, true, &rows);
    values = rows.values;
    for (uint32_t i = 0; i < rows.run_count; values += rows.runs[i++].rows) {
        uint32_t shard = muster_params_run_shard(&rows.runs[i]);

        if (!server_leads(server, shard, frame->header.epoch)) {
            is_whole = false;
        } else if (game->positions[shard] <= frame->header.offset) {
            game->positions[shard] = frame->header.offset + 1;
            for (uint32_t j = 0; j < rows.runs[i].rows; j++)
                game->values[shard] += values[j];
        }
    }
    if (!is_whole) {
        params_puppet_moved(server->puppet, frame, server->map->epoch);
        return;
    }
    assert_true(server->outcome_count < ACKS_MAX);
    outcome = &server->outcomes[server->outcome_count++];
    *outcome = (struct outcome){.request = frame->header};
    if (frame->header.type == MUSTER_PARAMS_PUSH)
        return;
    for (uint32_t i = 0; i < rows.row_count; i++)
        outcome->values[outcome->count++] = game->values[key_shard(rows.keys[i])];
}

static void pull_handle(struct game *game, struct server *server,
                        const struct params_puppet_frame *frame)
{
    struct puppet_rows seen = {.frame = *frame};
    float values[PARAMS_CALL_ROWS * CALLS_MAX];

    muster_params_rows_view(frame->payload, false, &seen.rows);
    for (uint32_t i = 0; i < seen.rows.row_count; i++) {
        uint32_t shard = key_shard(seen.rows.keys[i]);

        if (!server_leads(server, shard, frame->header.epoch)) {
            params_puppet_moved(server->puppet, frame, server->map->epoch);
            return;
        }
        values[i] = game->values[shard];
    }
    puppet_rows_answer(server->puppet, &seen, values);
}

static void frame_handle(struct game *game, struct server *server,
                         const struct params_puppet_frame *frame)
{
    switch (frame->header.type) {
    case MUSTER_PARAMS_OPEN:
        params_puppet_opened(server->puppet, 10 + server->puppet->index, 1, 1);
        break;
    case MUSTER_PARAMS_PUSH:
    case MUSTER_PARAMS_PUSH_PULL:
        push_handle(game, server, frame);
        break;
    case MUSTER_PARAMS_PULL:
        pull_handle(game, server, frame);
        break;
    default:
        fail_msg("a message of type %u", frame->header.type);
    }
}

/* The link is gone, and what it has brought. */
static void server_forget(struct server *server)
{
    server->link = server->puppet->host.link_count;
    server->early.header.type = 0;
    server->outcome_count = 0;
}

static bool server_is_linked(struct server *server)
{
    const struct params_peer *peer = &server->puppet->host.peer;

    if (server->link != server->puppet->host.link_count)
        server_forget(server);
    return peer->link != NULL && peer->is_ready && !peer->is_down;
}

/* A message of a later map waits for that, and those behind it. */
static bool server_step(struct game *game, struct server *server)
{
    struct params_puppet_frame frame;

    if (!server_is_linked(server))
        return false;
    if (server->early.header.type != 0) {
        if (server->early.header.epoch > server->map->epoch)
            return false;
        frame = server->early;
        server->early.header.type = 0;
    } else if (!params_puppet_next(server->puppet, &frame)) {
        return false;
    } else if (frame.header.epoch > server->map->epoch) {
        server->early = frame;
        return false;
    }
    frame_handle(game, server, &frame);
    return true;
}

static void outcome_send(const struct server *server, const struct outcome *outcome)
{
    const struct muster_params_ack ack = {.sequence = outcome->request.offset,
                                          .piece = outcome->request.chunk};
    struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                         .type = MUSTER_PARAMS_ACK,
                                         .payload_bytes = MUSTER_PARAMS_ACK_BYTES};
    uint8_t bytes[MUSTER_PARAMS_ACK_BYTES];

    muster_params_ack_pack(&ack, bytes);
    if (outcome->count > 0) {
        header.type = MUSTER_PARAMS_ROWS;
        header.flags = MUSTER_PARAMS_REFUSED_PUSH;
        header.offset = outcome->request.offset;
        header.chunk = outcome->request.chunk;
        header.payload_bytes = outcome->count * (uint32_t)sizeof(float);
    }
    params_puppet_send(server->puppet, &header,
                       outcome->count > 0 ? (const void *)outcome->values : bytes);
}

static bool server_acknowledge(struct game *game, struct server *server)
{
    uint32_t place;

    if (server->outcome_count == 0 || !server_is_linked(server))
        return false;
    place = game_draw(game, server->outcome_count);
    outcome_send(server, &server->outcomes[place]);
    server->outcomes[place] = server->outcomes[--server->outcome_count];
    return true;
}

static void server_follow(struct game *game, struct server *server)
{
    if (server->map->epoch == game->puppets.map->epoch)
        return;
    *server->map = *game->puppets.map;
    if (server_is_linked(server))
        params_peer_tell(&server->puppet->host.peer, server->map);
}

static void server_hang_up(struct server *server)
{
    server_forget(server);
    params_puppet_hang_up(server->puppet);
}

/* --- The client --- */

static void push_pull_start(struct game *game, struct player_call *call)
{
    struct muster_params_rows rows =
        puppet_call_init(&call->call, "counters", call->shards, call->count);

    assert_int_equal(muster_params_push_pull_start(&call->call.op, game->table, &rows, call->found,
                                                   puppet_deadline(&game->puppets), params_on_call),
                     MUSTER_OK);
}

static void call_start(struct game *game, enum muster_params_message kind)
{
    struct player_call *call = &game->calls[game->call_count++];
    uint32_t first = game_draw(game, SHARDS);

    call->kind = kind;
    call->count = 1 + game_draw(game, CALL_SHARDS_MAX);
    for (uint32_t i = 0; i < call->count; i++)
        call->shards[i] = (first + i * 3) % SHARDS;
    if (kind == MUSTER_PARAMS_PULL)
        puppet_pull_start(&game->puppets, game->table, &call->call, call->shards, call->count);
    else if (kind == MUSTER_PARAMS_PUSH)
        puppet_push_start(&game->puppets, game->table, &call->call, call->shards, call->count);
    else
        push_pull_start(game, call);
    for (uint32_t i = 0; i < call->count; i++) {
        if (kind != MUSTER_PARAMS_PULL)
            game->pushed[call->shards[i]] += call->call.values[i];
        call->least[i] = game->pushed[call->shards[i]];
    }
}

static void shards_move(struct game *game)
{
    params_puppets_map_next(&game->puppets);
    for (uint32_t i = 0; i <= game_draw(game, 3); i++)
        params_puppets_lead(&game->puppets, game_draw(game, SHARDS), game_draw(game, PUPPETS));
}

static void game_step(struct game *game)
{
    struct server *server = &game->servers[game_draw(game, PUPPETS)];
    uint32_t dice = game_draw(game, 100);

    if (dice < 25)
        call_start(game, dice < 15 ? MUSTER_PARAMS_PUSH : MUSTER_PARAMS_PUSH_PULL);
    else if (dice < 32)
        call_start(game, MUSTER_PARAMS_PULL);
    else if (dice < 65)
        (void)server_step(game, server);
    else if (dice < 80)
        (void)server_acknowledge(game, server);
    else if (dice < 85)
        shards_move(game);
    else if (dice < 97)
        server_follow(game, server);
    else if (dice < 98)
        server_hang_up(server);
    test_env_turn(game->puppets.env, 1 + game_draw(game, 2));
}

/* All servers go on until nothing is left to answer. */
static bool game_is_over(void *data)
{
    struct game *game = data;

    for (uint32_t i = 0; i < PUPPETS; i++) {
        server_follow(game, &game->servers[i]);
        while (server_step(game, &game->servers[i]) || server_acknowledge(game, &game->servers[i]))
            continue;
    }
    for (uint32_t i = 0; i < game->call_count; i++) {
        if (!game->calls[i].call.is_done)
            return false;
    }
    return true;
}

static void game_open(struct game *game, uint64_t seed)
{
    memset(game, 0, sizeof(*game));
    game->random = seed * UINT64_C(0x9e3779b97f4a7c15);
    puppet_scene_open(&game->puppets, PUPPETS, &game->table);
    for (uint32_t i = 0; i < PUPPETS; i++) {
        struct server *server = &game->servers[i];

        server->puppet = &game->puppets.list[i];
        server->link = server->puppet->host.link_count;
        server->map = test_malloc(sizeof(*server->map));
        *server->map = *game->puppets.map;
        server->puppet->host.map = server->map;
    }
}

static void game_close(struct game *game)
{
    puppet_scene_close(&game->puppets);
    for (uint32_t i = 0; i < PUPPETS; i++)
        test_free(game->servers[i].map);
}

static void game_check(const struct game *game, uint64_t seed)
{
    for (uint32_t i = 0; i < SHARDS; i++) {
        if (!(game->values[i] == game->pushed[i]))
            fail_msg("seed %llu: shard %u has %g, %g were pushed", (unsigned long long)seed, i,
                     (double)game->values[i], (double)game->pushed[i]);
    }
    for (uint32_t i = 0; i < game->call_count; i++) {
        const struct player_call *call = &game->calls[i];

        if (call->call.rc != MUSTER_OK || call->call.done_count != 1)
            fail_msg("seed %llu: call %u ended with %s", (unsigned long long)seed, i,
                     call->call.op.error.text);
        for (uint32_t j = 0; call->kind != MUSTER_PARAMS_PUSH && j < call->count; j++) {
            float shown = call->kind == MUSTER_PARAMS_PULL ? call->call.values[j] : call->found[j];

            if (shown < call->least[j])
                fail_msg("seed %llu: call %u shows %g of shard %u, %g were pushed before",
                         (unsigned long long)seed, i, (double)shown, call->shards[j],
                         (double)call->least[j]);
        }
    }
}

static struct game game; /* large */

static void pushes_count_once_wherever_their_shards_go(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        game_open(&game, seed);
        for (uint32_t i = 0; i < STEPS; i++)
            game_step(&game);
        test_env_run_until(game.puppets.env, game_is_over, &game);
        game_check(&game, seed);
        game_close(&game);
    }
    assert_true(game.call_count > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_count_once_wherever_their_shards_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
