/* A stream under TLS shares its loop. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/tls/openssl.h"
#include "net/tls/stream_internal.h"
#include "tests/lib/tls_pair.h"

#define BULK_BYTES     ((size_t)4 << 20)
#define TURN_BYTES_MAX ((size_t)(1 << 20) + PULL_BYTES_MAX)
#define PULL_BYTES_MAX ((size_t)128 << 10)

/* A socket stream that, once filled, holds as many bytes as a case wants, not what a socket's buffer
 * takes. */
struct well {
    struct muster_stream stream;
    struct muster_stream *socket;
    struct muster_loop *loop;
    struct muster_task task;
    struct muster_stream_read *read;
    const struct muster_stream_read *last_read;
    bool is_reading_last, was_closed_reading; /* nobody has taken the last read back */
    muster_stream_close_fn *closed;
    uint8_t *bytes;
    size_t at, count;
};

static struct well *well_of(const struct muster_stream *stream)
{
    return MUSTER_CONTAINER_OF(stream, struct well, stream);
}

static size_t well_take_now(struct muster_stream *stream, void *buffer, size_t bytes_max)
{
    struct well *well = well_of(stream);
    size_t count = well->count - well->at < bytes_max ? well->count - well->at : bytes_max;

    if (well->bytes == NULL)
        return muster_stream_take_now(well->socket, buffer, bytes_max);
    memcpy(buffer, well->bytes + well->at, count);
    well->at += count;
    return count;
}

static void on_task(struct muster_task *task)
{
    struct well *well = task->data;
    struct muster_stream_read *read = well->read;

    well->read = NULL;
    read->bytes_done = well_take_now(&well->stream, read->buffer, read->bytes_max);
    read->done(read, MUSTER_OK);
}

static enum muster_rc well_receive(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct well *well = well_of(stream);

    well->last_read = read;
    well->is_reading_last = true;
    if (well->bytes == NULL)
        return well->socket->ops->receive(well->socket, read);
    if (well->at < well->count) {
        well->read = read;
        muster_task_post(&well->task, well->loop);
    }
    return MUSTER_OK;
}

static void well_cancel_read(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct well *well = well_of(stream);

    muster_task_cancel(&well->task);
    well->is_reading_last = well->is_reading_last && read != well->last_read;
    if (well->bytes == NULL)
        well->socket->ops->cancel_read(well->socket, read);
}

static enum muster_rc well_submit(struct muster_stream *stream, struct muster_stream_write *write)
{
    return well_of(stream)->socket->ops->submit(well_of(stream)->socket, write);
}

static void on_socket_closed(struct muster_stream *socket)
{
    struct well *well = socket->data;

    well->closed(&well->stream);
}

static void well_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    struct well *well = well_of(stream);

    well->closed = closed;
    well->was_closed_reading = well->is_reading_last;
    well->socket->data = well;
    muster_stream_close(well->socket, on_socket_closed);
}

static const struct muster_stream_ops well_ops = {
    .submit = well_submit,
    .receive = well_receive,
    .cancel_read = well_cancel_read,
    .close = well_close,
    .take_now = well_take_now,
};

struct scene {
    struct tls_pair pair;
    struct well well; /* under the server */
    bool is_written, is_read;
    enum muster_rc read_rc, written_rc;
};

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    struct well *well = &scene->well;

    tls_pair_open(&scene->pair);
    tls_pair_credentials(&scene->pair);
    well->stream.ops = &well_ops;
    well->socket = scene->pair.server.inner;
    well->loop = scene->pair.test.env.loop;
    muster_task_init(&well->task, on_task, well);
    scene->pair.server.inner = &well->stream;
    tls_pair_shake(&scene->pair, scene->pair.client_tls, scene->pair.server_tls, "localhost", NULL);
    assert_int_equal(scene->pair.client.rc, MUSTER_OK);
    assert_int_equal(scene->pair.server.rc, MUSTER_OK);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    tls_pair_close(&scene->pair);
    free(scene->well.bytes);
    free(scene);
    return 0;
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    ((struct scene *)write->data)->is_written = true;
}

/* All that the client has to say before, and its records of the bytes, lie in the well. */
static void fill_well(struct scene *scene, const uint8_t *bytes, size_t count)
{
    struct iovec iov = {(void *)(uintptr_t)bytes, count};
    struct muster_stream_write write = {.data = scene};
    size_t room = BULK_BYTES + BULK_BYTES / 8;
    struct well *well = &scene->well;

    well->bytes = malloc(room);
    assert_int_equal(muster_stream_submit(&write, scene->pair.client.stream, &iov, 1, on_written),
                     MUSTER_OK);
    for (;;) {
        ssize_t got = recv(scene->pair.fds[1], well->bytes + well->count, room - well->count, 0);

        if (got > 0)
            well->count += (size_t)got;
        else if (scene->is_written)
            return;
        muster_loop_turn(well->loop, 0);
    }
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct scene *scene = read->data;

    scene->is_read = true;
    scene->read_rc = rc;
}

