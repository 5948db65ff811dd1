/* Cloud TPUs: their nodes and topology, the client of the TPU API, resolvers, connecting, device assignment. */
#ifndef MUSTER_TPU_H
#define MUSTER_TPU_H

#include <muster/base.h>
#include <muster/cluster_spec.h>
#include <muster/env.h>
#include <muster/json.h>
#include <muster/list.h>
#include <muster/mem.h>
#include <muster/resolver.h>
#include <muster/status.h>

MUSTER_BEGIN

/* Which TPU device of which task sits where in the mesh: an immutable, counted value. */

#define MUSTER_TPU_MESH_RANK     4 /* x, y, z, core */
#define MUSTER_TPU_MESH_SIZE_MAX (UINT32_C(1) << 22)
/* Room for any device name of a job whose name has at most 255 bytes, with its NUL. */
#define MUSTER_TPU_DEVICE_NAME_BYTES 320

/** tensorflow.tpu.TPUHardwareFeature.EmbeddingFeature. */
enum muster_tpu_embedding_feature {
    MUSTER_TPU_EMBEDDING_UNSUPPORTED = 0,
    MUSTER_TPU_EMBEDDING_V1 = 1,
    MUSTER_TPU_EMBEDDING_V2 = 2,
};

/** Position in the mesh, or a shape or stride of it. */
struct muster_tpu_coordinates {
    int32_t at[MUSTER_TPU_MESH_RANK]; /* x, y, z, core */
};

/** Parts of a topology. */
struct muster_tpu_topology_options {
    const int32_t *mesh_shape; /* of mesh_rank elements; borrowed during the call */
    size_t mesh_rank;
    int32_t num_tasks;
    int32_t num_tpu_devices_per_task;
    const int32_t *device_coordinates; /* [task][device][dimension]; borrowed during the call */
    size_t device_coordinate_count;    /* num_tasks * num_tpu_devices_per_task * mesh_rank */
    enum muster_tpu_embedding_feature embedding_feature;
};

/** Read-only once made. */
struct muster_tpu_topology {
    struct muster_tpu_coordinates mesh_shape;
    uint32_t num_tasks;
    uint32_t num_tpu_devices_per_task;
    enum muster_tpu_embedding_feature embedding_feature;
    const struct muster_tpu_coordinates *devices; /* [task][device] */
    uint32_t missing_device_count;                /* mesh positions that hold no device */
    /* private */
    struct muster_mem *mem;
    uint32_t ref_count;
    uint32_t *device_at; /* mesh position -> index into devices, or UINT32_MAX */
};

/**
 * A topology of plain numbers.
 *
 * Shape:   device_coordinates is [num_tasks][num_tpu_devices_per_task][mesh_rank], row-major.
 * Owns:    gives a reference.
 * Errors:  INVALID_ARGUMENT: the rank is not 4, a mesh dimension is below 1, a count is negative,
 * the number of coordinates does not fit, a device lies outside the mesh, or two share a place;
 *          RESOURCE_EXHAUSTED: a mesh above MUSTER_TPU_MESH_SIZE_MAX positions, or no memory.
 * Source:  tf.tpu.experimental.Topology
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_topology_new(
    struct muster_mem *mem, const struct muster_tpu_topology_options *options,
    struct muster_tpu_topology **ret_topology, struct muster_error *ret_error);
/** Shares. */
MUSTER_API struct muster_tpu_topology *muster_tpu_topology_ref(
    struct muster_tpu_topology *topology);
/** NULL is accepted. */
MUSTER_API void muster_tpu_topology_unref(struct muster_tpu_topology *topology);

/** A serialized tensorflow.tpu.TopologyProto. Gives a reference. Errors: as
 * muster_tpu_topology_new; INVALID_ARGUMENT: malformed bytes. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_topology_unpack(
    struct muster_mem *mem, const void *bytes, size_t size,
    struct muster_tpu_topology **ret_topology, struct muster_error *ret_error);
/** The wire form. Gives *ret_bytes, from mem. Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_topology_pack(
    const struct muster_tpu_topology *topology, struct muster_mem *mem, void **ret_bytes,
    size_t *ret_size);

/** Where a device sits. Borrowed; NULL when there is no such task or device. */
MUSTER_API const struct muster_tpu_coordinates *muster_tpu_topology_device(
    const struct muster_tpu_topology *topology, uint32_t task, uint32_t device);
