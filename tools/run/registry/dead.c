/* Deaths that nobody asks for any more: one look at the job's keys, one transaction that deletes.
 *
 * A death is needed until a view without the dead member stands. One that is older than the view,
 * whose process is not in the view and has no record that would let it in, is needed no longer. The
 * deletion compares the view's revision: if the view has changed since the look, nothing is
 * deleted. */
#include "run/registry/dead.h"

#include <muster/incarnation.h>
#include <muster/mem.h>
#include <muster/view.h>

#include "common/output.h"
#include "common/text_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLEAN_EVERY 32  /* deaths written; a look reads all deaths of the job */
#define DELETES_MAX 100 /* in one transaction: registries take 128 */
#define WITHIN_NS   (5 * MUSTER_NS_PER_S)
#define KEY_BYTES   200

struct run_dead {
    struct muster_registry *client;
    struct muster_loop *loop;
    struct muster_registry_op op;
    uint64_t written; /* since the last deletion */
    bool is_busy;
    char view_key[KEY_BYTES];
    char dead_prefix[KEY_BYTES];
    char members_prefix[KEY_BYTES];
    char keys[DELETES_MAX][KEY_BYTES]; /* to be deleted */
};

/* The incarnation that the key names, if it begins with prefix. */
static bool key_names_incarnation(const struct muster_registry_kv *kv, const char *prefix,
                                  struct muster_incarnation *ret_incarnation)
{
    char text[MUSTER_INCARNATION_TEXT_BYTES];
    size_t length = strlen(prefix);

    if (kv->key.size != length + sizeof(text) - 1 || memcmp(kv->key.data, prefix, length) != 0)
        return false;
    memcpy(text, (const char *)kv->key.data + length, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    return muster_incarnation_parse(text, ret_incarnation) == MUSTER_OK;
}

static bool is_member(const struct muster_view *view, const struct muster_incarnation *who)
{
    for (uint32_t i = 0; i < view->member_count; i++)
        if (muster_incarnation_is_equal(&view->members[i].incarnation, who))
            return true;
    return false;
}

static bool has_record(const struct run_dead *dead, const struct muster_incarnation *who)
{
    for (size_t i = 0; i < dead->op.kv_count; i++) {
        struct muster_incarnation other;

        if (key_names_incarnation(&dead->op.kvs[i], dead->members_prefix, &other) &&
            muster_incarnation_is_equal(&other, who))
            return true;
    }
    return false;
}

/* The view is the first key of the answer, since its step came first. */
static size_t choose_deaths(struct run_dead *dead, const struct muster_view *view)
{
    const struct muster_registry_kv *kvs = dead->op.kvs;
    size_t count = 0;

    for (size_t i = 1; i < dead->op.kv_count && count < DELETES_MAX; i++) {
        struct muster_incarnation who;

        if (key_names_incarnation(&kvs[i], dead->dead_prefix, &who) &&
            kvs[i].mod_revision < kvs[0].mod_revision && !is_member(view, &who) &&
            !has_record(dead, &who))
            snprintf(dead->keys[count++], KEY_BYTES, "%.*s", (int)kvs[i].key.size,
                     (const char *)kvs[i].key.data);
    }
    return count;
}

static void on_deleted(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_dead *dead = op->data;

    dead->is_busy = false;
    if (rc == MUSTER_OK && op->is_succeeded)
        dead->written = 0; /* else the next death tries again: the view has changed meanwhile */
}

static void delete_chosen(struct run_dead *dead, size_t count, uint64_t view_revision)
{
    struct muster_registry_step steps[DELETES_MAX];
    struct muster_registry_compare is_as_read = {.key = text_bytes(dead->view_key),
                                                 .target = MUSTER_REGISTRY_MOD_REVISION,
                                                 .relation = MUSTER_REGISTRY_EQUAL,
                                                 .number = view_revision};
    struct muster_registry_txn txn = {
        .compares = &is_as_read, .compare_count = 1, .success = steps, .success_count = count};

    for (size_t i = 0; i < count; i++)
        steps[i] = (struct muster_registry_step){.kind = MUSTER_REGISTRY_DELETE,
                                                 .key = text_bytes(dead->keys[i])};
    dead->is_busy =
        count > 0 && muster_registry_txn_start(&dead->op, dead->client, &txn,
                                               muster_loop_after_ns(dead->loop, WITHIN_NS),
                                               on_deleted) == MUSTER_OK;
}

static void on_read(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_dead *dead = op->data;
    struct muster_view *view = NULL;
    size_t count = 0;

    dead->is_busy = false;
    if (rc != MUSTER_OK || op->kv_count == 0 || op->kvs[0].key.size != strlen(dead->view_key) ||
        muster_view_unpack(muster_mem_system(), op->kvs[0].value.data, op->kvs[0].value.size,
                           &view) != MUSTER_OK)
        return;
    count = choose_deaths(dead, view);
    muster_view_unref(view);
    delete_chosen(dead, count, op->kvs[0].mod_revision);
}

static void delete_deaths(struct run_dead *dead)
{
    struct muster_registry_step steps[] = {
        {.kind = MUSTER_REGISTRY_GET, .key = text_bytes(dead->view_key)},
        {.kind = MUSTER_REGISTRY_GET,
         .key = text_bytes(dead->dead_prefix),
         .reach = MUSTER_REGISTRY_PREFIX},
        {.kind = MUSTER_REGISTRY_GET,
         .key = text_bytes(dead->members_prefix),
         .reach = MUSTER_REGISTRY_PREFIX}};
    struct muster_registry_txn txn = {.success = steps, .success_count = 3};

    MUSTER_ASSERT(!dead->is_busy);
    dead->op.data = dead;
    dead->is_busy = muster_registry_txn_start(&dead->op, dead->client, &txn,
                                              muster_loop_after_ns(dead->loop, WITHIN_NS),
                                              on_read) == MUSTER_OK;
}

void run_dead_count(struct run_dead *dead)
{
    dead->written++;
    if (dead->written >= CLEAN_EVERY && !dead->is_busy)
        delete_deaths(dead);
}

struct run_dead *run_dead_open(struct muster_registry *client, struct muster_loop *loop,
                               const char *job)
{
    struct run_dead *dead = calloc(1, sizeof(*dead));

    if (dead == NULL)
        output_no_memory();
    dead->client = client;
    dead->loop = loop;
    snprintf(dead->view_key, sizeof(dead->view_key), "/muster/%s/view", job);
    snprintf(dead->dead_prefix, sizeof(dead->dead_prefix), "/muster/%s/dead/", job);
    snprintf(dead->members_prefix, sizeof(dead->members_prefix), "/muster/%s/members/", job);
    return dead;
}

void run_dead_close(struct run_dead *dead)
{
    free(dead);
}
