/* A stream through memory: it keeps the contract of streams, and trusts nothing that the other process writes. */
#include "tests/lib/stream_contract.h"

#include "tests/lib/test_env.h"

#include "assertion_count.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/stream/ring_internal.h"

/* --- The contract --- */

static struct test_env contract_test;

static void turn_loop(struct stream_contract *contract)
{
    muster_loop_turn(contract->env->loop, 0);
}

static void sockets_make(int ret_fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret_fds),
                     0);
}

static enum muster_rc two_sides_make(struct muster_env *env, struct muster_stream *ret_streams[2])
{
    int fds[2];

    sockets_make(fds);
    for (int i = 0; i < 2; i++)
        assert_int_equal(muster_ring_stream_open(env, fds[i], &ret_streams[i]), MUSTER_OK);
    return MUSTER_OK;
}

static void twins_open(struct stream_contract *contract)
{
    test_env_open(&contract_test);
    *contract = (struct stream_contract){
        .env = &contract_test.env, .turn = turn_loop, .make = muster_ring_stream_pair};
}

static void sides_open(struct stream_contract *contract)
{
    twins_open(contract);
    contract->make = two_sides_make;
}

static void contract_close(struct stream_contract *contract)
{
    (void)contract;
    test_env_close(&contract_test);
}

/* --- A side that is played by hand --- */

struct scene {
    struct test_env test;
    struct muster_stream *stream;
    int socket; /* of the other side */
    struct muster_shared_memory shared;
    struct muster_ring_memory *memory; /* the other side's */
    const struct muster_ring_memory *seen; /* the stream's, as the other side maps it */
    struct muster_stream_read read;
    enum muster_rc read_rc;
    bool is_read, is_closed;
    uint8_t received[64];
};

static void scene_open(struct scene *scene)
{
    int fds[2];

    memset(scene, 0, sizeof(*scene));
    test_env_open(&scene->test);
    sockets_make(fds);
    scene->socket = fds[1];
    assert_int_equal(muster_ring_stream_open(&scene->test.env, fds[0], &scene->stream), MUSTER_OK);
    assert_int_equal(muster_shared_memory_open("ring-test", sizeof(*scene->memory), &scene->shared),
                     MUSTER_OK);
    scene->memory = (struct muster_ring_memory *)(void *)scene->shared.memory;
}

static void on_closed(struct muster_stream *stream)
{
    *(bool *)stream->data = true;
}

static void scene_close(struct scene *scene)
{
    scene->stream->data = &scene->is_closed;
    muster_stream_close(scene->stream, on_closed);
    test_env_run_until(&scene->test.env, test_env_is_true, &scene->is_closed);
    muster_shared_memory_close(&scene->shared);
    if (scene->seen != NULL)
        munmap((void *)(uintptr_t)scene->seen, sizeof(*scene->seen));
    if (scene->socket >= 0)
        close(scene->socket);
    test_env_close(&scene->test);
}

struct packet {
    uint64_t magic, bytes;
};

static const struct packet own_packet = {.magic = UINT64_C(0x31676e697274736d),
                                         .bytes = sizeof(struct muster_ring_memory)};

static void packet_send(struct scene *scene, const struct packet *packet, const int *fds,
                        unsigned fd_count)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)packet, .iov_len = sizeof(*packet)};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    memset(&control, 0, sizeof(control));
    if (fd_count > 0) {
        struct cmsghdr *at;

        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        at = CMSG_FIRSTHDR(&header);
        at->cmsg_level = SOL_SOCKET;
        at->cmsg_type = SCM_RIGHTS;
        at->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(at), fds, fd_count * sizeof(int));
    }
    assert_int_equal(sendmsg(scene->socket, &header, MSG_NOSIGNAL), sizeof(*packet));
}

static void side_introduce(struct scene *scene)
{
    packet_send(scene, &own_packet, &scene->shared.fd, 1);
}

