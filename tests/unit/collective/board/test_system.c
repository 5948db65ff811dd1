/* Real boards, several in one process. */
#include "collective/board/board_internal.h"
#include "test_env.h"

#include <muster/collective.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct stand {
    struct stand_world *world;
    struct muster_member member;
    struct muster_board *board;
    struct muster_board_peer *peer;
    unsigned told, signalled;
};

struct stand_world {
    struct test_env test;
    bool is_open;
    struct stand stands[2]; /* the first has the smaller incarnation: it connects */
};

static void on_peer(void *data, struct muster_board_peer *peer)
{
    struct stand *stand = data;

    assert_ptr_equal(peer, stand->peer);
    stand->told++;
}

static void on_signal(void *data)
{
    struct stand *stand = data;

    stand->signalled++;
}

static const struct muster_board_events events = {.on_peer = on_peer, .on_signal = on_signal};

static enum muster_rc open_stand(struct stand_world *world, unsigned i)
{
    struct stand *stand = &world->stands[i];
    struct muster_board_options options = {
        .env = &world->test.env, .job = "test", .self = &stand->member, .memory_bytes = 10000};
    struct muster_error error;
    enum muster_rc rc;

    stand->world = world;
    stand->member.pid = getpid();
    stand->member.incarnation.bytes[0] = (uint8_t)(i + 1);
    stand->member.incarnation.bytes[8] = (uint8_t)getpid(); /* cases run side by side */
    stand->member.incarnation.bytes[9] = (uint8_t)(getpid() >> 8);
    stand->member.incarnation.bytes[10] = (uint8_t)(getpid() >> 16);
    rc = muster_board_system_open(&options, &stand->board, &error);
    if (rc != MUSTER_OK)
        return rc;
    stand->board->events = &events;
    stand->board->events_data = stand;
    return MUSTER_OK;
}

static void open_world(struct stand_world *world)
{
    memset(world, 0, sizeof(*world));
    world->is_open = true;
    test_env_open(&world->test);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(open_stand(world, i), MUSTER_OK);
}

static void close_world(struct stand_world *world)
{
    world->is_open = false;
    for (unsigned i = 0; i < 2; i++)
        muster_board_close(world->stands[i].board);
    test_env_close(&world->test);
}

static void connect_stand(struct stand_world *world, unsigned i)
{
    struct stand *stand = &world->stands[i];

    assert_int_equal(muster_board_connect(stand->board, &world->stands[1 - i].member, &stand->peer),
                     MUSTER_OK);
}

static bool is_told(void *data)
{
    return ((struct stand *)data)->told > 0;
}

static bool are_both_told(void *data)
{
    struct stand_world *world = data;

    return is_told(&world->stands[0]) && is_told(&world->stands[1]);
}

static void connect_both(struct stand_world *world)
{
    connect_stand(world, 0);
    connect_stand(world, 1);
    test_env_run_until(&world->test.env, are_both_told, world);
    assert_true(world->stands[0].peer->is_ready);
    assert_true(world->stands[1].peer->is_ready);
}

static struct muster_board_system *system_of(struct stand_world *world, unsigned i)
{
    return muster_board_system_of(world->stands[i].board);
}

static bool has_failed(void *data)
{
    return ((struct stand *)data)->peer->is_failed && ((struct stand *)data)->told > 0;
}

/* --- Connecting --- */

static struct stand_world world;

static int world_set_up(void **state)
{
    (void)state;
    open_world(&world);
    return 0;
}

static int world_tear_down(void **state)
{
    (void)state;
    if (world.is_open)
        close_world(&world);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)

static void two_that_connect_see_what_the_other_writes(void **state)
{
    (void)state;

    connect_both(&world);

    for (unsigned i = 0; i < 2; i++) {
        assert_true(world.stands[i].board->memory_bytes >= 10000);
        assert_int_equal((uintptr_t)world.stands[i].board->memory % 4096, 0);
        world.stands[i].board->memory[9999] = (uint8_t)(i + 40);
    }

    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(world.stands[i].peer->memory[9999], 41 - i);
        assert_int_equal(world.stands[i].peer->memory_bytes, world.stands[i].board->memory_bytes);
        assert_int_equal(world.stands[i].told, 1);
        assert_false(world.stands[i].peer->is_failed);
        assert_false(muster_board_is_dead(world.stands[i].peer));
    }
}

