/* Which TPU is meant: the caller names it, else a variable does, in cloud_tpu_client's order: the
 * endpoints that GKE sets, TPU_NAME, TPU_CONFIG. GKE's variable counts even when it is empty,
 * and is an error then. */
#include "resolvers/platform/tpu/text.h"

#include <string.h>

#include <muster/json.h>

#define GKE    "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"
#define NAME   "TPU_NAME"
#define CONFIG "TPU_CONFIG"

/* The name of the TPU, maybe with project and zone, and its source. Borrowed. */
struct tpu_words {
    const char *name;
    const char *project;
    const char *zone;
    const char *source;
};

static bool is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* {"tpu_node_name", "project", "zone"}; what the caller names stays. */
static enum muster_rc read_config(struct muster_env *env, struct tpu_words *words,
                                  struct muster_json **ret_root, struct muster_error *ret_error)
{
    const char *text = muster_vars_get(env->vars, CONFIG);
    struct muster_error bad;
    enum muster_rc rc;

    if (text == NULL)
        return MUSTER_OK;
    rc = muster_json_parse(text, strlen(text), ret_root, &bad);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, CONFIG ": %s (correct it, or unset it)", bad.text);
    words->name = muster_json_text(muster_json_member(*ret_root, "tpu_node_name"));
    words->source = CONFIG;
    if (!is_given(words->project))
        words->project = muster_json_text(muster_json_member(*ret_root, "project"));
    if (!is_given(words->zone))
        words->zone = muster_json_text(muster_json_member(*ret_root, "zone"));
    return MUSTER_OK;
}

static enum muster_rc find_words(struct muster_env *env,
                                 const struct muster_tpu_target_options *options,
                                 struct tpu_words *words, struct muster_json **ret_root,
                                 struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    *words = (struct tpu_words){.name = options->tpu,
                                .project = options->project,
                                .zone = options->zone,
                                .source = "the tpu argument"};
    if (is_given(words->name) || (options->is_tf1 && words->name != NULL))
        return MUSTER_OK;
    words->name = muster_vars_get(env->vars, GKE);
    words->source = GKE;
    if (words->name == NULL) {
        words->name = muster_vars_get(env->vars, NAME);
        words->source = NAME;
    }
    if (words->name == NULL)
        rc = read_config(env, words, ret_root, ret_error);
    if (rc == MUSTER_OK && !is_given(words->name))
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "no TPU is named: give its name or its grpc:// addresses, or set " NAME ", " CONFIG
            " or " GKE);
    return rc;
}

/* Names that tf.contrib does not look up: local processes and Google's own name services. */
static bool is_opaque(const char *name)
{
    return name[0] == '\0' || has_prefix(name, "localhost:") || has_prefix(name, "/bns") ||
           has_prefix(name, "uptc://");
}

/* GKE's value is a list of endpoints even where it lacks the scheme; TensorFlow would look such a
 * value up as a name. */
static enum muster_tpu_target_kind kind_of(const struct tpu_words *words, bool is_tf1)
{
    if (strcmp(words->name, "local") == 0)
        return MUSTER_TPU_TARGET_LOCAL;
    if (has_prefix(words->name, "grpc://") || strcmp(words->source, GKE) == 0)
        return MUSTER_TPU_TARGET_ENDPOINTS;
    if (is_tf1 && is_opaque(words->name))
        return MUSTER_TPU_TARGET_OPAQUE;
    return MUSTER_TPU_TARGET_NODE;
}

/* "projects/P/locations/Z/nodes/N" says it all. */
static bool cut_resource_name(struct muster_tpu_target *target)
{
    static const char *const heads[] = {"projects/", "/locations/", "/nodes/"};
    const char *parts[4];
    const char *at = target->name;

    for (size_t i = 0; i < 3; i++) {
        const char *found = i == 0 ? (has_prefix(at, heads[0]) ? at : NULL) : strstr(at, heads[i]);

        if (found == NULL)
            return false;
        parts[i] = found;
        at = found + strlen(heads[i]);
    }
    muster_mem_free(target->mem, target->project);
    muster_mem_free(target->mem, target->zone);
    muster_mem_free(target->mem, target->node);
    target->project = muster_mem_strndup(target->mem, target->name + strlen(heads[0]),
                                         (size_t)(parts[1] - target->name) - strlen(heads[0]));
    target->zone = muster_mem_strndup(target->mem, parts[1] + strlen(heads[1]),
                                      (size_t)(parts[2] - parts[1]) - strlen(heads[1]));
    target->node = muster_mem_strdup(target->mem, at);
    return true;
}

static enum muster_rc take_words(struct muster_tpu_target *target, const struct tpu_words *words)
{
    bool is_failed = false;

    target->name = muster_mem_strdup(target->mem, words->name);
    target->source = words->source;
    if (is_given(words->project))
        target->project = muster_mem_strdup(target->mem, words->project);
    if (is_given(words->zone))
        target->zone = muster_mem_strdup(target->mem, words->zone);
    is_failed = target->name == NULL || (is_given(words->project) && target->project == NULL) ||
                (is_given(words->zone) && target->zone == NULL);
    if (!is_failed && target->kind == MUSTER_TPU_TARGET_NODE) {
        target->node = muster_mem_strdup(target->mem, words->name);
        if (cut_resource_name(target))
            is_failed = target->project == NULL || target->zone == NULL;
        is_failed |= target->node == NULL;
    }
    return is_failed ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK;
}

enum muster_rc muster_tpu_target_init(struct muster_tpu_target *target, struct muster_env *env,
                                      const struct muster_tpu_target_options *options,
                                      struct muster_error *ret_error)
{
    struct muster_json *root = NULL;
    struct tpu_words words;
    enum muster_rc rc = find_words(env, options, &words, &root, ret_error);

    *target = (struct muster_tpu_target){.mem = env->mem};
    if (rc == MUSTER_OK) {
        target->kind = kind_of(&words, options->is_tf1);
        rc = take_words(target, &words);
        if (rc != MUSTER_OK)
            muster_error_set(ret_error, rc, "no memory");
    }
    muster_json_free(root);
    if (rc != MUSTER_OK)
        muster_tpu_target_fini(target);
    return rc;
}

void muster_tpu_target_fini(struct muster_tpu_target *target)
{
    if (target->mem == NULL)
        return;
    muster_mem_free(target->mem, target->name);
    muster_mem_free(target->mem, target->node);
    muster_mem_free(target->mem, target->project);
    muster_mem_free(target->mem, target->zone);
    *target = (struct muster_tpu_target){.mem = NULL};
}
