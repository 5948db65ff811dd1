/* One step from a map towards its target. */
#include "params/map/decide.h"

#include <string.h>

#include "params/map/place.h"

#define MOVES_MAX_DEFAULT 2u

struct step {
    const struct muster_params_decide_input *input;
    const struct muster_params_map *before; /* NULL: the first map */
    struct muster_params_map *next;
    /* By places of next. */
    bool is_alive[MUSTER_PARAMS_SERVERS_MAX];
    bool is_full[MUSTER_PARAMS_SERVERS_MAX];
    uint32_t moves[MUSTER_PARAMS_SERVERS_MAX]; /* shards that it learns */
    uint32_t moves_max;
    bool is_short[MUSTER_PARAMS_SHARD_COUNT_MAX]; /* shards whose targets do not all have them */
    bool is_awaited;                              /* the next map, though it may say the same */
};

static bool list_has(const uint16_t *places, uint32_t count, uint32_t place)
{
    for (uint32_t i = 0; i < count; i++) {
        if (places[i] == place)
            return true;
    }
    return false;
}

/* Removes the place at i, in order. */
static void list_cut(uint16_t *places, uint8_t *count, uint32_t i)
{
    memmove(&places[i], &places[i + 1], (*count - i - 1u) * sizeof(places[0]));
    (*count)--;
}

/* --- Servers --- */

static const struct muster_params_candidate *candidate_find(
    const struct muster_params_decide_input *input, const struct muster_incarnation *id)
{
    for (uint32_t i = 0; i < input->alive_count; i++) {
        if (muster_incarnation_is_equal(&input->alive[i].server.id, id))
            return &input->alive[i];
    }
    return NULL;
}

static bool server_has_shards(const struct muster_params_map *map, uint32_t place)
{
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (muster_params_map_is_copy(map, shard, place) ||
            muster_params_map_is_learner(map, shard, place))
            return true;
    }
    return false;
}

static void server_insert(struct muster_params_map *map,
                          const struct muster_params_map_server *server)
{
    uint32_t at = map->server_count;

    if (map->server_count == MUSTER_PARAMS_SERVERS_MAX)
        return;
    while (at > 0 &&
           memcmp(map->servers[at - 1].id.bytes, server->id.bytes, sizeof(server->id.bytes)) > 0) {
        map->servers[at] = map->servers[at - 1];
        at--;
    }
    map->servers[at] = *server;
    map->server_count++;
}

/* Servers of the last map come first, so that new ones never take the room of one that has shards: a
 * lost server whose shards nobody else has is waited for, and one that leaves is needed until it has
 * given all away. */
static void servers_gather(struct step *step)
{
    const struct muster_params_decide_input *input = step->input;

    for (uint32_t i = 0; step->before != NULL && i < step->before->server_count; i++) {
        const struct muster_params_map_server *server = &step->before->servers[i];
        const struct muster_params_candidate *candidate = candidate_find(input, &server->id);

        if (server_has_shards(step->before, i) ||
            (candidate != NULL && !candidate->server.is_leaving))
            server_insert(step->next, candidate != NULL ? &candidate->server : server);
    }
    for (uint32_t i = 0; i < input->alive_count; i++) {
        const struct muster_params_map_server *server = &input->alive[i].server;

        if (!server->is_leaving && !muster_params_map_find(step->next, &server->id, NULL))
            server_insert(step->next, server);
    }
    for (uint32_t i = 0; i < step->next->server_count; i++) {
        const struct muster_params_candidate *candidate =
            candidate_find(input, &step->next->servers[i].id);

        step->is_alive[i] = candidate != NULL;
        step->is_full[i] = candidate != NULL && candidate->is_full;
    }
}

/* The target of a shard: a server that is full counts only where it has the copy already. */
static uint32_t targets_find(const struct step *step, uint32_t number,
                             const struct muster_params_map_shard *shard,
                             uint16_t ret_places[MUSTER_PARAMS_COPIES_MAX])
{
    bool is_usable[MUSTER_PARAMS_SERVERS_MAX];

    for (uint32_t i = 0; i < step->next->server_count; i++)
        is_usable[i] = step->is_alive[i] &&
                       (!step->is_full[i] || list_has(shard->copies, shard->copy_count, i));
    return muster_params_place_targets(step->next, is_usable, number, ret_places);
}