/** The task, and the ordinal within it, of the device at a place; each output may be NULL. Errors:
 * INVALID_ARGUMENT: outside the mesh; NOT_FOUND: no device sits there. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_topology_find(
    const struct muster_tpu_topology *topology, const struct muster_tpu_coordinates *at,
    uint32_t *ret_task, uint32_t *ret_device, struct muster_error *ret_error);

enum muster_tpu_device_kind {
    MUSTER_TPU_DEVICE_CPU, /* of the host that the TPU device belongs to */
    MUSTER_TPU_DEVICE_TPU,
};
/**
 * The name of the device at a place: "/job:J/task:T/device:TPU:D" or "/job:J/task:T/device:CPU:0",
 * without the job part when job is NULL.
 *
 * Owns:    borrows job; writes at most name_bytes to ret_name.
 * Errors:  as muster_tpu_topology_find; OUT_OF_RANGE: the name does not fit.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_topology_device_name(
    const struct muster_tpu_topology *topology, const struct muster_tpu_coordinates *at,
    enum muster_tpu_device_kind kind, const char *job, size_t name_bytes, char *ret_name,
    struct muster_error *ret_error);

/* The TPU cores that a cluster's devices show: how many, on how many hosts. */

/** TensorFlow's TPUSystemMetadata. */
struct muster_tpu_system {
    uint32_t num_cores;
    uint32_t num_hosts;
    uint32_t num_of_cores_per_host;
    /** Sorted by job, replica, task, kind and index; texts and array are owned. */
    char **devices;
    size_t device_count;
    /* private */
    struct muster_mem *mem;
};

/**
 * Count device names ("/job:worker/replica:0/task:1/device:TPU:0").
 *
 * Owns:    copies names; *ret_system is to be given to muster_tpu_system_fini.
 * Errors:  FAILED_PRECONDITION names two hosts with different numbers of cores; RESOURCE_EXHAUSTED.
 * Source:  tensorflow/python/tpu/tpu_system_metadata.py
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_system_init(
    struct muster_tpu_system *ret_system, struct muster_mem *mem, const char *const *names,
    size_t count, struct muster_error *ret_error);
/** All zero is accepted. */
MUSTER_API void muster_tpu_system_fini(struct muster_tpu_system *system);

/**
 * The job whose tasks hold the TPU: of a local master ("", "local") none, NULL; without a cluster
 * "tpu_worker"; else the only job, or the one beside "coordinator".
 *
 * Owns:    *ret_job is static, or borrowed from spec, which may be NULL.
 * Errors:  INVALID_ARGUMENT: a job is called tpu_worker, which is reserved; no single job is left.
 * Source:  tensorflow/python/tpu/tpu_system_metadata.py, master_job
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_system_master_job(
    const char *master, const struct muster_cluster_spec *spec, const char **ret_job,
    struct muster_error *ret_error);

/* TPU node as the Cloud TPU API describes it: an immutable, counted value. */

#define MUSTER_TPU_PORT        8470 /* of a worker that does not say */
#define MUSTER_TPU_WORKERS_MAX 65536
#define MUSTER_TPU_OOM_COOL_NS (90 * MUSTER_NS_PER_S)

/** Where a TPU worker listens. */
struct muster_tpu_endpoint {
    char host[256]; /* address or name; of an IPv6 address without its brackets */
    uint16_t port;
};

/** Something that is wrong with a node. Texts are borrowed from it; "" where the API does not say. */
struct muster_tpu_symptom {
    const char *type;        /* "OUT_OF_MEMORY" */
    const char *create_time; /* RFC 3339, UTC */
    const char *worker_id;
    const char *details;
};

