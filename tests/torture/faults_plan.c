/* Which call fails: the variables, the draw, the log. */
#include "faults.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <errno.h>

#define FRAMES_MAX 40
#define OTHERS_MAX 8

/* Where the code of a library lies that makes calls of its own, not for the program. */
struct fault_range {
    uintptr_t begin, end;
};

struct fault_plan {
    uint64_t seed, per_million, after, row, max;
    bool is_of_kind[FAULT_KINDS];
    char log[256];
    struct fault_range others[OTHERS_MAX];
    size_t other_count;
};

static struct fault_plan plan;
static atomic_bool is_armed;
static uint64_t identity, fork_count;
static atomic_uint_least64_t failure_count;
static atomic_uint thread_count;

static __thread struct {
    unsigned ordinal; /* of this thread, from 1 */
    uint64_t counts[FAULT_KINDS];
    unsigned pauses;
} here;

/* SplitMix64. */
static uint64_t mix_in(uint64_t sum, uint64_t value)
{
    sum += value + 0x9e3779b97f4a7c15u;
    sum = (sum ^ (sum >> 30)) * 0xbf58476d1ce4e5b9u;
    sum = (sum ^ (sum >> 27)) * 0x94d049bb133111ebu;
    return sum ^ (sum >> 31);
}

static uint64_t mix_in_text(uint64_t sum, const char *text)
{
    for (; text != NULL && *text != '\0'; text++)
        sum = mix_in(sum, (unsigned char)*text);
    return mix_in(sum, 0);
}

/* `name` is among the words that commas join. */
static bool has_word(const char *words, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = words; at != NULL && *at != '\0';) {
        size_t word = strcspn(at, ",");

        if (word == length && strncmp(at, name, length) == 0)
            return true;
        at += word + (at[word] == ',');
    }
    return false;
}

static uint64_t read_number(const char *variable, uint64_t fallback)
{
    const char *text = getenv(variable);

    return text != NULL ? strtoull(text, NULL, 10) : fallback;
}

/* Sanitizers look at what has happened; the loader of programs ends the process where it has no memory. */
static bool is_other(const struct dl_phdr_info *info)
{
    static const char *const sanitizers[] = {"/libasan.", "/libubsan.", "/liblsan.", "/libtsan."};

    for (size_t i = 0; i < sizeof(sanitizers) / sizeof(sanitizers[0]); i++)
        if (strstr(info->dlpi_name, sanitizers[i]) != NULL)
            return true;
    return info->dlpi_addr == getauxval(AT_BASE);
}

static int find_others(struct dl_phdr_info *info, size_t size, void *data)
{
    struct fault_range *range = &plan.others[plan.other_count];

    (void)size;
    (void)data;
    if (!is_other(info))
        return 0;
    range->begin = range->end = info->dlpi_addr;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t end = info->dlpi_addr + part->p_vaddr + part->p_memsz;

        if (part->p_type == PT_LOAD && end > range->end)
            range->end = end;
    }
    return ++plan.other_count == OTHERS_MAX;
}

static void read_plan(void)
{
    const char *kinds = getenv("FAULTS_KINDS"), *log = getenv("FAULTS_LOG");

    plan.seed = read_number("FAULTS_SEED", 0);
    plan.per_million = read_number("FAULTS_PER_MILLION", 0);
    plan.after = read_number("FAULTS_AFTER", 0);
    plan.row = read_number("FAULTS_ROW", 1);
    plan.max = read_number("FAULTS_MAX", UINT64_MAX);
    plan.is_of_kind[FAULT_MEMORY] = has_word(kinds, "memory");
    plan.is_of_kind[FAULT_CALL] = has_word(kinds, "calls");
    if (log != NULL && strlen(log) < sizeof(plan.log))
        strcpy(plan.log, log);
    (void)dl_iterate_phdr(find_others, NULL);
    identity = mix_in_text(plan.seed, program_invocation_short_name);
    identity = mix_in_text(identity, getenv("RANK"));
    identity = mix_in_text(identity, getenv("MUSTER_RESTART_COUNT"));
}

/* From here on the program's own code runs: what constructors of libraries do is not its work. */
static int (*real_main)(int, char **, char **);

static int main_with_faults(int argc, char **argv, char **envp)
{
    if (has_word(getenv("FAULTS_PROGRAMS"), program_invocation_short_name)) {
        void *frame;

        read_plan();
        (void)backtrace(&frame, 1); /* its library is loaded at the first call */
        atomic_store(&is_armed, true);
    }
    return real_main(argc, argv, envp);
}

typedef int start_fn(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                     void (*fini)(void), void (*rtld_fini)(void), void *stack_end);
start_fn __libc_start_main;

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    start_fn *start;

    *(void **)&start = dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = main;
    return start(main_with_faults, argc, argv, init, fini, rtld_fini, stack_end);
}

static void write_log(const char *name, uint64_t number, int failure)
{
    void *frames[FRAMES_MAX];
    char text[384];
    long fd;
    int length;

    if (plan.log[0] == '\0')
        return;
    (void)snprintf(text, sizeof(text), "%s.%d", plan.log, (int)getpid());
    fd = syscall(SYS_openat, AT_FDCWD, text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    length = snprintf(text, sizeof(text), "%s: %s %llu of thread %u: %s\n",
                      program_invocation_short_name, name, (unsigned long long)number, here.ordinal,
                      failure > 0 ? strerrorname_np(failure) : "one byte");
    (void)syscall(SYS_write, fd, text, length);
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MAX), (int)fd);
    (void)syscall(SYS_close, fd);
}

static bool is_for_program(const void *caller)
{
    for (size_t i = 0; i < plan.other_count; i++)
        if ((uintptr_t)caller >= plan.others[i].begin && (uintptr_t)caller < plan.others[i].end)
            return false;
    return true;
}

int faults_draw(enum fault_kind kind, const char *name, const void *caller, const int *failures,
                size_t count)
{
    uint64_t number, drawn;
    int errno_before = errno, failure;

    if (!atomic_load(&is_armed) || here.pauses != 0 || count == 0 || !plan.is_of_kind[kind] ||
        !is_for_program(caller))
        return 0;
    if (here.ordinal == 0)
        here.ordinal = atomic_fetch_add(&thread_count, 1) + 1;
    number = ++here.counts[kind];
    if (number <= plan.after || atomic_load(&failure_count) >= plan.max)
        return 0;
    drawn = mix_in(mix_in(identity, here.ordinal), kind);
    drawn = mix_in(drawn, (number - plan.after - 1) / plan.row);
    if (drawn % 1000000 >= plan.per_million)
        return 0;
    atomic_fetch_add(&failure_count, 1);
    failure = failures[mix_in(drawn, number) % count];
    faults_pause(true);
    write_log(name, number, failure);
    faults_pause(false);
    errno = errno_before;
    return failure;
}

void faults_pause(bool is_paused)
{
    here.pauses += is_paused ? 1u : -1u;
}

void faults_on_fork(bool is_child)
{
    fork_count++;
    if (!is_child)
        return;
    identity = mix_in(identity, fork_count);
    fork_count = 0;
    failure_count = 0;
    memset(here.counts, 0, sizeof(here.counts));
}
