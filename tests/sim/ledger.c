/* The ledger of a simulated job: plain books, checked at every entry. */
#include "tests/sim/ledger.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collective/view/progress.h"
#include "tests/sim/sim_internal.h"

#define SEQUENCES_MAX 8 /* operations per step and lane */
#define LANES         4
#define OPS_PER_STEP  (LANES * (1 + LEDGER_COLORS) * SEQUENCES_MAX)
#define STEPS_MAX     60000

struct epoch_entry {
    uint64_t digest;
    ledger_lives_type members;
    uint32_t member_count;
    bool is_state_lost;
    struct {
        uint32_t life;
        uint64_t from_step;
    } list[LEDGER_LIVES_MAX];
};

/* A claim about one operation, and the member that made it. */
struct saying {
    ledger_lives_type who;
    ledger_lives_type contributors;
    uint64_t digest;
    struct saying *next;
};

/* A word binds those who are in a view with somebody who was given it; what only the dead have seen
 * is void. */
struct op_entry {
    struct muster_op_id id;
    ledger_lives_type started, done;
    struct saying *sayings;    /* OK */
    ledger_lives_type aborted; /* told ABORTED as members */
};

struct state_entry {
    ledger_lives_type who;
    uint64_t digest;
};

struct ledger {
    struct sim_world *world;
    struct muster_incarnation lives[LEDGER_LIVES_MAX];
    uint64_t entered[LEDGER_LIVES_MAX]; /* epoch each is in */
    uint32_t life_count;
    struct epoch_entry *epochs; /* [epoch] */
    uint64_t epoch;
    uint64_t forgotten_epoch; /* what was said in epochs before it binds nobody */
    size_t epoch_room;
    struct op_entry *ops; /* in the order of their first mention */
    size_t op_count, op_room;
    uint32_t *op_places; /* [place_of]: number in ops, plus one; 0: none */
    size_t place_room;
    struct state_entry *states; /* [step] */
    size_t state_room;
};

static void *grow_items(void *items, size_t *room, size_t needed, size_t item_bytes)
{
    size_t room_new = *room == 0 ? 64 : *room;

    while (room_new < needed)
        room_new *= 2;
    if (room_new == *room)
        return items;
    items = realloc(items, room_new * item_bytes);
    if (items == NULL)
        abort();
    memset((char *)items + *room * item_bytes, 0, (room_new - *room) * item_bytes);
    *room = room_new;
    return items;
}

struct ledger *ledger_new(struct sim_world *world)
{
    struct ledger *ledger = sim_alloc(sizeof(*ledger));

    ledger->world = world;
    ledger->epochs = grow_items(NULL, &ledger->epoch_room, 16, sizeof(*ledger->epochs));
    return ledger;
}

/* Every member of the last view is dead and others begin anew: what was said before does not bind
 * them. */
static void forget_history(struct ledger *ledger)
{
    size_t i;

    for (i = 0; i < ledger->op_count; i++)
        while (ledger->ops[i].sayings != NULL) {
            struct saying *next = ledger->ops[i].sayings->next;

            free(ledger->ops[i].sayings);
            ledger->ops[i].sayings = next;
        }
    ledger->op_count = 0;
    if (ledger->place_room > 0)
        memset(ledger->op_places, 0, ledger->place_room * sizeof(*ledger->op_places));
    if (ledger->state_room > 0)
        memset(ledger->states, 0, ledger->state_room * sizeof(*ledger->states));
}

void ledger_free(struct ledger *ledger)
{
    if (ledger == NULL)
        return;
    forget_history(ledger);
    free(ledger->epochs);
    free(ledger->ops);
    free(ledger->op_places);
    free(ledger->states);
    free(ledger);
}

/* Lives. */

uint32_t ledger_life(struct ledger *ledger, const struct muster_incarnation *incarnation)
{
    uint32_t i;

    for (i = 0; i < ledger->life_count; i++)
        if (muster_incarnation_is_equal(&ledger->lives[i], incarnation))
            return i;
    if (ledger->life_count == LEDGER_LIVES_MAX) {
        sim_fail(ledger->world, "the ledger is full: too many lives in one run");
        return LEDGER_LIVES_MAX - 1;
    }
    ledger->lives[i] = *incarnation;
    return ledger->life_count++;
}

