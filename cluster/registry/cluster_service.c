/* etcdserverpb.Cluster, Maintenance and Auth, as a cluster of one answers them. Clients of etcd ask
 * these when they connect or show a status. The hashes of Maintenance are in hash_service.c, its
 * snapshots in snapshot_service.c. Calls that would change the cluster or its users are not served,
 * and the client gets UNIMPLEMENTED. */
#include "cluster/registry/server_internal.h"

#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

/* Requests without fields that matter: only their form is checked. */
static bool is_well_formed(struct muster_rpc *rpc, const void *descriptor,
                           struct muster_bytes bytes)
{
    void *request = NULL;

    if (!muster_registry_unpack(muster_rpc_service(rpc), rpc, descriptor, bytes, &request))
        return false;
    muster_proto_free(request);
    return true;
}

static void send_message(struct muster_rpc *rpc, const void *message)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);

    muster_registry_send_answer(server, rpc, message);
    muster_registry_arena_reset(&server->arena);
}

static void on_member_list(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    char *url = server->client_url;
    Etcdserverpb__MemberListResponse message;
    Etcdserverpb__ResponseHeader header;
    Etcdserverpb__Member member;
    Etcdserverpb__Member *members = &member;

    if (!is_well_formed(rpc, &etcdserverpb__member_list_request__descriptor, bytes))
        return;
    etcdserverpb__member__init(&member);
    member.id = server->mvcc.meta.member_id;
    member.name = server->name;
    member.n_clienturls = url[0] != '\0';
    member.clienturls = &url;
    etcdserverpb__member_list_response__init(&message);
    muster_registry_fill_header(server, &header);
    message.header = &header;
    message.n_members = 1;
    message.members = &members;
    send_message(rpc, &message);
}

static void on_status(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    static char version[] = MUSTER_REGISTRY_ETCD_VERSION;
    static char no_space[] = "NOSPACE";
    struct muster_registry_server *server = muster_rpc_service(rpc);
    const struct muster_registry_meta *meta = &server->mvcc.meta;
    struct muster_registry_store_size size;
    char *errors[] = {no_space};
    Etcdserverpb__StatusResponse message;
    Etcdserverpb__ResponseHeader header;

    if (!is_well_formed(rpc, &etcdserverpb__status_request__descriptor, bytes))
        return;
    muster_registry_store_measure(server->store, &size);
    etcdserverpb__status_response__init(&message);
    muster_registry_fill_header(server, &header);
    message.header = &header;
    message.version = version;
    message.dbsize = (int64_t)size.file_bytes;
    message.dbsizeinuse = (int64_t)size.used_bytes;
    message.dbsizequota = (int64_t)size.quota_bytes;
    /* The only member leads. There is no raft log, so the revision stands for its index: both only
     * rise. */
    message.leader = meta->member_id;
    message.raftindex = (uint64_t)meta->revision;
    message.raftappliedindex = (uint64_t)meta->revision;
    message.raftterm = meta->term;
    /* etcdctl and other tools show these; NOSPACE is etcd's word for a full quota. */
    message.n_errors = server->mvcc.is_full;
    message.errors = errors;
    send_message(rpc, &message);
}

static void on_alarm(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__AlarmResponse message;
    Etcdserverpb__ResponseHeader header;
    Etcdserverpb__AlarmMember full;
    Etcdserverpb__AlarmMember *alarms = &full;

    if (!is_well_formed(rpc, &etcdserverpb__alarm_request__descriptor, bytes))
        return;
    etcdserverpb__alarm_member__init(&full);
    full.memberid = server->mvcc.meta.member_id;
    full.alarm = ETCDSERVERPB__ALARM_TYPE__NOSPACE;
    etcdserverpb__alarm_response__init(&message);
    muster_registry_fill_header(server, &header);
    message.header = &header;
    message.n_alarms = server->mvcc.is_full; /* it ends by itself once there is room again */
    message.alarms = &alarms;
    send_message(rpc, &message);
}

/* SQLite uses free pages again by itself; what can be done is to shorten the journal. */
static void on_defragment(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__DefragmentResponse message;
    Etcdserverpb__ResponseHeader header;

    if (!is_well_formed(rpc, &etcdserverpb__defragment_request__descriptor, bytes))
        return;
    if (!muster_registry_store_is_writing(server->store))
        muster_registry_store_checkpoint(server->store);
    etcdserverpb__defragment_response__init(&message);
    muster_registry_fill_header(server, &header);
    message.header = &header;
    send_message(rpc, &message);
}

/* The only member may be named, since it leads already; nobody else can be. */
static void on_move_leader(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__MoveLeaderRequest *request = NULL;
    Etcdserverpb__MoveLeaderResponse message;
    Etcdserverpb__ResponseHeader header;
    bool is_leader;

    if (!muster_registry_unpack(server, rpc, &etcdserverpb__move_leader_request__descriptor, bytes,
                                &request))
        return;
    is_leader = request->targetid == server->mvcc.meta.member_id;
    muster_proto_free(request);
    if (!is_leader) {
        muster_registry_refuse(server, rpc, MUSTER_FAILED_PRECONDITION,
                               "etcdserver: bad leader transferee");
        return;
    }
    etcdserverpb__move_leader_response__init(&message);
    muster_registry_fill_header(server, &header);
    message.header = &header;
    send_message(rpc, &message);
}

/* There are no users here: access is a matter of TLS and of the authorization that the owner of the
 * server sets up. Clients still ask for the status and the lists, and get the answers of an etcd
 * whose authentication is off. */

static void on_auth_status(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__AuthStatusResponse message;
    Etcdserverpb__ResponseHeader header;

    if (!is_well_formed(rpc, &etcdserverpb__auth_status_request__descriptor, bytes))
        return;
    etcdserverpb__auth_status_response__init(&message);
    muster_registry_fill_header(server, &header);
    message.header = &header;
    message.authrevision = 1;
    send_message(rpc, &message);
}

/* Users and roles share this: the two messages have the same fields. */
static void on_user_list(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct muster_registry_server *server = muster_rpc_service(rpc);
    Etcdserverpb__AuthUserListResponse message;
    Etcdserverpb__ResponseHeader header;

    if (!is_well_formed(rpc, &etcdserverpb__auth_user_list_request__descriptor, bytes))
        return;
    etcdserverpb__auth_user_list_response__init(&message);
    muster_registry_fill_header(server, &header);
    message.header = &header;
    send_message(rpc, &message);
}

static void on_authenticate(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    (void)bytes;
    muster_rpc_finish(rpc, MUSTER_FAILED_PRECONDITION, "etcdserver: authentication is not enabled");
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.Cluster/MemberList",
     .on_message = on_member_list,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Maintenance/Status",
     .on_message = on_status,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Maintenance/Alarm",
     .on_message = on_alarm,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Maintenance/Defragment",
     .on_message = on_defragment,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Maintenance/MoveLeader",
     .on_message = on_move_leader,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Auth/AuthStatus",
     .on_message = on_auth_status,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Auth/UserList",
     .on_message = on_user_list,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Auth/RoleList",
     .on_message = on_user_list,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
    {.path = "/etcdserverpb.Auth/Authenticate",
     .on_message = on_authenticate,
     .on_end = muster_registry_unary_end,
     .is_unary = true},
};

enum muster_rc muster_registry_cluster_add(struct muster_registry_server *server)
{
    return muster_rpc_server_add(server->rpc_server, methods, sizeof(methods) / sizeof(methods[0]),
                                 server);
}