/** Read-only once made. A text that the API does not give is NULL. */
struct muster_tpu_node {
    const char *state;            /* "READY", "CREATING", "PREEMPTED" … */
    const char *health;           /* "HEALTHY", "UNHEALTHY_MAINTENANCE" … */
    const char *accelerator_type; /* "v3-32" */
    const char *runtime_version;  /* runtimeVersion, or tensorflowVersion */
    const struct muster_tpu_endpoint *endpoints;
    size_t endpoint_count;
    bool has_address;  /* networkEndpoints (maybe an empty list) or ipAddress is there */
    bool has_symptoms; /* the API gives a list, maybe an empty one */
    const struct muster_tpu_symptom *symptoms;
    size_t symptom_count;
    /* private */
    struct muster_mem *mem;
    struct muster_json *root;
    uint32_t ref_count;
};

/** A node as projects.locations.nodes.get answers (v1, v1alpha1 and v2alpha1). Gives a reference.
 * Errors: INVALID_ARGUMENT (no JSON object, or a member of the wrong type); RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_node_parse(struct muster_mem *mem,
                                                                  const char *text, size_t size,
                                                                  struct muster_tpu_node **ret_node,
                                                                  struct muster_error *ret_error);
/** Can tasks be told where its workers are? With is_tf1 a state that is not told counts as READY, and
 * the health must be HEALTHY where it is told (tf.contrib). Errors name the node: FAILED_PRECONDITION
 * (not READY, unhealthy), NOT_FOUND (READY, without any address). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_node_check(
    const struct muster_tpu_node *node, const char *name, bool is_tf1,
    struct muster_error *ret_error);
/** Shares. */
MUSTER_API struct muster_tpu_node *muster_tpu_node_ref(struct muster_tpu_node *node);
/** NULL is accepted. */
MUSTER_API void muster_tpu_node_unref(struct muster_tpu_node *node);

/** Which symptoms make a node unrecoverable while they are fresh. */
struct muster_tpu_recovery {
    bool is_runtime_oom_ignored; /* OUT_OF_MEMORY */
    bool is_hbm_oom_ignored;     /* HBM_OUT_OF_MEMORY */
};
/**
 * Is it worth trying again on this node? Not when it is TERMINATED or PREEMPTED, nor within
 * MUSTER_TPU_OOM_COOL_NS of running out of memory. A node without state is recoverable.
 *
 * Units:   wall_ns since 1970, UTC.
 * Source:  cloud_tpu_client.Client.recoverable
 */
MUSTER_API bool muster_tpu_node_is_recoverable(const struct muster_tpu_node *node,
                                               const struct muster_tpu_recovery *recovery,
                                               uint64_t wall_ns);

/* Questions about one Cloud TPU: its node in the API, and the runtime version of its workers. */

struct muster_tpu_client;
struct muster_tpu_query;
struct muster_tpu_wait;

typedef void muster_tpu_client_close_fn(struct muster_tpu_client *client);
typedef void muster_tpu_query_fn(struct muster_tpu_query *query, enum muster_rc rc);
typedef void muster_tpu_wait_fn(struct muster_tpu_wait *wait, enum muster_rc rc);

#define MUSTER_TPU_VERSION_PORT 8475

/** Everything is borrowed during the call. All zero: as TensorFlow's Client(). */
struct muster_tpu_client_options {
    const char *tpu;     /* name, full resource name, "grpc://…" list or "local"; NULL or "": the
                         environment's */
    const char *project; /* NULL: that of the metadata server */
    const char *zone;    /* NULL: that of the metadata server */
    const char *discovery_url; /* of the API, with {api} and {apiVersion}; the variable
                                  TPU_API_DISCOVERY_URL wins; NULL: the fixed endpoint */
    const char *api_endpoint;  /* base URL; NULL: https://tpu.googleapis.com */
    const char *api_version;   /* NULL: "v1", with is_tf1 "v1alpha1" */
    const char *access_token;  /* NULL: Application Default Credentials */
    bool is_anonymous;         /* no credentials at all */
    bool is_tf1; /* tf.contrib: "", localhost: and /bns names are used as they are; a node that is
                        not HEALTHY is refused; a node without state is not */
    uint16_t version_port; /* of the workers' version service; 0: MUSTER_TPU_VERSION_PORT */
};

