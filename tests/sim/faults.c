/* Faults at random: the driver draws, the verbs of world.h do. */
#include "tests/sim/faults.h"

#include <assert.h>
#include <stdlib.h>

#include "tests/sim/sim_internal.h"

/* Something that will pass. */
struct lasting {
    struct sim_faults *faults;
    enum sim_fault_kind kind;
    struct sim_node *node;
    struct sim_host *a, *b;
    struct sim_event end;
    struct muster_list link;
};

struct sim_faults {
    struct sim_world *world;
    struct sim_faults_options options;
    struct muster_rng_seeded rng;
    uint32_t kinds[SIM_FAULT_COUNT]; /* those that exist */
    uint32_t kind_count;
    uint64_t interval_ns;
    struct sim_event next;
    struct muster_list lasting;
    uint64_t count;
    uint64_t counts[SIM_FAULT_COUNT];
};

const char *sim_fault_name(enum sim_fault_kind kind)
{
    static const char *const names[] = {
#define X(name, text) text,
        SIM_FAULT_MAP(X)
#undef X
    };

    return names[kind];
}

static uint64_t faults_draw(struct sim_faults *faults, uint64_t bound)
{
    return bound == 0 ? 0 : muster_rng_below(&faults->rng.rng, bound);
}

/* Picking a victim. */

static bool may_hit(struct sim_faults *faults, enum sim_fault_kind kind, struct sim_node *node)
{
    return faults->options.may_hit == NULL ||
           faults->options.may_hit(faults->options.data, kind, node);
}

static struct sim_node *pick_node(struct sim_faults *faults, enum sim_fault_kind kind)
{
    struct sim_node *picked = NULL;
    struct muster_list *link;
    uint64_t seen = 0;

    for (link = faults->world->nodes.next; link != &faults->world->nodes; link = link->next) {
        struct sim_node *node = MUSTER_CONTAINER_OF(link, struct sim_node, link);

        if (node->life != SIM_ALIVE || node->is_paused || node->kill_countdown > 0)
            continue;
        if (may_hit(faults, kind, node) && faults_draw(faults, ++seen) == 0)
            picked = node;
    }
    return picked;
}

static struct sim_host *pick_other_host(struct sim_faults *faults, const struct sim_host *first)
{
    struct sim_host *picked = NULL;
    struct muster_list *link;
    uint64_t seen = 0;

    for (link = faults->world->hosts.next; link != &faults->world->hosts; link = link->next) {
        struct sim_host *host = MUSTER_CONTAINER_OF(link, struct sim_host, link);

        if (host != first && faults_draw(faults, ++seen) == 0)
            picked = host;
    }
    return picked;
}

/* Ending what passes. */

static void cut_from_all(struct lasting *lasting, bool is_cut)
{
    struct sim_world *world = lasting->faults->world;
    struct muster_list *link;

    for (link = world->hosts.next; link != &world->hosts; link = link->next) {
        struct sim_host *other = MUSTER_CONTAINER_OF(link, struct sim_host, link);

        if (other == lasting->a)
            continue;
        if (is_cut)
            sim_cut(world, lasting->a, other, SIM_BOTH_WAYS);
        else
            sim_heal(world, lasting->a, other);
    }
}

static void end_lasting(struct lasting *lasting)
{
    struct sim_world *world = lasting->faults->world;

    sim_event_cancel(world, &lasting->end);
    muster_list_remove(&lasting->link);
    switch (lasting->kind) {
    case SIM_FAULT_CRASH_HOST:
        sim_boot(lasting->a);
        break;
    case SIM_FAULT_PAUSE:
        sim_resume(lasting->node);
        break;
    case SIM_FAULT_CUT:
    case SIM_FAULT_CUT_ONE_WAY:
        sim_heal(world, lasting->a, lasting->b);
        break;
    case SIM_FAULT_ISOLATE:
        cut_from_all(lasting, false);
        break;
    case SIM_FAULT_SLOW:
        sim_slow(lasting->node, 1);
        break;
    default:
        break;
    }
    free(lasting);
}

static void on_end(struct sim_event *event)
{
    end_lasting(event->data);
}

static struct lasting *add_lasting(struct sim_faults *faults, enum sim_fault_kind kind,
                                   struct sim_node *node, uint64_t duration_ns)
{
    struct lasting *lasting = sim_alloc(sizeof(*lasting));

    lasting->faults = faults;
    lasting->kind = kind;
    lasting->node = node;
    lasting->a = node->host;
    sim_event_init(&lasting->end, on_end, lasting);
    sim_event_schedule(faults->world, &lasting->end, faults->world->now_ns + duration_ns);
    muster_list_append(&faults->lasting, &lasting->link);
    return lasting;
}

/* Making it happen. */

static bool inject_link(struct sim_faults *faults, enum sim_fault_kind kind, struct sim_node *node,
                        uint64_t duration_ns)
{
    struct sim_host *other = pick_other_host(faults, node->host);
    struct lasting *lasting;

    if (other == NULL)
        return false;
    lasting = add_lasting(faults, kind, node, duration_ns);
    lasting->b = other;
    if (kind == SIM_FAULT_ISOLATE)
        cut_from_all(lasting, true);
    else
        sim_cut(faults->world, lasting->a, other,
                kind == SIM_FAULT_CUT ? SIM_BOTH_WAYS : SIM_ONE_WAY);
    return true;
}

