/* The table of certificates. The words name the culprit, so that a refusal for another reason is
 * seen. */
#include "wrong_certs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_env.h"

#define DAY_S  (24L * 3600)
#define SPIFFE "spiffe://test/job/a/task/1"
#define USUAL  "DNS:" WRONG_CERTS_NAME ",IP:" WRONG_CERTS_IP ",URI:" SPIFFE
#define NOT_US "none of the accepted names (\"" WRONG_CERTS_MEMBER "\" and others)"
#define LABEL  "a-label-of-thirty-two-characters"

#define BOTH_ENDS   (1u << WRONG_CERTS_OPENER | 1u << WRONG_CERTS_ACCEPTOR)
#define BY_SERVERS  (1u << WRONG_CERTS_SERVER | 1u << WRONG_CERTS_ACCEPTOR)
#define BY_NAME     .is_not_for = BOTH_ENDS
#define BY_MEMBERS  .is_not_for = ~BOTH_ENDS
#define CLIENTS(x)  [WRONG_CERTS_CLIENT] = (x), [WRONG_CERTS_OPENER] = (x)
#define SERVERS(x)  [WRONG_CERTS_SERVER] = (x), [WRONG_CERTS_ACCEPTOR] = (x)
#define MEMBERS(x)  [WRONG_CERTS_OPENER] = (x), [WRONG_CERTS_ACCEPTOR] = (x)
#define OURS(x)     CLIENTS(x), SERVERS(x)
#define HTTP(x)     [WRONG_CERTS_HTTP] = (x)
#define DIALLERS(x) [WRONG_CERTS_CLIENT] = (x), HTTP("no alternative certificate subject name")

/* Authorities between root and leaf. */
#define LINK  .name = "link", .is_authority = true
#define UPPER .name = "upper", .is_authority = true

