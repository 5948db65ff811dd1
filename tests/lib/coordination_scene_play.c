/* Plays: what is asked of a coordination service step by step, and what it tells at each step. */
#include "coordination_scene_play.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_env.h"

#define NAMES      26
#define WORDS_MAX  6
#define WORD_BYTES 64

struct question {
    struct muster_coordination_ask ask;
    bool is_waiting;
};

struct stage {
    struct coordination_scene scene; /* first: the callbacks get it */
    const struct coordination_play *play;
    struct question questions[NAMES];
    uint32_t tasks[8];
    char told[4096];
};

static void add_told(struct stage *stage, const char *fmt, ...) MUSTER_PRINTF(2, 3);
static void add_told(struct stage *stage, const char *fmt, ...)
{
    size_t used = strlen(stage->told);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(stage->told + used, sizeof(stage->told) - used, fmt, args);
    va_end(args);
}

static void tell_details(struct stage *stage, const struct muster_coordination_answer *answer)
{
    add_told(stage, " <%s%s", (answer->details & MUSTER_COORDINATION_DETAIL_ERROR) != 0 ? "E" : "",
             (answer->details & MUSTER_COORDINATION_DETAIL_MISMATCH) != 0 ? "M" : "");
    if ((answer->details & MUSTER_COORDINATION_DETAIL_SOURCE) != 0)
        add_told(stage, "S%u", answer->source_task);
    if ((answer->details & MUSTER_COORDINATION_DETAIL_BARRIER) != 0)
        add_told(stage, "B%.*s", (int)answer->key.size, (const char *)answer->key.data);
    add_told(stage, ">");
}

static void on_answer(void *data, struct muster_coordination_ask *ask,
                      const struct muster_coordination_answer *answer)
{
    struct stage *stage = data;
    struct question *question = MUSTER_CONTAINER_OF(ask, struct question, ask);

    assert_true(question->is_waiting);
    question->is_waiting = false;
    add_told(stage, "%s%c %s", stage->told[0] != '\0' ? "; " : "",
             (char)('a' + (question - stage->questions)), muster_rc_name(answer->rc));
    if (answer->service_incarnation != 0)
        add_told(stage, " @%llu", (unsigned long long)answer->service_incarnation);
    if (answer->counter != 0)
        add_told(stage, " #%lld", (long long)answer->counter);
    if (answer->version != 0)
        add_told(stage, " v%lld", (long long)answer->version);
    if (answer->details != 0)
        tell_details(stage, answer);
    for (size_t i = 0; i < answer->entry_count; i++)
        add_told(stage, " %.*s=%.*s", (int)answer->entries[i].key.size,
                 (const char *)answer->entries[i].key.data, (int)answer->entries[i].value.size,
                 (const char *)answer->entries[i].value.data);
    for (size_t i = 0; i < answer->task_count; i++)
        add_told(stage, " %u:%llu/%u%s%s", answer->tasks[i].id,
                 (unsigned long long)answer->tasks[i].incarnation, (unsigned)answer->tasks[i].state,
                 answer->tasks[i].rc != MUSTER_OK ? "!" : "",
                 answer->tasks[i].rc != MUSTER_OK ? muster_rc_name(answer->tasks[i].rc) : "");
    if (answer->text != NULL)
        add_told(stage, " %s", answer->text);
}

static void keep_key(void *data, struct muster_bytes key, const struct muster_bytes *value)
{
    struct stage *stage = data;

    if (!stage->play->tells_kept)
        return;
    add_told(stage, "%s%s%.*s", stage->told[0] != '\0' ? "; " : "", value != NULL ? "+" : "-",
             (int)key.size, (const char *)key.data);
    if (value != NULL)
        add_told(stage, "=%.*s", (int)value->size, (const char *)value->data);
}

static const struct muster_coordination_ops ops = {.answer = on_answer, .keep_key = keep_key};

/* "0,2": the numbers, which the stage holds. */
static void take_tasks(struct stage *stage, const char *word,
                       struct muster_coordination_request *request)
{
    char *end = NULL;

