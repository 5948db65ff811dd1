/* The login of the registry client: a token for a user's password, requested again when a member of
 * the registry does not know it any more. Operations, watches, leases and snapshots ask here
 * whether they may be sent; while a login is under way they wait. The password is read from its
 * file at every login, so that it can be changed while the program runs, and is wiped from memory
 * after use. */
#include "cluster/client/registry_client_internal.h"

#include <string.h>

/* A larger file is not a password but a wrong name. */
#define PASSWORD_BYTES_MAX 4096
/* etcd hashes passwords with bcrypt, which is slow on purpose, so a login takes longer than other
 * calls. */
#define AUTHENTICATE_NS (5 * MUSTER_NS_PER_S)
#define REFUSED_NS      MUSTER_NS_PER_S /* after a refused login, before the next one */

static void free_secret(struct muster_mem *mem, char **text)
{
    if (*text != NULL)
        explicit_bzero(*text, strlen(*text));
    muster_mem_free(mem, *text);
    *text = NULL;
}

enum muster_rc muster_registry_auth_init(struct muster_registry *registry,
                                         const struct muster_registry_options *options,
                                         struct muster_error *ret_error)
{
    struct muster_registry_auth *auth = &registry->auth;
    struct muster_mem *mem = registry->env->mem;
    const char *user = options->user;
    const char *file = options->password_file;

    if (user == NULL) {
        user = muster_registry_variable(registry, "MUSTER_REGISTRY_USER");
        file = muster_registry_variable(registry, "MUSTER_REGISTRY_PASSWORD_FILE");
    }
    if (user == NULL)
        return MUSTER_OK;
    if (file == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "registry user '%.80s' without a password: name the file that "
                                "holds it in MUSTER_REGISTRY_PASSWORD_FILE",
                                user);
    auth->user = muster_mem_strdup(mem, user);
    auth->password_file = muster_mem_strdup(mem, file);
    if (auth->user == NULL || auth->password_file == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory for a registry client");
    return MUSTER_OK;
}

void muster_registry_auth_fini(struct muster_registry *registry)
{
    struct muster_mem *mem = registry->env->mem;

    muster_timer_stop(&registry->auth.again);
    free_secret(mem, &registry->auth.user);
    free_secret(mem, &registry->auth.password_file);
    free_secret(mem, &registry->auth.token);
}

void muster_registry_stop_auth(struct muster_registry *registry)
{
    muster_timer_stop(&registry->auth.again);
    if (registry->auth.is_asking)
        muster_unary_cancel(&registry->auth.unary);
}

bool muster_registry_is_stale(const struct muster_registry *registry,
                              const struct muster_error *error)
{
    /* The texts of ErrGRPCInvalidAuthToken, ErrGRPCAuthOldRevision and ErrGRPCUserEmpty (etcd's
     * api/v3rpc/rpctypes/error.go). Their codes are shared with other errors, so the text decides.
     * All three come before the member does anything. */
    static const char *const texts[] = {"etcdserver: invalid auth token",
                                        "etcdserver: revision of auth store is old",
                                        "etcdserver: user name is empty"};

    for (size_t i = 0; registry->auth.user != NULL && i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(error->text, texts[i]) == 0)
            return true;
    }
    return false;
}

bool muster_registry_has_token(const struct muster_registry *registry)
{
    return registry->auth.user == NULL || registry->auth.token != NULL;
}

void muster_registry_drop_token(struct muster_registry *registry, uint64_t generation)
{
    /* Calls that were sent with an old token may fail after a new one has come, and must not throw
     * that away. */
    if (registry->auth.generation == generation)
        free_secret(registry->env->mem, &registry->auth.token);
}

/* The password, without the line's end. Gives. */
static enum muster_rc read_password(struct muster_registry *registry, char **ret_password)
{
    size_t bytes = 0;
    enum muster_rc rc = MUSTER_UNIMPLEMENTED;

    if (registry->env->files != NULL)
        rc = muster_files_read(registry->env->files, registry->env->mem,
                               registry->auth.password_file, PASSWORD_BYTES_MAX, ret_password,
                               &bytes);
    if (rc != MUSTER_OK)
        return muster_error_set(&registry->auth.error, MUSTER_UNAUTHENTICATED,
                                "the password file %.150s of the registry cannot be read: %s",
                                registry->auth.password_file, muster_rc_text(rc));
    (*ret_password)[strcspn(*ret_password, "\r\n")] = '\0';
    return MUSTER_OK;
}

static void settle_login(struct muster_registry *registry, enum muster_rc rc)
{
    registry->auth.on_settled(registry, rc);
    muster_registry_check_closed(registry);
}

static void try_later(struct muster_registry *registry)
{
    struct muster_registry_auth *auth = &registry->auth;
    struct muster_loop *loop = registry->env->loop;

    if (!registry->is_closing)
        muster_timer_start(
            &auth->again, loop,
            muster_loop_after_ns(loop, muster_registry_backoff(registry, &auth->backoff_ns)));
}

static void take_token(struct muster_registry *registry, const char *token)
{
    struct muster_registry_auth *auth = &registry->auth;

    MUSTER_ASSERT(token != NULL);
    free_secret(registry->env->mem, &auth->token);
    auth->token = muster_mem_strdup(registry->env->mem, token);
    auth->generation++;
    auth->backoff_ns = 0;
    auth->refused_ns = 0;
    auth->is_refusal_told = false;
    if (auth->token == NULL)
        try_later(registry);
    else
        settle_login(registry, MUSTER_OK);
}

