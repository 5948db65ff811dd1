/* The flight recorder's file. Whatever a dump does is safe in a handler of signals: it opens,
 * writes and renames, and puts all text together by itself. */
#include "runtime/system/recorder_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/system/file_limit_system.h"
#include "runtime/system/process_system.h"
#include "runtime/report/trace_text.h"
#include "runtime/value/assert.h"

#define SUFFIX        ".trace.jsonl"
#define NAME_BYTES    160 /* job, task and incarnation as cut in name_files, and the suffix */
#define RECORDERS_MAX 8 /* of a process at the same time that signals dump */
#define ERROR_BYTES   256

struct muster_recorder {
    struct muster_mem *mem;
    const struct muster_trace *trace;
    char folder[PATH_MAX - NAME_BYTES - 8];
    char path[PATH_MAX], part[PATH_MAX];
    char fixed[1024];  /* what the header says whenever it is written */
    char report[2048]; /* the line for the launcher, without its end */
    char error[ERROR_BYTES];
    uint32_t rank; /* UINT32_MAX: it has none */
    unsigned generation;
    const int *report_fd;
    _Atomic(struct muster_recorder *) *slot; /* NULL: signals do not dump it */
    unsigned number;     /* among those that the process has opened, from 1 */
    bool is_own_folder;  /* nobody has named it: it must be ours, and does not grow for ever */
    char scratch[16384]; /* a handler may run on a small stack */
};

/* --- one file --- */

static bool write_whole(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t put = write(fd, bytes, count);

        if (put == 0)
            errno = ENOSPC; /* nothing moves, and nobody says why */
        if (put == 0 || (put < 0 && errno != EINTR))
            return false;
        if (put > 0) {
            bytes += put;
            count -= (size_t)put;
        }
    }
    return true;
}

static uint64_t clock_read_ns(clockid_t clock)
{
    struct timespec now = {.tv_sec = 0};

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * MUSTER_NS_PER_S + (uint64_t)now.tv_nsec;
}

static bool write_header(struct muster_recorder *recorder, int fd, size_t count)
{
    struct muster_trace_text text = {.bytes = recorder->scratch, .room = sizeof(recorder->scratch)};

    muster_trace_text_add(&text, recorder->fixed);
    muster_trace_text_add(&text, ",\"rank\":");
    if (recorder->rank != UINT32_MAX)
        muster_trace_text_add_number(&text, recorder->rank);
    else
        muster_trace_text_add(&text, "null");
    muster_trace_text_add(&text, ",\"error\":");
    muster_trace_text_add_quoted(&text, recorder->error[0] != '\0' ? recorder->error : NULL);
    muster_trace_text_add(&text, ",\"clock\":{\"monotonic_ns\":");
    muster_trace_text_add_number(&text, clock_read_ns(CLOCK_MONOTONIC));
    muster_trace_text_add(&text, ",\"wall_ns\":");
    muster_trace_text_add_number(&text, clock_read_ns(CLOCK_REALTIME));
    muster_trace_text_add(&text, "},\"emitted\":");
    muster_trace_text_add_number(&text, muster_trace_emitted(recorder->trace));
    muster_trace_text_add(&text, ",\"events\":");
    muster_trace_text_add_number(&text, count);
    muster_trace_text_add(&text, "}\n");
    return write_whole(fd, text.bytes, text.length);
}

static bool write_events(struct muster_recorder *recorder, int fd, size_t count)
{
    char *bytes = recorder->scratch;
    size_t length = 0;

    for (size_t i = 0; i < count; i++) {
        if (length + MUSTER_TRACE_LINE_BYTES > sizeof(recorder->scratch)) {
            if (!write_whole(fd, bytes, length))
                return false;
            length = 0;
        }
        length += muster_trace_format(muster_trace_at(recorder->trace, i), bytes + length);
    }
    return write_whole(fd, bytes, length);
}

/* Any user may create our folder's name in /tmp first, and would then own the files in it. */
static bool check_folder(const struct muster_recorder *recorder)
{
    struct stat status;

    if (!recorder->is_own_folder)
        return true;
    if (lstat(recorder->folder, &status) != 0)
        return false;
    if (S_ISDIR(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & 0077) == 0)
        return true;
    errno = EPERM;
    return false;
}

static bool make_folder(const struct muster_recorder *recorder)
{
    if (mkdir(recorder->folder, recorder->is_own_folder ? 0700 : 0777) != 0 && errno != EEXIST)
        return false;
    return check_folder(recorder);
}

/* Returns 0, or the errno. The file is not synced: a process that dies would wait for the disk, and
 * the file is read on a machine that still runs. */