uint32_t ledger_life_count(const struct ledger *ledger)
{
    return ledger->life_count;
}

/* Views. */

uint64_t ledger_epoch(const struct ledger *ledger)
{
    return ledger->epoch;
}

ledger_lives_type ledger_members(const struct ledger *ledger, uint64_t epoch)
{
    return epoch == 0 || epoch > ledger->epoch ? 0 : ledger->epochs[epoch].members;
}

ledger_lives_type ledger_participants(const struct ledger *ledger, uint64_t epoch, uint64_t step)
{
    ledger_lives_type lives = 0;
    uint32_t i;

    if (epoch == 0 || epoch > ledger->epoch)
        return 0;
    for (i = 0; i < ledger->epochs[epoch].member_count; i++)
        if (ledger->epochs[epoch].list[i].from_step <= step)
            lives |= UINT64_C(1) << ledger->epochs[epoch].list[i].life;
    return lives;
}

uint32_t ledger_color(const struct muster_incarnation *incarnation)
{
    return incarnation->bytes[0] % LEDGER_COLORS;
}

/* On a lane that is split: color + 1; else 0. */
static uint32_t color_of(const struct muster_op_id *op)
{
    return op->lane / MUSTER_LANE_COLOR;
}

static bool takes_part(const struct ledger *ledger, uint32_t life, const struct muster_op_id *op)
{
    return color_of(op) == 0 || ledger_color(&ledger->lives[life]) + 1 == color_of(op);
}

ledger_lives_type ledger_participants_of(const struct ledger *ledger, uint64_t epoch,
                                         const struct muster_op_id *op)
{
    ledger_lives_type lives = ledger_participants(ledger, epoch, op->step);
    uint32_t life;

    for (life = 0; life < ledger->life_count; life++)
        if (!takes_part(ledger, life, op))
            lives &= ~(UINT64_C(1) << life);
    return lives;
}

uint64_t ledger_place(const struct ledger *ledger, uint64_t epoch, const struct muster_op_id *op,
                      uint32_t life)
{
    uint64_t place = 0;
    uint32_t i;

    if (epoch == 0 || epoch > ledger->epoch)
        return 0;
    for (i = 0; i < ledger->epochs[epoch].member_count; i++) {
        if (ledger->epochs[epoch].list[i].life == life)
            return place;
        place += ledger->epochs[epoch].list[i].from_step <= op->step &&
                 takes_part(ledger, ledger->epochs[epoch].list[i].life, op);
    }
    return 0;
}

uint64_t ledger_from_step(const struct ledger *ledger, uint64_t epoch, uint32_t life)
{
    uint32_t i;

    if (epoch == 0 || epoch > ledger->epoch)
        return 0;
    for (i = 0; i < ledger->epochs[epoch].member_count; i++)
        if (ledger->epochs[epoch].list[i].life == life)
            return ledger->epochs[epoch].list[i].from_step;
    return 0;
}

bool ledger_is_state_lost(const struct ledger *ledger, uint64_t epoch)
{
    return epoch > 0 && epoch <= ledger->epoch && ledger->epochs[epoch].is_state_lost;
}

uint64_t ledger_entered_epoch(const struct ledger *ledger, uint32_t life)
{
    return ledger->entered[life];
}

static bool is_equal(const struct saying *a, const struct saying *b)
{
    return a->contributors == b->contributors && a->digest == b->digest;
}

