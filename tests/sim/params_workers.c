/* Workers that push by round, die, and are started again under their names. */
#include "tests/sim/params_workers.h"

#include <inttypes.h>
#include <string.h>

#include "tests/sim/sim_internal.h"

#define PATIENCE_NS (3600 * MUSTER_NS_PER_S)
#define CLOSE_NS    (30 * MUSTER_NS_PER_S)
#define WEIGHT_MAX  3u

struct program;

struct piece {
    struct program *program;
    struct muster_params_op op;
    uint32_t count;
    uint64_t keys[PARAMS_WORKER_ROWS];
    float values[PARAMS_WORKER_ROWS * PARAMS_ROUND_WIDTH];
};

/* A process of a worker. */
struct program {
    struct params_worker *worker;
    struct muster_env *env;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_params_op table_op, tick_op;
    struct muster_timer timer; /* until it ticks */
    struct piece pieces[PARAMS_PIECES_MAX], look;
    uint32_t pieces_left;
    uint64_t round, tick;
    bool is_whole; /* all pieces of the round were taken */
    bool is_lazy;    /* pieces are pushed when it has thought */
    bool is_done, is_refused, is_looking;
};

static uint64_t crew_draw(struct params_crew *crew, uint64_t bound)
{
    return muster_rng_below(sim_world_rng(crew->world), bound);
}

static uint64_t program_draw(struct program *program, uint64_t bound)
{
    return muster_rng_below(program->env->rng, bound);
}

static uint64_t program_deadline(const struct program *program)
{
    return muster_loop_after_ns(program->env->loop, PATIENCE_NS);
}

/* An older process of the name may have sent its OPEN late: then another one is started. */
static void program_refuse(struct program *program, enum muster_rc rc, const char *text)
{
    if (program->worker->life_count < 2)
        sim_fail(program->worker->crew->world, "%s is refused: %s, %s", program->worker->name,
                 muster_rc_text(rc), text);
    program->is_refused = true;
}

static void round_begin(struct program *program, uint64_t round);
static void round_join(struct program *program, uint64_t round);

/* --- Ticks --- */

static void look_begin(struct program *program);

static void on_tick(struct muster_params_op *op, enum muster_rc rc)
{
    struct program *program = op->data;
    struct params_worker *worker = program->worker;

    if (rc != MUSTER_OK) {
        program_refuse(program, rc, op->error.text);
        return;
    }
    if (program->tick == MUSTER_PARAMS_CLOCK_DONE) {
        program->is_done = true;
        return;
    }
    if (program->round == UINT64_MAX) { /* it has joined */
        round_begin(program, program->tick);
        return;
    }
    worker->is_sure[program->round] = program->is_whole && program->pieces_left == 0;
    if (worker->crew->look_count < PARAMS_LOOKS_MAX && program_draw(program, 2) == 0)
        look_begin(program);
    else
        round_begin(program, program->tick);
}

static void tick_begin(struct program *program, uint64_t clock, double weight)
{
    enum muster_rc rc;

    program->tick = clock;
    program->tick_op.data = program;
    if (program->worker->crew->is_carried && clock != MUSTER_PARAMS_CLOCK_DONE) {
        weight = (double)clock;
        if (clock > program->worker->started)
            program->worker->started = clock;
    }
    rc = muster_params_tick_weighted_start(&program->tick_op, program->params, clock, weight,
                                           program_deadline(program), on_tick);
    if (rc != MUSTER_OK)
        program_refuse(program, rc, "a tick");
}

/* --- Pulls --- */

static void look_add(struct program *program, uint64_t round, uint32_t row)
{
    struct piece *piece = &program->look;

    piece->keys[piece->count++] = params_fold_key(round, row);
}

static void on_look(struct muster_params_op *op, enum muster_rc rc)
{
    struct program *program = op->data;
    struct params_crew *crew = program->worker->crew;
    struct params_look *look;

    if (rc != MUSTER_OK) {
        program_refuse(program, rc, op->error.text);
        return;
    }
    if (program->is_looking) {
        memcpy(crew->rows[program->worker->element], program->look.values, sizeof(crew->rows[0]));
        crew->has_rows[program->worker->element] = true;
        program->is_looking = false;
        return;
    }
    if (crew->look_count < PARAMS_LOOKS_MAX) {
        look = &crew->looks[crew->look_count++];
        look->clock = program->tick;
        memcpy(look->rows, program->look.values, sizeof(look->rows));
    }
    round_begin(program, program->tick);
}