static void nothing_is_told_inside_connect(void **state)
{
    (void)state;

    snprintf(world.stands[1].member.host_key, MUSTER_HOST_KEY_BYTES, "elsewhere");
    connect_stand(&world, 0);
    assert_int_equal(world.stands[0].told, 0);
    test_env_run_until(&world.test.env, has_failed, &world.stands[0]);

    assert_false(world.stands[0].peer->is_ready);
    assert_string_equal(world.stands[0].peer->why.text, "it is on another host");
}

static void who_connects_first_waits_for_the_other(void **state)
{
    (void)state;

    for (unsigned first = 0; first < 2; first++) {
        open_world(&world);
        connect_stand(&world, first);
        test_env_turn(&world.test.env, 20);
        assert_int_equal(world.stands[first].told, 0);
        connect_stand(&world, 1 - first);
        test_env_run_until(&world.test.env, are_both_told, &world);

        assert_true(world.stands[0].peer->is_ready);
        assert_true(world.stands[1].peer->is_ready);
        close_world(&world);
    }
}

static void who_connects_before_the_other_is_open_tries_again(void **state)
{
    (void)state;

    muster_board_close(world.stands[1].board);
    world.stands[1].board = NULL;
    connect_stand(&world, 0);
    test_env_turn(&world.test.env, 5);

    assert_int_equal(open_stand(&world, 1), MUSTER_OK);
    connect_stand(&world, 1);
    test_env_run_until(&world.test.env, are_both_told, &world);

    assert_true(world.stands[0].peer->is_ready);
}

static void a_peer_that_exists_is_given_and_told_again(void **state)
{
    struct muster_board_peer *again = NULL;
    (void)state;

    connect_both(&world);

    assert_int_equal(muster_board_connect(world.stands[0].board, &world.stands[1].member, &again),
                     MUSTER_OK);
    assert_ptr_equal(again, world.stands[0].peer);
    assert_int_equal(world.stands[0].told, 1);
    test_env_turn(&world.test.env, 2);

    assert_int_equal(world.stands[0].told, 2);
}

/* As after a signal, or when another wake-up has taken the packet already. */
static void a_look_that_finds_no_packet_ends_nothing(void **state)
{
    struct muster_board_link *link;
    (void)state;

    connect_both(&world);
    link = muster_board_peer_system_of(world.stands[0].peer)->link;
    link->watch.on_ready(&link->watch, MUSTER_FD_READ);
    test_env_turn(&world.test.env, 2);

    assert_false(world.stands[0].peer->is_failed);
    assert_true(world.stands[0].peer->is_ready);
}

static void no_memory_for_a_peer_is_told_as_that(void **state)
{
    struct muster_board_peer *peer = NULL;
    (void)state;

    world.test.mem.fail_at = 1;
    assert_int_equal(muster_board_connect(world.stands[0].board, &world.stands[1].member, &peer),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(world.test.mem.fail_at, 0);

    assert_null(peer);
    connect_both(&world);
}

static void a_released_peer_sees_the_end_and_keeps_the_memory(void **state)
{
    (void)state;

    connect_both(&world);
    world.stands[0].board->memory[3] = 7;

    muster_board_release(world.stands[0].board, world.stands[0].peer);
    test_env_run_until(&world.test.env, has_failed, &world.stands[1]);

    assert_true(world.stands[1].peer->is_ready);
    assert_false(muster_board_is_dead(world.stands[1].peer));
    assert_int_equal(world.stands[1].peer->memory[3], 7);
    muster_board_release(world.stands[1].board, world.stands[1].peer);
    world.stands[0].told = world.stands[1].told = 0;
    connect_both(&world);
}

static void one_member_has_one_board(void **state)
{
    struct muster_board_options options = {.env = &world.test.env, .job = "test"};
    struct muster_board *board = NULL;
    struct muster_error error;
    (void)state;

    options.self = &world.stands[0].member;

    assert_int_equal(muster_board_system_open(&options, &board, &error), MUSTER_ALREADY_EXISTS);
}

static void a_host_that_shares_nothing_has_no_board(void **state)
{
    struct muster_env env;
    struct muster_board_options options = {.env = &env, .job = "test"};
    struct muster_board *board = NULL;
    struct muster_error error;
    (void)state;

    env = world.test.env;
    env.host = NULL;
    options.self = &world.stands[0].member;

    assert_int_equal(muster_board_system_open(&options, &board, &error), MUSTER_UNIMPLEMENTED);
}

static void memory_that_is_not_there_is_told_with_its_limit(void **state)
{
    const struct muster_board_options options = {.env = &world.test.env,
                                                 .job = "test",
                                                 .self = &world.stands[0].member,
                                                 .memory_bytes = SIZE_MAX / 2};
    struct muster_board *board = NULL;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_board_system_open(&options, &board, &error), MUSTER_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, " MiB of memory for a board: raise the limit (ulimit -v, "));
}

