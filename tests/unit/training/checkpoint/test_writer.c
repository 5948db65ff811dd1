/* A shard that is written beside the program: the values are those of before, whoever copies them and however little
 * room there is. */
#include "careful_mem.h"
#include "checkpoint_stand.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/value/far_memory.h"
#include "training/checkpoint/writer.h"

#define CHUNK      ((size_t)MUSTER_CHECKPOINT_CHUNK_BYTES)
#define PAGE_BYTES ((size_t)4096)
#define CANARY     0xa5

static const struct muster_checkpoint_name first = {.step = 100, .id = 0xabcd};

/* A page of the tensors that holds up the thread which reads it, until the program's thread gives up its processor. */
static struct {
    uint8_t *page;
    pthread_t program;
    atomic_bool is_held, is_released;
} trap;

static void page_open(void)
{
    (void)mprotect(trap.page, PAGE_BYTES, PROT_READ | PROT_WRITE);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    uint8_t *at = info->si_addr;

    (void)context;
    if (trap.page == NULL || at < trap.page || at >= trap.page + PAGE_BYTES)
        (void)signal(number, SIG_DFL);
    else if (!pthread_equal(pthread_self(), trap.program)) {
        atomic_store(&trap.is_held, true);
        while (!atomic_load(&trap.is_released))
            (void)syscall(SYS_sched_yield);
        page_open();
    } else {
        page_open();
    }
}

int sched_yield(void)
{
    if (trap.page != NULL && pthread_equal(pthread_self(), trap.program))
        atomic_store(&trap.is_released, true);
    return (int)syscall(SYS_sched_yield);
}

/* Memory that cannot be read, of the last tensor. */
static enum muster_rc memory_fails(struct muster_far_memory *memory, void *to, const void *from,
                                   size_t bytes)
{
    (void)memory;
    (void)to;
    (void)from;
    (void)bytes;
    return MUSTER_UNAVAILABLE;
}

static struct muster_far_memory failing = {.read = memory_fails, .write = memory_fails};
static struct muster_far_memory *const failing_last[CHECKPOINT_TENSORS] = {
    [CHECKPOINT_TENSORS - 1] = &failing};
static struct muster_far_memory *const
    *memories; /* of the next scene's tensors; NULL: the host's */

struct scene {
    struct checkpoint_stand stand;
    struct muster_checkpoint_writer *writer;
    uint8_t *copies; /* of the state, and a canary behind it */
    void *own[CHECKPOINT_TENSORS];
};

