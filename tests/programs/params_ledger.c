/* A client of parameters that keeps a ledger: params_ledger SERVERS JOB ELEMENT PUSHES [held]. It adds 1 to its
 * own element of random rows, 64 at a time with eight pushes under way, and compares the rows with what was
 * acknowledged when the last one is. Prints a line when its table is open, where "held" is given reads a line
 * before its first push, and prints a line at the end:
 * "done ROWS lost L doubled D stall_ms S"; ends with 1 when a push fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/env.h>
#include <muster/params.h>
#include <muster/stream.h>

#define ROWS       1000u
#define ELEMENTS   4u
#define BATCH      64u
#define UNDER_WAY  8u
#define TIMEOUT_NS (60 * MUSTER_NS_PER_S)

struct push {
    struct muster_params_op op;
    struct ledger *ledger;
    uint64_t keys[BATCH];
    float values[BATCH][ELEMENTS];
};

struct ledger {
    struct muster_env *env;
    struct muster_params *params;
    struct muster_params_table *table;
    unsigned element;
    uint64_t left, under_way, acknowledged; /* pushes */
    uint64_t seed, last_ns, stall_ns;
    uint32_t counts[ROWS];
    float found[ROWS][ELEMENTS];
    struct push pushes[UNDER_WAY];
    struct muster_params_op op;
    bool is_done;
    enum muster_rc rc;
};

static void on_params(struct muster_params *params, enum muster_rc rc)
{
    struct ledger *ledger = muster_params_data(params);

    ledger->is_done = true;
    ledger->rc = rc;
}

static void on_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct ledger *ledger = op->data;

    ledger->is_done = true;
    ledger->rc = rc;
}

static bool ledger_await(struct ledger *ledger, enum muster_rc rc, const char *what)
{
    while (rc == MUSTER_OK && !ledger->is_done)
        muster_loop_turn(ledger->env->loop, UINT64_MAX);
    if (rc == MUSTER_OK)
        rc = ledger->rc;
    ledger->is_done = false;
    if (rc != MUSTER_OK)
        fprintf(stderr, "params_ledger: %s: %s (%s)\n", what, muster_rc_text(rc),
                ledger->op.error.rc != MUSTER_OK ? ledger->op.error.text
                : ledger->params != NULL         ? muster_params_error(ledger->params)->text
                                                 : "");
    return rc == MUSTER_OK;
}

static uint64_t deadline_of(const struct ledger *ledger)
{
    return muster_loop_after_ns(ledger->env->loop, TIMEOUT_NS);
}

static void push_start(struct push *push);

static void on_push(struct muster_params_op *op, enum muster_rc rc)
{
    struct push *push = op->data;
    struct ledger *ledger = push->ledger;
    uint64_t now_ns = muster_loop_now_ns(ledger->env->loop);

    ledger->under_way--;
    if (rc != MUSTER_OK) {
        fprintf(stderr, "params_ledger: a push: %s\n", op->error.text);
        ledger->rc = rc;
        ledger->left = 0;
        return;
    }
    for (uint32_t i = 0; i < BATCH; i++)
        ledger->counts[push->keys[i]]++;
    ledger->acknowledged++;
    if (now_ns - ledger->last_ns > ledger->stall_ns)
        ledger->stall_ns = now_ns - ledger->last_ns;
    ledger->last_ns = now_ns;
    if (ledger->left > 0)
        push_start(push);
}

static void push_start(struct push *push)
{
    struct ledger *ledger = push->ledger;
    const struct muster_params_rows rows = {push->keys, push->values, BATCH};
    enum muster_rc rc;

    for (uint32_t i = 0; i < BATCH; i++) {
        ledger->seed = ledger->seed * 6364136223846793005u + 1442695040888963407u;
        push->keys[i] = (ledger->seed >> 33) % ROWS;
        for (unsigned j = 0; j < ELEMENTS; j++)
            push->values[i][j] = j == ledger->element ? 1 : 0;
    }
    push->op.data = push;
    ledger->left--;
    ledger->under_way++;
    rc = muster_params_push_start(&push->op, ledger->table, &rows, deadline_of(ledger), on_push);
    if (rc == MUSTER_OK)
        return;
    fprintf(stderr, "params_ledger: a push cannot start: %s\n", muster_rc_text(rc));
    ledger->under_way--;
    ledger->left = 0;
    ledger->rc = rc;
}