/* The stream's own introduction. */
static void stream_meet(struct scene *scene)
{
    struct packet packet;
    struct iovec iov = {.iov_base = &packet, .iov_len = sizeof(packet)};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    int fd;

    assert_int_equal(recvmsg(scene->socket, &header, 0), sizeof(packet));
    assert_memory_equal(&packet, &own_packet, sizeof(packet));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(fd));
    assert_true(mmap(NULL, sizeof(*scene->seen), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) ==
                MAP_FAILED); /* the other side cannot write to it */
    scene->seen = mmap(NULL, sizeof(*scene->seen), PROT_READ, MAP_SHARED, fd, 0);
    assert_true(scene->seen != MAP_FAILED);
    close(fd);
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct scene *scene = read->data;

    scene->is_read = true;
    scene->read_rc = rc;
}

static void read_begin(struct scene *scene, size_t bytes_min)
{
    scene->is_read = false;
    scene->read.data = scene;
    assert_int_equal(muster_stream_receive_into(&scene->read, scene->stream, scene->received,
                                                bytes_min, sizeof(scene->received), on_read),
                     MUSTER_OK);
}

static void read_await(struct scene *scene)
{
    test_env_run_until(&scene->test.env, test_env_is_true, &scene->is_read);
}

static unsigned wakes_take(struct scene *scene)
{
    unsigned count = 0;
    char byte;

    while (recv(scene->socket, &byte, 1, MSG_DONTWAIT) == 1)
        count++;
    return count;
}

static void side_write(struct scene *scene, const char *text)
{
    uint64_t tail = atomic_load(&scene->memory->tail);

    memcpy(scene->memory->bytes + tail % MUSTER_RING_BYTES, text, strlen(text));
    atomic_store(&scene->memory->tail, tail + strlen(text));
}

static void side_wake(struct scene *scene)
{
    assert_int_equal(send(scene->socket, "", 1, MSG_NOSIGNAL), 1);
}

/* --- Cases --- */

static void what_was_written_before_a_death_is_read(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    side_introduce(&scene);
    side_write(&scene, "last words");
    close(scene.socket);
    scene.socket = -1;
    read_begin(&scene, 10);
    read_await(&scene);
    assert_int_equal(scene.read_rc, MUSTER_OK);
    assert_memory_equal(scene.received, "last words", 10);
    read_begin(&scene, 1);
    read_await(&scene);

    assert_int_equal(scene.read_rc, MUSTER_UNAVAILABLE);
    assert_true(scene.read.is_eof);
    scene_close(&scene);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    *(enum muster_rc *)write->data = rc;
}

/* A side that works is not woken, and one that sleeps is once, however much comes. */
static void a_side_is_woken_once_for_each_sleep(void **state)
{
    enum muster_rc rcs[3] = {MUSTER_UNKNOWN, MUSTER_UNKNOWN, MUSTER_UNKNOWN};
    struct muster_stream_write writes[3];
    struct iovec iov = {.iov_base = (void *)(uintptr_t) "abc", .iov_len = 3};
    struct scene scene;

    (void)state;
    scene_open(&scene);
    stream_meet(&scene);
    side_introduce(&scene);
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            atomic_fetch_add(&scene.memory->data_sleeps, 1);
        writes[i].data = &rcs[i];
        assert_int_equal(
            muster_stream_submit(&writes[i], scene.stream, &iov, 1, on_written), MUSTER_OK);
        test_env_turn(&scene.test.env, 4);
        assert_int_equal(rcs[i], MUSTER_OK);
        assert_int_equal(atomic_load(&scene.seen->tail), 3 * (i + 1));
        assert_int_equal(wakes_take(&scene), i == 1 ? 1 : 0);
    }

    assert_memory_equal(scene.seen->bytes, "abcabcabc", 9);
    scene_close(&scene);
}

/* The other side has mapped the stream's ring, found it empty and gone to sleep; the stream writes before it can see
 * that. */
static void a_side_that_slept_before_it_was_known_is_woken(void **state)
{
    enum muster_rc rc = MUSTER_UNKNOWN;
    struct muster_stream_write write = {.data = &rc};
    struct iovec iov = {.iov_base = (void *)(uintptr_t) "abc", .iov_len = 3};
    struct scene scene;

    (void)state;
    scene_open(&scene);
    stream_meet(&scene);
    atomic_fetch_add(&scene.memory->data_sleeps, 1);
    assert_int_equal(muster_stream_submit(&write, scene.stream, &iov, 1, on_written), MUSTER_OK);
    test_env_turn(&scene.test.env, 4);
    assert_int_equal(rc, MUSTER_OK);
    side_introduce(&scene);
    test_env_turn(&scene.test.env, 4);

    assert_int_equal(wakes_take(&scene), 1);
    scene_close(&scene);
}

