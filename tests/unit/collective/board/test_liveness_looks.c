/* A reader that takes a process for dead looks at its words twice: what happens between the looks. */
#include "collective/board/board_internal.h"

static void (*on_fence)(void); /* stands where the reader's fence does; NULL: nothing happens */

static void fence_stand_in(void)
{
    if (on_fence != NULL)
        on_fence();
}

#undef atomic_thread_fence
#define atomic_thread_fence(order) fence_stand_in()
#include "collective/board/liveness.c"

#include "test_env.h"

#include <string.h>

static struct muster_board_page page; /* of the process that is looked at */

static void set_futex(size_t word, uint32_t value)
{
    __atomic_store_n((uint32_t *)(void *)&page.words[word].mutex, value, __ATOMIC_SEQ_CST);
}

/* A thread of it takes its first word. */
static void take_second_word(void)
{
    set_futex(1, (uint32_t)gettid());
    page.words[1].state = MUSTER_WORD_HELD;
    page.word_count = 2;
}

/* A thread of it finds no free word. */
static void go_without_word(void)
{
    page.is_incomplete = 1;
}

/* A thread without the C library's knowledge of its end has left the mark, and another one writes. */
static void who_writes_between_the_looks_is_alive(void **state)
{
    static const struct {
        void (*between)(void);
        bool is_dead;
    } rows[] = {
        {NULL, true},
        {take_second_word, false},
        {go_without_word, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memset(&page, 0, sizeof(page));
        set_futex(0, FUTEX_OWNER_DIED);
        page.words[0].state = MUSTER_WORD_HELD;
        page.word_count = 1;
        on_fence = rows[i].between;

        assert_int_equal(muster_board_page_is_dead(&page), rows[i].is_dead);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_writes_between_the_looks_is_alive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