static const struct wrong_certs_row rows[] = {
    {.name = "right"},

    {.name = "that is not there",
     .is_absent = true,
     .is_not_for = ~BY_SERVERS,
     .words = {SERVERS("the client showed no certificate")}},
    {.name = "without a subject", .leaf = {.name = FAKE_CERT_NONE}},

    /* Dates. */
    {.name = "expired",
     .leaf = {.from_s = -10 * DAY_S, .until_s = -DAY_S},
     .words = {OURS("certificate CN=leaf expired "), HTTP("certificate has expired")}},
    {.name = "expired a second ago",
     .leaf = {.from_s = -DAY_S, .until_s = -1},
     .words = {OURS("certificate CN=leaf expired "), HTTP("certificate has expired")}},
    {.name = "expired and without a subject",
     .leaf = {.name = FAKE_CERT_NONE, .from_s = -10 * DAY_S, .until_s = -DAY_S},
     .words = {OURS("certificate  expired "), HTTP("certificate has expired")}},
    {.name = "not yet valid",
     .leaf = {.from_s = DAY_S, .until_s = 2 * DAY_S},
     .words = {OURS("certificate CN=leaf is not valid before "),
               HTTP("certificate is not yet valid")}},
    {.name = "under an authority that has expired",
     .issuers = {{LINK, .from_s = -10 * DAY_S, .until_s = -DAY_S}},
     .words = {OURS("certificate CN=link expired "), HTTP("certificate has expired")}},

    /* Chains. */
    {.name = "under an authority of the root", .issuers = {{LINK}}},
    {.name = "two authorities below the root", .issuers = {{LINK}, {UPPER}}},
    {.name = "with its root behind it", .shows_root = true},
    {.name = "signed by itself",
     .root = WRONG_CERTS_SELF,
     .words = {OURS("certificate CN=leaf is signed by itself"), HTTP("self-signed certificate")}},
    {.name = "under a stranger",
     .root = WRONG_CERTS_STRANGER,
     .words = {OURS("certificate CN=leaf: its issuer CN=stranger is not trusted by"),
               HTTP("unable to get local issuer")}},
    {.name = "under a stranger that it shows",
     .root = WRONG_CERTS_STRANGER,
     .shows_root = true,
     .words = {OURS("certificate CN=stranger: its issuer CN=stranger is not trusted by"),
               HTTP("self-signed certificate in certificate chain")}},
    {.name = "under a stranger of the root's name",
     .root = WRONG_CERTS_NAMESAKE,
     .words = {OURS("certificate CN=leaf: its issuer CN=root is not trusted by"),
               HTTP("certificate does not hold")}},
    {.name = "under an authority that it does not show",
     .issuers = {{LINK}},
     .hides_issuers = true,
     .words = {OURS("certificate CN=leaf: its issuer CN=link is not trusted by"),
               HTTP("unable to get local issuer")}},
    {.name = "under a certificate that is not an authority's",
     .issuers = {{.name = "link", .basic = "critical,CA:FALSE"}},
     .words = {OURS("certificate CN=link is refused: invalid CA certificate"),
               HTTP("invalid CA certificate")}},
    {.name = "under a certificate without constraints",
     .issuers = {{.name = "link", .basic = FAKE_CERT_NONE}},
     .words = {OURS("certificate CN=link is refused: invalid CA certificate"),
               HTTP("invalid CA certificate")}},
    {.name = "under an authority that may not sign certificates",
     .issuers = {{LINK, .key_usage = "critical,digitalSignature"}},
     .words = {OURS("certificate CN=link is refused: invalid CA certificate"),
               HTTP("invalid CA certificate")}},
    {.name = "deeper than an authority may reach",
     .issuers = {{LINK}, {UPPER, .basic = "critical,CA:TRUE,pathlen:0"}},
     .words = {OURS("refused: path length constraint exceeded"),
               HTTP("path length constraint exceeded")}},
    {.name = "as deep as an authority may reach",
     .issuers = {{LINK, .basic = "critical,CA:TRUE,pathlen:0"}}},
    {.name = "of a name that its authority may not give",
     .issuers = {{LINK, .name_limit = "critical,permitted;DNS:elsewhere.test"}},
     .words = {OURS("certificate CN=leaf is refused: permitted subtree violation"),
               HTTP("permitted subtree violation")}},
    {.name = "with an extension that nobody knows",
     .leaf = {.has_unknown_critical = true},
     .words = {OURS("certificate CN=leaf is refused: unhandled critical extension"),
               HTTP("unhandled critical extension")}},

    /* Uses of the key. */
    {.name = "for servers and clients", .leaf = {.extended_usage = "serverAuth,clientAuth"}},
    {.name = "for servers only",
     .leaf = {.extended_usage = "serverAuth"},
     .words = {SERVERS("certificate CN=leaf is refused: unsuitable certificate purpose")}},
    {.name = "for clients only",
     .leaf = {.extended_usage = "clientAuth"},
     .words = {CLIENTS("certificate CN=leaf is refused: unsuitable certificate purpose"),
               HTTP("unsuitable certificate purpose")}},
    {.name = "for programs only",
     .leaf = {.extended_usage = "codeSigning"},
     .words = {OURS("certificate CN=leaf is refused: unsuitable certificate purpose"),
               HTTP("unsuitable certificate purpose")}},
    {.name = "under an authority for programs",
     .issuers = {{LINK, .extended_usage = "codeSigning"}},
     .words = {OURS("certificate CN=link is refused: unsuitable certificate purpose"),
               HTTP("unsuitable certificate purpose")}},
    {.name = "whose key signs lists only",
     .leaf = {.key_usage = "critical,cRLSign"},
     .words = {OURS("certificate CN=leaf is refused: unsuitable certificate purpose"),
               HTTP("unsuitable certificate purpose")}},
    {.name = "an authority's own",
     .leaf = {.is_authority = true, .key_usage = "critical,keyCertSign,digitalSignature"},
     .words = {OURS("certificate is an authority's: it is not a SPIFFE ID")}},

    /* Weak ones. */
    {.name = "of RSA with 2,048 bits", .leaf = {.rsa_bits = 2048}},
    {.name = "of RSA with 1,024 bits",
     .leaf = {.rsa_bits = 1024},
     .words = {OURS("certificate CN=leaf is refused: EE certificate key too weak"),
               HTTP("EE certificate key too weak")}},
    {.name = "under an authority of RSA with 1,024 bits",
     .issuers = {{LINK, .rsa_bits = 1024}},
     .words = {OURS("certificate CN=link is refused: CA certificate key too weak"),
               HTTP("CA certificate key too weak")}},
    {.name = "signed by SHA-1",
     .leaf = {.digest = "SHA1"},
     .words = {OURS("certificate CN=leaf is refused: CA signature digest algorithm too weak"),
               HTTP("CA signature digest algorithm too weak")}},
    {.name = "under an authority signed by SHA-1",
     .issuers = {{LINK, .digest = "SHA1"}},
     .words = {OURS("certificate CN=link is refused: CA signature digest algorithm too weak"),
               HTTP("CA signature digest algorithm too weak")}},

    /* Names of hosts. Where a certificate has no alternative name, curl takes the common name. */
    {.name = "for an address", .dialled = WRONG_CERTS_IP, BY_NAME},
    {.name = "for the name in capitals", .leaf = {.alt_names = "DNS:LOCALHOST"}, BY_NAME},
    {.name = "for another name",
     .leaf = {.alt_names = "DNS:elsewhere.test"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:elsewhere.test, not for \"")}},
    {.name = "for other names, which are too long to tell",
     .leaf = {.alt_names = "DNS:" LABEL "." LABEL ".test,DNS:" LABEL ".test"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:" LABEL "." LABEL ".test, DNS:a-label-of-thir, not for \"")}},
    {.name = "for another address",
     .dialled = WRONG_CERTS_IP,
     .leaf = {.alt_names = "IP:127.0.0.2"},
     BY_NAME,
     .words = {DIALLERS("is for IP Address:127.0.0.2, not for \"127.0.0.1\"")}},
    {.name = "for a name that begins alike",
     .leaf = {.alt_names = "DNS:localhost.evil.test"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:localhost.evil.test, not for \"")}},
    {.name = "for a name that ends alike",
     .leaf = {.alt_names = "DNS:evil.localhost"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:evil.localhost, not for \"")}},
    {.name = "for a name with a NUL in it",
     .leaf = {.alt_names = "DNS:localhost^.evil.test"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:localhost")}},
    {.name = "in its common name only",
     .leaf = {.name = WRONG_CERTS_NAME, .alt_names = FAKE_CERT_NONE},
     BY_NAME,
     .words = {[WRONG_CERTS_CLIENT] = "is for no name at all, not for \""}},
    {.name = "in its common name with a NUL in it",
     .leaf = {.name = WRONG_CERTS_NAME "^.evil.test", .alt_names = FAKE_CERT_NONE},
     BY_NAME,
     .words = {[WRONG_CERTS_CLIENT] = "is for no name at all, not for \"",
               HTTP("illegal cert name field")}},
    {.name = "in its common name beside another",
     .leaf = {.name = WRONG_CERTS_NAME, .alt_names = "DNS:elsewhere.test"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:elsewhere.test, not for \"")}},
    {.name = "of a host as an address",
     .leaf = {.alt_names = "IP:127.0.0.1"},
     .dialled = WRONG_CERTS_NAME,
     BY_NAME,
     .words = {DIALLERS("is for IP Address:127.0.0.1, not for \"localhost\"")}},
    {.name = "of an address as a host",
     .leaf = {.alt_names = "DNS:127.0.0.1"},
     .dialled = WRONG_CERTS_IP,
     BY_NAME,
     .words = {DIALLERS("is for DNS:127.0.0.1, not for \"127.0.0.1\"")}},
    {.name = "of a host as a URI",
     .leaf = {.alt_names = "URI:https://localhost/,DNS:elsewhere.test"},
     BY_NAME,
     .words = {DIALLERS("is for URI:https://localhost/, DNS:elsewhere.test, not for \"")}},
    {.name = "of a host as an address of mail",
     .leaf = {.alt_names = "email:me@localhost,DNS:elsewhere.test"},
     BY_NAME,
     .words = {DIALLERS("is for email:me@localhost, DNS:elsewhere.test, not for \"")}},

    /* Wildcards: RFC 6125 6.4.3, whole labels at the left alone. */
    {.name = "*.sub.test",
     .dialled = "host.sub.test",
     .leaf = {.alt_names = "DNS:*.sub.test"},
     BY_NAME},
    {.name = "*",
     .dialled = "host.sub.test",
     .leaf = {.alt_names = "DNS:*"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:*, not for \"host.sub.test\"")}},
    {.name = "* for a name of one label",
     .leaf = {.alt_names = "DNS:*"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:*, not for \"")}},
    {.name = "ho*.sub.test",
     .dialled = "host.sub.test",
     .leaf = {.alt_names = "DNS:ho*.sub.test"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:ho*.sub.test, not for \"host.sub.test\"")}},
    {.name = "*st.sub.test",
     .dialled = "host.sub.test",
     .leaf = {.alt_names = "DNS:*st.sub.test"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:*st.sub.test, not for \"host.sub.test\"")}},
    {.name = "*.*.test",
     .dialled = "host.sub.test",
     .leaf = {.alt_names = "DNS:*.*.test"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:*.*.test, not for \"host.sub.test\"")}},
    {.name = "host.*.test",
     .dialled = "host.sub.test",
     .leaf = {.alt_names = "DNS:host.*.test"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:host.*.test, not for \"host.sub.test\"")}},
    {.name = "host.sub.*",
     .dialled = "host.sub.test",
     .leaf = {.alt_names = "DNS:host.sub.*"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:host.sub.*, not for \"host.sub.test\"")}},
    {.name = "*.sub.test for two labels",
     .dialled = "a.host.sub.test",
     .leaf = {.alt_names = "DNS:*.sub.test"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:*.sub.test, not for \"a.host.sub.test\"")}},
    {.name = "*.sub.test for no label",
     .dialled = "sub.test",
     .leaf = {.alt_names = "DNS:*.sub.test"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:*.sub.test, not for \"sub.test\"")}},
    {.name = "*.0.0.1 for an address",
     .dialled = WRONG_CERTS_IP,
     .leaf = {.alt_names = "DNS:*.0.0.1"},
     BY_NAME,
     .words = {DIALLERS("is for DNS:*.0.0.1, not for \"127.0.0.1\"")}},

    /* Members: by their SPIFFE id (X.509-SVID 2 and 5.2), by their hosts' names where they have
     * none. */
    {.name = "of a host that is a member", .leaf = {.alt_names = "DNS:member.test"}, BY_MEMBERS},
    {.name = "of a host beside a URI that is not a SPIFFE id",
     .leaf = {.alt_names = "URI:https://test/job/a/task/1,DNS:member.test"},
     BY_MEMBERS},
    {.name = "of another job",
     .leaf = {.alt_names = "URI:spiffe://test/job/b/task/1"},
     BY_MEMBERS,
     .words = {MEMBERS("the peer is spiffe://test/job/b/task/1, which is " NOT_US)}},
    {.name = "of another job, on a host that is a member",
     .leaf = {.alt_names = "DNS:member.test,URI:spiffe://test/job/b/task/1"},
     BY_MEMBERS,
     .words = {MEMBERS("the peer is spiffe://test/job/b/task/1, which is " NOT_US)}},
    {.name = "of a job whose name begins alike",
     .leaf = {.alt_names = "URI:spiffe://test/job/ab/task/1"},
     BY_MEMBERS,
     .words = {MEMBERS("the peer is spiffe://test/job/ab/task/1, which is " NOT_US)}},
    {.name = "of another trust domain",
     .leaf = {.alt_names = "URI:spiffe://evil/job/a/task/1"},
     BY_MEMBERS,
     .words = {MEMBERS("the peer is spiffe://evil/job/a/task/1, which is " NOT_US)}},
    {.name = "of another scheme",
     .leaf = {.alt_names = "URI:https://test/job/a/task/1"},
     BY_MEMBERS,
     .words = {MEMBERS("the peer is CN=leaf, which is " NOT_US)}},
    {.name = "with two SPIFFE ids",
     .leaf = {.alt_names = "URI:" SPIFFE ",URI:spiffe://test/job/a/task/2"},
     BY_MEMBERS,
     .words = {MEMBERS("more than one URI among its names: it is not a SPIFFE ID")}},
    {.name = "with a SPIFFE id behind another URI",
     .leaf = {.alt_names = "URI:https://test/,URI:" SPIFFE},
     BY_MEMBERS,
     .words = {MEMBERS("more than one URI among its names: it is not a SPIFFE ID")}},
    {.name = "with a NUL in its SPIFFE id",
     .leaf = {.alt_names = "URI:" SPIFFE "^/evil"},
     BY_MEMBERS,
     .words = {MEMBERS("the peer is CN=leaf, which is " NOT_US)}},
    {.name = "of a host that is a member, with a NUL in its name",
     .leaf = {.alt_names = "DNS:member.test^.evil.test"},
     BY_MEMBERS,
     .words = {MEMBERS("the peer is CN=leaf, which is " NOT_US)}},
    {.name = "of any host",
     .leaf = {.alt_names = "DNS:*.test"},
     BY_MEMBERS,
     .words = {MEMBERS("the peer is *.test, which is " NOT_US)}},
    {.name = "of a member by mail",
     .leaf = {.alt_names = "email:me@member.test"},
     BY_MEMBERS,
     .words = {MEMBERS("the peer is CN=leaf, which is " NOT_US)}},
    {.name = "of a member in its common name only",
     .leaf = {.name = WRONG_CERTS_HOST, .alt_names = FAKE_CERT_NONE},
     BY_MEMBERS,
     .words = {MEMBERS("the peer is CN=" WRONG_CERTS_HOST ", which is " NOT_US)}},
    {.name = "of nobody",
     .leaf = {.alt_names = FAKE_CERT_NONE},
     BY_MEMBERS,
     .words = {MEMBERS("the peer is CN=leaf, which is " NOT_US)}},
};