/* Members of a view who have been called back were called back alike. */
static void check_members(struct ledger *ledger, ledger_lives_type members)
{
    size_t i;

    for (i = 0; i < ledger->op_count; i++) {
        const struct saying *first = NULL, *saying;

        for (saying = ledger->ops[i].sayings; saying != NULL; saying = saying->next) {
            if ((saying->who & members) == 0)
                continue;
            if (first == NULL)
                first = saying;
            if (!is_equal(first, saying) || (ledger->ops[i].aborted & members) != 0)
                sim_fail(ledger->world,
                         "operation (%" PRIu64 ", %" PRIu32 ") of lane %" PRIu32
                         " has two results among the members of epoch %" PRIu64,
                         ledger->ops[i].id.step, ledger->ops[i].id.sequence, ledger->ops[i].id.lane,
                         ledger->epoch + 1);
        }
    }
}

void ledger_committed(struct ledger *ledger, const struct muster_view *view)
{
    struct epoch_entry *entry;
    uint32_t i;

    if (view->epoch != ledger->epoch + 1) {
        sim_fail(ledger->world, "the registry took epoch %" PRIu64 " after epoch %" PRIu64,
                 view->epoch, ledger->epoch);
        return;
    }
    ledger->epochs = grow_items(ledger->epochs, &ledger->epoch_room, (size_t)view->epoch + 1,
                                sizeof(*ledger->epochs));
    entry = &ledger->epochs[view->epoch];
    entry->digest = view->digest;
    for (i = 0; i < view->member_count && i < LEDGER_LIVES_MAX; i++) {
        entry->list[i].life = ledger_life(ledger, &view->members[i].incarnation);
        entry->list[i].from_step = view->members[i].from_step;
        entry->members |= UINT64_C(1) << entry->list[i].life;
    }
    entry->member_count = i;
    entry->is_state_lost = view->is_state_lost;
    if ((entry->members & ledger_members(ledger, ledger->epoch)) == 0) {
        forget_history(ledger);
        ledger->forgotten_epoch = view->epoch;
    } else {
        check_members(ledger, entry->members);
    }
    ledger->epoch = view->epoch;
    sim_note(ledger->world, "view", view->epoch, view->digest, entry->members);
}

void ledger_entered(struct ledger *ledger, uint32_t life, const struct muster_view *view)
{
    if (view->epoch > ledger->epoch)
        sim_fail(ledger->world, "life %" PRIu32 " enters epoch %" PRIu64 ", which nobody committed",
                 life, view->epoch);
    else if (ledger->epochs[view->epoch].digest != view->digest)
        sim_fail(ledger->world, "life %" PRIu32 " has another view of epoch %" PRIu64, life,
                 view->epoch);
    else if (view->epoch <= ledger->entered[life])
        sim_fail(ledger->world, "life %" PRIu32 " goes from epoch %" PRIu64 " to %" PRIu64, life,
                 ledger->entered[life], view->epoch);
    else if ((ledger->epochs[view->epoch].members >> life & 1) == 0)
        sim_fail(ledger->world, "life %" PRIu32 " enters epoch %" PRIu64 " and is not a member", life,
                 view->epoch);
    ledger->entered[life] = view->epoch;
    sim_note(ledger->world, "entered", life, view->epoch, 0);
}

void ledger_excluded(struct ledger *ledger, uint32_t life)
{
    size_t i;

    for (i = 0; i < ledger->op_count; i++) {
        struct op_entry *op = &ledger->ops[i];
        struct saying *saying;

        if ((op->started & ~op->done) >> life & 1)
            sim_fail(ledger->world,
                     "life %" PRIu32 " is excluded and its operation (%" PRIu64 ", %" PRIu32
                     ") of lane %" PRIu32 " is still open",
                     life, op->id.step, op->id.sequence, op->id.lane);
        op->started &= ~(UINT64_C(1) << life);
        op->done &= ~(UINT64_C(1) << life);
        op->aborted &= ~(UINT64_C(1) << life);
        for (saying = op->sayings; saying != NULL; saying = saying->next)
            saying->who &= ~(UINT64_C(1) << life);
    }
    for (i = 0; i < ledger->state_room; i++)
        ledger->states[i].who &= ~(UINT64_C(1) << life);
    sim_note(ledger->world, "excluded", life, 0, 0);
}

/* Operations. */

