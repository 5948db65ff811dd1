/* Keys and values of a job, and the asks that wait for a key that is not there yet. A key that is waited for
 * is in the index without a value; it goes when nobody waits any more. */
#include "cluster/coordination/coordination_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An int64 in decimal has at most 20 characters. */
#define NUMBER_TEXT_BYTES 24

/* Slashes at the ends go, several in a row become one. Gives, without NUL; NULL: no memory. */
static char *key_normalise(struct muster_coordination *coordination, struct muster_bytes key,
                           size_t *ret_bytes)
{
    const char *from = key.data;
    char *into = muster_mem_alloc(coordination->mem, key.size + 2);
    size_t count = 0;

    if (into == NULL)
        return NULL;
    for (size_t i = 0; i < key.size; i++)
        if (from[i] != '/' || (count > 0 && into[count - 1] != '/'))
            into[count++] = from[i];
    if (count > 0 && into[count - 1] == '/')
        count--;
    into[count] = '\0';
    *ret_bytes = count;
    return into;
}

static struct muster_coordination_key *key_of(struct muster_coordination_name *name)
{
    return name != NULL ? MUSTER_CONTAINER_OF(name, struct muster_coordination_key, name) : NULL;
}

static void key_free(struct muster_coordination *coordination, struct muster_coordination_key *key)
{
    MUSTER_ASSERT(muster_list_is_empty(&key->asks));
    muster_coordination_index_remove(&coordination->keys, &key->name);
    muster_mem_free(coordination->mem, (void *)(uintptr_t)key->name.text.data);
    muster_mem_free(coordination->mem, (void *)(uintptr_t)key->value.data);
    muster_mem_free(coordination->mem, key);
}

/* Free a key without a value that no ask waits for. */
static void key_free_unused(struct muster_coordination *coordination,
                            struct muster_coordination_key *key)
{
    if (key->value.data == NULL && muster_list_is_empty(&key->asks))
        key_free(coordination, key);
}

/* Takes text. NULL: no memory. */
static struct muster_coordination_key *key_add(struct muster_coordination *coordination, char *text,
                                               size_t bytes)
{
    struct muster_coordination_key *key = muster_mem_alloc_zero(coordination->mem, 1, sizeof(*key));

    if (key != NULL) {
        key->name.text = (struct muster_bytes){text, bytes};
        muster_list_init(&key->asks);
        if (muster_coordination_index_add(&coordination->keys, &key->name))
            return key;
    }
    muster_mem_free(coordination->mem, key);
    muster_mem_free(coordination->mem, text);
    return NULL;
}

/* The key of that name, made if is_wanted; NULL: there is none. False: no memory. */
static bool key_find(struct muster_coordination *coordination, struct muster_bytes name,
                     bool is_wanted, struct muster_coordination_key **ret_key)
{
    size_t bytes = 0;
    char *text = key_normalise(coordination, name, &bytes);

    if (text == NULL)
        return false;
    *ret_key = key_of(
        muster_coordination_index_find(&coordination->keys, (struct muster_bytes){text, bytes}));
    if (*ret_key == NULL && is_wanted) {
        *ret_key = key_add(coordination, text, bytes);
        return *ret_key != NULL;
    }
    muster_mem_free(coordination->mem, text);
    return true;
}

/* The value has a NUL after it for parse_number; its size does not count that. It is kept (keep_key) before
 * anybody is answered, so the answers wait for the commit that holds it. */
static bool value_set(struct muster_coordination *coordination, struct muster_coordination_key *key,
                      struct muster_bytes value)
{
    char *copy = muster_mem_alloc(coordination->mem, value.size + 1);

    MUSTER_ASSERT(value.data != NULL || value.size == 0);
    if (copy == NULL)
        return false;
    if (value.size > 0)
        memcpy(copy, value.data, value.size);
    copy[value.size] = '\0';
    muster_mem_free(coordination->mem, (void *)(uintptr_t)key->value.data);
    key->value = (struct muster_bytes){copy, value.size};
    if (coordination->ops->keep_key != NULL)
        coordination->ops->keep_key(coordination->data, key->name.text, &key->value);
    return true;
}