static int write_file_within_limit(struct muster_recorder *recorder)
{
    size_t count = muster_trace_count(recorder->trace);
    int fd, failure = 0;

    if (!make_folder(recorder))
        return errno;
    unlink(recorder->part); /* of a dump that was cut short */
    fd = open(recorder->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    if (!write_header(recorder, fd, count) || !write_events(recorder, fd, count))
        failure = errno;
    if (close(fd) != 0 && failure == 0)
        failure = errno;
    if (failure == 0 && rename(recorder->part, recorder->path) != 0)
        failure = errno;
    if (failure != 0)
        unlink(recorder->part);
    return failure;
}

/* A file beyond a limit of sizes is lost, and the program goes on, or ends by the signal that it has got. */
static int write_file(struct muster_recorder *recorder)
{
    bool was_blocked = muster_file_limit_block();
    int failure = write_file_within_limit(recorder);

    muster_file_limit_unblock(was_blocked);
    return failure;
}

/* One write below PIPE_BUF: it does not mix with another thread's. A launcher that does not read is
 * not waited for, in a handler of signals least of all: its file is in its place all the same. */
static void report_file(struct muster_recorder *recorder)
{
    struct muster_trace_text text = {.bytes = recorder->scratch, .room = PIPE_BUF};
    struct pollfd room = {.events = POLLOUT};

    if (recorder->report_fd == NULL || *recorder->report_fd < 0)
        return;
    room.fd = *recorder->report_fd;
    if (poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0)
        return;
    muster_trace_text_add(&text, recorder->report);
    muster_trace_text_add(&text, ",\"error\":");
    muster_trace_text_add_quoted(&text, recorder->error[0] != '\0' ? recorder->error : NULL);
    muster_trace_text_add(&text, "}\n");
    (void)write_whole(room.fd, text.bytes, text.length);
}

/* --- the newest files --- */

struct old_file {
    struct timespec time;
    char name[NAME_BYTES];
};

static bool is_trace_name(const char *name)
{
    size_t length = strlen(name), suffix = sizeof(SUFFIX) - 1;

    return length > suffix && length < NAME_BYTES && strcmp(name + length - suffix, SUFFIX) == 0;
}

static int compare_times(const struct timespec *a, const struct timespec *b)
{
    if (a->tv_sec != b->tv_sec)
        return a->tv_sec < b->tv_sec ? -1 : 1;
    return a->tv_nsec < b->tv_nsec ? -1 : a->tv_nsec > b->tv_nsec;
}

/* Removes the oldest while more than `kept` are there: one walk for each, which is rarely more than
 * one. */
static bool remove_oldest(const struct muster_recorder *recorder, size_t kept)
{
    DIR *folder = opendir(recorder->folder);
    struct old_file oldest = {.name = ""};
    struct dirent *entry;
    size_t count = 0;
    bool is_removed = false;

    if (folder == NULL)
        return false;
    while ((entry = readdir(folder)) != NULL) {
        struct stat status;

        if (!is_trace_name(entry->d_name) ||
            fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (count++ == 0 || compare_times(&status.st_mtim, &oldest.time) < 0) {
            oldest.time = status.st_mtim;
            memcpy(oldest.name, entry->d_name, strlen(entry->d_name) + 1);
        }
    }
    if (count > kept)
        is_removed = unlinkat(dirfd(folder), oldest.name, 0) == 0;
    closedir(folder);
    return is_removed;
}

static void remove_old_files(const struct muster_recorder *recorder, size_t kept)
{
    if (recorder->is_own_folder && check_folder(recorder))
        while (remove_oldest(recorder, kept))
            ;
}

/* --- signals --- */

static const int fatal_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT};
#define FATAL_COUNT (sizeof(fatal_signals) / sizeof(fatal_signals[0]))
#define CORE_COUNT  5u /* the first ones; the others end a process in order */

/* Threads that open recorders claim a slot by compare and exchange, and store NULL at close; the
 * handler of signals loads the slots. All of it is sequentially consistent, so that the handler
 * sees a recorder with its texts. It takes no lock, because the thread that it interrupts may hold
 * one. */
static _Atomic(struct muster_recorder *) recorders[RECORDERS_MAX];
/* Threads may open and close recorders of different strategies at the same time: the mutex guards
 * the two below it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_caught[FATAL_COUNT];
static unsigned open_count;
static atomic_uint opened_count; /* ever; only numbers the files, so it is not under the mutex */

static const char *signal_text(int signal)
{
    switch (signal) {
    case SIGSEGV:
        return "killed by SIGSEGV";
    case SIGBUS:
        return "killed by SIGBUS";
    case SIGFPE:
        return "killed by SIGFPE";
    case SIGILL:
        return "killed by SIGILL";
    case SIGABRT:
        return muster_assert_text() != NULL ? muster_assert_text() : "killed by SIGABRT";
    case SIGTERM:
        return "ended by SIGTERM";
    default:
        return "ended by SIGINT";
    }
}

static void set_error(struct muster_recorder *recorder, const char *error)
{
    struct muster_trace_text text = {.bytes = recorder->error, .room = ERROR_BYTES - 1};

    muster_trace_text_add(&text, error);
    recorder->error[text.length] = '\0';
}

/* A second thread that dies meanwhile waits for the first: its own default action would end the
 * process before the file is whole. After the handler the signal has its default action: a fault
 * comes again by itself, any other signal is raised again. */
static void on_fatal_signal(int signal, siginfo_t *info, void *context)
{
    static atomic_flag is_dumping = ATOMIC_FLAG_INIT;
    int saved = errno;

    (void)context;
    if (atomic_flag_test_and_set(&is_dumping))
        for (;;)
            pause();
    for (size_t i = 0; i < RECORDERS_MAX; i++) {
        struct muster_recorder *recorder = atomic_load(&recorders[i]);

        if (recorder == NULL || recorder->generation != muster_process_generation())
            continue; /* the parent's */
        if (recorder->error[0] == '\0' || (signal != SIGTERM && signal != SIGINT))
            set_error(recorder, signal_text(signal));
        if (write_file(recorder) == 0)
            report_file(recorder);
    }
    if (info->si_code <= 0 || signal == SIGABRT) /* kill, raise: nothing that comes again */
        raise(signal);
    errno = saved;
}

static bool is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) != 0 && action->sa_sigaction == on_fatal_signal;
}

