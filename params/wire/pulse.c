/* When a silent link is asked for a sign of life, and when it is given up. */
#include "params/wire/pulse.h"

enum muster_params_pulse_verdict muster_params_pulse_check(struct muster_params_pulse *pulse,
                                                           uint64_t now_ns, size_t queued_bytes,
                                                           bool is_awaited)
{
    uint64_t ask_ns = is_awaited ? MUSTER_PARAMS_PULSE_NS : MUSTER_PARAMS_IDLE_NS;
    uint64_t lost_ns = is_awaited ? MUSTER_PARAMS_PULSE_LOST_NS : MUSTER_PARAMS_IDLE_LOST_NS;
    uint64_t silent_ns;

    if (queued_bytes < pulse->queued_bytes)
        muster_params_pulse_hear(pulse, now_ns);
    pulse->queued_bytes = queued_bytes;
    silent_ns = now_ns - pulse->heard_ns;
    if (pulse->asked_ns == 0 && silent_ns >= ask_ns) {
        pulse->asked_ns = now_ns;
        return MUSTER_PARAMS_PULSE_ASK;
    }
    /* A check that comes late leaves the peer its time all the same. */
    if (pulse->asked_ns != 0 && silent_ns >= lost_ns && now_ns - pulse->asked_ns >= lost_ns - ask_ns)
        return MUSTER_PARAMS_PULSE_LOST;
    return MUSTER_PARAMS_PULSE_BEATS;
}
