/* Heads of HTTP/2 frames: the verdict does not depend on how the bytes are cut. */
#include <stdlib.h>

#include "net/h2/watch.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* The code, in pieces of `step`; the bytes that passed. */
static uint32_t judge_bytes(const uint8_t *bytes, size_t size, size_t step, size_t *ret_passed)
{
    struct muster_h2_watch watch;
    uint32_t code = 0;
    size_t at = 0;

    muster_h2_watch_init(&watch);
    while (at < size && code == 0) {
        size_t count = size - at < step ? size - at : step;
        size_t passed = muster_h2_watch_feed(&watch, bytes + at, count, &code);

        if (passed > count || (code == 0 && passed != count))
            abort();
        at += passed;
    }
    *ret_passed = at;
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    size_t whole, cut;
    uint32_t code = judge_bytes(bytes, size, size + 1, &whole);

    for (size_t step = 1; step < 12; step += 2) {
        if (judge_bytes(bytes, size, step, &cut) != code || (code == 0 && cut != whole))
            abort();
    }
    return 0;
}