/* A program that has a handler, a sanitizer, or faulthandler keeps its own. */
static void catch_signals(bool is_always)
{
    struct sigaction before, ours = {.sa_sigaction = on_fatal_signal,
                                     .sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND};

    sigemptyset(&ours.sa_mask);
    for (size_t i = 0; i < FATAL_COUNT; i++) {
        if ((i >= CORE_COUNT && !is_always) || sigaction(fatal_signals[i], NULL, &before) != 0)
            continue;
        if ((before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL)
            is_caught[i] = sigaction(fatal_signals[i], &ours, NULL) == 0;
    }
}

static void release_signals(void)
{
    struct sigaction now, usual = {.sa_handler = SIG_DFL};

    for (size_t i = 0; i < FATAL_COUNT; i++) {
        if (is_caught[i] && sigaction(fatal_signals[i], NULL, &now) == 0 && is_ours(&now))
            sigaction(fatal_signals[i], &usual, NULL);
        is_caught[i] = false;
    }
}

/* --- open, dump, close --- */

/* Anything else than letters, digits and -_. becomes _; a name cannot hide, and does not leave its
 * folder. */
static void add_name(struct muster_trace_text *name, const char *text, size_t length_max)
{
    for (size_t i = 0; text[i] != '\0' && i < length_max; i++) {
        unsigned char byte = (unsigned char)text[i];
        bool is_plain = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
                        (byte >= 'a' && byte <= 'z') || byte == '-' || byte == '_' ||
                        (byte == '.' && i > 0);

        muster_trace_text_add(name, (char[]){is_plain      ? (char)byte
                                             : byte == ':' ? '-'
                                                           : '_',
                                             '\0'});
    }
}

static bool name_files(struct muster_recorder *recorder,
                       const struct muster_recorder_options *options)
{
    const char *temporary =
        options->temporary != NULL && options->temporary[0] == '/' ? options->temporary : "/tmp";
    char bytes[NAME_BYTES] = "";
    struct muster_trace_text name = {.bytes = bytes, .room = sizeof(bytes) - sizeof(SUFFIX)};
    int length;

    recorder->is_own_folder = options->folder == NULL;
    length = options->folder != NULL
                 ? snprintf(recorder->folder, sizeof(recorder->folder), "%s", options->folder)
                 : snprintf(recorder->folder, sizeof(recorder->folder), "%s/muster-%u", temporary,
                            (unsigned)geteuid());
    if (length < 0 || (size_t)length >= sizeof(recorder->folder))
        return false;
    add_name(&name, options->job, 64);
    muster_trace_text_add(&name, "-");
    add_name(&name, options->task, 40);
    muster_trace_text_add(&name, "-");
    add_name(&name, options->incarnation, 8);
    if (recorder->number > 1) {
        snprintf(bytes + name.length, name.room - name.length, "-%u", recorder->number);
        name.length = strlen(bytes);
    }
    snprintf(recorder->path, sizeof(recorder->path), "%s/%.*s" SUFFIX, recorder->folder,
             (int)name.length, bytes);
    snprintf(recorder->part, sizeof(recorder->part), "%s/.%.*s.part", recorder->folder,
             (int)name.length, bytes);
    return true;
}

/* Texts that do not change are put together here, where there is time. False: no room. */
static bool compose_texts(struct muster_recorder *recorder,
                          const struct muster_recorder_options *options)
{
    struct muster_trace_text fixed = {.bytes = recorder->fixed, .room = sizeof(recorder->fixed)};
    struct muster_trace_text report = {.bytes = recorder->report, .room = sizeof(recorder->report)};
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    muster_trace_text_add(&fixed, "{\"muster_trace\":1,\"job\":");
    muster_trace_text_add_quoted(&fixed, options->job);
    muster_trace_text_add(&fixed, ",\"task\":");
    muster_trace_text_add_quoted(&fixed, options->task);
    muster_trace_text_add(&fixed, ",\"incarnation\":");
    muster_trace_text_add_quoted(&fixed, options->incarnation);
    muster_trace_text_add(&fixed, ",\"host\":");
    muster_trace_text_add_quoted(&fixed, host);
    muster_trace_text_add(&fixed, ",\"pid\":");
    muster_trace_text_add_number(&fixed, (uint64_t)getpid());
    muster_trace_text_add(&report, "{\"report\":\"trace\",\"file\":");
    muster_trace_text_add_quoted(&report, recorder->path);
    if (fixed.length == fixed.room || report.length == report.room)
        return false;
    recorder->fixed[fixed.length] = recorder->report[report.length] = '\0';
    return true;
}

/* After RECORDERS_MAX others a recorder still dumps when its member says so, but not at a
 * signal. */
static void recorder_publish(struct muster_recorder *recorder)
{
    for (size_t i = 0; i < RECORDERS_MAX; i++) {
        struct muster_recorder *none = NULL;

        if (atomic_compare_exchange_strong(&recorders[i], &none, recorder)) {
            recorder->slot = &recorders[i];
            return;
        }
    }
}

enum muster_rc muster_recorder_open(const struct muster_recorder_options *options,
                                    struct muster_recorder **ret_recorder)
{
    struct muster_recorder *recorder = muster_mem_alloc_zero(options->mem, 1, sizeof(*recorder));

    MUSTER_ASSERT(options->trace != NULL && options->job != NULL && options->task != NULL);
    if (recorder == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    recorder->number = atomic_fetch_add(&opened_count, 1) + 1;
    recorder->mem = options->mem;
    recorder->trace = options->trace;
    recorder->rank = UINT32_MAX;
    recorder->report_fd = options->report_fd;
    recorder->generation = muster_process_generation();
    if (!name_files(recorder, options) || !compose_texts(recorder, options)) {
        muster_mem_free(options->mem, recorder);
        return MUSTER_INVALID_ARGUMENT;
    }
    remove_old_files(recorder, MUSTER_RECORDER_FILES_MAX);
    recorder_publish(recorder);
    pthread_mutex_lock(&lock);
    open_count++;
    catch_signals(options->is_always);
    pthread_mutex_unlock(&lock);
    *ret_recorder = recorder;
    return MUSTER_OK;
}

void muster_recorder_close(struct muster_recorder *recorder)
{
    if (recorder == NULL)
        return;
    /* The slot goes first: a handler that runs meanwhile must not find a recorder that is freed. */
    if (recorder->slot != NULL)
        atomic_store(recorder->slot, NULL);
    pthread_mutex_lock(&lock);
    MUSTER_ASSERT(open_count > 0);
    if (--open_count == 0)
        release_signals();
    pthread_mutex_unlock(&lock);
    muster_mem_free(recorder->mem, recorder);
}

void muster_recorder_set_rank(struct muster_recorder *recorder, uint32_t rank)
{
    recorder->rank = rank;
}

enum muster_rc muster_recorder_dump(struct muster_recorder *recorder, const char *error)
{
    int failure;

    if (error != NULL)
        set_error(recorder, error);
    remove_old_files(recorder, MUSTER_RECORDER_FILES_MAX - 1); /* this one makes it the most */
    failure = write_file(recorder);
    errno = failure;
    if (failure != 0)
        return muster_rc_from_errno(failure);
    report_file(recorder);
    return MUSTER_OK;
}

const char *muster_recorder_path(const struct muster_recorder *recorder)
{
    return recorder->path;
}