void wrong_certs_open(struct wrong_certs *certs)
{
    *certs = (struct wrong_certs){.root = fake_authority_new("root"),
                                  .stranger = fake_authority_new("stranger"),
                                  .namesake = fake_authority_new("root")};
    assert_true(certs->root != NULL && certs->stranger != NULL && certs->namesake != NULL);
}

void wrong_certs_close(struct wrong_certs *certs)
{
    fake_authority_free(certs->root);
    fake_authority_free(certs->stranger);
    fake_authority_free(certs->namesake);
}

const struct wrong_certs_row *wrong_certs_next(enum wrong_certs_judge judge, size_t *index)
{
    for (; *index < sizeof(rows) / sizeof(rows[0]); ++*index)
        if ((rows[*index].is_not_for & 1u << judge) == 0)
            return &rows[(*index)++];
    return NULL;
}

bool wrong_certs_is_for_ip(const struct wrong_certs_row *row)
{
    return row->dialled == NULL ? row->leaf.alt_names == NULL
                                : strcmp(row->dialled, WRONG_CERTS_IP) == 0;
}

static void append_text(char **text, const char *more)
{
    char *all = NULL;

    assert_true(asprintf(&all, "%s%s", *text, more) > 0);
    free(*text);
    *text = all;
}

void wrong_certs_make(const struct wrong_certs *certs, const struct wrong_certs_row *row,
                      struct fake_cert *ret_cert)
{
    const struct fake_authority *const roots[] = {certs->root, NULL, certs->stranger,
                                                  certs->namesake};
    const struct fake_authority *issuer = roots[row->root];
    struct fake_cert_options leaf = row->leaf;
    struct fake_authority *links[2] = {NULL, NULL};