/**
 * A client. Nothing is asked yet.
 *
 * Owns:    gives; borrows env (http, files, vars, host, rng) until closed.
 * Errors:  INVALID_ARGUMENT: nothing names a TPU, or what does is malformed; those of
 *          muster_credentials_default_open.
 * Source:  cloud_tpu_client.Client
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_client_open(
    struct muster_env *env, const struct muster_tpu_client_options *options,
    struct muster_tpu_client **ret_client, struct muster_error *ret_error);
/** Open queries and waits end with CANCELLED, then closed (may be NULL) runs, then the client is
 * freed. */
MUSTER_API void muster_tpu_client_close(struct muster_tpu_client *client,
                                        muster_tpu_client_close_fn *closed);
MUSTER_API void muster_tpu_client_set_data(struct muster_tpu_client *client, void *data);
MUSTER_API void *muster_tpu_client_data(const struct muster_tpu_client *client);

/** The name as given, or as the environment gives it. Borrowed. */
MUSTER_API const char *muster_tpu_client_name(const struct muster_tpu_client *client);
/** "TPU_NAME": where the name comes from. Static. */
MUSTER_API const char *muster_tpu_client_source(const struct muster_tpu_client *client);
/** Is there an API to ask? Not for grpc:// addresses and local TPUs. */
MUSTER_API bool muster_tpu_client_has_api(const struct muster_tpu_client *client);
/** The TPU of this machine ("local"), or, for TF1, a name that is used as it is. */
MUSTER_API bool muster_tpu_client_is_local(const struct muster_tpu_client *client);

enum muster_tpu_what {
    MUSTER_TPU_RESOURCE_NAME,     /* text: "projects/P/locations/Z/nodes/N", or the name */
    MUSTER_TPU_NODE,              /* node; one without an API has endpoints and nothing else */
    MUSTER_TPU_RUNTIME_VERSION,   /* text, or NULL where no version is known */
    MUSTER_TPU_CONFIGURE_VERSION, /* set query->version on all workers */
    MUSTER_TPU_LOCAL_IP,          /* text: this machine's, of the metadata server */
};

/** One question. Caller's memory, borrowed from start to done. */
struct muster_tpu_query {
    void *data;
    /* set before start */
    enum muster_tpu_what what;
    uint64_t deadline_ns;      /* absolute loop time; required */
    const char *version;       /* CONFIGURE_VERSION: "2.9.1"; borrowed until done */
    bool is_watch;             /* NODE: the API may say that it is as the last such query had it */
    bool is_restart_if_needed; /* CONFIGURE_VERSION: restartType ifNeeded instead of always */
    /* valid in done */
    struct muster_tpu_node *node; /* NODE: gives a reference */
    char *text;                /* RESOURCE_NAME, RUNTIME_VERSION, LOCAL_IP: gives, from env->mem */
    struct muster_error error; /* names the TPU and the remedy */
    /* private */
    struct muster_tpu_client *client;
    muster_tpu_query_fn *done;
    struct muster_list node_in_client;
    struct muster_task task;
    enum muster_rc rc;
    bool is_cancelled;
    void *impl;
};

/**
 * Ask, each time anew.
 *
 * Errors:  returned FAILED_PRECONDITION (closed), RESOURCE_EXHAUSTED; by done NOT_FOUND (no such
 *          node; a version that is not on offer), FAILED_PRECONDITION (CONFIGURE_VERSION of a node
 *          that is not READY, or has no workers), PERMISSION_DENIED, UNAUTHENTICATED, UNAVAILABLE,
 *          INVALID_ARGUMENT, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED, CANCELLED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_query_start(struct muster_tpu_query *query,
                                                                   struct muster_tpu_client *client,
                                                                   muster_tpu_query_fn *done);
/** Idempotent; done still comes. */
MUSTER_API void muster_tpu_query_cancel(struct muster_tpu_query *query);

/** Wait until the node is HEALTHY. Caller's memory, borrowed from start to done. */
struct muster_tpu_wait {
    void *data;
    /* set before start */
    uint64_t timeout_ns;         /* 0: 1,200 s */
    uint64_t interval_ns;        /* between two looks; 0: 30 s */
    muster_tpu_wait_fn *on_wait; /* not healthy yet, the next look comes after interval_ns; may be
                                    NULL */
    /* valid in done */
    struct muster_error error;
    /* private */
    struct muster_tpu_client *client;
    muster_tpu_wait_fn *done;
    struct muster_list node;
    struct muster_tpu_query query;
    struct muster_timer timer;
    uint64_t started_ns;
    uint64_t waited_ns; /* what was slept, or would have been */
    uint32_t look_count;
    bool is_cancelled;
    bool is_asking;
};

