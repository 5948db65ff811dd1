/* Runs a function on a stack of its own, and looks there for a secret that it should have wiped. */
#ifndef MUSTER_TEST_SECRET_STACK_H
#define MUSTER_TEST_SECRET_STACK_H

#include <stdbool.h>
#include <stddef.h>

struct secret_stack {
    void *bytes;
    size_t count;
};

/** Run on a thread of its own while the caller waits; the stack is kept. Fails the case without
 * memory. */
void secret_stack_run(struct secret_stack *stack, void (*run)(void *data), void *data);
/** Whether run has left the secret on the stack. */
bool secret_stack_holds(const struct secret_stack *stack, const void *secret, size_t secret_bytes);
void secret_stack_free(struct secret_stack *stack);

#endif
