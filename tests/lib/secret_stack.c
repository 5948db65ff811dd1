/* Runs a function on a stack of its own, and looks there for a secret. */
#include "secret_stack.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>

#define STACK_BYTES ((size_t)1 << 20)
#define END_BYTES   (64u << 10) /* for what the end of a thread leaves there */

struct errand {
    void (*run)(void *data);
    void *data;
};

static void *run_errand(void *data)
{
    struct errand *errand = data;
    volatile char end[END_BYTES];

    end[0] = 0;
    errand->run(errand->data);
    end[END_BYTES - 1] = end[0];
    return NULL;
}

void secret_stack_run(struct secret_stack *stack, void (*run)(void *data), void *data)
{
    struct errand errand = {.run = run, .data = data};
    pthread_attr_t attributes;
    pthread_t thread;

    stack->count = STACK_BYTES; /* shared: the thread's end does not give its pages back */
    stack->bytes =
        mmap(NULL, stack->count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(stack->bytes != MAP_FAILED);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, stack->bytes, stack->count), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run_errand, &errand), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_attr_destroy(&attributes), 0);
}

bool secret_stack_holds(const struct secret_stack *stack, const void *secret, size_t secret_bytes)
{
    return memmem(stack->bytes, stack->count, secret, secret_bytes) != NULL;
}

void secret_stack_free(struct secret_stack *stack)
{
    munmap(stack->bytes, stack->count);
}
