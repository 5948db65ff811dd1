/* When a silent link is asked for a sign of life, and when it is given up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params/wire/pulse.h"

#define SECOND MUSTER_NS_PER_S
#define BEATS  MUSTER_PARAMS_PULSE_BEATS
#define ASK    MUSTER_PARAMS_PULSE_ASK
#define LOST   MUSTER_PARAMS_PULSE_LOST

static void silence_is_asked_once_and_then_given_up(void **state)
{
    static const struct {
        const char *name;
        uint64_t second;
        size_t queued_bytes;
        bool is_awaited, hears;
        enum muster_params_pulse_verdict verdict;
    } rows[] = {
        {"soon", 0, 0, true, false, BEATS},
        {"after a second", 1, 0, true, false, ASK},
        {"asked already", 4, 0, true, false, BEATS},
        {"an answer", 4, 0, true, true, BEATS},
        {"another silence", 5, 0, true, false, ASK},
        {"bytes wait", 8, 500, true, false, BEATS},
        {"some leave a full queue", 9, 400, true, false, BEATS},
        {"then none", 10, 400, true, false, ASK},
        {"more wait", 13, 900, true, false, BEATS},
        {"five seconds", 14, 900, true, false, LOST},
        {"nothing is awaited", 20, 900, false, true, BEATS},
        {"for long", 50, 900, false, false, ASK},
        {"the peer has time", 109, 900, false, false, BEATS},
        {"it has gone", 110, 900, false, false, LOST},
        {"a timer that comes late asks first", 400, 900, true, true, BEATS},
        {"a timer that comes late asks first", 500, 900, true, false, ASK},
        {"and gives the peer its time", 503, 900, true, false, BEATS},
        {"and is not answered", 504, 900, true, false, LOST},
    };
    struct muster_params_pulse pulse = {.heard_ns = 0};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum muster_params_pulse_verdict verdict;

        if (rows[i].hears)
            muster_params_pulse_hear(&pulse, rows[i].second * SECOND);
        verdict = muster_params_pulse_check(&pulse, rows[i].second * SECOND, rows[i].queued_bytes,
                                            rows[i].is_awaited);
        if (verdict != rows[i].verdict)
            fail_msg("%s: %d", rows[i].name, (int)verdict);
    }
    assert_true(pulse.asked_ns == 500 * SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_is_asked_once_and_then_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
