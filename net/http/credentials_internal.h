/* Shared by the kinds of credentials. */
#ifndef MUSTER_NET_CREDENTIALS_INTERNAL_H
#define MUSTER_NET_CREDENTIALS_INTERNAL_H

#include <muster/credentials.h>
#include <muster/http.h>
#include <muster/json.h>

#define MUSTER_CREDENTIALS_TEXT_BYTES 160
#define MUSTER_TOKEN_SKEW_NS          (225 * MUSTER_NS_PER_S) /* refresh so long before the end */
#define MUSTER_TOKEN_FETCH_NS         (60 * MUSTER_NS_PER_S) /* of one exchange, retries included */
#define MUSTER_TOKEN_FOREVER_NS       UINT64_MAX
#define MUSTER_SCOPE_DEFAULT          "https://www.googleapis.com/auth/cloud-platform"

/** The functions of a kind. */
struct muster_credentials_ops {
    /** Get a token by deadline_ns (loop time); ends in muster_credentials_fetched or _failed, now or
     * later. */
    void (*fetch)(struct muster_credentials *credentials, uint64_t deadline_ns);
    /** Give the fetch up: its end comes soon, not inside this call. NULL: fetch ends at once. */
    void (*cancel)(struct muster_credentials *credentials);
    /** Free the whole object, after muster_credentials_fini. */
    void (*free)(struct muster_credentials *credentials);
};

/** Embed as the first field of a kind. */
struct muster_credentials {
    const struct muster_credentials_ops *ops;
    struct muster_env *env;
    void *data; /* of the owner */
    char text[MUSTER_CREDENTIALS_TEXT_BYTES];
    char *project;                 /* or NULL */
    char *token;                   /* or NULL */
    uint64_t token_fresh_until_ns; /* loop time: then a new one is asked for */
    uint64_t token_until_ns;       /* loop time: then it is worthless */
    char *next_token;              /* of the fetch that has just ended */
    uint64_t next_lifetime_ns;
    enum muster_rc fetch_rc;
    struct muster_error fetch_error;
    struct muster_list waiting; /* of muster_token_get */
    struct muster_task task;    /* the end of a fetch */
    struct muster_task close_task;
    muster_credentials_close_fn *closed;
    bool is_fetching;
    bool is_closed;
    bool is_last_resort; /* chosen for lack of others: errors say where else to put some */
};

/** Fill the common part. Borrows env and ops. The kind then writes into `text` what the source is
 * called for people. */
void muster_credentials_init(struct muster_credentials *credentials, struct muster_env *env,
                             const struct muster_credentials_ops *ops);
/** Wipes the tokens. */
void muster_credentials_fini(struct muster_credentials *credentials);
/** The end of a fetch: a token (copied) and how long it lives from now, or an error (copied). Also
 * from within ops->fetch. */
void muster_credentials_fetched(struct muster_credentials *credentials, const char *token,
                                uint64_t lifetime_ns);
void muster_credentials_failed(struct muster_credentials *credentials,
                               const struct muster_error *error);

/** Visible ASCII without blanks, at most MUSTER_TOKEN_BYTES_MAX. */
bool muster_token_is_valid(const char *token);

/** A token server's answer: {"access_token", "expires_in"} (RFC 6749 5.1; also {"accessToken",
 * "expireTime"}, with wall_ns). ret_token is borrowed from root. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_token_answer_read(const struct muster_json *root,
                                                          uint64_t wall_ns, const char **ret_token,
                                                          uint64_t *ret_lifetime_ns,
                                                          struct muster_error *ret_error);

#endif
