/* The words by which peers see a death: robust mutexes, locked by each thread that writes the
 * board until it ends. The kernel marks them before it takes the memory down, so a death is seen
 * in microseconds whatever the process held.
 *
 * A thread that ends while its process goes on unlocks its word from the destructor of a key and
 * leaves it RELEASED, which says nothing about the process. Only a death leaves a word marked. */
#include "collective/board/board_internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <unistd.h>

static uint32_t futex_of(const struct muster_board_word *word)
{
    return __atomic_load_n((const uint32_t *)(const void *)&word->mutex, __ATOMIC_ACQUIRE);
}

static uint32_t state_of(const struct muster_board_word *word)
{
    return atomic_load_explicit(&word->state, memory_order_acquire);
}

static bool is_marked(const struct muster_board_word *word)
{
    return (futex_of(word) & FUTEX_OWNER_DIED) != 0;
}

/* --- Of others --- */

/* A free word says nothing: its thread has stopped writing, and the process may well live. */
static bool is_free(const struct muster_board_word *word)
{
    return state_of(word) != MUSTER_WORD_HELD && futex_of(word) == 0;
}

static uint32_t words_of(const struct muster_board_page *page)
{
    uint32_t count = atomic_load_explicit(&page->word_count, memory_order_acquire);

    /* The page belongs to another process, so its count is not trusted as an index. */
    return count < MUSTER_BOARD_WORDS ? count : MUSTER_BOARD_WORDS;
}

/* Every word that was ever used is marked or free, and at least one is marked: without a mark all
 * threads have merely ended. */
static bool are_all_marked(const struct muster_board_page *page)
{
    uint32_t count = words_of(page);
    bool has_mark = false;

    for (uint32_t i = 0; i < count; i++) {
        if (is_marked(&page->words[i]))
            has_mark = true;
        else if (!is_free(&page->words[i]))
            return false;
    }
    return has_mark;
}

/* The words are read twice with a sequentially consistent fence between, which pairs with the fence
 * in die_with_others. A thread that takes its first word concurrently stores the word, fences, and
 * loads the marks; this loads the marks, fences, and loads the words. At least one of the two sees
 * the other: either the new word is found unmarked here, or the new thread finds the marks and
 * writes nothing. The same holds for is_incomplete, which is loaded last. */
bool muster_board_page_is_dead(const struct muster_board_page *page)
{
    if (!are_all_marked(page))
        return false;
    atomic_thread_fence(memory_order_seq_cst);
    return are_all_marked(page) &&
           atomic_load_explicit(&page->is_incomplete, memory_order_acquire) == 0;
}

/* --- Of this process --- */

/* RELEASED is stored before the unlock: after it another thread may hold the word, and the store
 * would make that thread's word look free. */
static void word_release(struct muster_board_word *word)
{
    atomic_store_explicit(&word->state, MUSTER_WORD_RELEASED, memory_order_release);
    pthread_mutex_unlock(&word->mutex);
}

/* A child after fork inherits the key's value but not the mutex: the word belongs to the parent's
 * thread, which still lives. */
static void on_thread_end(void *at)
{
    struct muster_board_word *word = at;

    if ((futex_of(word) & FUTEX_TID_MASK) == (uint32_t)gettid())
        word_release(word);
}

/* A mark in the own page means that this thread is about to be killed like that one (every thread
 * has the signal before the first can die): any system call ends it. If it lives on, a thread has
 * ended without the C library's knowledge, and the words are worth nothing.
 *
 * The fence stands between this thread's claim (its word, or is_incomplete) and its loads of the
 * marks. It pairs with the one in muster_board_page_is_dead. */
static void die_with_others(struct muster_board_page *page)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < words_of(page); i++) {
        if (!is_marked(&page->words[i]))
            continue;
        sched_yield();
        atomic_store_explicit(&page->is_incomplete, 1, memory_order_release);
    }
}

/* EOWNERDEAD (pthread_mutex_trylock(3)) is a success: the mutex is locked. Its holder has been marked
 * between the look of the caller and here, and the lock has wiped out that mark. Like any mark in the
 * own page it says that this thread is about to be killed as well, at the system call; a thread that
 * goes on keeps the word, and the board says for the lost mark that its words do not tell all. */
static bool lock_word(struct muster_board_page *page, struct muster_board_word *word)
{
    int sys = pthread_mutex_trylock(&word->mutex);

    if (sys != EOWNERDEAD)
        return sys == 0;
    sched_yield();
    atomic_store_explicit(&page->is_incomplete, 1, memory_order_release);
    pthread_mutex_consistent(&word->mutex);
    return true;
}

/* The count rises only after the word is HELD, so a peer never counts a word that looks unused. */
static bool take_word(struct muster_board_system *board, uint32_t i)
{
    struct muster_board_page *page = board->page;
    struct muster_board_word *word = &page->words[i];

    if (!lock_word(page, word))
        return false;
    if (pthread_setspecific(board->key, word) != 0) {
        pthread_mutex_unlock(&word->mutex);
        return false;
    }
    atomic_store_explicit(&word->state, MUSTER_WORD_HELD, memory_order_release);
    if (i >= words_of(page))
        atomic_store_explicit(&page->word_count, i + 1, memory_order_release);
    die_with_others(page);
    return true;
}

void muster_board_system_enter(struct muster_board *base)
{
    struct muster_board_system *board = muster_board_system_of(base);

    MUSTER_ASSERT(board->has_words);
    if (pthread_getspecific(board->key) != NULL)
        return;
    for (uint32_t i = 0; i < MUSTER_BOARD_WORDS; i++)
        if (!is_marked(&board->page->words[i]) && take_word(board, i))
            return;
    /* A thread without a word has the same race with a reader as one that takes its first. */
    atomic_store_explicit(&board->page->is_incomplete, 1, memory_order_release);
    die_with_others(board->page);
}

static enum muster_rc init_words(struct muster_board_page *page)
{
    pthread_mutexattr_t attr;
    int sys = pthread_mutexattr_init(&attr);

    if (sys != 0)
        return muster_rc_from_errno(sys);
    sys = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (sys == 0)
        sys = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (uint32_t i = 0; i < MUSTER_BOARD_WORDS && sys == 0; i++)
        sys = pthread_mutex_init(&page->words[i].mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    return muster_rc_from_errno(sys);
}

enum muster_rc muster_board_liveness_open(struct muster_board_system *board)
{
    enum muster_rc rc = init_words(board->page);
    int sys;

    if (rc != MUSTER_OK)
        return rc;
    sys = pthread_key_create(&board->key, on_thread_end);
    return sys == 0 ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

/* A word that another thread holds stays in that thread's list of robust mutexes: it must stay
 * mapped, and the key with it. */
bool muster_board_liveness_close(struct muster_board_system *board)
{
    struct muster_board_word *word = pthread_getspecific(board->key);
    uint32_t count = words_of(board->page);

    if (word != NULL) {
        pthread_setspecific(board->key, NULL); /* first: the destructor must not release it again */
        word_release(word);
    }
    for (uint32_t i = 0; i < count; i++)
        if (!is_free(&board->page->words[i]))
            return false;
    pthread_key_delete(board->key);
    return true;
}