static void look_start(struct program *program, uint64_t clock)
{
    struct muster_params_rows rows = {
        .keys = program->look.keys, .values = program->look.values, .count = program->look.count};
    uint64_t deadline_ns = program_deadline(program);
    enum muster_rc rc;

    program->look.op.data = program;
    rc = muster_params_pull_after_start(&program->look.op, program->table, &rows, clock,
                                        deadline_ns, on_look);
    if (rc != MUSTER_OK)
        program_refuse(program, rc, "a pull");
}

/* The rows behind the round that this worker has completed. */
static void look_begin(struct program *program)
{
    program->look.count = 0;
    for (uint32_t row = 0; row < PARAMS_DENSE; row++)
        look_add(program, 0, PARAMS_MARKERS + row);
    look_start(program, program->tick);
}

/* --- Pushes --- */

static void on_piece(struct muster_params_op *op, enum muster_rc rc)
{
    struct piece *piece = op->data;
    struct program *program = piece->program;
    struct params_crew *crew = program->worker->crew;
    bool is_late = rc == MUSTER_OUT_OF_RANGE && crew->quorum > 0 && !crew->is_carried;

    if (rc != MUSTER_OK && !is_late) {
        program_refuse(program, rc, op->error.text);
        return;
    }
    program->is_whole &= !is_late;
    program->pieces_left--;
    if (program->pieces_left > 0 || program->is_whole)
        return;
    /* The round has been closed without this worker. */
    muster_timer_stop(&program->timer);
    if (program->tick == program->round)
        round_join(program, program->round + 1);
}

static void pieces_draw(struct program *program, uint64_t round)
{
    uint32_t count = 1 + (uint32_t)program_draw(program, PARAMS_PIECES_MAX);

    for (uint32_t i = 0; i < PARAMS_PIECES_MAX; i++)
        program->pieces[i].count = 0;
    for (uint32_t row = 0; row < PARAMS_ROUND_ROWS; row++) {
        struct piece *piece = &program->pieces[program_draw(program, count)];

        for (uint32_t i = 0; i < PARAMS_ROUND_WIDTH; i++)
            piece->values[piece->count * PARAMS_ROUND_WIDTH + i] =
                params_fold_gradient(program->worker->element, round, row, i);
        piece->keys[piece->count++] = params_fold_key(round, row);
    }
}

static void pieces_push(struct program *program)
{
    for (uint32_t i = 0; i < PARAMS_PIECES_MAX; i++) {
        struct piece *piece = &program->pieces[i];
        struct muster_params_rows rows = {
            .keys = piece->keys, .values = piece->values, .count = piece->count};

        if (piece->count == 0)
            continue;
        piece->program = program;
        piece->op.data = piece;
        program->pieces_left++;
        if (muster_params_push_start(&piece->op, program->table, &rows, program_deadline(program),
                                     on_piece) != MUSTER_OK)
            program_refuse(program, MUSTER_FAILED_PRECONDITION, "a push");
    }
}

/* Pushes that came too late for their round count in the open one. */
static void on_think(struct muster_timer *timer)
{
    struct program *program = timer->data;
    uint64_t round = program->round, open = muster_params_table_round(program->table);

    if (program->is_lazy)
        pieces_push(program);
    if (program->worker->crew->is_carried && open > round)
        round = open;
    tick_begin(program, round + 1, (double)program->worker->weights[program->round]);
}

/* All that the source may have begun before is closed: it has ticked `round`. */
static void round_begin(struct program *program, uint64_t round)
{
    struct params_worker *worker = program->worker;

    if (worker->crew->is_ending || round >= PARAMS_ROUNDS_MAX) {
        tick_begin(program, MUSTER_PARAMS_CLOCK_DONE, 1);
        return;
    }
    program->round = program->tick = round;
    program->is_whole = true;
    program->is_lazy = worker->crew->is_carried && program_draw(program, 2) == 0;
    program->pieces_left = 0;
    worker->started = round + 1;
    worker->is_begun[round] = true;
    worker->weights[round] = 1 + (float)program_draw(program, WEIGHT_MAX);
    pieces_draw(program, round);
    if (!program->is_lazy)
        pieces_push(program);
    muster_timer_start(
        &program->timer, program->env->loop,
        muster_loop_after_ns(program->env->loop, program_draw(program, worker->crew->act_max_ns)));
}

/* Go on with this round or a later one that is open; earlier ones count without what was pushed to them. */
static void round_join(struct program *program, uint64_t round)
{
    uint64_t open = muster_params_table_round(program->table);

    if (open > round)
        round = open;
    if (round == 0)
        round_begin(program, 0);
    else {
        program->round = UINT64_MAX;
        tick_begin(program, round, 0);
    }
}

/* --- Processes --- */