/* --- Strangers --- */

static bool are_both_ready(void *data)
{
    const struct stand_world *of = data;

    return of->stands[0].peer->is_ready && of->stands[1].peer->is_ready;
}

static void a_board_that_has_no_listener_yet_tells_nobody(void **state)
{
    (void)state;

    world.stands[0].board->events = NULL;
    connect_stand(&world, 0);
    connect_stand(&world, 1);
    test_env_run_until(&world.test.env, are_both_ready, &world);
    test_env_turn(&world.test.env, 3);

    assert_int_equal(world.stands[0].told, 0);
    assert_true(world.stands[1].told > 0);
}

static void members_of_another_job_are_refused(void **state)
{
    (void)state;

    snprintf(system_of(&world, 1)->job, MUSTER_JOB_NAME_BYTES, "another");
    connect_stand(&world, 0);
    connect_stand(&world, 1);
    test_env_run_until(&world.test.env, has_failed, &world.stands[0]);

    assert_false(world.stands[0].peer->is_ready);
    assert_false(world.stands[1].peer->is_ready);
}

static void a_board_that_others_could_change_is_refused(void **state)
{
    struct muster_board_system *liar = NULL;
    int sealed = -1;
    (void)state;

    for (int seals = 0; seals < 2; seals++) {
        open_world(&world);
        liar = system_of(&world, 1);
        sealed = liar->segment.fd;
        liar->segment.fd = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(liar->segment.fd, (off_t)liar->segment.bytes), 0);
        if (seals == 1) /* its size is fixed, but anybody may write */
            assert_int_equal(fcntl(liar->segment.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
        connect_stand(&world, 0);
        connect_stand(&world, 1);
        test_env_run_until(&world.test.env, has_failed, &world.stands[0]);

        assert_null(world.stands[0].peer->memory);
        test_env_run_until(&world.test.env, has_failed, &world.stands[1]);
        close(liar->segment.fd);
        liar->segment.fd = sealed;
        close_world(&world);
    }
}

static void a_board_of_another_size_is_refused(void **state)
{
    struct muster_board_system *liar = NULL;
    (void)state;

    liar = system_of(&world, 1);
    liar->segment.bytes += 4096;
    connect_stand(&world, 0);
    connect_stand(&world, 1);
    test_env_run_until(&world.test.env, has_failed, &world.stands[0]);
    liar->segment.bytes -= 4096;

    assert_null(world.stands[0].peer->memory);
}

static void say_by_hand(unsigned type)
{
    struct muster_board_message message = {.magic = MUSTER_BOARD_MAGIC, .type = type};

    assert_int_equal(
        muster_board_send(muster_board_peer_system_of(world.stands[1].peer)->link, &message),
        MUSTER_OK);
}

static void what_no_board_says_ends_the_connection(void **state)
{
    static const unsigned types[] = {0, MUSTER_BOARD_SHARES_END, 99};
    (void)state;

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        open_world(&world);
        connect_both(&world);
        say_by_hand(types[i]);
        test_env_run_until(&world.test.env, has_failed, &world.stands[0]);

        test_env_run_until(&world.test.env, has_failed, &world.stands[1]);
        close_world(&world);
    }
}