/**
 * Look every interval, three times a round (TensorFlow asks for state and health once more for its
 * log), until health is HEALTHY.
 *
 * Errors:  returned FAILED_PRECONDITION (closed, or no API to ask); by done DEADLINE_EXCEEDED names the
 *          TPU, its state and health; CANCELLED; those of a query.
 * Source:  cloud_tpu_client.Client.wait_for_healthy
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_wait_start(struct muster_tpu_wait *wait,
                                                                  struct muster_tpu_client *client,
                                                                  muster_tpu_wait_fn *done);
/** Look now instead of after the interval, which counts as waited. */
MUSTER_API void muster_tpu_wait_look_now(struct muster_tpu_wait *wait);
MUSTER_API void muster_tpu_wait_cancel(struct muster_tpu_wait *wait);

/* The workers of a Cloud TPU as tasks (TensorFlow's TPUClusterResolver). */

#define MUSTER_TPU_JOB "worker"

/** Starts a server for job `coordinator_name` in this process. *ret_port: where it listens. */
typedef enum muster_rc muster_tpu_start_server_fn(void *data, uint16_t *ret_port,
                                                  struct muster_error *ret_error);

/** Everything is borrowed during the call. All zero: as TensorFlow's TPUClusterResolver(). */
struct muster_tpu_resolver_options {
    struct muster_resolver_options
        common; /* task_type, here or set later, is the job of the workers,
                                              unless it names the coordinator; NULL: job_name;
                                              has_task_id false: task 0 */
    struct muster_tpu_client_options client;
    const char *job_name;            /* NULL: MUSTER_TPU_JOB; the contrib form calls it so too */
    const char *coordinator_name;    /* NULL: no such job */
    const char *coordinator_address; /* NULL: start_server, at this machine's address */
    muster_tpu_start_server_fn *start_server; /* called once, by the first question that needs it */
    void *start_server_data;
};

/**
 * The workers of a node that is READY, by the API, by grpc:// addresses, or by the environment.
 * "local" is the TPU of this machine: an empty cluster. Master URLs are always grpc://.
 *
 * NUM_ACCELERATORS is the number of TPU cores of each host: of common.list_devices, or of the
 * workers themselves (tensorflow.WorkerService.GetStatus).
 *
 * Owns:    gives; borrows env (http, net, files, vars, host, rng) until closed.
 * Errors:  returned as muster_tpu_client_open, and INVALID_ARGUMENT: a coordinator without address
 *          and without start_server. Questions: FAILED_PRECONDITION: not READY, hosts with
 *          different numbers of cores; UNAVAILABLE: no worker answers; those of a query.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_resolver_open(
    struct muster_env *env, const struct muster_tpu_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

/** Another resolver of the same options; the started server is shared. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_resolver_copy(
    struct muster_resolver *resolver, struct muster_resolver **ret_resolver,
    struct muster_error *ret_error);

/** Its client: state, health, version, waiting. Borrowed. */
MUSTER_API struct muster_tpu_client *muster_tpu_resolver_client(struct muster_resolver *resolver);
/** "worker", or what the task type was set to. Borrowed. */
MUSTER_API const char *muster_tpu_resolver_job_name(const struct muster_resolver *resolver);
/** "/job:worker/task:0", cut to bytes. Returns ret_text. */
MUSTER_API char *muster_tpu_resolver_leader(const struct muster_resolver *resolver, size_t bytes,
                                            char *ret_text);

/* The TPU VMs of a slice as tasks: Google's variables, or the metadata server (as JAX finds them). */

#define MUSTER_TPU_VM_PORT             8470
#define MUSTER_TPU_VM_COORDINATOR_PORT 8482 /* of several slices, as JAX has it */

/** Everything is borrowed during the call. */
struct muster_tpu_vm_resolver_options {
    struct muster_resolver_options common; /* task_type NULL: "worker"; rpc_layer NULL: "grpc",
                                              "": none */
    uint16_t port; /* of every worker; 0: 8470. Of several on one host the second has port + 1 */
    uint16_t coordinator_port; /* 0: 8482 */
};