static void abc_receive(struct scene *scene)
{
    side_write(scene, "abc");
    read_begin(scene, 3);
    read_await(scene);
    assert_int_equal(scene->read_rc, MUSTER_OK);
}

static void a_reader_that_has_just_received_looks_before_it_sleeps(void **state)
{
    struct scene scene;
    uint64_t sleeps;

    (void)state;
    scene_open(&scene);
    stream_meet(&scene);
    side_introduce(&scene);
    abc_receive(&scene);
    sleeps = atomic_load(&scene.seen->data_sleeps);
    read_begin(&scene, 3);
    test_env_turn(&scene.test.env, 4);
    side_write(&scene, "abc"); /* and nothing wakes it */
    read_await(&scene);
    assert_int_equal(atomic_load(&scene.seen->data_sleeps), sleeps);
    read_begin(&scene, 3);
    test_env_turn(&scene.test.env, 1000);

    assert_int_equal(atomic_load(&scene.seen->data_sleeps), sleeps + 1);
    scene_close(&scene);
}

/* The turns after a receipt in which it looks: as many as what it received before has made worth it. */
static unsigned looks_count(struct scene *scene)
{
    unsigned count = 0;
    uint64_t sleeps;

    abc_receive(scene);
    sleeps = atomic_load(&scene->seen->data_sleeps);
    read_begin(scene, 3);
    while (atomic_load(&scene->seen->data_sleeps) == sleeps) {
        test_env_turn(&scene->test.env, 1);
        assert_true(++count < 1000);
    }
    muster_stream_receive_recall(&scene->read, scene->stream);
    side_wake(scene);
    return count;
}

static void looks_in_vain_become_fewer(void **state)
{
    struct scene scene;
    unsigned first, last = 0;

    (void)state;
    scene_open(&scene);
    stream_meet(&scene);
    side_introduce(&scene);
    first = looks_count(&scene);
    for (int i = 0; i < 8; i++)
        last = looks_count(&scene);

    if (last > first / 4)
        fail_msg("%u turns at first, then %u", first, last);
    scene_close(&scene);
}

static void a_reader_says_that_it_sleeps_and_when_there_is_room_again(void **state)
{
    struct scene scene;
    uint64_t sleeps;

    (void)state;
    scene_open(&scene);
    stream_meet(&scene);
    side_introduce(&scene);
    read_begin(&scene, 3);
    test_env_turn(&scene.test.env, 4);
    sleeps = atomic_load(&scene.seen->data_sleeps);
    assert_int_not_equal(sleeps, 0);
    atomic_fetch_add(&scene.memory->room_sleeps, 1);
    side_write(&scene, "abc");
    side_wake(&scene);
    read_await(&scene);

    assert_int_equal(atomic_load(&scene.seen->head), 3);
    assert_int_equal(wakes_take(&scene), 1);
    scene_close(&scene);
}

static void read_is_broken(struct scene *scene, const char *name)
{
    read_begin(scene, 1);
    side_wake(scene);
    read_await(scene);
    if (scene->read_rc != MUSTER_UNAVAILABLE || scene->read.is_eof)
        fail_msg("%s: %s", name, muster_rc_text(scene->read_rc));
}

static const struct position {
    const char *name;
    uint64_t tail, head;
} positions[] = {
    {"a tail beyond the ring", MUSTER_RING_BYTES + 1, 0},
    {"a tail before the head", UINT64_MAX, 0},
    {"a tail that overflows", (UINT64_C(1) << 63) + 7, 0},
    {"a head beyond the tail", 0, 1},
    {"a head far behind", 0, UINT64_MAX - MUSTER_RING_BYTES},
};