static void acknowledgements_of_nothing_are_ignored(void **state)
{
    (void)state;

    connect_both(&world);
    say_by_hand(MUSTER_BOARD_SHARE_MAPPED);
    say_by_hand(MUSTER_BOARD_SHARE_FREED);
    say_by_hand(MUSTER_BOARD_SHARE); /* without a descriptor */
    test_env_turn(&world.test.env, 20);

    assert_false(world.stands[0].peer->is_failed);
    assert_false(muster_board_is_share_mapped(world.stands[0].board, 0, world.stands[0].peer));
}

static void bytes_that_are_no_message_end_the_connection(void **state)
{
    struct muster_board_peer_system *peer = NULL;
    (void)state;

    connect_both(&world);
    peer = muster_board_peer_system_of(world.stands[1].peer);
    assert_int_equal(write(peer->link->fd, "hello", 5), 5);
    test_env_run_until(&world.test.env, has_failed, &world.stands[0]);
}

/* A packet as a hostile process of the same user could send it. */
static void send_noise(int fd, int pipe_end)
{
    struct muster_rng *rng = world.test.env.rng;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control = {.bytes = {0}};
    struct muster_board_message message;
    struct iovec iov = {.iov_base = &message, .iov_len = sizeof(message)};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    unsigned count = (unsigned)muster_rng_below(rng, 4);
    int fds[3] = {pipe_end, fd, system_of(&world, 1)->segment.fd};
    struct cmsghdr *at = NULL;

    muster_rng_fill(rng, &message, sizeof(message));
    message.magic = MUSTER_BOARD_MAGIC;
    message.type = 2 + (uint32_t)muster_rng_below(rng, 7);
    message.share = (uint32_t)muster_rng_below(rng, 4);
    message.bytes =
        muster_rng_below(rng, 2) == 0 ? system_of(&world, 1)->segment.bytes : muster_rng_next(rng);
    if (muster_rng_below(rng, 50) == 0)
        iov.iov_len = (size_t)muster_rng_below(rng, sizeof(message));
    if (count > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        at = CMSG_FIRSTHDR(&header);
        at->cmsg_level = SOL_SOCKET;
        at->cmsg_type = SCM_RIGHTS;
        at->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(at), fds, count * sizeof(int));
    }
    (void)sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void noise_ends_the_connection_at_most(void **state)
{
    unsigned before = open_descriptors();
    (void)state;

    for (uint64_t seed = 1; seed <= 60; seed++) {
        int pipe_ends[2];

        open_world(&world);
        muster_rng_seeded_init(&world.test.rng, seed);
        assert_int_equal(pipe(pipe_ends), 0);
        connect_both(&world);
        for (int i = 0; i < 100 && !world.stands[1].peer->is_failed; i++) {
            send_noise(muster_board_peer_system_of(world.stands[1].peer)->link->fd, pipe_ends[0]);
            test_env_turn(&world.test.env, 2);
        }
        close(pipe_ends[0]);
        close(pipe_ends[1]);
        close_world(&world);
    }
    assert_int_equal(open_descriptors(), before);
}

static void a_stranger_that_nobody_wants_costs_nothing_at_close(void **state)
{
    (void)state;

    connect_stand(&world, 0);
    test_env_turn(&world.test.env, 20);
    assert_int_equal(system_of(&world, 1)->unmatched_count, 1);
}

/* --- Signals --- */

static bool is_signalled(void *data)
{
    return ((struct stand *)data)->signalled > 0;
}

static void a_signal_wakes_the_other(void **state)
{
    (void)state;

    connect_both(&world);

    muster_board_signal(world.stands[0].board, world.stands[0].peer);
    test_env_run_until(&world.test.env, is_signalled, &world.stands[1]);

    assert_int_equal(world.stands[0].signalled, 0);
}

/* --- Shares --- */

struct wait_for_share {
    struct stand *owner;
    uint32_t share;
};

static bool is_mapped(void *data)
{
    struct wait_for_share *wait = data;

    return muster_board_is_share_mapped(wait->owner->board, wait->share, wait->owner->peer);
}