static size_t place_of(const struct muster_op_id *id)
{
    size_t lane = MUSTER_LANE_INDEX(id->lane) + color_of(id) * LANES;

    return (size_t)id->step * OPS_PER_STEP + lane * SEQUENCES_MAX + id->sequence;
}

static struct op_entry *find_op(struct ledger *ledger, const struct muster_op_id *id)
{
    size_t place = place_of(id);

    if (id->step >= STEPS_MAX || id->sequence >= SEQUENCES_MAX ||
        MUSTER_LANE_INDEX(id->lane) >= LANES || color_of(id) > LEDGER_COLORS) {
        sim_fail(ledger->world, "operation (%" PRIu64 ", %" PRIu32 ") is out of the book", id->step,
                 id->sequence);
        place = 0;
    }
    ledger->op_places =
        grow_items(ledger->op_places, &ledger->place_room, place + 1, sizeof(*ledger->op_places));
    if (ledger->op_places[place] == 0) {
        ledger->ops =
            grow_items(ledger->ops, &ledger->op_room, ledger->op_count + 1, sizeof(*ledger->ops));
        ledger->ops[ledger->op_count] = (struct op_entry){.id = *id};
        ledger->op_places[place] = (uint32_t)++ledger->op_count;
    }
    return &ledger->ops[ledger->op_places[place] - 1];
}

/* It stood still while the others ended or began anew, and does not know yet: its books are gone.
 * */
static bool is_ghost(const struct ledger *ledger, uint32_t life)
{
    return ledger->entered[life] < ledger->forgotten_epoch;
}

void ledger_started(struct ledger *ledger, uint32_t life, const struct muster_op_id *id)
{
    struct op_entry *op = find_op(ledger, id);

    if (is_ghost(ledger, life))
        return;
    if ((op->started >> life & 1) != 0)
        sim_fail(ledger->world,
                 "life %" PRIu32 " starts operation (%" PRIu64 ", %" PRIu32 ") twice", life,
                 id->step, id->sequence);
    op->started |= UINT64_C(1) << life;
}

/* It has been left out of the view that followed and has not heard of it yet: what it is told binds
 * nobody. */
static bool is_left_out(const struct ledger *ledger, uint32_t life, uint64_t epoch)
{
    return epoch < ledger->epoch && (ledger_members(ledger, epoch + 1) >> life & 1) == 0;
}

/* The inputs that are in must be those of one whole epoch. */
static bool is_whole(const struct ledger *ledger, const struct muster_op_id *id,
                     const struct ledger_outcome *outcome)
{
    uint64_t epoch;

    for (epoch = outcome->epoch; epoch > 0; epoch--)
        if (ledger_participants_of(ledger, epoch, id) == outcome->contributors)
            return true;
    return false;
}

static void check_sayings(struct ledger *ledger, uint32_t life, const struct muster_op_id *id,
                          const struct ledger_outcome *outcome)
{
    const struct op_entry *op = find_op(ledger, id);
    ledger_lives_type members = ledger_members(ledger, outcome->epoch);
    const struct saying *saying;

    if ((op->aborted & members) != 0)
        sim_fail(ledger->world,
                 "operation (%" PRIu64 ", %" PRIu32 ") of lane %" PRIu32 " is OK at life %" PRIu32
                 " and aborted at lives %" PRIx64,
                 id->step, id->sequence, id->lane, life, op->aborted & members);
    for (saying = op->sayings; saying != NULL; saying = saying->next)
        if ((saying->who & members) != 0 &&
            (saying->contributors != outcome->contributors || saying->digest != outcome->digest))
            sim_fail(ledger->world,
                     "operation (%" PRIu64 ", %" PRIu32 "): life %" PRIu32 " got %" PRIx64
                     "/%016" PRIx64 ", lives %" PRIx64 " got %" PRIx64 "/%016" PRIx64,
                     id->step, id->sequence, life, outcome->contributors, outcome->digest,
                     saying->who, saying->contributors, saying->digest);
}

