/* TPU cores counted by host, and the job that holds them (TensorFlow's TPUSystemMetadata). Device
 * names come from workers; all hosts of a TPU have the same number of cores, so different numbers
 * mean that some of them are not up yet. */
#include <muster/tpu.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_JOB     "tpu_worker"
#define COORDINATOR_JOB "coordinator"

/* "/job:J/replica:R/task:T/device:KIND:I"; parts that are missing count as nothing. */
struct tpu_device {
    const char *name;
    const char *job;
    size_t job_length;
    uint64_t replica;
    uint64_t task;
    const char *kind;
    size_t kind_length;
    uint64_t index;
};

/* A part that is missing, or no number, counts as 0. */
static uint64_t number_after(const char *name, const char *mark)
{
    const char *found = strstr(name, mark);

    return found != NULL ? strtoull(found + strlen(mark), NULL, 10) : 0;
}

static struct tpu_device read_device(const char *name)
{
    static const char job_mark[] = "/job:", device_mark[] = "/device:";
    const char *job = strstr(name, job_mark), *kind = strstr(name, device_mark);
    struct tpu_device device = {.name = name,
                                .job = "",
                                .replica = number_after(name, "/replica:"),
                                .task = number_after(name, "/task:"),
                                .kind = ""};

    if (job != NULL) {
        device.job = job + sizeof(job_mark) - 1;
        device.job_length = strcspn(device.job, "/");
    }
    if (kind != NULL) {
        device.kind = kind + sizeof(device_mark) - 1;
        device.kind_length = strcspn(device.kind, ":");
        if (device.kind[device.kind_length] == ':')
            device.index = strtoull(device.kind + device.kind_length + 1, NULL, 10);
    }
    return device;
}

static int compare_texts(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int order = memcmp(a, b, a_length < b_length ? a_length : b_length);

    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* By job, replica, task, kind, index: the devices of a host stand together after sorting. */
static int compare_devices(const void *a, const void *b)
{
    const struct tpu_device *x = a, *y = b;
    int order = compare_texts(x->job, x->job_length, y->job, y->job_length);

    if (order == 0)
        order = compare_numbers(x->replica, y->replica);
    if (order == 0)
        order = compare_numbers(x->task, y->task);
    if (order == 0)
        order = compare_texts(x->kind, x->kind_length, y->kind, y->kind_length);
    if (order == 0)
        order = compare_numbers(x->index, y->index);
    return order;
}

static bool is_core(const struct tpu_device *device)
{
    return device->kind_length == 3 && memcmp(device->kind, "TPU", 3) == 0;
}

static bool is_same_host(const struct tpu_device *a, const struct tpu_device *b)
{
    return compare_texts(a->job, a->job_length, b->job, b->job_length) == 0 &&
           a->replica == b->replica && a->task == b->task;
}

/* devices are sorted: those of a host stand together. */
static enum muster_rc count_cores(const struct tpu_device *devices, size_t count,
                                  struct muster_tpu_system *system, struct muster_error *ret_error)
{
    const struct tpu_device *first = NULL;
    uint32_t cores = 0;

    for (size_t i = 0; i < count; i++) {
        bool is_last_of_host = i + 1 == count || !is_same_host(&devices[i], &devices[i + 1]);

        cores += is_core(&devices[i]);
        if (!is_last_of_host || cores == 0)
            continue;
        if (system->num_hosts > 0 && cores != system->num_of_cores_per_host)
            return muster_error_set(
                ret_error, MUSTER_FAILED_PRECONDITION,
                "TPU hosts have different numbers of cores: task %" PRIu64 " has %" PRIu32
                ", task %" PRIu64 " has %" PRIu32 "; wait until all of them are up",
                first->task, system->num_of_cores_per_host, devices[i].task, cores);
        if (system->num_hosts == 0)
            first = &devices[i];
        system->num_hosts++;
        system->num_of_cores_per_host = cores;
        system->num_cores += cores;
        cores = 0;
    }
    return MUSTER_OK;
}

static enum muster_rc copy_names(struct muster_tpu_system *system, const struct tpu_device *devices,
                                 size_t count)
{
    for (size_t i = 0; i < count; i++) {
        system->devices[i] = muster_mem_strdup(system->mem, devices[i].name);
        if (system->devices[i] == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        system->device_count++;
    }
    return MUSTER_OK;
}

enum muster_rc muster_tpu_system_init(struct muster_tpu_system *ret_system, struct muster_mem *mem,
                                      const char *const *names, size_t count,
                                      struct muster_error *ret_error)
{
    struct muster_tpu_system system = {.mem = mem};
    struct tpu_device *devices = muster_mem_alloc_zero(mem, count, sizeof(*devices));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    system.devices = muster_mem_alloc_zero(mem, count, sizeof(system.devices[0]));
    if (devices != NULL && system.devices != NULL) {
        for (size_t i = 0; i < count; i++)
            devices[i] = read_device(names[i]);
        qsort(devices, count, sizeof(devices[0]), compare_devices);
        rc = copy_names(&system, devices, count);
    }
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "no memory for %zu devices", count);
    else
        rc = count_cores(devices, count, &system, ret_error);
    muster_mem_free(mem, devices);
    if (rc != MUSTER_OK) {
        muster_tpu_system_fini(&system);
        return rc;
    }
    *ret_system = system;
    return MUSTER_OK;
}

void muster_tpu_system_fini(struct muster_tpu_system *system)
{
    if (system->mem == NULL)
        return;
    for (size_t i = 0; i < system->device_count; i++)
        muster_mem_free(system->mem, system->devices[i]);
    muster_mem_free(system->mem, system->devices);
    *system = (struct muster_tpu_system){.mem = NULL};
}

/* TensorFlow's master_job: "tpu_worker" is its name for a TPU without a cluster, and is refused as
 * the name of a job for that reason. */
enum muster_rc muster_tpu_system_master_job(const char *master,
                                            const struct muster_cluster_spec *spec,
                                            const char **ret_job, struct muster_error *ret_error)
{
    size_t count = spec != NULL ? spec->job_count : 0;
    bool is_local = master[0] == '\0' || strcmp(master, "local") == 0;

    if (is_local || count == 0) {
        *ret_job = is_local ? NULL : DEFAULT_JOB;
        return MUSTER_OK;
    }
    if (muster_cluster_spec_job(spec, DEFAULT_JOB) != NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "job name '" DEFAULT_JOB "' is reserved; name the job otherwise");
    if (count > 2 || (count == 2 && muster_cluster_spec_job(spec, COORDINATOR_JOB) == NULL))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "which of %zu jobs holds the TPU? One job is needed, or one beside "
                                "'" COORDINATOR_JOB "'",
                                count);
    *ret_job = spec->jobs[0]->name;
    if (count == 2 && strcmp(*ret_job, COORDINATOR_JOB) == 0)
        *ret_job = spec->jobs[1]->name;
    return MUSTER_OK;
}