    *ret_cert = (struct fake_cert){.cert_pem = NULL};
    if (row->is_absent)
        return;
    for (size_t i = 2; i-- > 0;) {
        if (row->issuers[i].name == NULL)
            continue;
        links[i] = fake_authority_issue(issuer, &row->issuers[i]);
        assert_non_null(links[i]);
        issuer = links[i];
    }
    leaf.name = leaf.name != NULL ? leaf.name : "leaf";
    leaf.alt_names = leaf.alt_names != NULL ? leaf.alt_names : USUAL;
    assert_true(fake_cert_init(ret_cert, issuer, &leaf));
    for (size_t i = 0; i < 2; i++) {
        if (links[i] != NULL && !row->hides_issuers)
            append_text(&ret_cert->cert_pem, fake_authority_pem(links[i]));
        fake_authority_free(links[i]);
    }
    if (row->shows_root)
        append_text(&ret_cert->cert_pem, fake_authority_pem(roots[row->root]));
}

bool wrong_certs_is_right(const struct wrong_certs_row *row, enum wrong_certs_judge judge,
                          enum muster_rc rc, const char *said)
{
    const char *words = row->words[judge];
    bool is_accepted = rc == MUSTER_OK;

    if (words == NULL && !is_accepted)
        print_error("a certificate %s is refused: %s\n", row->name, said);
    else if (words != NULL && is_accepted)
        print_error("a certificate %s is accepted\n", row->name);
    else if (words != NULL && strstr(said, words) == NULL)
        print_error("a certificate %s is refused: \"%s\", not: \"%s\"\n", row->name, said, words);
    else if (words != NULL && rc != MUSTER_UNAUTHENTICATED)
        print_error("a certificate %s is refused as %s: %s\n", row->name, muster_rc_name(rc), said);
    else
        return true;
    return false;
}