static void check_ok(struct ledger *ledger, uint32_t life, const struct muster_op_id *id,
                     const struct ledger_outcome *outcome)
{
    struct op_entry *op = find_op(ledger, id);
    struct saying *saying;

    if (!outcome->is_partial && !is_whole(ledger, id, outcome))
        sim_fail(ledger->world,
                 "operation (%" PRIu64 ", %" PRIu32 ") of life %" PRIu32 " sums %" PRIx64
                 ", the members of no epoch",
                 id->step, id->sequence, life, outcome->contributors);
    check_sayings(ledger, life, id, outcome);
    for (saying = op->sayings; saying != NULL; saying = saying->next)
        if (saying->contributors == outcome->contributors && saying->digest == outcome->digest)
            break;
    if (saying == NULL) {
        saying = sim_alloc(sizeof(*saying));
        *saying = (struct saying){
            .contributors = outcome->contributors, .digest = outcome->digest, .next = op->sayings};
        op->sayings = saying;
    }
    saying->who |= UINT64_C(1) << life;
}

static void check_aborted(struct ledger *ledger, uint32_t life, const struct muster_op_id *id,
                          const struct ledger_outcome *outcome)
{
    struct op_entry *op = find_op(ledger, id);
    const struct saying *saying;

    if (outcome->rc != MUSTER_ABORTED || outcome->epoch == 0)
        return; /* excluded, cancelled or out of time: its own affair */
    for (saying = op->sayings; saying != NULL; saying = saying->next)
        if ((saying->who & ledger_members(ledger, outcome->epoch)) != 0)
            sim_fail(ledger->world,
                     "operation (%" PRIu64 ", %" PRIu32 ") of lane %" PRIu32
                     " is aborted at life %" PRIu32 " and OK at lives %" PRIx64,
                     id->step, id->sequence, id->lane, life, saying->who);
    op->aborted |= UINT64_C(1) << life;
}

void ledger_done(struct ledger *ledger, uint32_t life, const struct muster_op_id *id,
                 const struct ledger_outcome *outcome)
{
    struct op_entry *op = find_op(ledger, id);

    if (is_ghost(ledger, life))
        return;
    if ((op->done >> life & 1) != 0 || (op->started >> life & 1) == 0)
        sim_fail(ledger->world,
                 "operation (%" PRIu64 ", %" PRIu32 ") calls life %" PRIu32 " back %s", id->step,
                 id->sequence, life, (op->done >> life & 1) != 0 ? "twice" : "unasked");
    op->done |= UINT64_C(1) << life;
    sim_note(ledger->world, "done", life, place_of(id),
             outcome->rc == MUSTER_OK ? outcome->digest : (uint64_t)outcome->rc);
    if (outcome->rc == MUSTER_OK &&
        (!outcome->has_value || is_left_out(ledger, life, outcome->epoch)))
        return;
    if (outcome->rc == MUSTER_OK)
        check_ok(ledger, life, id, outcome);
    else
        check_aborted(ledger, life, id, outcome);
}

/* State. */

void ledger_state(struct ledger *ledger, uint32_t life, uint64_t step, uint64_t digest)
{
    struct state_entry *state;

    if (is_ghost(ledger, life))
        return;
    if (step >= STEPS_MAX) {
        sim_fail(ledger->world, "too many steps");
        return;
    }
    ledger->states =
        grow_items(ledger->states, &ledger->state_room, (size_t)step + 1, sizeof(*ledger->states));
    state = &ledger->states[step];
    if (state->digest != digest) {
        if ((state->who & ledger_members(ledger, ledger->epoch)) != 0)
            sim_fail(ledger->world,
                     "life %" PRIu32 " holds state %016" PRIx64 " after step %" PRIu64
                     ", lives %" PRIx64 " hold %016" PRIx64,
                     life, digest, step, state->who, state->digest);
        state->who = 0;
    }
    state->who |= UINT64_C(1) << life;
    state->digest = digest;
}

bool ledger_find_state(const struct ledger *ledger, uint64_t step, uint64_t *ret_digest)
{
    if (step >= ledger->state_room || ledger->states[step].who == 0)
        return false;
    *ret_digest = ledger->states[step].digest;
    return true;
}
