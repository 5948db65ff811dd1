/* The kinds of events and the meaning of their numbers: the one table for the members that emit
 * them, `muster trace`, which shows them, and `muster trace --kinds` and docs/trace.md, which list
 * them. */
#include <muster/trace.h>

#include <string.h>

static const struct muster_trace_kind kinds[] = {
    {"begin_waited",
     {"step", "view", ""},
     "",
     "a begin started to wait, for the members or for their state; step: the last one committed"},
    {"step_begun", {"step", "view", "members"}, "", "begin returned: the step has begun"},
    {"step_committed", {"step", "view", ""}, "", "the program committed the step"},
    {"op_started", {"step", "bytes", "tensors"}, "operation", "a call of a collective operation"},
    {"op_completed",
     {"step", "sequence", "rc"},
     "result",
     "the call returned; sequence is the number of its last operation in the step"},
    {"op_waited",
     {"rank", "waited_ns", "sequence"},
     "operation",
     "the time until the last of the others, of this rank, had started the operation"},
    {"op_verdict",
     {"step", "sequence", "view"},
     "verdict",
     "the members' decision on an operation that a change of view interrupted"},
    {"begin_waits", {"step", "waited_ns", ""}, "", "a begin has taken longer than two seconds"},
    {"state_shared", {"step", "bytes", "view"}, "", "the initial state has gone to all members"},
    {"membership_moved",
     {"view", "from", "to"},
     "state",
     "this member's place in the membership protocol"},
    {"view_entered", {"view", "members", "verdicts"}, "", "this member goes on in a new view"},
    {"member_lost",
     {"view", "index", "rank"},
     "",
     "the new view is without this task, which died or left; its rank before"},
    {"member_joined",
     {"view", "index", "rank"},
     "",
     "the new view has this task in it; its rank now"},
    {"caught_up", {"step", "view", "waited_ns"}, "", "this member has the state of the others"},
    {"excluded", {"step", "view", "rc"}, "", "the others went on without this member"},
    {"gpu_communicator", {"key", "from", "to"}, "", "a communicator of the GPU backend moved"},
    {"abandoned", {"step", "view", ""}, "", "the program gave up in the step"},
    {"logged", {"level", "", ""}, "event", "a line of the log; level: 0 is an error, 1 a warning"},
    {"failed", {"step", "view", "rc"}, "result", "no call of this strategy works any more"},
};

const struct muster_trace_kind *muster_trace_kinds(size_t *ret_count)
{
    *ret_count = sizeof(kinds) / sizeof(kinds[0]);
    return kinds;
}

const struct muster_trace_kind *muster_trace_kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}