/* --- A shard --- */

static void places_translate(const struct step *step, const uint16_t *before, uint8_t count,
                             uint16_t *ret_places, uint8_t *ret_count)
{
    *ret_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place;

        if (muster_params_map_find(step->next, &step->before->servers[before[i]].id, &place))
            ret_places[(*ret_count)++] = (uint16_t)place;
    }
}

/* Remove lost copies if another copy is alive; otherwise all of them are waited for. Remove lost learners. */
static void lost_drop(const struct step *step, struct muster_params_map_shard *shard)
{
    bool has_living = false;

    for (uint32_t i = 0; i < shard->copy_count; i++)
        has_living = has_living || step->is_alive[shard->copies[i]];
    for (uint32_t i = shard->copy_count; i > 0 && has_living; i--) {
        if (!step->is_alive[shard->copies[i - 1]])
            list_cut(shard->copies, &shard->copy_count, i - 1);
    }
    for (uint32_t i = shard->learner_count; i > 0; i--) {
        if (!step->is_alive[shard->learners[i - 1]])
            list_cut(shard->learners, &shard->learner_count, i - 1);
    }
}

static bool place_is_stale(const struct step *step, uint32_t number, uint16_t place)
{
    uint32_t before;

    return muster_params_map_find(step->before, &step->next->servers[place].id, &before) &&
           step->input->is_stale(step->input->data, number, before);
}

/* Remove copies that are stale. The primary has all that was acknowledged, since a push is acknowledged only
 * when all copies have it. A stale learner stays one; its primary waits to see that no map before has made it a
 * copy. */
static void stale_drop(struct step *step, uint32_t number, struct muster_params_map_shard *shard)
{
    if (step->input->is_stale == NULL || shard->copy_count == 0 ||
        !step->is_alive[shard->copies[0]])
        return;
    for (uint32_t i = shard->copy_count; i > 1; i--) {
        if (place_is_stale(step, number, shard->copies[i - 1]))
            list_cut(shard->copies, &shard->copy_count, i - 1);
    }
    for (uint32_t i = 0; i < shard->learner_count; i++)
        step->is_awaited |= place_is_stale(step, number, shard->learners[i]);
}

/* The list of copies is full, and a learner of the target has all of the shard: a copy that the target does
 * not name is removed for it. */
static void room_make(const uint16_t *targets, uint32_t target_count, uint16_t learner,
                      struct muster_params_map_shard *shard)
{
    if (shard->copy_count < MUSTER_PARAMS_COPIES_MAX || !list_has(targets, target_count, learner))
        return;
    for (uint32_t i = shard->copy_count; i > 0; i--) {
        if (list_has(targets, target_count, shard->copies[i - 1]))
            continue;
        list_cut(shard->copies, &shard->copy_count, i - 1);
        return;
    }
}

static void ready_promote(const struct step *step, uint32_t number, const uint16_t *targets,
                          uint32_t target_count, struct muster_params_map_shard *shard)
{
    for (uint32_t i = shard->learner_count; i > 0; i--) {
        uint16_t place = shard->learners[i - 1];
        uint32_t before;

        if (!muster_params_map_find(step->before, &step->next->servers[place].id, &before) ||
            !muster_params_map_is_learner(step->before, number, before) ||
            step->input->is_ready == NULL ||
            !step->input->is_ready(step->input->data, number, before))
            continue;
        room_make(targets, target_count, place, shard);
        if (shard->copy_count == MUSTER_PARAMS_COPIES_MAX)
            continue;
        list_cut(shard->learners, &shard->learner_count, i - 1);
        shard->copies[shard->copy_count++] = place;
    }
}

static uint32_t living_count(const struct step *step, const struct muster_params_map_shard *shard,
                             const uint16_t *targets, uint32_t target_count)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < shard->copy_count; i++)
        count += step->is_alive[shard->copies[i]] &&
                 (targets == NULL || list_has(targets, target_count, shard->copies[i]));
    return count;
}

/* Whether the shard's next copy may lead it. A primary that is alive says so itself, since nobody else knows
 * whether a copy differs. */
