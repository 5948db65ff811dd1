/* Readers that map what a publisher or another reader of their host has: one of them fetches, nothing is copied,
 * and what a program uses stays as it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "publication_stand.h"
#include "scene_case.h"

#define READERS 3
#define CHUNKS  4 /* of a version */

SCENE_CASES(struct publication_stand, publication_stand_open, publication_stand_close)

static struct muster_reader_stats stats_of(const struct muster_reader *reader)
{
    struct muster_reader_stats stats;

    muster_reader_stats(reader, &stats);
    return stats;
}

static void readers_of_the_publishers_host_get_no_bytes(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_publication_stats stats;

    publication_stand_share(stand);
    for (int i = 0; i < READERS; i++)
        publication_stand_read(stand, 0);
    for (int version = 1; version <= 3; version++)
        publication_stand_commit(stand, publication, (float)version, READERS);

    for (int i = 0; i < READERS; i++) {
        publication_stand_check(stand->readers[i], 3, 3);
        assert_int_equal(stats_of(stand->readers[i]).chunks_mapped, 3 * CHUNKS);
        assert_int_equal(stats_of(stand->readers[i]).bytes_received, 0);
    }
    muster_publication_stats(publication, &stats);
    assert_int_equal(stats.bytes_sent, 0);
}

/* Those that are there when a version is made. */
static void one_reader_of_a_host_fetches_and_the_others_map(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader_stats before[READERS];
    uint64_t received = 0, mapped = 0;

    publication_stand_share(stand);
    stand->host_key = "another host";
    for (int i = 0; i < READERS; i++)
        publication_stand_read(stand, 0);
    publication_stand_commit(stand, publication, 1, READERS);
    for (int i = 0; i < READERS; i++)
        before[i] = stats_of(stand->readers[i]);
    publication_stand_commit(stand, publication, 2, READERS);

    for (int i = 0; i < READERS; i++) {
        const struct muster_reader_stats after = stats_of(stand->readers[i]);

        publication_stand_check(stand->readers[i], 2, 2);
        received += after.chunks_received + after.deltas_received - before[i].chunks_received -
                    before[i].deltas_received;
        mapped += after.chunks_mapped - before[i].chunks_mapped;
    }
    assert_int_equal(received, CHUNKS);
    assert_int_equal(mapped, (READERS - 1) * CHUNKS);
}

static void late_reader_maps_what_one_of_its_host_has(void **state)
{
    enum { HOSTS = 4 };
    static const char *const keys[HOSTS] = {"a", "b", "c", "d"};
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *late;

    publication_stand_share(stand);
    for (int i = 0; i < HOSTS; i++) {
        stand->host_key = keys[i];
        publication_stand_read(stand, 0);
    }
    publication_stand_commit(stand, publication, 1, HOSTS);
    stand->host_key = "d";
    late = publication_stand_read(stand, 0);
    publication_stand_await(stand, late, 1);

    publication_stand_check(late, 1, 1);
    assert_int_equal(stats_of(late).chunks_mapped, CHUNKS);
    assert_int_equal(stats_of(late).bytes_received, 0);
}

static void version_in_use_stays_when_its_source_has_none_of_it(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication;
    const struct muster_version *used;
    struct muster_reader *reader;

    publication_stand_share(stand);
    publication = publication_stand_publish(stand);
    reader = publication_stand_read(stand, 0);
    publication_stand_commit(stand, publication, 1, 1);
    used = muster_reader_current(reader);
    publication_stand_commit(stand, publication, 2, 1);
    for (int version = 3; version <= 5;
         version++) /* the publisher takes memory again, but not this */
        publication_stand_commit(stand, publication, (float)version, 0);
    publication_stand_end(stand, publication);

    const float *weights = used->tensors[0].data;
    uint32_t right = 0;

    for (uint32_t i = 0; i < PUBLICATION_STAND_COUNT; i++)
        right += weights[i] == 1;
    muster_reader_release(reader, used);
    assert_int_equal(right, PUBLICATION_STAND_COUNT);
}

static enum muster_rc refuse_map(struct muster_host *host, const struct muster_host_memory *theirs,
                                 struct muster_host_memory *ret_memory)
{
    (void)host;
    (void)theirs;
    (void)ret_memory;
    return MUSTER_NOT_FOUND;
}

static void memory_that_cannot_be_mapped_is_fetched(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *reader;

    publication_stand_share(stand);
    stand->host_ops.memory_map = refuse_map;
    reader = publication_stand_read(stand, 0);
    publication_stand_commit(stand, publication, 1, 1);

    publication_stand_check(reader, 1, 1);
    assert_int_equal(stats_of(reader).chunks_received, CHUNKS);
    assert_int_equal(stats_of(reader).chunks_mapped, 0);
}

/* Memory of the right form without a byte of the version, as if pid, number and file were another's. */
static enum muster_rc map_other(struct muster_host *host, const struct muster_host_memory *theirs,
                                struct muster_host_memory *ret_memory)
{
    enum muster_rc rc = host->ops->memory_open(host, theirs->size, ret_memory);

    ret_memory->file = theirs->file;
    return rc;
}

static void bytes_of_other_memory_are_fetched_instead(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_publication *publication = publication_stand_publish(stand);
    struct muster_reader *reader;

    publication_stand_share(stand);
    stand->host_ops.memory_map = map_other;
    reader = publication_stand_read(stand, 0);
    publication_stand_commit(stand, publication, 1, 1);

    publication_stand_check(reader, 1, 1);
    assert_int_equal(stats_of(reader).chunks_mapped, 0);
    assert_int_equal(stats_of(reader).chunks_received, CHUNKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(readers_of_the_publishers_host_get_no_bytes),
        CASE(one_reader_of_a_host_fetches_and_the_others_map),
        CASE(late_reader_maps_what_one_of_its_host_has),
        CASE(version_in_use_stays_when_its_source_has_none_of_it),
        CASE(memory_that_cannot_be_mapped_is_fetched),
        CASE(bytes_of_other_memory_are_fetched_instead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
