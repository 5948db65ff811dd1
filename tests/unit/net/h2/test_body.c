/* Bodies cut into frames, kept for a replay, and gathered. */
#include "careful_mem.h"
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include "net/h2/body.h"

struct fixture {
    struct muster_mem_limited mem;
    struct muster_h2_body body;
    struct muster_h2_output *output;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    muster_mem_limited_init(&fixture->mem, careful_mem(), 0);
    muster_h2_body_init(&fixture->body, 1000);
    *state = fixture;
    fixture->output = muster_h2_output_new(&fixture->mem.mem);
    return fixture->output == NULL;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    size_t leaked;

    muster_h2_body_fini(&fixture->body);
    muster_h2_output_free(fixture->output);
    leaked = muster_mem_limited_fini(&fixture->mem);
    free(fixture);
    return leaked != 0;
}

static void append_buffer(struct fixture *fixture, size_t bytes, char fill)
{
    struct muster_h2_buffer *buffer = muster_h2_buffer_new(&fixture->mem.mem, bytes);

    memset(buffer->bytes, fill, bytes);
    muster_h2_body_append(&fixture->body, buffer);
}

static void small_buffers_share_a_frame_and_a_piece(void **state)
{
    struct fixture *fixture = *state;

    append_buffer(fixture, 100, 'a');
    append_buffer(fixture, 100, 'b');
    assert_int_equal(muster_h2_body_promise(&fixture->body, 16384), 200);
    assert_true(muster_h2_body_write(&fixture->body, fixture->output));

    assert_int_equal(fixture->output->piece_count, 1);
    assert_int_equal(fixture->output->bytes, 200);
    assert_int_equal(fixture->output->gather[99], 'a');
    assert_int_equal(fixture->output->gather[100], 'b');
    assert_int_equal(fixture->body.bytes, 0);
}

static void a_large_buffer_goes_by_reference_and_outlives_the_body(void **state)
{
    struct fixture *fixture = *state;

    append_buffer(fixture, 100000, 'x');
    assert_int_equal(muster_h2_body_promise(&fixture->body, 65536), 65536);
    assert_true(muster_h2_body_write(&fixture->body, fixture->output));
    muster_h2_body_fini(&fixture->body);

    assert_int_equal(fixture->output->piece_count, 1);
    assert_int_equal(fixture->output->gather_used, 0);
    assert_int_equal(((char *)fixture->output->pieces[0].iov_base)[65535], 'x');
}

static void a_small_body_can_be_sent_again(void **state)
{
    struct fixture *fixture = *state;

    append_buffer(fixture, 300, 'a');
    append_buffer(fixture, 300, 'b');
    assert_int_equal(muster_h2_body_promise(&fixture->body, 400), 400);
    assert_true(muster_h2_body_write(&fixture->body, fixture->output));
    muster_h2_output_free(fixture->output);
    fixture->output = muster_h2_output_new(&fixture->mem.mem);
    assert_true(muster_h2_body_rewind(&fixture->body));

    assert_int_equal(fixture->body.bytes, 600);
    assert_int_equal(muster_h2_body_promise(&fixture->body, 1000), 600);
    assert_true(muster_h2_body_write(&fixture->body, fixture->output));
    assert_int_equal(fixture->output->gather[299], 'a');
    assert_int_equal(fixture->output->gather[300], 'b');
}

static void a_body_larger_than_what_is_kept_cannot(void **state)
{
    struct fixture *fixture = *state;

    append_buffer(fixture, 1001, 'a');
    assert_int_equal(muster_h2_body_promise(&fixture->body, 2000), 1001);
    assert_true(muster_h2_body_write(&fixture->body, fixture->output));

    assert_false(muster_h2_body_rewind(&fixture->body));
}

static void promised_bytes_survive_a_discard(void **state)
{
    struct fixture *fixture = *state;

    append_buffer(fixture, 100, 'a');
    append_buffer(fixture, 100, 'b');
    append_buffer(fixture, 100, 'c');
    assert_int_equal(muster_h2_body_promise(&fixture->body, 150), 150);
    muster_h2_body_discard(&fixture->body);
    assert_int_equal(fixture->body.bytes, 200);
    assert_true(muster_h2_body_write(&fixture->body, fixture->output));
    muster_h2_body_discard(&fixture->body);

    assert_int_equal(fixture->body.bytes, 0);
    assert_int_equal(fixture->output->bytes, 150);
}

static void many_buffers_fill_an_output_only_so_far(void **state)
{
    struct fixture *fixture = *state;
    size_t total = 0;

    for (unsigned i = 0; i < 200; i++)
        append_buffer(fixture, 5000, 'x');
    while (!muster_h2_output_is_full(fixture->output)) {
        total += muster_h2_body_promise(&fixture->body, 16384);
        assert_true(muster_h2_body_write(&fixture->body, fixture->output));
    }

    assert_int_equal(fixture->output->bytes, total);
    assert_true(fixture->output->piece_count <= MUSTER_H2_OUTPUT_PIECES);
}

/* Frames of two pieces bring the output close to its end; the next one would take five. */
static void an_output_that_is_not_full_has_room_for_any_frame(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned i = 0; i < 30; i++) {
        append_buffer(fixture, 5, 'p');
        append_buffer(fixture, 5000, 'x');
        assert_int_equal(muster_h2_body_promise(&fixture->body, 16384), 5005);
        assert_true(muster_h2_body_write(&fixture->body, fixture->output));
    }
    for (unsigned i = 0; i < 3; i++) {
        append_buffer(fixture, 5, 'p');
        append_buffer(fixture, 5000, 'x');
    }
    if (!muster_h2_output_is_full(fixture->output)) {
        assert_true(muster_h2_body_promise(&fixture->body, 16384) > 0);
        assert_true(muster_h2_body_write(&fixture->body, fixture->output));
    }

    assert_true(fixture->output->piece_count <= MUSTER_H2_OUTPUT_PIECES);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest h2_body[] = {
        CASE(small_buffers_share_a_frame_and_a_piece),
        CASE(a_large_buffer_goes_by_reference_and_outlives_the_body),
        CASE(a_small_body_can_be_sent_again),
        CASE(a_body_larger_than_what_is_kept_cannot),
        CASE(promised_bytes_survive_a_discard),
        CASE(many_buffers_fill_an_output_only_so_far),
        CASE(an_output_that_is_not_full_has_room_for_any_frame),
    };

    return cmocka_run_group_tests(h2_body, NULL, NULL);
}