static bool heir_is_whole(const struct step *step, uint32_t number,
                          const struct muster_params_map_shard *shard)
{
    const struct muster_params_decide_input *input = step->input;
    uint32_t before;

    if (input->is_whole == NULL || shard->copy_count < 2 || !step->is_alive[shard->copies[0]])
        return true;
    return muster_params_map_find(step->before, &step->next->servers[shard->copies[1]].id,
                                  &before) &&
           input->is_whole(input->data, number, before);
}

/* Remove copies that the target does not name while enough others are alive. The primary is removed only when
 * all copies of the target are there, since clients have to follow it. */
static void surplus_drop(const struct step *step, uint32_t number, const uint16_t *targets,
                         uint32_t target_count, struct muster_params_map_shard *shard)
{
    for (uint32_t i = shard->copy_count; i > 0; i--) {
        bool is_living = step->is_alive[shard->copies[i - 1]];
        bool is_enough =
            living_count(step, shard, NULL, 0) - is_living >= step->next->copies_wanted;
        bool is_complete =
            target_count > 0 && living_count(step, shard, targets, target_count) == target_count;

        if (list_has(targets, target_count, shard->copies[i - 1]))
            continue;
        if (i == 1 ? is_complete && heir_is_whole(step, number, shard) : is_complete || is_enough)
            list_cut(shard->copies, &shard->copy_count, i - 1);
    }
}

/* Remove learners that the target does not name, and all of them where no copy is alive to teach them. */
static void learners_cut(const struct step *step, const uint16_t *targets, uint32_t target_count,
                         struct muster_params_map_shard *shard)
{
    if (shard->copy_count == 0 || !step->is_alive[shard->copies[0]])
        shard->learner_count = 0;
    for (uint32_t i = shard->learner_count; i > 0; i--) {
        if (!list_has(targets, target_count, shard->learners[i - 1]))
            list_cut(shard->learners, &shard->learner_count, i - 1);
    }
}

/* The first target leads where the primary has handed the shard over. */
static void leader_change(const struct step *step, uint32_t number, const uint16_t *targets,
                          uint32_t target_count, struct muster_params_map_shard *shard)
{
    const struct muster_params_decide_input *input = step->input;
    uint32_t place;

    if (input->is_handed == NULL || target_count == 0 ||
        !muster_params_map_find(step->before, &step->next->servers[targets[0]].id, &place) ||
        !input->is_handed(input->data, number, place))
        return;
    for (uint32_t i = 1; i < shard->copy_count; i++) {
        if (shard->copies[i] != targets[0])
            continue;
        shard->copies[i] = shard->copies[0];
        shard->copies[0] = targets[0];
    }
}

/* Begin moves of the shard. Moves of all shards that go on are counted already. */
static void learners_add(struct step *step, uint32_t number)
{
    struct muster_params_map_shard *shard = &step->next->shards[number];
    uint16_t targets[MUSTER_PARAMS_COPIES_MAX];
    uint32_t target_count = targets_find(step, number, shard, targets);

    for (uint32_t i = 0; i < target_count; i++) {
        uint16_t place = targets[i];

        if (step->moves[place] >= step->moves_max ||
            shard->learner_count == MUSTER_PARAMS_LEARNERS_MAX ||
            list_has(shard->copies, shard->copy_count, place) ||
            list_has(shard->learners, shard->learner_count, place))
            continue;
        shard->learners[shard->learner_count++] = place;
        step->moves[place]++;
    }
}

static bool primary_has_changed(const struct step *step, uint32_t number)
{
    const struct muster_params_map_shard *shard = &step->next->shards[number];
    const struct muster_params_map_shard *before = &step->before->shards[number];

    if (shard->copy_count == 0 || before->copy_count == 0)
        return shard->copy_count != before->copy_count;
    return !muster_incarnation_is_equal(&step->next->servers[shard->copies[0]].id,
                                        &step->before->servers[before->copies[0]].id);
}

/* Whether there is somebody to learn the shard, and somebody to teach it. */
static bool shard_is_short(const struct step *step, const struct muster_params_map_shard *shard,
                           const uint16_t *targets, uint32_t target_count)
{
    if (shard->copy_count == 0 || !step->is_alive[shard->copies[0]])
        return false;
    for (uint32_t i = 0; i < target_count; i++) {
        if (!list_has(shard->copies, shard->copy_count, targets[i]) &&
            !list_has(shard->learners, shard->learner_count, targets[i]))
            return true;
    }
    return false;
}