static void tensors_made_before_are_mapped_when_it_is_ready(void **state)
{
    struct muster_tensor tensors[20];
    (void)state;

    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(muster_tensor_new(&world.test.env, MUSTER_F32, 2000, &tensors[i]),
                         MUSTER_OK);
        ((float *)tensors[i].data)[1999] = (float)i;
    }
    connect_both(&world);

    for (size_t i = 0; i < 20; i++) {
        struct muster_board *board = world.stands[0].board;
        const uint8_t *view = NULL;
        uint64_t offset = 0;
        uint32_t share = 0;
        float found = 0;

        assert_true(muster_board_find_share(board, (float *)tensors[i].data + 1999, sizeof(float),
                                            &share, &offset));
        assert_int_equal(offset, 1999 * sizeof(float));
        assert_true(muster_board_is_share_mapped(board, share, world.stands[0].peer));
        view = muster_board_share_at(world.stands[1].peer, share, offset, sizeof(float));
        assert_non_null(view);
        memcpy(&found, view, sizeof(found));
        assert_true(found == (float)i);
        assert_int_equal(
            mprotect((void *)((uintptr_t)view & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE),
            -1);
        assert_int_equal(errno, EACCES);
        muster_tensor_free(&world.test.env, &tensors[i]);
    }
}

static void a_late_tensor_is_told_and_acknowledged(void **state)
{
    struct muster_tensor tensor;
    struct wait_for_share wait = {.owner = &world.stands[0]};
    uint64_t offset = 0;
    (void)state;

    connect_both(&world);
    assert_int_equal(muster_tensor_new(&world.test.env, MUSTER_U8, 5, &tensor), MUSTER_OK);
    assert_true(
        muster_board_find_share(world.stands[0].board, tensor.data, 5, &wait.share, &offset));
    assert_false(is_mapped(&wait));
    test_env_run_until(&world.test.env, is_mapped, &wait);
    memcpy(tensor.data, "tensor", 5);

    assert_memory_equal(muster_board_share_at(world.stands[1].peer, wait.share, 0, 5), "tenso", 5);
    assert_null(muster_board_share_at(world.stands[1].peer, wait.share, 0, 4097));
    assert_null(muster_board_share_at(world.stands[1].peer, wait.share, UINT64_MAX, 2));
    assert_null(muster_board_share_at(world.stands[1].peer, wait.share + 1, 0, 1));
    muster_tensor_free(&world.test.env, &tensor);
}

struct wait_for_end {
    struct stand *user;
    uint32_t share;
};

static bool is_unmapped(void *data)
{
    struct wait_for_end *wait = data;

    return muster_board_share_at(wait->user->peer, wait->share, 0, 1) == NULL;
}

static void a_freed_share_is_unmapped(void **state)
{
    struct wait_for_share wait = {.owner = &world.stands[0]};
    struct wait_for_end end = {.user = &world.stands[1]};
    void *at = NULL;
    uint64_t offset = 0;
    (void)state;

    connect_both(&world);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(muster_board_share_new(world.stands[0].board, 100, &at), MUSTER_OK);
        assert_true(muster_board_find_share(world.stands[0].board, at, 100, &wait.share, &offset));
        test_env_run_until(&world.test.env, is_mapped, &wait);
        end.share = wait.share;
        assert_false(is_unmapped(&end));

        muster_board_share_free(world.stands[0].board, at);
        assert_false(is_mapped(&wait));
        test_env_run_until(&world.test.env, is_unmapped, &end);
    }
}

static bool is_mapped_at(const void *at)
{
    unsigned char resident;

    return mincore((void *)(uintptr_t)at, 1, &resident) == 0;
}

static void a_share_that_is_freed_while_it_is_read_is_zeroes(void **state)
{
    struct wait_for_share wait = {.owner = &world.stands[0]};
    struct wait_for_end end = {.user = &world.stands[1]};
    const uint8_t *view = NULL;
    void *at = NULL;
    uint64_t offset = 0;
    (void)state;

    connect_both(&world);
    assert_int_equal(muster_board_share_new(world.stands[0].board, 9000, &at), MUSTER_OK);
    memset(at, 7, 9000);
    assert_true(muster_board_find_share(world.stands[0].board, at, 9000, &wait.share, &offset));
    test_env_run_until(&world.test.env, is_mapped, &wait);
    muster_board_reading_start(world.stands[1].board);
    muster_board_reading_start(world.stands[1].board);
    view = muster_board_share_at(world.stands[1].peer, wait.share, 0, 9000);
    assert_int_equal(view[8999], 7);

    muster_board_share_free(world.stands[0].board, at);
    end.share = wait.share;
    test_env_run_until(&world.test.env, is_unmapped, &end);

    muster_board_reading_stop(world.stands[1].board);
    for (size_t i = 0; i < 9000; i++)
        assert_int_equal(view[i], 0);
    muster_board_reading_stop(world.stands[1].board);
    assert_false(is_mapped_at(view));
}

