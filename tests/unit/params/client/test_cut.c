/* A cut that a program asks for, before servers that the case plays: what they answer must fit together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_puppet_calls.h"

#include <stdlib.h>
#include <string.h>

#define SERVERS 2u
#define FOLDER  "/tmp/params_client_cut.none" /* nothing is written there */

struct cut_call {
    struct params_call call;
    struct muster_params_cut cut;
};

static void cut_begin(struct params_puppets *puppets, struct cut_call *cut)
{
    *cut = (struct cut_call){.call = {.op = {.data = &cut->call}}};
    assert_int_equal(muster_params_cut_start(&cut->call.op, puppets->params, FOLDER, &cut->cut,
                                             puppet_deadline(puppets), params_on_call),
                     MUSTER_OK);
}

/* Returns the request of a server, whose number of the cut goes to *ret_number. */
static struct params_puppet_frame cut_expect(struct params_puppet *puppet, uint64_t *ret_number)
{
    struct params_puppet_frame frame = params_puppet_expect(puppet, MUSTER_PARAMS_CUT);

    assert_int_equal(frame.header.payload_bytes, sizeof(*ret_number) + strlen(FOLDER));
    memcpy(ret_number, frame.payload, sizeof(*ret_number));
    assert_memory_equal(frame.payload + sizeof(*ret_number), FOLDER, strlen(FOLDER));
    return frame;
}

/* The server has saved its half of the shards, of this table first. */
static void saved_send(struct params_puppet *puppet, const struct params_puppet_frame *frame,
                       const struct muster_params_saved *saved, const char *table)
{
    struct muster_params_schema schema = {
        .name = table, .row_elements = 1, .wire_dtype = MUSTER_F32};
    size_t bytes = muster_params_saved_bytes(saved->table_count, saved->entry_count);
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_SAVED,
                                               .offset = frame->header.offset,
                                               .payload_bytes = (uint32_t)bytes};
    struct muster_params_saved_shard *entries;
    uint8_t *payload = calloc(1, bytes), *schemas;

    muster_params_saved_pack(saved, payload, &schemas, &entries);
    for (uint32_t i = 0; i < saved->table_count; i++) {
        muster_params_schema_pack(&schema, schemas + (size_t)i * MUSTER_PARAMS_SCHEMA_BYTES);
        schema.name = "another";
    }
    for (uint32_t i = 0; i < saved->entry_count; i++)
        entries[i] = (struct muster_params_saved_shard){
            .shard = puppet->index * (PARAMS_PUPPETS_SHARDS / SERVERS) + i, .rows = 1};
    params_puppet_send(puppet, &header, payload);
    free(payload);
}

static void answers_that_do_not_fit_make_no_cut(void **state)
{
    static const struct {
        const char *name;
        struct muster_params_saved saved; /* of the second server, beside number and map 1 */
        uint64_t number;                  /* more than the number that was asked */
        const char *table;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"a table without a name",
         {.map = 1, .table_count = 2},
         0,
         "a\x01",
         MUSTER_INVALID_ARGUMENT,
         "malformed name"},
        {"another cut",
         {.map = 1, .table_count = 1},
         1,
         "counters",
         MUSTER_INTERNAL,
         "has saved another cut"},
        {"another map",
         {.map = 2, .table_count = 1},
         0,
         "counters",
         MUSTER_UNAVAILABLE,
         "servers follow maps 2 and 1"},
        {"not all shards",
         {.map = 1, .table_count = 1, .entry_count = 3},
         0,
         "counters",
         MUSTER_UNAVAILABLE,
         "nobody has saved shard 7"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct params_puppets puppets;
        struct cut_call cut;

        puppet_scene_init(&puppets, SERVERS);
        cut_begin(&puppets, &cut);
        for (uint32_t server = 0; server < SERVERS; server++) {
            struct muster_params_saved saved = {
                .map = 1, .table_count = 1, .entry_count = PARAMS_PUPPETS_SHARDS / SERVERS};
            struct params_puppet_frame frame = cut_expect(&puppets.list[server], &saved.number);

            if (server == 1) {
                uint64_t number = saved.number + rows[i].number;

                saved = rows[i].saved;
                saved.number = number;
            }
            saved.shard_count = PARAMS_PUPPETS_SHARDS;
            saved_send(&puppets.list[server], &frame, &saved,
                       server == 1 ? rows[i].table : "counters");
        }
        if (puppet_call_await(&puppets, &cut.call) != rows[i].rc ||
            strstr(cut.call.op.error.text, rows[i].text) == NULL)
            fail_msg("%s: %d %s", rows[i].name, (int)cut.call.rc, cut.call.op.error.text);
        assert_int_equal(cut.cut.rows, 0);
        puppet_scene_close(&puppets);
    }
}

/* The first answer is malformed, so that there is nothing to fit the second one to. */
static void a_table_without_a_name_makes_no_cut(void **state)
{
    struct params_puppets puppets;
    struct cut_call cut;

    (void)state;
    puppet_scene_init(&puppets, SERVERS);
    cut_begin(&puppets, &cut);
    for (uint32_t server = 0; server < SERVERS; server++) {
        struct muster_params_saved saved = {.map = 1,
                                            .table_count = 1,
                                            .shard_count = PARAMS_PUPPETS_SHARDS,
                                            .entry_count = PARAMS_PUPPETS_SHARDS / SERVERS};
        struct params_puppet_frame frame = cut_expect(&puppets.list[server], &saved.number);

        saved_send(&puppets.list[server], &frame, &saved, "a\x01");
    }
    assert_int_equal(puppet_call_await(&puppets, &cut.call), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(cut.call.op.error.text, "malformed name"));
    puppet_scene_close(&puppets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_that_do_not_fit_make_no_cut),
        cmocka_unit_test(a_table_without_a_name_makes_no_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