static void shard_settle(struct step *step, uint32_t number)
{
    struct muster_params_map_shard *shard = &step->next->shards[number];
    uint16_t targets[MUSTER_PARAMS_COPIES_MAX];
    uint32_t target_count;

    if (step->before != NULL) {
        const struct muster_params_map_shard *before = &step->before->shards[number];

        shard->since = before->since;
        places_translate(step, before->copies, before->copy_count, shard->copies,
                         &shard->copy_count);
        places_translate(step, before->learners, before->learner_count, shard->learners,
                         &shard->learner_count);
        stale_drop(step, number, shard);
        lost_drop(step, shard);
        target_count = targets_find(step, number, shard, targets);
        ready_promote(step, number, targets, target_count, shard);
        surplus_drop(step, number, targets, target_count, shard);
        learners_cut(step, targets, target_count, shard);
        leader_change(step, number, targets, target_count, shard);
        for (uint32_t i = 0; i < shard->learner_count; i++)
            step->moves[shard->learners[i]]++;
        step->is_short[number] = shard_is_short(step, shard, targets, target_count);
    }
    if (step->before == NULL) { /* nobody has anything yet */
        target_count = muster_params_place_targets(step->next, step->is_alive, number, targets);
        shard->copy_count = (uint8_t)target_count;
        memcpy(shard->copies, targets, target_count * sizeof(targets[0]));
    }
    if (step->before == NULL || primary_has_changed(step, number))
        shard->since = step->next->epoch;
}

/* --- The step --- */

static bool map_has_changed(const struct muster_params_map *before,
                            const struct muster_params_map *next)
{
    if (before == NULL)
        return next->server_count > 0;
    if (before->server_count != next->server_count || before->is_unused != next->is_unused ||
        memcmp(before->servers, next->servers, next->server_count * sizeof(next->servers[0])) != 0)
        return true;
    return memcmp(before->shards, next->shards, next->shard_count * sizeof(next->shards[0])) != 0;
}

/* Places beyond the counts are zero, so that equal shards have equal bytes. */
static void shard_clean(struct muster_params_map_shard *shard)
{
    struct muster_params_map_shard clean;

    memset(&clean, 0, sizeof(clean));
    clean.since = shard->since;
    clean.copy_count = shard->copy_count;
    clean.learner_count = shard->learner_count;
    memcpy(clean.copies, shard->copies, shard->copy_count * sizeof(clean.copies[0]));
    memcpy(clean.learners, shard->learners, shard->learner_count * sizeof(clean.learners[0]));
    *shard = clean;
}

bool muster_params_decide_begins_anew(const struct muster_params_decide_input *input)
{
    const struct muster_params_map *map = input->map;

    if (map == NULL || !map->is_unused)
        return false;
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        for (uint32_t i = 0; i < map->shards[shard].copy_count; i++) {
            if (candidate_find(input, &map->servers[map->shards[shard].copies[i]].id) != NULL)
                return false;
        }
    }
    return true;
}

enum muster_rc muster_params_decide(struct muster_mem *mem,
                                    const struct muster_params_decide_input *input,
                                    struct muster_params_map **ret_map)
{
    const struct muster_params_map *before =
        muster_params_decide_begins_anew(input) ? NULL : input->map;
    struct step step = {.input = input,
                        .before = before,
                        .next = muster_params_map_new(mem),
                        .moves_max = input->moves_max != 0 ? input->moves_max : MOVES_MAX_DEFAULT};
    struct muster_params_map *next = step.next;

    if (next == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    next->epoch = input->map != NULL ? input->map->epoch + 1 : 1;
    next->shard_count = input->map != NULL ? input->map->shard_count : input->shard_count;
    next->copies_wanted = before != NULL ? before->copies_wanted : input->copies_wanted;
    next->is_unused = input->is_unused && (before == NULL || before->is_unused);
    servers_gather(&step);
    for (uint32_t number = 0; number < next->shard_count; number++)
        shard_settle(&step, number);
    for (uint32_t number = 0; number < next->shard_count; number++) {
        if (step.is_short[number])
            learners_add(&step, number);
        shard_clean(&next->shards[number]);
    }
    if (!step.is_awaited && !map_has_changed(before, next)) {
        muster_mem_free(mem, next);
        next = NULL;
    }
    *ret_map = next;
    return MUSTER_OK;
}