static bool ledger_push(struct ledger *ledger)
{
    ledger->rc = MUSTER_OK;
    ledger->last_ns = muster_loop_now_ns(ledger->env->loop);
    for (uint32_t i = 0; i < UNDER_WAY && ledger->left > 0; i++) {
        ledger->pushes[i].ledger = ledger;
        push_start(&ledger->pushes[i]);
    }
    while (ledger->under_way > 0)
        muster_loop_turn(ledger->env->loop, UINT64_MAX);
    return ledger->rc == MUSTER_OK;
}

static bool ledger_compare(struct ledger *ledger)
{
    uint64_t keys[ROWS], lost = 0, doubled = 0;
    const struct muster_params_rows rows = {keys, ledger->found, ROWS};
    enum muster_rc rc;

    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    ledger->op.data = ledger;
    rc = muster_params_pull_start(&ledger->op, ledger->table, &rows, deadline_of(ledger), on_op);
    if (!ledger_await(ledger, rc, "the pull"))
        return false;
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t found = (uint32_t)ledger->found[i][ledger->element];

        lost += found < ledger->counts[i] ? ledger->counts[i] - found : 0;
        doubled += found > ledger->counts[i] ? found - ledger->counts[i] : 0;
    }
    printf("done %llu lost %llu doubled %llu stall_ms %.1f\n",
           (unsigned long long)ledger->acknowledged * BATCH, (unsigned long long)lost,
           (unsigned long long)doubled, (double)ledger->stall_ns / (double)MUSTER_NS_PER_MS);
    return lost == 0 && doubled == 0;
}

static bool line_read(void)
{
    int character = getchar();

    while (character != '\n' && character != EOF)
        character = getchar();
    return character == '\n';
}

static bool ledger_run(struct ledger *ledger, const struct muster_params_options *options,
                       bool is_held)
{
    static const struct muster_params_schema schema = {.name = "ledger",
                                                       .row_elements = ELEMENTS,
                                                       .wire_dtype = MUSTER_F32,
                                                       .optimizer = MUSTER_PARAMS_ADD};
    bool is_right = ledger_await(
        ledger,
        muster_params_open(ledger->env, options, on_params, &ledger->params, &ledger->op.error),
        "opening");

    ledger->op.data = ledger;
    is_right = is_right &&
               ledger_await(ledger,
                            muster_params_table_start(&ledger->op, ledger->params, &schema,
                                                      &ledger->table, deadline_of(ledger), on_op),
                            "the table");
    if (is_right) {
        puts("begun");
        fflush(stdout);
        is_right = (!is_held || line_read()) && ledger_push(ledger) && ledger_compare(ledger);
    }
    if (ledger->params == NULL)
        return false;
    muster_params_close(ledger->params, deadline_of(ledger), on_params);
    return ledger_await(ledger, MUSTER_OK, "closing") && is_right;
}

int main(int argc, char **argv)
{
    static struct ledger ledger;
    struct muster_params_options options = {.data = &ledger};
    enum muster_rc rc;
    bool is_right;

    if (argc != 5 && (argc != 6 || strcmp(argv[5], "held") != 0)) {
        fprintf(stderr, "usage: params_ledger SERVERS JOB ELEMENT PUSHES [held]\n");
        return 2;
    }
    rc = muster_env_system_open(NULL, &ledger.env);
    if (rc == MUSTER_OK)
        rc = muster_net_system_open(ledger.env, &ledger.env->net);
    if (rc != MUSTER_OK) {
        fprintf(stderr, "params_ledger: no event loop or network: %s\n", muster_rc_text(rc));
        return 1;
    }
    options.server = argv[1];
    options.job = argv[2];
    ledger.element = (unsigned)strtoul(argv[3], NULL, 10) % ELEMENTS;
    ledger.left = strtoull(argv[4], NULL, 10);
    ledger.seed = ledger.element + 1;
    options.connect_deadline_ns = deadline_of(&ledger);
    is_right = ledger_run(&ledger, &options, argc == 6);
    for (int turn = 0; turn < 4; turn++) /* links are taken down by the loop's next turns */
        muster_loop_turn(ledger.env->loop, 0);
    fflush(stdout);
    muster_net_system_close(ledger.env->net);
    muster_env_system_close(ledger.env);
    return is_right ? 0 : 1;
}