/* The name goes back as it was asked: clients compare it with theirs. */
static void answer_value(struct muster_coordination *coordination,
                         struct muster_coordination_ask *ask, struct muster_bytes name,
                         struct muster_bytes value)
{
    const struct muster_coordination_entry entry = {name, value};
    const struct muster_coordination_answer answer = {.entries = &entry, .entry_count = 1};

    muster_coordination_answer(coordination, ask, &answer);
}

static void refuse_for_memory(struct muster_coordination *coordination,
                              struct muster_coordination_ask *ask)
{
    muster_coordination_refuse(coordination, ask, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
}

/* Answer an ask that waited. The answer carries the name as it was asked, which need not be as it is kept. */
static void ask_end(struct muster_coordination *coordination, struct muster_coordination_ask *ask,
                    struct muster_bytes value)
{
    struct muster_bytes name = ask->key;

    MUSTER_ASSERT(ask->key.data != NULL);
    ask->key = (struct muster_bytes){NULL, 0};
    answer_value(coordination, ask, name, value);
    muster_mem_free(coordination->mem, (void *)(uintptr_t)name.data);
}

/* The asks are taken off the key first: an owner may free an ask in its answer. */
static void answer_waiting(struct muster_coordination *coordination,
                           struct muster_coordination_key *key)
{
    struct muster_list round, *node;

    MUSTER_ASSERT(key->value.data != NULL);
    muster_list_take_all(&round, &key->asks);
    while ((node = muster_list_pop(&round)) != NULL)
        ask_end(coordination, MUSTER_CONTAINER_OF(node, struct muster_coordination_ask, node),
                key->value);
}

/* The inserter is answered before the tasks that wait for the key. Without overwriting exactly one of
 * several inserters succeeds. */
void muster_coordination_insert(struct muster_coordination *coordination,
                                const struct muster_coordination_request *request,
                                struct muster_coordination_ask *ask)
{
    struct muster_coordination_key *key = NULL;

    if (!key_find(coordination, request->key, true, &key)) {
        refuse_for_memory(coordination, ask);
        return;
    }
    if (key->value.data != NULL && !request->is_overwriting) {
        const struct muster_coordination_answer answer = {
            .rc = MUSTER_ALREADY_EXISTS,
            .text = muster_coordination_format(coordination, "key %.*s already exists.",
                                               (int)key->name.text.size,
                                               (const char *)key->name.text.data)};

        muster_coordination_answer(coordination, ask, &answer);
        return;
    }
    if (!value_set(coordination, key, request->value)) {
        key_free_unused(coordination, key);
        refuse_for_memory(coordination, ask);
        return;
    }
    muster_coordination_succeed(coordination, ask);
    answer_waiting(coordination, key);
}

/* The wait has no end here: the caller has a deadline of its own. */
static void wait_for_key(struct muster_coordination *coordination, struct muster_bytes name,
                         struct muster_coordination_ask *ask)
{
    struct muster_coordination_key *key = NULL;
    char *copy = muster_mem_alloc(coordination->mem, name.size + 1);

    if (copy == NULL || !key_find(coordination, name, true, &key)) {
        muster_mem_free(coordination->mem, copy);
        refuse_for_memory(coordination, ask);
        return;
    }
    if (name.size > 0)
        memcpy(copy, name.data, name.size);
    MUSTER_ASSERT(ask->key.data == NULL);
    ask->key = (struct muster_bytes){copy, name.size};
    muster_list_append(&key->asks, &ask->node);
}

void muster_coordination_get(struct muster_coordination *coordination,
                             const struct muster_coordination_request *request,
                             struct muster_coordination_ask *ask)
{
    struct muster_coordination_key *key = NULL;