static void a_long_read_leaves_turns_to_others(void **state)
{
    struct scene *scene = *state;
    uint8_t *bytes = malloc(BULK_BYTES);
    uint8_t *received = malloc(BULK_BYTES);
    struct muster_stream_read read = {.data = scene};
    unsigned turns = 0;

    for (size_t i = 0; i < BULK_BYTES; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 9));
    fill_well(scene, bytes, BULK_BYTES);
    assert_int_equal(muster_stream_receive_into(&read, scene->pair.server.stream, received,
                                                BULK_BYTES, BULK_BYTES, on_read),
                     MUSTER_OK);
    for (; turns < 100 && !scene->is_read; turns++) {
        size_t before = read.bytes_done;

        muster_loop_turn(scene->pair.test.env.loop, 0);
        assert_in_range(read.bytes_done - before, 0, TURN_BYTES_MAX);
    }

    assert_true(scene->is_read);
    assert_int_equal(scene->read_rc, MUSTER_OK);
    assert_memory_equal(received, bytes, BULK_BYTES);
    free(received);
    free(bytes);
}

static void update_keys(struct scene *scene, unsigned times)
{
    SSL *ssl = muster_tls_stream_of(scene->pair.client.stream)->engine->ssl;

    while (times-- > 0) {
        assert_int_equal(SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(ssl), 1);
    }
}

/* One byte behind all that the well holds. */
static void read_behind(struct scene *scene, struct muster_stream_read *read, uint8_t *received)
{
    fill_well(scene, (const uint8_t *)"x", 1);
    assert_int_equal(
        muster_stream_receive_into(read, scene->pair.server.stream, received, 1, 1, on_read),
        MUSTER_OK);
    test_env_run_until(&scene->pair.test.env, test_env_is_true, &scene->is_read);
}

/* RFC 8446 4.6.3: 27 bytes make the other side derive two keys. */
static void a_flood_of_key_updates_ends_the_connection(void **state)
{
    struct scene *scene = *state;
    struct muster_stream_read read = {.data = scene};
    uint8_t received = 0;

    update_keys(scene, 8192);
    read_behind(scene, &read, &received);

    assert_int_equal(scene->read_rc, MUSTER_UNAVAILABLE);
    assert_false(read.is_eof);
    assert_in_range(scene->well.at, 1, PULL_BYTES_MAX);
    assert_non_null(strstr(muster_stream_error(scene->pair.server.stream)->text, "too often"));
}

static void check_updates(struct scene *scene, unsigned times)
{
    struct muster_stream_read read = {.data = scene};
    uint8_t received = 0;

    update_keys(scene, times);
    read_behind(scene, &read, &received);

    assert_int_equal(scene->read_rc, MUSTER_OK);
    assert_int_equal(received, 'x');
}

static void a_few_key_updates_are_taken(void **state)
{
    check_updates(*state, 32);
}

/* A second makes up for one of them. */
static void sixty_four_key_updates_may_come_at_once(void **state)
{
    struct scene *scene = *state;
    struct muster_tls_stream *server = muster_tls_stream_of(scene->pair.server.stream);

    assert_int_equal(server->controls.burst, 64);
    assert_int_equal(server->controls.per_second, 1);
    check_updates(scene, 64);
}

static void on_cancelled(struct muster_stream_write *write, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_CANCELLED);
    ((struct scene *)write->data)->is_written = true;
}

static void on_closed(struct muster_stream *stream)
{
    *(bool *)stream->data = true;
}

/* A part that was cut off is not taken for the whole. */
static void a_stream_that_is_closed_amid_a_write_does_not_end_in_order(void **state)
{
    struct scene *scene = *state;
    size_t count = (size_t)8 << 20; /* more than the sockets hold */
    uint8_t *bytes = calloc(1, count), *received = malloc(count);
    struct iovec iov = {bytes, count};
    struct muster_stream_write write = {.data = scene};
    struct muster_stream_read read = {.data = scene};
    struct muster_stream *server = scene->pair.server.stream;
    bool is_closed = false;

    assert_int_equal(muster_stream_submit(&write, server, &iov, 1, on_cancelled), MUSTER_OK);
    test_env_turn(&scene->pair.test.env, 5);
    scene->pair.server.stream = NULL;
    server->data = &is_closed;
    muster_stream_close(server, on_closed);
    test_env_run_until(&scene->pair.test.env, test_env_is_true, &is_closed);
    assert_int_equal(muster_stream_receive_into(&read, scene->pair.client.stream, received, count,
                                                count, on_read),
                     MUSTER_OK);
    test_env_run_until(&scene->pair.test.env, test_env_is_true, &scene->is_read);

    assert_true(scene->is_written);
    assert_int_equal(scene->read_rc, MUSTER_UNAVAILABLE);
    assert_in_range(read.bytes_done, 1, count - 1);
    assert_false(read.is_eof);
    assert_non_null(
        strstr(muster_stream_error(scene->pair.client.stream)->text, "no close_notify"));
    free(received);
    free(bytes);
}