/* Logged once, until it works. */
static void record_refusal(struct muster_registry *registry, const char *text)
{
    struct muster_registry_auth *auth = &registry->auth;

    auth->refused_ns = muster_loop_now_ns(registry->env->loop);
    if (!auth->is_refusal_told)
        MUSTER_LOG(registry->env, ERROR, "registry_login_failed", "user", auth->user, "reason",
                   text);
    auth->is_refusal_told = true;
}

/* A refused login ends all requests that wait for it; an endpoint that does not answer only delays
 * them. */
static void on_authenticated(struct muster_unary *unary, enum muster_rc rc)
{
    struct muster_registry *registry = unary->data;
    struct muster_registry_auth *auth = &registry->auth;
    struct muster_error error = unary->status;
    char *token = NULL;

    MUSTER_ASSERT(auth->is_asking);
    auth->is_asking = false;
    if (rc != MUSTER_OK)
        rc = muster_registry_judge(registry, auth->endpoint, &error);
    if (rc == MUSTER_OK)
        rc = muster_registry_parse_token(registry->env->mem, unary->response, &token);
    if (registry->is_closing) {
        settle_login(registry, MUSTER_CANCELLED);
    } else if (rc == MUSTER_OK) {
        take_token(registry, token);
    } else if (muster_registry_refusal(registry) != NULL) {
        auth->refused_ns = muster_loop_now_ns(registry->env->loop);
        auth->error = error;
        settle_login(registry, rc);
    } else if (strcmp(unary->status.text, "etcdserver: authentication is not enabled") == 0) {
        take_token(registry, ""); /* a registry without authentication lets every user in */
    } else if (rc == MUSTER_INVALID_ARGUMENT || rc == MUSTER_UNAUTHENTICATED ||
               rc == MUSTER_PERMISSION_DENIED || rc == MUSTER_UNIMPLEMENTED) {
        record_refusal(registry, unary->status.text);
        muster_error_set(&auth->error, MUSTER_UNAUTHENTICATED, "registry user '%.80s': %.120s",
                         auth->user, unary->status.text);
        settle_login(registry, MUSTER_UNAUTHENTICATED);
    } else {
        muster_registry_leave_endpoint(registry, auth->endpoint);
        try_later(registry);
    }
    free_secret(registry->env->mem, &token);
}

static enum muster_rc ask_token(struct muster_registry *registry)
{
    struct muster_registry_auth *auth = &registry->auth;
    struct muster_mem *mem = registry->env->mem;
    struct muster_registry_packed packed = {.bytes = NULL};
    char *password = NULL;
    enum muster_rc rc = read_password(registry, &password);

    MUSTER_ASSERT(!registry->auth.is_asking);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_registry_pack_authenticate(mem, auth->user, password, &packed);
    free_secret(mem, &password);
    if (rc != MUSTER_OK)
        return MUSTER_OK; /* without memory: as an endpoint that does not answer */
    if (registry->tls == NULL && !auth->is_plain_told)
        MUSTER_LOG(registry->env, WARN, "registry_password_in_plain_text", "user", auth->user,
                   "remedy", "name the endpoints https://HOST:PORT");
    auth->is_plain_told = true;
    auth->endpoint = registry->current;
    auth->unary.data = registry;
    auth->is_asking =
        muster_unary_start(&auth->unary, registry->channels[auth->endpoint],
                           "/etcdserverpb.Auth/Authenticate", packed.bytes, packed.size,
                           muster_loop_after_ns(registry->env->loop, AUTHENTICATE_NS),
                           on_authenticated) == MUSTER_OK;
    /* The request holds the password, and the call has copied it. */
    explicit_bzero(packed.bytes, packed.size);
    muster_mem_free(mem, packed.bytes);
    return MUSTER_OK;
}

static void on_again(struct muster_timer *timer)
{
    struct muster_registry *registry = timer->data;

    if (ask_token(registry) != MUSTER_OK)
        settle_login(registry, MUSTER_UNAUTHENTICATED);
    else if (!registry->auth.is_asking)
        try_later(registry);
}

void muster_registry_authenticate(struct muster_registry *registry)
{
    struct muster_registry_auth *auth = &registry->auth;
    uint64_t now_ns = muster_loop_now_ns(registry->env->loop);
    uint64_t due_ns = 0;

    if (auth->is_asking || muster_timer_is_started(&auth->again) || registry->is_closing)
        return;
    muster_timer_init(&auth->again, on_again, registry);
    /* A refused login is not repeated at once for each request that comes, because the registry
     * hashes the password each time. */
    due_ns = auth->refused_ns != 0 ? auth->refused_ns + REFUSED_NS : now_ns;
    muster_timer_start(&auth->again, registry->env->loop, due_ns); /* never within a start */
}

struct muster_metadata muster_registry_metadata(const struct muster_registry *registry,
                                                struct muster_metadata_entry ret_entries[2])
{
    const char *token = registry->auth.token;
    struct muster_metadata metadata = {.entries = ret_entries, .count = 1};

    /* A member without a leader refuses a call with "hasleader" at once, instead of letting it wait
     * (etcd's rpctypes.MetadataRequireLeaderKey). */
    ret_entries[0] =
        (struct muster_metadata_entry){.name = "hasleader", .value = "true", .value_bytes = 4};
    if (token == NULL || token[0] == '\0')
        return metadata;
    ret_entries[1] = (struct muster_metadata_entry){
        .name = "token", .value = token, .value_bytes = strlen(token)};
    metadata.count = 2;
    return metadata;
}
