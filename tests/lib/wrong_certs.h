/* Certificates of every wrong kind, a few right ones among them, and who must refuse each. */
#ifndef MUSTER_TEST_WRONG_CERTS_H
#define MUSTER_TEST_WRONG_CERTS_H

#include <muster/status.h>
#include <stddef.h>

#include "fake_authority.h"

enum wrong_certs_judge {
    WRONG_CERTS_CLIENT,   /* of ours: it compares the name that it dialled */
    WRONG_CERTS_SERVER,   /* of ours: it demands a certificate under its roots */
    WRONG_CERTS_OPENER,   /* of a peer link: it accepts the names of members */
    WRONG_CERTS_ACCEPTOR, /* of a peer link, likewise */
    WRONG_CERTS_HTTP,     /* the client on curl: it compares the name that it dialled */
    WRONG_CERTS_JUDGES,
};

#define WRONG_CERTS_NAME   "localhost" /* is dialled unless a row says something else */
#define WRONG_CERTS_IP     "127.0.0.1" /* is in all certificates that are for WRONG_CERTS_NAME */
#define WRONG_CERTS_MEMBER "spiffe://test/job/a/*"
#define WRONG_CERTS_HOST   "member.test" /* the other name of members */

/** Signed by the first issuer that is named, this one by the next, the last by the root. */
enum wrong_certs_root {
    WRONG_CERTS_ROOT,     /* that everybody trusts */
    WRONG_CERTS_SELF,     /* none: the certificate signs itself */
    WRONG_CERTS_STRANGER, /* whom nobody trusts */
    WRONG_CERTS_NAMESAKE, /* of the name of the root */
};

struct wrong_certs_row {
    const char *name;
    const char *dialled;           /* NULL: WRONG_CERTS_NAME */
    struct fake_cert_options leaf; /* usual names where it has none */
    struct fake_cert_options issuers[2];
    enum wrong_certs_root root;
    bool hides_issuers;                    /* the chain that is shown has the leaf alone */
    bool shows_root;                       /* or goes up to the root */
    bool is_absent;                        /* no certificate is shown */
    unsigned is_not_for;                   /* judges who are not asked: 1 << judge */
    const char *words[WRONG_CERTS_JUDGES]; /* of the refusal; NULL: it is accepted */
};

/** One whom a judge meets. */
struct wrong_certs {
    struct fake_authority *root, *stranger, *namesake;
};

/** Fails the case where OpenSSL does. */
void wrong_certs_open(struct wrong_certs *certs);
void wrong_certs_close(struct wrong_certs *certs);

/** The rows for a judge, one after the other, from 0; NULL: there are no more. */
const struct wrong_certs_row *wrong_certs_next(enum wrong_certs_judge judge, size_t *index);
/** A judge that dials WRONG_CERTS_IP comes to the same. */
bool wrong_certs_is_for_ip(const struct wrong_certs_row *row);
/** The certificate, its issuers behind it. */
void wrong_certs_make(const struct wrong_certs *certs, const struct wrong_certs_row *row,
                      struct fake_cert *ret_cert);
/** Says whether the judge, who ended with rc and said that, has done as it must; prints what is wrong. */
bool wrong_certs_is_right(const struct wrong_certs_row *row, enum wrong_certs_judge judge,
                          enum muster_rc rc, const char *said);

#endif