/**
 * The workers of this slice, by TPU_PROCESS_ADDRESSES or TPU_WORKER_HOSTNAMES, else by the metadata
 * server, unless TPU_SKIP_MDS_QUERY is set. Of several slices (MEGASCALE_NUM_SLICES) the tasks of
 * this one are at their places among all; the addresses of the others are not known.
 *
 * MASTER is task 0 of the slice; of several slices the coordinator's host with the coordinator's
 * port, not the one of MEGASCALE_COORDINATOR_ADDRESS, which belongs to the TPU runtime.
 * muster_resolver_task_id and _world_size tell what the variables say, or else the last answer of
 * the metadata server: nothing before the first question.
 *
 * Owns:    gives; borrows env (http, vars, rng) until closed.
 * Errors:  returned RESOURCE_EXHAUSTED. Questions: FAILED_PRECONDITION (a variable is missing),
 *          INVALID_ARGUMENT (one is malformed), NOT_FOUND (no TPU VM), and those of the metadata
 *          server: UNAVAILABLE, DEADLINE_EXCEEDED.
 * Source:  JAX, cloud_tpu_cluster.py
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_vm_resolver_open(
    struct muster_env *env, const struct muster_tpu_vm_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

/* Connecting to a Cloud TPU: find it, and wait until all of its workers are up. */

struct muster_tpu_connect;
typedef void muster_tpu_connect_fn(struct muster_tpu_connect *connect, enum muster_rc rc);

/** Caller's memory, borrowed from start to done. */
struct muster_tpu_connect {
    void *data;
    /* set before start */
    uint64_t deadline_ns; /* absolute loop time; required */
    /* valid in done with OK */
    struct muster_resolver *resolver;         /* gives: muster_resolver_close */
    struct muster_cluster_spec *cluster_spec; /* as it was then; gives a reference */
    struct muster_tpu_system system;          /* gives: muster_tpu_system_fini */
    /* valid in done without OK */
    struct muster_error error; /* names the TPU or the worker, and the remedy */
    /* private */
    void *impl;
};

/**
 * Open a resolver, ask it for the cluster, and ask all workers for their devices: those that are
 * not there yet again and again. The TPU is ready when every worker answers and all have the same
 * number of cores.
 *
 * TensorFlow goes on from here to run the graph operations ConfigureDistributedTPU and
 * WaitForDistributedTPU on the workers, which give the topology of the mesh. They need its graph
 * runtime; muster neither runs them nor calls the TPU initialised. A program that does has the
 * topology from there (muster/tpu.h).
 *
 * Devices that options->common.list_devices gives are taken as they are and nobody is asked; a
 * "local" TPU without it has no cores here.
 *
 * Owns:    borrows connect and env; options during the call.
 * Errors:  returned those of muster_tpu_resolver_open, in connect->error, too. By done those of its
 *          questions; FAILED_PRECONDITION: a worker without cores, or workers with different
 *          numbers of them; UNAVAILABLE: one that does not answer until the deadline; CANCELLED.
 * Order:   without OK the resolver is closed before done.
 * Thread:  loop only; done never runs inside this call.
 * Source:  TPUClusterResolver.connect; tpu_strategy_util.initialize_tpu_system
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_connect_start(
    struct muster_tpu_connect *connect, struct muster_env *env,
    const struct muster_tpu_resolver_options *options, muster_tpu_connect_fn *done);
/** Idempotent; done still comes, with CANCELLED unless it had already won. */
MUSTER_API void muster_tpu_connect_cancel(struct muster_tpu_connect *connect);

/* Which TPU core computes which logical core of which replica: an immutable, counted value. */

/** Read-only once made. */
struct muster_tpu_device_assignment {
    struct muster_tpu_topology *topology; /* shares */
    uint32_t num_replicas;
    uint32_t num_cores_per_replica;
    const struct muster_tpu_coordinates *cores; /* [replica][logical core] */
    /* private */
    struct muster_mem *mem;
    uint32_t ref_count;
};