static void note_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct scene *scene = write->data;

    scene->is_written = true;
    scene->written_rc = rc;
}

/* Without memory for a record nothing of a write leaves, and no batch is on its way that could fail:
 * the owner hears nevertheless that it has not been sent. */
static void a_write_that_finds_no_memory_is_not_told_as_sent(void **state)
{
    static const size_t sizes[] = {1, 100, 4096, 20000};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct scene *scene = *state;
        struct muster_env *env = scene->pair.server_tls->env, hungry = *env;
        struct muster_mem_limited mem;
        uint8_t *bytes = calloc(1, sizes[i]);
        struct iovec iov = {bytes, sizes[i]};
        struct muster_stream_write write = {.data = scene};

        muster_mem_limited_init(&mem, env->mem, 1);
        hungry.mem = &mem.mem;
        scene->is_written = false;
        scene->pair.server_tls->env = &hungry;
        assert_int_equal(
            muster_stream_submit(&write, scene->pair.server.stream, &iov, 1, note_written),
            MUSTER_OK);
        test_env_run_until(&scene->pair.test.env, test_env_is_true, &scene->is_written);
        scene->pair.server_tls->env = env;

        assert_int_equal(scene->written_rc, MUSTER_UNAVAILABLE);
        assert_int_equal(muster_mem_limited_fini(&mem), 0);
        assert_int_equal(muster_stream_error(scene->pair.server.stream)->rc,
                         MUSTER_RESOURCE_EXHAUSTED);
        free(bytes);
        tls_pair_again(&scene->pair);
        tls_pair_shake(&scene->pair, scene->pair.client_tls, scene->pair.server_tls, "localhost", NULL);
    }
}

/* Nobody reads on either side, so only the failure itself ends the write; also where there is no
 * memory for an alert that could be sent. */
static void end_by_false_record(struct scene *scene, bool is_hungry)
{
    size_t count = (size_t)8 << 20; /* more than the sockets hold */
    uint8_t *bytes = calloc(1, count), received;
    struct iovec iov = {bytes, count};
    struct muster_stream_write write = {.data = scene};
    struct muster_stream *server = scene->pair.server.stream;
    struct muster_env *env = scene->pair.server_tls->env, hungry = *env;
    struct muster_mem_limited mem;

    assert_int_equal(muster_stream_submit(&write, server, &iov, 1, note_written), MUSTER_OK);
    test_env_turn(&scene->pair.test.env, 5);
    assert_false(scene->is_written);
    scene->well.bytes = calloc(1, 100);
    scene->well.count = 100;
    muster_mem_limited_init(&mem, env->mem, 1);
    hungry.mem = &mem.mem;
    if (is_hungry) {
        muster_mem_free(env->mem, muster_tls_stream_of(server)->filling.bytes);
        muster_tls_stream_of(server)->filling = (struct muster_tls_batch){.bytes = NULL};
        scene->pair.server_tls->env = &hungry;
    }
    assert_int_equal(muster_stream_take_now(server, &received, 1), 0);
    scene->pair.server_tls->env = env;
    assert_false(scene->is_written);
    test_env_run_until(&scene->pair.test.env, test_env_is_true, &scene->is_written);

    assert_int_equal(scene->written_rc, MUSTER_UNAVAILABLE);
    assert_non_null(muster_stream_error(server));
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
    free(bytes);
}

static void a_false_record_that_is_taken_at_once_ends_the_writes_too(void **state)
{
    end_by_false_record(*state, false);
}

static void so_does_one_without_memory_for_an_alert(void **state)
{
    end_by_false_record(*state, true);
}

static void say_byte(struct scene *scene, char byte)
{
    struct iovec iov = {&byte, 1};
    struct muster_stream_write write = {.data = scene};

    scene->is_written = false;
    assert_int_equal(muster_stream_submit(&write, scene->pair.client.stream, &iov, 1, note_written),
                     MUSTER_OK);
    test_env_run_until(&scene->pair.test.env, test_env_is_true, &scene->is_written);
}