/* The tensors lie at the begin of pages; small ones are one chunk. */
static void scene_open_sized(struct scene *scene, bool is_small, size_t copy_bytes)
{
    struct checkpoint_stand *stand = &scene->stand;

    checkpoint_stand_open(stand, careful_mem(), is_small);
    for (size_t i = 0; i < CHECKPOINT_TENSORS; i++) {
        scene->own[i] = stand->tensors[i].data;
        stand->tensors[i].data =
            mmap(NULL, 4 * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(stand->tensors[i].data, MAP_FAILED);
    }
    checkpoint_stand_fill(stand, 100);
    scene->copies = test_malloc(5 * CHUNK);
    memset(scene->copies, CANARY, 5 * CHUNK);
    assert_int_equal(
        muster_checkpoint_writer_new(
            &(struct muster_checkpoint_writer_options){.mem = careful_mem(),
                                                       .folder = stand->folder,
                                                       .name = first,
                                                       .tensors = stand->tensors,
                                                       .memories = memories,
                                                       .tensor_count = CHECKPOINT_TENSORS,
                                                       .shard_count = 1,
                                                       .copies = scene->copies,
                                                       .copy_bytes = copy_bytes},
            &scene->writer),
        MUSTER_OK);
}

static void scene_open(struct scene *scene, size_t copy_bytes)
{
    scene_open_sized(scene, false, copy_bytes);
}

static void scene_close(struct scene *scene)
{
    muster_checkpoint_writer_free(scene->writer);
    test_free(scene->copies);
    for (size_t i = 0; i < CHECKPOINT_TENSORS; i++) {
        assert_int_equal(munmap(scene->stand.tensors[i].data, 4 * CHUNK), 0);
        scene->stand.tensors[i].data = scene->own[i];
    }
    checkpoint_stand_close(&scene->stand);
}

/* By the hashes of its chunks, and byte by byte. */
static void file_check(struct scene *scene)
{
    struct muster_error error = {.text = ""};

    assert_int_equal(checkpoint_stand_seal(&scene->stand, &first, 1, &error), MUSTER_OK);
    checkpoint_stand_fill(&scene->stand, 7);
    if (checkpoint_stand_load(&scene->stand, scene->stand.folder, &first, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    checkpoint_stand_check(&scene->stand, 100);
}

static void *thread_run(void *data)
{
    enum muster_rc rc = muster_checkpoint_writer_run(data);

    assert_true(rc == MUSTER_OK || rc == MUSTER_CANCELLED);
    return NULL;
}

static void *thread_copy(void *data)
{
    (void)muster_checkpoint_writer_copy(data);
    return NULL;
}

static void trap_close(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};

    trap.page = NULL;
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
}

static void trap_open(uint8_t *page)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

    trap.page = page;
    trap.program = pthread_self();
    atomic_store(&trap.is_held, false);
    atomic_store(&trap.is_released, false);
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
    assert_int_equal(mprotect(trap.page, PAGE_BYTES, PROT_NONE), 0);
}

/* Which thread is held amid a chunk: run by the first one, copy by the last one. */
static void thread_hold(struct scene *scene, bool is_run, pthread_t *ret_thread)
{
    const struct muster_tensor *tensor = &scene->stand.tensors[is_run ? 1 : 3];
    size_t bytes = (size_t)tensor->count * muster_dtype_bytes(tensor->dtype);

    trap_open((uint8_t *)tensor->data +
              (is_run ? 8 * PAGE_BYTES : bytes / PAGE_BYTES * PAGE_BYTES));
    assert_int_equal(
        pthread_create(ret_thread, NULL, is_run ? thread_run : thread_copy, scene->writer), 0);
    while (!atomic_load(&trap.is_held))
        (void)syscall(SYS_sched_yield);
}

static void tensors_change_only_when_no_thread_reads_them(void **state)
{
    static const struct {
        bool is_run, is_cancelled;
    } rows[] = {{true, false}, {false, false}, {true, true}, {false, true}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;
        bool is_done = true;
        pthread_t thread;

        scene_open(&scene, SIZE_MAX);
        thread_hold(&scene, rows[i].is_run, &thread);

        if (rows[i].is_cancelled)
            muster_checkpoint_writer_cancel(scene.writer);
        else
            (void)muster_checkpoint_writer_detach(scene.writer, &is_done);

        if (!atomic_load(&trap.is_released))
            fail_msg("row %zu: the thread still reads", i);
        assert_true(is_done);
        checkpoint_stand_fill(&scene.stand, 101);
        assert_int_equal(pthread_join(thread, NULL), 0);
        trap_close();
        if (!rows[i].is_run)
            (void)thread_run(scene.writer);
        if (!rows[i].is_cancelled)
            file_check(&scene);
        scene_close(&scene);
    }
}

/* Run takes the only chunk at any instruction of detach, which must see that. */
static void a_chunk_taken_amid_detach_is_waited_for(void **state)
{
    (void)state;
    for (size_t round = 0; round < 100; round++) {
        struct scene scene;
        bool is_done = false;
        pthread_t thread;

        scene_open_sized(&scene, true, 0);
        trap_open(scene.stand.tensors[1].data);
        assert_int_equal(pthread_create(&thread, NULL, thread_run, scene.writer), 0);

        while (!is_done)
            (void)muster_checkpoint_writer_detach(scene.writer, &is_done);

        if (!atomic_load(&trap.is_released))
            fail_msg("round %zu: the thread still reads", round);
        assert_int_equal(pthread_join(thread, NULL), 0);
        trap_close();
        scene_close(&scene);
    }
}

static bool folder_has_files(const struct scene *scene)
{
    struct muster_checkpoint_entry *entries = NULL;
    size_t count = 0;

    assert_int_equal(
        muster_checkpoint_list(careful_mem(), scene->stand.folder, &entries, &count, NULL),
        MUSTER_OK);
    muster_mem_free(careful_mem(), entries);
    return count > 0;
}

static void what_was_copied_ahead_is_not_copied_again(void **state)
{
    struct scene scene;
    bool is_done = false;

    (void)state;
    scene_open(&scene, SIZE_MAX);
    assert_int_equal(muster_checkpoint_writer_copy(scene.writer), scene.stand.state_bytes);

    assert_int_equal(muster_checkpoint_writer_detach(scene.writer, &is_done), 0);

    assert_true(is_done);
    checkpoint_stand_fill(&scene.stand, 101);
    (void)thread_run(scene.writer);
    file_check(&scene);
    scene_close(&scene);
}

/* The copier is held amid the first chunk. Run has a lower priority, so detach must not wait for it, too. */
static void run_follows_a_thread_that_copies(void **state)
{
    struct scene scene;
    bool is_done = false;
    pthread_t copies, runs;

    (void)state;
    scene_open(&scene, SIZE_MAX);
    trap_open(scene.stand.tensors[1].data);
    assert_int_equal(pthread_create(&copies, NULL, thread_copy, scene.writer), 0);
    while (!atomic_load(&trap.is_held))
        (void)syscall(SYS_sched_yield);
    assert_int_equal(pthread_create(&runs, NULL, thread_run, scene.writer), 0);
    while (!folder_has_files(&scene))
        (void)syscall(SYS_sched_yield);
    for (size_t i = 0; i < 1000; i++) /* run would take the second chunk */
        (void)syscall(SYS_sched_yield);

    assert_int_equal(muster_checkpoint_writer_detach(scene.writer, &is_done), 3200031 - CHUNK);

    assert_true(is_done);
    checkpoint_stand_fill(&scene.stand, 101);
    assert_int_equal(pthread_join(copies, NULL), 0);
    assert_int_equal(pthread_join(runs, NULL), 0);
    trap_close();
    file_check(&scene);
    scene_close(&scene);
}

/* The copier is held amid the first chunk. */
static void a_cancelled_shard_ends_a_run_that_waits(void **state)
{
    struct scene scene;
    pthread_t copies, runs;

    (void)state;
    scene_open(&scene, SIZE_MAX);
    trap_open(scene.stand.tensors[1].data);
    assert_int_equal(pthread_create(&copies, NULL, thread_copy, scene.writer), 0);
    while (!atomic_load(&trap.is_held))
        (void)syscall(SYS_sched_yield);
    assert_int_equal(pthread_create(&runs, NULL, thread_run, scene.writer), 0);

    muster_checkpoint_writer_cancel(scene.writer);

    assert_true(atomic_load(&trap.is_released));
    assert_int_equal(pthread_join(copies, NULL), 0);
    assert_int_equal(pthread_join(runs, NULL), 0);
    trap_close();
    scene_close(&scene);
}

/* The last chunk of the four is a short one. */
static void copies_take_no_more_room_than_they_have(void **state)
{
    static const struct {
        size_t room, copied;
    } rows[] = {{0, 0},
                {CHUNK - 1, 0},
                {CHUNK, 3200031 - 3 * CHUNK},
                {3 * CHUNK, 3200031 - CHUNK},
                {3200030, 3200031 - CHUNK},
                {3200031, 3200031}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;
        bool is_done = false, is_whole = rows[i].copied == 3200031;

        scene_open(&scene, rows[i].room);
        assert_int_equal(scene.stand.state_bytes, 3200031);

        assert_int_equal(muster_checkpoint_writer_detach(scene.writer, &is_done), rows[i].copied);

        assert_true(is_done == is_whole); /* the program waits where it is not */
        for (size_t k = rows[i].room; k < 5 * CHUNK; k++)
            if (scene.copies[k] != CANARY)
                fail_msg("row %zu: byte %zu is written, behind the room", i, k);
        if (is_whole)
            checkpoint_stand_fill(&scene.stand, 101);
        (void)thread_run(scene.writer);
        assert_int_equal(muster_checkpoint_writer_detach(scene.writer, &is_done), 0);
        assert_true(is_done);
        file_check(&scene);
        scene_close(&scene);
    }
}

/* Nobody reads what is left: the program does not wait for it for ever. */
static void a_shard_that_cannot_be_written_holds_up_nobody(void **state)
{
    struct scene scene;
    bool is_done = false;

    (void)state;
    scene_open(&scene, 0);
    assert_int_equal(rmdir(scene.stand.folder), 0);
    assert_int_equal(muster_checkpoint_writer_run(scene.writer), MUSTER_NOT_FOUND);

    assert_int_equal(muster_checkpoint_writer_detach(scene.writer, &is_done), 0);

    assert_true(is_done);
    assert_int_equal(mkdir(scene.stand.folder, 0700), 0);
    scene_close(&scene);
}

/* Whether run reads it or a copy is made before. */
static void a_tensor_that_cannot_be_read_fails_the_shard(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct scene scene;
        bool is_done = false;

        memories = failing_last;
        scene_open(&scene, i * SIZE_MAX);
        memories = NULL;
        if (i == 1)
            (void)muster_checkpoint_writer_detach(scene.writer, &is_done);
        assert_int_equal(muster_checkpoint_writer_run(scene.writer), MUSTER_UNAVAILABLE);
        assert_string_equal(muster_checkpoint_writer_error(scene.writer)->text,
                            "the state cannot be read from its device");
        scene_close(&scene);
    }
}