/** How replicas follow each other in the mesh. */
enum muster_tpu_device_order {
    MUSTER_TPU_DEVICE_ORDER_AUTO, /* RING where it is possible, else MESH */
    MUSTER_TPU_DEVICE_ORDER_RING, /* neighbouring replicas sit next to each other */
    MUSTER_TPU_DEVICE_ORDER_MESH, /* core, x, y, z: the first varies fastest */
};

/** Options of a device assignment. A shape of all zeros stands for all ones. */
struct muster_tpu_device_assignment_options {
    struct muster_tpu_coordinates computation_shape; /* cores of one replica along each dimension */
    struct muster_tpu_coordinates computation_stride; /* their distance along each dimension */
    uint32_t num_replicas;                            /* 0: 1 */
    enum muster_tpu_device_order order;
};

/**
 * An assignment as given.
 *
 * Shape:   cores is [num_replicas][num_cores_per_replica].
 * Owns:    borrows cores during the call; shares topology; gives a reference.
 * Errors:  INVALID_ARGUMENT: no replica, no core, or a place without a device; RESOURCE_EXHAUSTED.
 * Source:  tf.tpu.experimental.DeviceAssignment
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_device_assignment_new(
    struct muster_mem *mem, struct muster_tpu_topology *topology,
    const struct muster_tpu_coordinates *cores, uint32_t num_replicas,
    uint32_t num_cores_per_replica, struct muster_tpu_device_assignment **ret_assignment,
    struct muster_error *ret_error);

/**
 * Lay num_replicas blocks of computation_shape cores into the mesh, as close to a cube as possible.
 *
 * A topology with missing devices is filled in task order; a stride is not possible there.
 * Owns:    shares topology; gives a reference.
 * Errors:  INVALID_ARGUMENT: a shape or stride below 1 or larger than the mesh, more replicas than
 *          fit, or an order that the mesh does not allow; RESOURCE_EXHAUSTED.
 * Source:  tf.tpu.experimental.DeviceAssignment.build
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_device_assignment_build(
    struct muster_mem *mem, struct muster_tpu_topology *topology,
    const struct muster_tpu_device_assignment_options *options,
    struct muster_tpu_device_assignment **ret_assignment, struct muster_error *ret_error);

/** Shares. */
MUSTER_API struct muster_tpu_device_assignment *muster_tpu_device_assignment_ref(
    struct muster_tpu_device_assignment *assignment);
/** NULL is accepted. */
MUSTER_API void muster_tpu_device_assignment_unref(struct muster_tpu_device_assignment *assignment);

/** Where a logical core of a replica sits. Borrowed; NULL when there is no such replica or core. */
MUSTER_API const struct muster_tpu_coordinates *muster_tpu_device_assignment_coordinates(
    const struct muster_tpu_device_assignment *assignment, uint32_t replica, uint32_t logical_core);

/** Ordinal, within its task, of the TPU device that computes a logical core. Errors: OUT_OF_RANGE:
 * no such replica or core. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_device_assignment_tpu_ordinal(
    const struct muster_tpu_device_assignment *assignment, uint32_t replica, uint32_t logical_core,
    uint32_t *ret_ordinal, struct muster_error *ret_error);

/** Name of the TPU device that computes a logical core, or of its host's CPU; see
 * muster_tpu_topology_device_name. Errors: OUT_OF_RANGE: no such replica or core, or no room. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_device_assignment_device_name(
    const struct muster_tpu_device_assignment *assignment, uint32_t replica, uint32_t logical_core,
    enum muster_tpu_device_kind kind, const char *job, size_t name_bytes, char *ret_name,
    struct muster_error *ret_error);

/**
 * The replicas whose logical core is computed by a task, in rising order.
 *
 * Owns:    writes at most capacity numbers to ret_replicas; *ret_count is how many there are.
 * Errors:  NOT_FOUND: none; OUT_OF_RANGE: more than capacity (nothing is written but *ret_count).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_device_assignment_lookup_replicas(
    const struct muster_tpu_device_assignment *assignment, uint32_t task, uint32_t logical_core,
    size_t capacity, uint32_t *ret_replicas, size_t *ret_count, struct muster_error *ret_error);

MUSTER_END

#endif