    for (const char *at = word; *at != '\0'; at = *end == ',' ? end + 1 : end) {
        assert_true(request->task_count < sizeof(stage->tasks) / sizeof(stage->tasks[0]));
        stage->tasks[request->task_count++] = (uint32_t)strtoul(at, &end, 10);
        assert_true(end > at);
    }
    request->tasks = stage->tasks;
}

/* Each verb: its method, and what its words are: t a task, i an incarnation, n the number, k the key, v the
 * value, c the counter, T tasks. */
static const struct verb {
    const char *name;
    enum muster_coordination_method method;
    const char *words;
} verbs[] = {
    {"register", MUSTER_COORDINATION_REGISTER, "ti"},
    {"beat", MUSTER_COORDINATION_HEARTBEAT, "ti"},
    {"poll", MUSTER_COORDINATION_POLL_FOR_ERROR, "t"},
    {"shutdown", MUSTER_COORDINATION_SHUTDOWN, "t"},
    {"reset", MUSTER_COORDINATION_RESET, "t"},
    {"states", MUSTER_COORDINATION_TASK_STATE, "t"},
    {"report", MUSTER_COORDINATION_REPORT_ERROR, "tnk"},
    {"watch", MUSTER_COORDINATION_WATCH, "n"},
    {"insert", MUSTER_COORDINATION_INSERT, "kv"},
    {"overwrite", MUSTER_COORDINATION_INSERT, "kv"},
    {"get", MUSTER_COORDINATION_GET, "k"},
    {"try", MUSTER_COORDINATION_TRY_GET, "k"},
    {"strange", MUSTER_COORDINATION_TRY_GET, "k"},
    {"dir", MUSTER_COORDINATION_DIRECTORY, "k"},
    {"delete", MUSTER_COORDINATION_DELETE, "k"},
    {"add", MUSTER_COORDINATION_INCREMENT, "kn"},
    {"barrier", MUSTER_COORDINATION_BARRIER, "tkcT"},
    {"cancel", MUSTER_COORDINATION_CANCEL_BARRIER, "tkc"},
    {"alive", MUSTER_COORDINATION_ALIVE, "tT"},
};

static struct muster_bytes bytes_of(const char *word)
{
    return (struct muster_bytes){word, strcmp(word, "''") == 0 ? 0 : strlen(word)};
}

static void take_word(struct stage *stage, char what, const char *word,
                      struct muster_coordination_request *request)
{
    int64_t number = strtoll(word, NULL, 10);

    if (what == 't') {
        request->task = (uint32_t)number;
        request->incarnation = 100 + (uint64_t)number;
    }
    if (what == 'i')
        request->incarnation = (uint64_t)number;
    if (what == 'n')
        request->number = number;
    if (what == 'c')
        request->counter = number;
    if (what == 'k')
        request->key = bytes_of(word);
    if (what == 'v')
        request->value = bytes_of(word);
    if (what == 'T')
        take_tasks(stage, word, request);
}

static struct question *question_of(struct stage *stage, char name)
{
    assert_true(name >= 'a' && name <= 'z');
    return &stage->questions[name - 'a'];
}

static void ask_question(struct stage *stage, char name, char words[][WORD_BYTES], size_t count)
{
    struct question *question = question_of(stage, name);
    struct muster_coordination_request request = {.timeout_ms = 500};
    const struct verb *verb = NULL;

    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verbs[i].name, words[0]) == 0)
            verb = &verbs[i];
    assert_non_null(verb);
    request.method = verb->method;
    request.is_overwriting = strcmp(words[0], "overwrite") == 0;
    request.has_service_incarnation = strcmp(words[0], "strange") == 0;
    request.service_incarnation = 5;
    for (size_t i = 1; i < count; i++) {
        assert_true(i <= strlen(verb->words));
        take_word(stage, verb->words[i - 1], words[i], &request);
    }
    assert_false(question->is_waiting);
    question->is_waiting = true;
    muster_coordination_handle(stage->scene.coordination, stage->scene.now_ns, &request,
                               &question->ask);
}