static void on_table(struct muster_params_op *op, enum muster_rc rc)
{
    struct program *program = op->data;

    if (rc != MUSTER_OK)
        program_refuse(program, rc, op->error.text);
    else
        round_join(program, program->worker->started);
}

static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    struct program *program = muster_params_data(params);
    struct params_crew *crew = program->worker->crew;
    struct muster_params_schema schema = {.name = "weights",
                                          .row_elements = PARAMS_ROUND_WIDTH,
                                          .wire_dtype = MUSTER_F32,
                                          .optimizer = MUSTER_PARAMS_SGD,
                                          .learning_rate = 1,
                                          .is_by_round = true,
                                          .is_round_mean = crew->is_mean,
                                          .is_round_carried = crew->is_carried,
                                          .round_quorum = crew->quorum,
                                          .round_grace_ns = crew->grace_ns};

    program->table_op.data = program;
    if (rc == MUSTER_OK)
        rc = muster_params_table_start(&program->table_op, params, &schema, &program->table,
                                       program_deadline(program), on_table);
    if (rc != MUSTER_OK)
        program_refuse(program, rc, muster_params_error(params)->text);
}

static void start_worker(struct sim_node *node, struct muster_env *env, void *data)
{
    struct params_worker *worker = data;
    struct program *program = muster_mem_alloc_zero(env->mem, 1, sizeof(*program));
    struct muster_params_options options = {.server = worker->crew->servers,
                                            .job = worker->crew->job,
                                            .source = worker->name,
                                            .clock_sources = worker->crew->worker_count,
                                            .connect_deadline_ns =
                                                muster_loop_after_ns(env->loop, PATIENCE_NS),
                                            .data = program};

    program->worker = worker;
    program->env = env;
    muster_timer_init(&program->timer, on_think, program);
    if (muster_params_open(env, &options, on_opened, &program->params, NULL) != MUSTER_OK)
        sim_fail(worker->crew->world, "%s does not open", worker->name);
    sim_node_set_program(node, program);
}

/* NULL: its process is dead, or has not begun. */
static struct program *program_of(const struct params_worker *worker)
{
    return sim_node_is_alive(worker->node) ? sim_node_program(worker->node) : NULL;
}

static void worker_start(struct params_worker *worker)
{
    char name[40];

    snprintf(name, sizeof(name), "%s.%" PRIu32, worker->name, worker->life_count++);
    /* It will say that the round has no weight, and may be heard first. */
    if (worker->started > 0 && !worker->crew->is_carried)
        worker->is_sure[worker->started - 1] = false;
    worker->node = sim_node_start(
        worker->crew->world,
        &(struct sim_node_options){
            .name = name, .host = worker->host, .start = start_worker, .data = worker});
}

void params_crew_revive(struct params_crew *crew)
{
    for (uint32_t i = 0; i < crew->worker_count; i++) {
        struct params_worker *worker = &crew->workers[i];
        const struct program *program = program_of(worker);

        if (program != NULL && program->is_refused)
            sim_kill(worker->node);
        if (!sim_node_is_alive(worker->node) && !worker->is_over)
            worker_start(worker);
    }
}

void params_crew_kill(struct params_crew *crew)
{
    struct params_worker *worker = &crew->workers[crew_draw(crew, crew->worker_count)];

    if (sim_node_is_alive(worker->node) && !worker->is_over)
        sim_kill(worker->node);
}

void params_crew_open(struct params_crew *crew)
{
    crew->worker_count = 2 + (uint32_t)crew_draw(crew, PARAMS_WORKERS_MAX - 1);
    crew->quorum = crew_draw(crew, 2) == 0 ? 0 : crew->worker_count - 1;
    crew->grace_ns = crew->quorum == 0 ? 0 : crew_draw(crew, 4 * crew->act_max_ns);
    crew->is_mean = crew_draw(crew, 2) == 0;
    if (crew->is_carried) {
        crew->quorum = crew->worker_count - 1;
        crew->is_mean = false; /* a marker tells the round by its weight */
    }
    for (uint32_t i = 0; i < crew->worker_count; i++) {
        struct params_worker *worker = &crew->workers[i];

        worker->crew = crew;
        worker->element = i;
        snprintf(worker->name, sizeof(worker->name), "worker%" PRIu32, i);
        worker->host = sim_host_add(crew->world, worker->name);
        worker_start(worker);
    }
}

/* --- The end --- */

static bool workers_are_done(void *data)
{
    const struct params_crew *crew = data;

    for (uint32_t i = 0; i < crew->worker_count; i++) {
        const struct program *program = program_of(&crew->workers[i]);

        if (program == NULL || !program->is_done)
            return false;
    }
    return true;
}