static bool inject_node(struct sim_faults *faults, enum sim_fault_kind kind, uint64_t duration_ns)
{
    struct sim_node *node = pick_node(faults, kind);

    if (node == NULL)
        return false;
    switch (kind) {
    case SIM_FAULT_KILL:
        sim_kill(node);
        return true;
    case SIM_FAULT_KILL_WITHIN:
        sim_kill_within(node, (uint32_t)faults_draw(faults, UINT64_C(1) << faults_draw(faults, 8)));
        return true;
    case SIM_FAULT_CRASH_HOST:
        sim_crash(node->host);
        break;
    case SIM_FAULT_PAUSE:
        sim_pause(node);
        break;
    case SIM_FAULT_SLOW:
        sim_slow(node, 2 + (uint32_t)faults_draw(faults, 500));
        break;
    case SIM_FAULT_DRIFT:
        sim_drift(node, (int32_t)faults_draw(faults, 2001) - 1000);
        return true;
    default:
        return inject_link(faults, kind, node, duration_ns);
    }
    (void)add_lasting(faults, kind, node, duration_ns);
    return true;
}

static bool faults_inject(struct sim_faults *faults, enum sim_fault_kind kind)
{
    uint64_t duration_ns = 1 + faults_draw(faults, faults->options.duration_max_ns >>
                                                       faults_draw(faults, 10)); /* often short */

    if (kind == SIM_FAULT_RESET)
        return sim_reset_stream(faults->world, faults_draw(faults, UINT64_MAX));
    if (kind == SIM_FAULT_STALL)
        return sim_stall_stream(faults->world, faults_draw(faults, UINT64_MAX), duration_ns);
    return inject_node(faults, kind, duration_ns);
}

static void schedule_next(struct sim_faults *faults)
{
    if (faults->count < faults->options.count_max && faults->kind_count > 0)
        sim_event_schedule(faults->world, &faults->next,
                           faults->world->now_ns + 1 +
                               faults_draw(faults, faults->interval_ns * 2));
}

static void on_next(struct sim_event *event)
{
    struct sim_faults *faults = event->data;
    enum sim_fault_kind kind =
        (enum sim_fault_kind)faults->kinds[faults_draw(faults, faults->kind_count)];

    if (faults_inject(faults, kind)) {
        faults->count++;
        faults->counts[kind]++;
        sim_note(faults->world, sim_fault_name(kind), faults->count, 0, 0);
    }
    schedule_next(faults);
}

/* At least one kind exists; each of the others with a chance of one half. */
static void draw_kinds(struct sim_faults *faults)
{
    uint32_t kind, allowed_count = 0;
    uint64_t sure;

    for (kind = 0; kind < SIM_FAULT_COUNT; kind++)
        allowed_count += faults->options.allowed >> kind & 1;
    sure = faults_draw(faults, allowed_count);
    for (kind = 0; kind < SIM_FAULT_COUNT; kind++) {
        if ((faults->options.allowed >> kind & 1) == 0)
            continue;
        if (sure-- == 0 || faults_draw(faults, 2) == 0)
            faults->kinds[faults->kind_count++] = kind;
    }
}

struct sim_faults *sim_faults_start(struct sim_world *world,
                                    const struct sim_faults_options *options)
{
    struct sim_faults *faults = sim_alloc(sizeof(*faults));
    uint64_t range_ns = options->interval_max_ns - options->interval_min_ns + 1;

    faults->world = world;
    faults->options = *options;
    muster_list_init(&faults->lasting);
    muster_rng_seeded_init(&faults->rng, muster_rng_next(sim_world_rng(world)));
    draw_kinds(faults);
    faults->interval_ns = options->interval_min_ns + faults_draw(faults, range_ns);
    sim_event_init(&faults->next, on_next, faults);
    schedule_next(faults);
    return faults;
}

void sim_faults_heal(struct sim_faults *faults)
{
    struct muster_list *link;

    sim_event_cancel(faults->world, &faults->next);
    faults->options.count_max = 0;
    while ((link = faults->lasting.next) != &faults->lasting)
        end_lasting(MUSTER_CONTAINER_OF(link, struct lasting, link));
    for (link = faults->world->nodes.next; link != &faults->world->nodes; link = link->next)
        MUSTER_CONTAINER_OF(link, struct sim_node, link)->kill_countdown = 0;
    sim_heal_all(faults->world);
}

uint64_t sim_faults_count(const struct sim_faults *faults)
{
    return faults->count;
}

uint64_t sim_faults_count_of(const struct sim_faults *faults, enum sim_fault_kind kind)
{
    return faults->counts[kind];
}

void sim_faults_free(struct sim_faults *faults)
{
    if (faults == NULL)
        return;
    sim_event_cancel(faults->world, &faults->next);
    while (!muster_list_is_empty(&faults->lasting)) {
        struct lasting *lasting = MUSTER_CONTAINER_OF(faults->lasting.next, struct lasting, link);

        sim_event_cancel(faults->world, &lasting->end);
        muster_list_remove(&lasting->link);
        free(lasting);
    }
    free(faults);
}