static void positions_that_cannot_be_end_the_stream(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(positions) / sizeof(positions[0]); i++) {
        struct iovec iov = {.iov_base = (void *)(uintptr_t) "abc", .iov_len = 3};
        enum muster_rc rc = MUSTER_UNKNOWN;
        struct muster_stream_write write = {.data = &rc};
        struct scene scene;

        scene_open(&scene);
        side_introduce(&scene);
        test_env_turn(&scene.test.env, 4);
        atomic_store(&scene.memory->tail, positions[i].tail);
        atomic_store(&scene.memory->head, positions[i].head);
        if (positions[i].head != 0)
            assert_int_equal(muster_stream_submit(&write, scene.stream, &iov, 1, on_written),
                             MUSTER_OK);
        read_is_broken(&scene, positions[i].name);
        assert_true(positions[i].head == 0 || rc == MUSTER_UNAVAILABLE);
        scene_close(&scene);
    }
}

/* A count that was once right must not run back. */
static void a_tail_that_runs_back_ends_the_stream(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    side_introduce(&scene);
    side_write(&scene, "abcdef");
    read_begin(&scene, 6);
    read_await(&scene);
    assert_int_equal(scene.read_rc, MUSTER_OK);
    atomic_store(&scene.memory->tail, 5);

    read_is_broken(&scene, "5 after 6");
    scene_close(&scene);
}

enum wrong { WRONG_MAGIC, WRONG_BYTES, NO_MEMORY, TWO_MEMORIES, SMALL_MEMORY, UNSEALED_MEMORY };

static const char *const wrong_names[] = {"another magic",  "another size", "no memory",
                                          "two memories",   "small memory", "memory that can shrink"};

static int memory_make(size_t bytes)
{
    int fd = memfd_create("ring-test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static void introduction_send(struct scene *scene, enum wrong wrong)
{
    struct packet packet = own_packet;
    int fds[2] = {scene->shared.fd, scene->shared.fd};
    unsigned count = wrong == NO_MEMORY ? 0 : wrong == TWO_MEMORIES ? 2 : 1;
    struct muster_shared_memory small = {.memory = NULL};
    int made = -1;

    packet.magic += wrong == WRONG_MAGIC;
    packet.bytes += wrong == WRONG_BYTES;
    if (wrong == SMALL_MEMORY) {
        assert_int_equal(muster_shared_memory_open("ring-test", 4096, &small), MUSTER_OK);
        fds[0] = small.fd;
    }
    if (wrong == UNSEALED_MEMORY)
        fds[0] = made = memory_make(sizeof(struct muster_ring_memory));
    packet_send(scene, &packet, fds, count);
    muster_shared_memory_close(&small);
    if (made >= 0)
        close(made);
}

static void introductions_are_checked(void **state)
{
    (void)state;
    for (enum wrong wrong = WRONG_MAGIC; wrong <= UNSEALED_MEMORY; wrong++) {
        struct scene scene;

        scene_open(&scene);
        introduction_send(&scene, wrong);
        read_is_broken(&scene, wrong_names[wrong]);
        scene_close(&scene);
    }
    assert_int_equal(sizeof(wrong_names) / sizeof(wrong_names[0]), UNSEALED_MEMORY + 1);
}

static void a_process_that_goes_without_a_word_is_lost(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    read_begin(&scene, 1);
    close(scene.socket);
    scene.socket = -1;
    read_await(&scene);

    assert_int_equal(scene.read_rc, MUSTER_UNAVAILABLE);
    assert_false(scene.read.is_eof);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(what_was_written_before_a_death_is_read),
        cmocka_unit_test(a_side_is_woken_once_for_each_sleep),
        cmocka_unit_test(a_side_that_slept_before_it_was_known_is_woken),
        cmocka_unit_test(a_reader_that_has_just_received_looks_before_it_sleeps),
        cmocka_unit_test(looks_in_vain_become_fewer),
        cmocka_unit_test(a_reader_says_that_it_sleeps_and_when_there_is_room_again),
        cmocka_unit_test(positions_that_cannot_be_end_the_stream),
        cmocka_unit_test(a_tail_that_runs_back_ends_the_stream),
        cmocka_unit_test(introductions_are_checked),
        cmocka_unit_test(a_process_that_goes_without_a_word_is_lost),
    };
    int failed_count = stream_contract_run_pairs("in one process", twins_open, contract_close);

    failed_count += stream_contract_run_pairs("over a socket", sides_open, contract_close);
    return failed_count + cmocka_run_group_tests(cases, NULL, NULL);
}