/* The bytes that the last reader below has got do not come again. */
static void a_read_that_is_taken_back_at_once_changes_nothing(void **state)
{
    struct scene *scene = *state;
    struct muster_stream *server = scene->pair.server.stream;

    for (char byte = 'a'; byte < 'd'; byte++) {
        struct muster_stream_read read = {.data = scene};
        char received = 0;

        scene->is_read = false;
        assert_int_equal(muster_stream_receive_into(&read, server, &received, 1, 1, on_read),
                         MUSTER_OK);
        assert_int_equal(muster_stream_receive_recall(&read, server), 0);
        say_byte(scene, byte);
        assert_int_equal(muster_stream_receive_into(&read, server, &received, 1, 1, on_read),
                         MUSTER_OK);
        test_env_run_until(&scene->pair.test.env, test_env_is_true, &scene->is_read);

        assert_int_equal(scene->read_rc, MUSTER_OK);
        assert_int_equal(received, byte);
    }
}

static void close_when_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct scene *scene = write->data;
    struct muster_stream *server = scene->pair.server.stream;

    note_written(write, rc);
    scene->pair.server.stream = NULL;
    server->data = &scene->is_read;
    muster_stream_close(server, on_closed);
}

/* Both have left in one batch; the callback of the first one closes. */
static void a_write_that_has_left_is_told_so_although_another_closes(void **state)
{
    struct scene *scene = *state;
    struct scene other = {.is_written = false};
    struct iovec iov = {(void *)(uintptr_t) "12", 2};
    struct muster_stream_write writes[2] = {{.data = scene}, {.data = &other}};
    struct muster_stream *server = scene->pair.server.stream;

    assert_int_equal(muster_stream_submit(&writes[0], server, &iov, 1, close_when_written),
                     MUSTER_OK);
    assert_int_equal(muster_stream_submit(&writes[1], server, &iov, 1, note_written), MUSTER_OK);
    test_env_run_until(&scene->pair.test.env, test_env_is_true, &scene->is_read);

    assert_true(scene->is_written && other.is_written);
    assert_int_equal(scene->written_rc, MUSTER_OK);
    assert_int_equal(other.written_rc, MUSTER_OK);
}

/* Its memory may be that of one that has failed. */
static void a_handshake_that_succeeds_was_heard(void **state)
{
    struct scene *scene = *state;
    struct tls_side *client = &scene->pair.client;

    tls_pair_again(&scene->pair);
    client->handshake.is_unheard = true;
    tls_pair_shake(&scene->pair, scene->pair.client_tls, scene->pair.server_tls, "localhost", NULL);

    assert_int_equal(client->rc, MUSTER_OK);
    assert_false(client->handshake.is_unheard);
}

/* A process that stood still finds the time to leave over before its next turn. */
static void a_close_after_a_standstill_still_ends_the_read(void **state)
{
    struct scene *scene = *state;
    struct muster_stream *server = scene->pair.server.stream;
    struct muster_stream_read read = {.data = scene};
    uint8_t received;
    bool is_closed = false;

    assert_int_equal(muster_stream_receive_into(&read, server, &received, 1, 1, on_read),
                     MUSTER_OK);
    test_env_turn(&scene->pair.test.env, 2);
    scene->pair.server.stream = NULL;
    server->data = &is_closed;
    muster_stream_close(server, on_closed);
    muster_timer_start(&muster_tls_stream_of(server)->timer, scene->pair.test.env.loop, 0);
    test_env_run_until(&scene->pair.test.env, test_env_is_true, &is_closed);

    assert_true(scene->is_read);
    assert_int_equal(scene->read_rc, MUSTER_CANCELLED);
    assert_false(scene->well.was_closed_reading); /* it could not be drained */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_close_after_a_standstill_still_ends_the_read),
        CASE(a_flood_of_key_updates_ends_the_connection),
        CASE(a_few_key_updates_are_taken),
        CASE(sixty_four_key_updates_may_come_at_once),
        CASE(a_stream_that_is_closed_amid_a_write_does_not_end_in_order),
        CASE(a_write_that_finds_no_memory_is_not_told_as_sent),
        CASE(a_false_record_that_is_taken_at_once_ends_the_writes_too),
        CASE(so_does_one_without_memory_for_an_alert),
        CASE(a_read_that_is_taken_back_at_once_changes_nothing),
        CASE(a_write_that_has_left_is_told_so_although_another_closes),
        CASE(a_handshake_that_succeeds_was_heard),
        CASE(a_long_read_leaves_turns_to_others),
    };

    return cmocka_run_group_tests_name("tls_stream", tests, NULL, NULL);
}