    if (!key_find(coordination, request->key, false, &key))
        refuse_for_memory(coordination, ask);
    else if (key != NULL && key->value.data != NULL)
        answer_value(coordination, ask, request->key, key->value);
    else if (request->method == MUSTER_COORDINATION_GET)
        wait_for_key(coordination, request->key, ask);
    else
        muster_coordination_refuse(
            coordination, ask, MUSTER_NOT_FOUND,
            muster_coordination_format(coordination, "Config key %.*s not found.",
                                       (int)request->key.size, (const char *)request->key.data));
}

static bool is_space(char character)
{
    return character == ' ' || (character >= '\t' && character <= '\r');
}

/* Decimal text of an int32, blanks around it; none is 0. The range is that of the reference, although the
 * sum is 64 bits wide. */
static bool parse_number(const struct muster_coordination_key *key, int64_t *ret_number)
{
    char *end = NULL;
    long long number;

    *ret_number = 0;
    if (key->value.data == NULL)
        return true;
    number = strtoll(key->value.data, &end, 10);
    while (end != key->value.data && is_space(*end))
        end++;
    *ret_number = number;
    return key->value.size > 0 && end == (const char *)key->value.data + key->value.size &&
           number >= INT32_MIN && number <= INT32_MAX;
}

/* The sum wraps round like an unsigned one: a signed overflow would be undefined, and the numbers are the
 * caller's. */
void muster_coordination_increment(struct muster_coordination *coordination,
                                   const struct muster_coordination_request *request,
                                   struct muster_coordination_ask *ask)
{
    struct muster_coordination_key *key = NULL;
    char text[NUMBER_TEXT_BYTES];
    int64_t number;
    int length;

    if (!key_find(coordination, request->key, true, &key)) {
        refuse_for_memory(coordination, ask);
        return;
    }
    if (!parse_number(key, &number)) {
        muster_coordination_refuse(
            coordination, ask, MUSTER_FAILED_PRECONDITION,
            muster_coordination_format(coordination,
                                       "Failed to parse value \"%.*s\" as an integer.",
                                       (int)key->value.size, (const char *)key->value.data));
        return;
    }
    length = snprintf(text, sizeof(text), "%" PRId64,
                      (int64_t)((uint64_t)number + (uint64_t)request->number));
    if (!value_set(coordination, key, (struct muster_bytes){text, (size_t)length})) {
        key_free_unused(coordination, key);
        refuse_for_memory(coordination, ask);
        return;
    }
    answer_value(coordination, ask, request->key, key->value);
    answer_waiting(coordination, key);
}

/* "a/b/" of "a/b", for what is below; the root has none. */
static char *prefix_of(struct muster_coordination *coordination, struct muster_bytes directory,
                       size_t *ret_bytes)
{
    char *prefix = key_normalise(coordination, directory, ret_bytes);

    if (prefix != NULL)
        prefix[(*ret_bytes)++] = '/';
    return prefix;
}

void muster_coordination_list_directory(struct muster_coordination *coordination,
                                        const struct muster_coordination_request *request,
                                        struct muster_coordination_ask *ask)
{
    struct muster_coordination_index *keys = &coordination->keys;
    struct muster_coordination_answer answer = {.rc = MUSTER_OK};
    struct muster_coordination_entry *entries = NULL;
    struct muster_bytes prefix = {NULL, 0};
    size_t first, end;

