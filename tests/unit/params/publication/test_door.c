/* The door of a publisher before a reader that follows again while its earlier link still seems to live. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "publication_stand.h"

#include <stdio.h>

#include "params/publication/door.h"

struct link_end {
    struct muster_publication_join join;
    struct muster_peer_link *link;
    bool is_joined, is_down;
    bool has_manifest;
    uint64_t version; /* that the reader has when it joins */
    char sources[MUSTER_PUBLICATION_TREES * MUSTER_PUBLICATION_SOURCES_BYTES_MAX];
    /* Joins with that version when this one is told of it. */
    struct link_end *again;
    struct publication_stand *stand;
    const struct muster_publication *publication;
    const struct muster_peer_hello *hello;
};

static void on_ready(struct muster_peer_link *link)
{
    struct link_end *end = muster_peer_link_data(link);
    const struct muster_frame_header header = {.type = MUSTER_PUBLICATION_JOIN,
                                               .offset = end->version};
    uint8_t bytes[MUSTER_PUBLICATION_JOIN_BYTES];

    muster_publication_join_pack(&end->join, bytes);
    end->is_joined = muster_publication_send(link, header, bytes, sizeof(bytes));
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct link_end *end = muster_peer_link_data(link);

    end->has_manifest = end->has_manifest || header->type == MUSTER_PUBLICATION_MANIFEST;
    return header->type == MUSTER_PUBLICATION_SOURCES ? end->sources : NULL;
}

static void end_open(struct link_end *end);

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct link_end *end = muster_peer_link_data(link), *again = end->again;

    (void)buffer;
    if (again == NULL || again->link != NULL)
        return;
    again->version = header->op.step;
    end_open(again);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct link_end *end = muster_peer_link_data(link);

    (void)error;
    end->is_down = true;
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void end_init(struct link_end *end, struct publication_stand *stand,
                     const struct muster_publication *publication,
                     const struct muster_peer_hello *hello)
{
    *end = (struct link_end){.join = {.reader = hello->incarnation, .is_following = true},
                             .stand = stand,
                             .publication = publication,
                             .hello = hello};
    snprintf(end->join.name, sizeof(end->join.name), "%s", PUBLICATION_STAND_NAME);
}

static void end_open(struct link_end *end)
{
    assert_int_equal(muster_peer_link_open(end->stand->env,
                                           muster_publication_address(end->publication), end->hello,
                                           UINT64_MAX, &events, end, &end->link),
                     MUSTER_OK);
}

static void end_join(struct link_end *end, struct publication_stand *stand,
                     const struct muster_publication *publication,
                     const struct muster_peer_hello *hello)
{
    end_init(end, stand, publication, hello);
    end_open(end);
    test_env_run_until(stand->env, test_env_is_true, &end->is_joined);
}

static void reader_that_follows_again_counts_once(void **state)
{
    struct publication_stand stand;
    struct muster_publication *publication;
    struct muster_publication_stats stats;
    struct muster_peer_hello hello;
    struct link_end ends[2];

    (void)state;
    publication_stand_open(&stand);
    publication = publication_stand_publish(&stand);
    muster_publication_hello_fill(stand.env, "test", &hello);
    end_join(&ends[0], &stand, publication, &hello);
    end_join(&ends[1], &stand, publication, &hello);
    test_env_run_until(stand.env, test_env_is_true, &ends[0].is_down);

    muster_publication_stats(publication, &stats);
    assert_int_equal(stats.readers, 1);
    assert_false(ends[1].is_down);
    for (int i = 0; i < 2; i++)
        muster_peer_link_close(ends[i].link);
    publication_stand_close(&stand);
}

/* The link that would have said that it has the version was lost, and has been forgotten. */
static void reader_that_joins_with_the_version_ends_the_wait_for_it(void **state)
{
    struct publication_stand stand;
    struct muster_publication *publication;
    struct muster_peer_hello hellos[2];
    struct link_end ends[2];

    (void)state;
    publication_stand_open(&stand);
    publication = publication_stand_publish(&stand);
    for (int i = 0; i < 2; i++) {
        muster_publication_hello_fill(stand.env, "test", &hellos[i]);
        hellos[i].incarnation.bytes[0] ^= (uint8_t)i;
    }
    end_join(&ends[0], &stand, publication, &hellos[0]);
    end_init(&ends[1], &stand, publication, &hellos[1]);
    ends[0].again = &ends[1];
    publication_stand_commit(&stand, publication, 1, 1);

    assert_int_equal(ends[1].version, 1);
    for (int i = 0; i < 2; i++)
        muster_peer_link_close(ends[i].link);
    publication_stand_close(&stand);
}

static void manifest_ask(struct link_end *end, uint64_t version)
{
    const struct muster_frame_header header = {.type = MUSTER_PUBLICATION_MANIFEST_REQUEST,
                                               .op.step = version};

    assert_true(muster_publication_send(end->link, header, NULL, 0));
}

/* The answer leaves with the version, and not with the next sign of life: it comes before that of a reader that
 * asks later. */
static void reader_that_waits_for_a_version_is_answered_at_once(void **state)
{
    struct publication_stand stand;
    struct muster_publication *publication;
    struct muster_peer_hello hellos[2];
    struct link_end ends[2];

    (void)state;
    publication_stand_open(&stand);
    publication = publication_stand_publish(&stand);
    for (int i = 0; i < 2; i++) {
        muster_publication_hello_fill(stand.env, "test", &hellos[i]);
        hellos[i].incarnation.bytes[0] ^= (uint8_t)i;
        end_join(&ends[i], &stand, publication, &hellos[i]);
    }
    manifest_ask(&ends[0], 1);
    test_env_turn(stand.env, 20);
    publication_stand_commit(&stand, publication, 1, 0);
    manifest_ask(&ends[1], 1);
    test_env_run_until(stand.env, test_env_is_true, &ends[1].has_manifest);
    test_env_turn(stand.env, 2);

    assert_true(ends[0].has_manifest);
    for (int i = 0; i < 2; i++)
        muster_peer_link_close(ends[i].link);
    publication_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reader_that_follows_again_counts_once),
        cmocka_unit_test(reader_that_joins_with_the_version_ends_the_wait_for_it),
        cmocka_unit_test(reader_that_waits_for_a_version_is_answered_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
