/* The parts of the small world: membership_pump*.c only. */
#ifndef MUSTER_TEST_MEMBERSHIP_PUMP_INTERNAL_H
#define MUSTER_TEST_MEMBERSHIP_PUMP_INTERNAL_H

#include "membership_pump.h"

enum pump_event_kind {
    PUMP_CONTROL,
    PUMP_COMPLETE,
    PUMP_CONNECT,
    PUMP_LINK_DOWN,
    PUMP_TIMER,
    PUMP_WATCH,
    PUMP_CAS,
    PUMP_CAS_LATE,
    PUMP_READ,
    PUMP_REGISTER,
    PUMP_DEREGISTER,
    PUMP_PROCESS_DEAD,
    PUMP_DEAD_KEY,
    PUMP_LEASE,
    PUMP_OPS,
    PUMP_READY,
};

struct pump_event {
    uint64_t due_ns, sequence;
    enum pump_event_kind kind;
    unsigned from, to, generation;
    uint64_t link_sequence;
    void *bytes;
    size_t size;
    struct muster_view *view;
    uint64_t id, revision, epoch;
    struct muster_op_id op;
};

/* membership_pump.c */
void pump_push(struct pump *pump, struct pump_event event, uint64_t delay_ns);
uint64_t pump_latency(struct pump *pump);
void pump_step(struct pump_node *node, const struct muster_membership_event *event);
void pump_step_kind(struct pump_node *node, enum muster_membership_event_kind kind);

/* membership_pump_registry.c */
bool pump_reaches_registry(const struct pump_node *node);
bool pump_apply_cas(struct pump *pump, const struct pump_event *event);
void pump_check_view(struct pump *pump, struct muster_view *view);
void pump_on_cas(struct pump *pump, struct pump_event *event);
void pump_on_read(struct pump *pump, struct pump_node *node);
void pump_on_watch(struct pump *pump, struct pump_node *node);
void pump_on_register(struct pump *pump, struct pump_node *node);
void pump_on_lease(struct pump *pump, struct pump_node *node);
void pump_on_deregister(struct pump *pump, struct pump_node *node);

#endif