static void all_three_beside_each_other_spoil_nothing(void **state)
{
    (void)state;
    for (size_t round = 0; round < 8; round++) {
        pthread_t runs, copies;
        struct scene scene;
        bool is_done = false;

        scene_open(&scene, round % 4 * CHUNK);
        assert_int_equal(pthread_create(&runs, NULL, thread_run, scene.writer), 0);
        assert_int_equal(pthread_create(&copies, NULL, thread_copy, scene.writer), 0);
        while (!is_done)
            (void)muster_checkpoint_writer_detach(scene.writer, &is_done);
        checkpoint_stand_fill(&scene.stand, 101);
        assert_int_equal(pthread_join(runs, NULL), 0);
        assert_int_equal(pthread_join(copies, NULL), 0);

        file_check(&scene);
        scene_close(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_change_only_when_no_thread_reads_them),
        cmocka_unit_test(a_chunk_taken_amid_detach_is_waited_for),
        cmocka_unit_test(what_was_copied_ahead_is_not_copied_again),
        cmocka_unit_test(run_follows_a_thread_that_copies),
        cmocka_unit_test(a_cancelled_shard_ends_a_run_that_waits),
        cmocka_unit_test(copies_take_no_more_room_than_they_have),
        cmocka_unit_test(a_shard_that_cannot_be_written_holds_up_nobody),
        cmocka_unit_test(a_tensor_that_cannot_be_read_fails_the_shard),
        cmocka_unit_test(all_three_beside_each_other_spoil_nothing),
    };

    return cmocka_run_group_tests_name("training.checkpoint.writer", tests, NULL, NULL);
}