static void drop_question(struct stage *stage, char name)
{
    struct question *question = question_of(stage, name);

    assert_true(question->is_waiting);
    question->is_waiting = false;
    muster_coordination_drop(stage->scene.coordination, &question->ask);
}

/* The answers are not shown: register tells them. */
static void register_all(struct stage *stage)
{
    for (uint32_t task = 0; task < stage->play->tasks; task++) {
        char words[2][WORD_BYTES] = {"register"};

        (void)snprintf(words[1], WORD_BYTES, "%u", task);
        ask_question(stage, (char)('z' - task), words, 2);
    }
    for (uint32_t task = 0; task < stage->play->tasks; task++)
        assert_false(question_of(stage, (char)('z' - task))->is_waiting);
    stage->told[0] = '\0';
}

/* "5" is 5 ms, "5ns" 5 ns. */
static uint64_t span_of(const char *word)
{
    char *end = NULL;
    uint64_t number = strtoull(word, &end, 10);

    return strcmp(end, "ns") == 0 ? number : number * MUSTER_NS_PER_MS;
}

static void act_word(struct stage *stage, const char *word, const char *argument)
{
    struct coordination_scene *scene = &stage->scene;

    if (strcmp(word, "all") == 0) {
        register_all(stage);
    } else if (strcmp(word, "lost") == 0) {
        muster_coordination_lost(scene->coordination, scene->now_ns,
                                 (uint32_t)strtoul(argument, NULL, 10));
    } else if (strcmp(word, "after") == 0) {
        scene->now_ns += span_of(argument);
        muster_coordination_expire(scene->coordination, scene->now_ns);
    } else if (strcmp(word, "due") == 0) {
        uint64_t due_ns = muster_coordination_due_ns(scene->coordination);

        if (due_ns == UINT64_MAX)
            add_told(stage, "never");
        else
            add_told(stage, "%llu",
                     (unsigned long long)(due_ns - scene->now_ns) / MUSTER_NS_PER_MS);
    } else {
        fail_msg("%s is not a step", word);
    }
}

static void run_step(struct stage *stage, const char *step)
{
    char words[WORDS_MAX][WORD_BYTES];
    int count = sscanf(step, "%63s %63s %63s %63s %63s %63s", words[0], words[1], words[2],
                       words[3], words[4], words[5]);

    assert_true(count > 0);
    stage->told[0] = '\0';
    if (words[0][1] != '\0')
        act_word(stage, words[0], count > 1 ? words[1] : "");
    else if (strcmp(words[1], "drop") == 0)
        drop_question(stage, words[0][0]);
    else
        ask_question(stage, words[0][0], words + 1, (size_t)count - 1);
}

static void run_play(const struct coordination_play *play)
{
    const struct muster_coordination_options options = {
        .task_count = play->tasks,
        .heartbeat_timeout_ns = PLAY_BEAT_NS,
        .shutdown_timeout_ns =
            play->shutdown_timeout_ns != 0 ? play->shutdown_timeout_ns : 300 * MUSTER_NS_PER_S,
        .register_timeout_ns = PLAY_REGISTER_NS,
        .service_incarnation = PLAY_SERVICE,
        .is_recoverable = play->is_recoverable};
    static struct stage stage;

    memset(&stage, 0, sizeof(stage));
    stage.play = play;
    coordination_scene_open(&stage.scene, &options, &ops);
    for (size_t i = 0; play->steps[i].step != NULL; i++) {
        const struct coordination_step *step = &play->steps[i];

        run_step(&stage, step->step);
        if (fnmatch(step->told, stage.told, FNM_NOESCAPE) != 0)
            fail_msg("%s: step %zu, '%s', tells\n  '%s', not\n  '%s'", play->name, i, step->step,
                     stage.told, step->told);
    }
    coordination_scene_close(&stage.scene);
}

void coordination_play_all(const struct coordination_play *plays, size_t count)
{
    for (size_t i = 0; i < count; i++)
        run_play(&plays[i]);
}