static void a_share_freed_before_it_was_told_is_no_error(void **state)
{
    struct muster_tensor tensor;
    (void)state;

    connect_stand(&world, 0);
    connect_stand(&world, 1);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(muster_tensor_new(&world.test.env, MUSTER_U8, 1, &tensor), MUSTER_OK);
        muster_tensor_free(&world.test.env, &tensor);
    }
    test_env_run_until(&world.test.env, are_both_told, &world);
    test_env_turn(&world.test.env, 1500);

    assert_true(world.stands[0].peer->is_ready && !world.stands[0].peer->is_failed);
    assert_int_equal(muster_board_peer_system_of(world.stands[1].peer)->mapping_count, 0);
    assert_int_equal(muster_board_peer_system_of(world.stands[0].peer)->mapped_count, 0);
    assert_int_equal(world.stands[0].peer->refused_end, 0);
}

static void without_descriptors_a_share_is_not_mapped_and_all_goes_on(void **state)
{
    struct rlimit before, low;
    struct muster_tensor tensor, second;
    struct wait_for_share wait = {.owner = &world.stands[0]};
    uint64_t offset = 0;
    (void)state;

    connect_both(&world);
    assert_int_equal(muster_tensor_new(&world.test.env, MUSTER_U8, 1, &tensor), MUSTER_OK);
    assert_true(
        muster_board_find_share(world.stands[0].board, tensor.data, 1, &wait.share, &offset));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    test_env_turn(&world.test.env, 30);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);

    assert_false(is_mapped(&wait));
    assert_false(world.stands[0].peer->is_failed);
    assert_int_equal(muster_tensor_new(&world.test.env, MUSTER_U8, 1, &second), MUSTER_OK);
    assert_true(
        muster_board_find_share(world.stands[0].board, second.data, 1, &wait.share, &offset));
    test_env_run_until(&world.test.env, is_mapped, &wait);
    muster_tensor_free(&world.test.env, &tensor);
    muster_tensor_free(&world.test.env, &second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(two_that_connect_see_what_the_other_writes),
        CASE(nothing_is_told_inside_connect),
        cmocka_unit_test(who_connects_first_waits_for_the_other),
        CASE(who_connects_before_the_other_is_open_tries_again),
        CASE(a_peer_that_exists_is_given_and_told_again),
        CASE(a_look_that_finds_no_packet_ends_nothing),
        CASE(no_memory_for_a_peer_is_told_as_that),
        CASE(a_released_peer_sees_the_end_and_keeps_the_memory),
        CASE(one_member_has_one_board),
        CASE(a_host_that_shares_nothing_has_no_board),
        CASE(memory_that_is_not_there_is_told_with_its_limit),
        CASE(a_board_that_has_no_listener_yet_tells_nobody),
        CASE(members_of_another_job_are_refused),
        cmocka_unit_test(a_board_that_others_could_change_is_refused),
        CASE(a_board_of_another_size_is_refused),
        cmocka_unit_test(what_no_board_says_ends_the_connection),
        CASE(acknowledgements_of_nothing_are_ignored),
        CASE(bytes_that_are_no_message_end_the_connection),
        cmocka_unit_test(noise_ends_the_connection_at_most),
        CASE(a_stranger_that_nobody_wants_costs_nothing_at_close),
        CASE(a_signal_wakes_the_other),
        CASE(tensors_made_before_are_mapped_when_it_is_ready),
        CASE(a_late_tensor_is_told_and_acknowledged),
        CASE(a_freed_share_is_unmapped),
        CASE(a_share_that_is_freed_while_it_is_read_is_zeroes),
        CASE(a_share_freed_before_it_was_told_is_no_error),
        CASE(without_descriptors_a_share_is_not_mapped_and_all_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