/* Each has heard of the end of every round that another one has heard of. */
static bool rounds_are_told(void *data)
{
    const struct params_crew *crew = data;
    uint64_t round = muster_params_table_round(program_of(&crew->workers[0])->table);

    for (uint32_t i = 0; i < crew->worker_count; i++) {
        if (crew->workers[i].started > round ||
            muster_params_table_round(program_of(&crew->workers[i])->table) != round)
            return false;
    }
    return true;
}

static bool workers_have_looked(void *data)
{
    const struct params_crew *crew = data;

    for (uint32_t i = 0; i < crew->worker_count; i++)
        if (!crew->has_rows[i])
            return false;
    return true;
}

typedef void program_visit_fn(struct program *program);

static void crew_visit(struct params_crew *crew, program_visit_fn *visit)
{
    for (uint32_t i = 0; i < crew->worker_count; i++) {
        sim_enter(crew->workers[i].node);
        visit(program_of(&crew->workers[i]));
        sim_leave(crew->workers[i].node);
    }
}

static void visit_look(struct program *program)
{
    program->is_looking = true;
    program->look.count = 0;
    for (uint64_t round = 0; round < PARAMS_ROUNDS_MAX; round++)
        for (uint32_t row = 0; row < PARAMS_MARKERS; row++)
            look_add(program, round, row);
    for (uint32_t row = 0; row < PARAMS_DENSE; row++)
        look_add(program, 0, PARAMS_MARKERS + row);
    look_start(program, 0);
}

static void on_closed(struct muster_params *params, enum muster_rc rc)
{
    struct program *program = muster_params_data(params);

    (void)rc;
    program->params = NULL;
}

static void visit_close(struct program *program)
{
    muster_params_close(program->params, muster_loop_after_ns(program->env->loop, CLOSE_NS),
                        on_closed);
}

static void visit_free(struct program *program)
{
    muster_mem_free(program->env->mem, program);
}

static bool workers_are_closed(void *data)
{
    const struct params_crew *crew = data;

    for (uint32_t i = 0; i < crew->worker_count; i++)
        if (program_of(&crew->workers[i])->params != NULL)
            return false;
    return true;
}

static bool crew_await(struct params_crew *crew, sim_condition_fn *condition, uint64_t limit_ns,
                       const char *text)
{
    if (sim_failure(crew->world) == NULL && !sim_run_until(crew->world, condition, crew, limit_ns))
        sim_fail(crew->world, "%s", text);
    return sim_failure(crew->world) == NULL;
}

static void workers_exit(struct params_crew *crew)
{
    crew_visit(crew, visit_close);
    if (!crew_await(crew, workers_are_closed, CLOSE_NS, "the workers do not close") ||
        !sim_run_for(crew->world, MUSTER_NS_PER_S))
        return;
    crew_visit(crew, visit_free);
    for (uint32_t i = 0; i < crew->worker_count; i++) {
        crew->workers[i].is_over = true;
        sim_exit(crew->workers[i].node);
    }
}

static void rounds_blame(const struct params_crew *crew)
{
    for (uint32_t i = 0; i < crew->worker_count; i++) {
        const struct program *program = program_of(&crew->workers[i]);

        if (program != NULL && !program->is_done)
            sim_fail(crew->world,
                     "%s does not end though all is well: its clock %" PRId64 ", round %" PRId64
                     ", %" PRIu32 " pushes, open %" PRId64 ", %s",
                     crew->workers[i].name, (int64_t)program->tick, (int64_t)program->round,
                     program->pieces_left,
                     program->table != NULL ? (int64_t)muster_params_table_round(program->table)
                                            : -1,
                     muster_params_error(program->params)->text);
    }
}

void params_crew_finish(struct params_crew *crew, uint64_t limit_ns)
{
    uint64_t end_ns = sim_world_now_ns(crew->world) + limit_ns;

    crew->is_ending = true;
    while (!workers_are_done(crew)) {
        params_crew_revive(crew);
        if (!sim_run_for(crew->world, 50 * MUSTER_NS_PER_MS))
            return;
        if (sim_world_now_ns(crew->world) >= end_ns) {
            rounds_blame(crew);
            return;
        }
    }
    if (!crew_await(crew, rounds_are_told, limit_ns, "a worker does not hear of a round") ||
        !sim_run_for(crew->world, MUSTER_NS_PER_S))
        return;
    crew_visit(crew, visit_look);
    if (!crew_await(crew, workers_have_looked, limit_ns, "a pull at rest does not end"))
        return;
    if (crew->is_carried)
        params_carried_check(crew);
    else
        params_fold_check(crew);
    if (sim_failure(crew->world) == NULL)
        workers_exit(crew);
}