    prefix.data = prefix_of(coordination, request->key, &prefix.size);
    if (prefix.data == NULL) {
        refuse_for_memory(coordination, ask);
        return;
    }
    first = end = muster_coordination_index_seek(keys, prefix);
    while (end < keys->count && muster_bytes_has_prefix(keys->names[end]->text, prefix))
        end++;
    muster_mem_free(coordination->mem, (void *)(uintptr_t)prefix.data);
    entries = muster_mem_alloc_zero(coordination->mem, end - first, sizeof(*entries));
    if (entries == NULL) {
        refuse_for_memory(coordination, ask);
        return;
    }
    for (size_t i = first; i < end; i++) {
        const struct muster_coordination_key *key = key_of(keys->names[i]);

        if (key->value.data != NULL)
            entries[answer.entry_count++] =
                (struct muster_coordination_entry){key->name.text, key->value};
    }
    answer.entries = entries;
    muster_coordination_answer(coordination, ask, &answer);
    muster_mem_free(coordination->mem, entries);
}

/* Asks that wait for the key go on waiting. */
static void value_drop(struct muster_coordination *coordination,
                       struct muster_coordination_key *key)
{
    if (key->value.data != NULL && coordination->ops->keep_key != NULL)
        coordination->ops->keep_key(coordination->data, key->name.text, NULL);
    muster_mem_free(coordination->mem, (void *)(uintptr_t)key->value.data);
    key->value = (struct muster_bytes){NULL, 0};
    key_free_unused(coordination, key);
}

/* The key itself goes, and all below it. A key that is waited for stays in the index, so the walk steps over
 * it; the count shows which of the two has happened. */
void muster_coordination_delete(struct muster_coordination *coordination,
                                const struct muster_coordination_request *request,
                                struct muster_coordination_ask *ask)
{
    struct muster_coordination_key *key = NULL;
    struct muster_bytes prefix = {NULL, 0};
    size_t at;

    prefix.data = prefix_of(coordination, request->key, &prefix.size);
    if (prefix.data == NULL || !key_find(coordination, request->key, false, &key)) {
        muster_mem_free(coordination->mem, (void *)(uintptr_t)prefix.data);
        refuse_for_memory(coordination, ask);
        return;
    }
    if (key != NULL)
        value_drop(coordination, key);
    at = muster_coordination_index_seek(&coordination->keys, prefix);
    while (at < coordination->keys.count &&
           muster_bytes_has_prefix(coordination->keys.names[at]->text, prefix)) {
        size_t before = coordination->keys.count;

        value_drop(coordination, key_of(coordination->keys.names[at]));
        if (coordination->keys.count == before)
            at++;
    }
    muster_mem_free(coordination->mem, (void *)(uintptr_t)prefix.data);
    muster_coordination_succeed(coordination, ask);
}

static void ask_forget_key(struct muster_coordination *coordination,
                           struct muster_coordination_ask *ask)
{
    muster_mem_free(coordination->mem, (void *)(uintptr_t)ask->key.data);
    ask->key = (struct muster_bytes){NULL, 0};
}

/* The ask has left the list of its key already; the key is looked up by name and freed when this was the
 * last. */
void muster_coordination_drop_wait(struct muster_coordination *coordination,
                                   struct muster_coordination_ask *ask)
{
    struct muster_coordination_key *key = NULL;

    if (ask->key.data == NULL)
        return;
    if (key_find(coordination, ask->key, false, &key) && key != NULL)
        key_free_unused(coordination, key);
    ask_forget_key(coordination, ask);
}

static void end_wait(struct muster_coordination *coordination, struct muster_coordination_ask *ask,
                     const char *why)
{
    ask_forget_key(coordination, ask);
    if (why != NULL)
        muster_coordination_refuse(coordination, ask, MUSTER_CANCELLED, why);
}

void muster_coordination_free_keys(struct muster_coordination *coordination, const char *why)
{
    while (coordination->keys.count > 0) {
        struct muster_coordination_key *key =
            key_of(coordination->keys.names[coordination->keys.count - 1]);
        struct muster_list *node;

        while ((node = muster_list_pop(&key->asks)) != NULL)
            end_wait(coordination, MUSTER_CONTAINER_OF(node, struct muster_coordination_ask, node),
                     why);
        key_free(coordination, key);
    }
    muster_coordination_index_fini(&coordination->keys);
}

enum muster_rc muster_coordination_restore_key(struct muster_coordination *coordination,
                                               struct muster_bytes name, struct muster_bytes value)
{
    struct muster_coordination_key *key = NULL;

    return key_find(coordination, name, true, &key) && value_set(coordination, key, value)
               ? MUSTER_OK
               : MUSTER_RESOURCE_EXHAUSTED;
}
