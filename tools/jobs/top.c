/* muster top: the jobs of a registry, live. On a terminal the page is drawn in place on the second
 * screen, so that what stood there comes back; elsewhere it is printed again and again. */
#include "jobs/status.h"

#include "common/command.h"
#include "jobs/jobs.h"
#include "common/output.h"

#include <muster/loop.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ROW(field) .offset = offsetof(struct status_settings, field)

/* xterm's control sequences, which all terminals of today know. */
#define SCREEN_BEGIN "\033[?1049h\033[?25l" /* the second screen; no cursor */
#define SCREEN_END   "\033[?25h\033[?1049l"
#define SCREEN_HOME  "\033[H"
#define LINE_CLEAR   "\033[K" /* line by line instead of all at once: nothing flickers */
#define BELOW_CLEAR  "\033[J"

static const struct muster_option rows[] = {
    STATUS_ROWS,
    {.name = "interval",
     ROW(interval_ns),
     .kind = MUSTER_OPTION_DURATION,
     .fallback = "1",
     .unit = "s",
     .min = JOBS_INTERVAL_MIN_NS,
     .help = "Time between two updates."},
    {.name = "count",
     ROW(count),
     .kind = MUSTER_OPTION_NUMBER,
     .fallback = "0",
     .help = "Exit after this many updates (0: never)."},
};

const struct muster_options top_options = {
    .command = "muster top",
    .usage = "[options]",
    .about = "Show the jobs of a registry live, as 'muster status' shows them once; q or Ctrl-C "
             "quits. Prints lines where standard output is not a terminal.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

struct top {
    struct status_settings settings;
    struct status_stand stand;
    struct muster_fd_watch signals, keys;
    struct termios before; /* of standard input */
    bool has_keys;         /* standard input is a terminal, read key by key */
    bool is_screen;        /* standard output is a terminal */
    bool is_entered;       /* the terminal shows the second screen */
    bool is_ending;
    bool is_drawn;             /* the screen shows the last look */
    struct muster_json *root;  /* the jobs of the last look; NULL: it failed */
    struct muster_error error; /* the reason then */
    char title[64];
};

/* --- The terminal */

static void screen_write(const char *text)
{
    fputs(text, stdout);
    (void)output_flush(); /* a terminal that is gone ends us with SIGHUP */
}

static void screen_enter(struct top *top)
{
    struct termios raw;

    if (top->has_keys && tcgetattr(STDIN_FILENO, &top->before) == 0) {
        raw = top->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    if (top->is_screen)
        screen_write(SCREEN_BEGIN);
    top->is_entered = true;
}

static void screen_leave(struct top *top)
{
    if (!top->is_entered)
        return;
    top->is_entered = false;
    if (top->is_screen)
        screen_write(SCREEN_END);
    if (top->has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &top->before);
}

/* --- Signals and keys */

/* Ctrl-Z: the shell's prompt must appear on the first screen, so the terminal is given back before
 * this process stops. SIGTSTP itself is blocked (it came by the signalfd), SIGSTOP cannot be. */
static void top_suspend(struct top *top)
{
    bool is_entered = top->is_entered;

    screen_leave(top);
    raise(SIGSTOP); /* and on from here with SIGCONT */
    if (is_entered)
        screen_enter(top);
    top->is_drawn = false;
}

static void on_signal(struct muster_fd_watch *watch, unsigned ready)
{
    struct top *top = watch->data;
    struct signalfd_siginfo info;

    (void)ready;
    if (read(watch->fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    if (info.ssi_signo == SIGWINCH) {
        top->is_drawn = false;
    } else if (info.ssi_signo == SIGTSTP) {
        top_suspend(top);
    } else {
        top->is_ending = true;
    }
}

static void on_key(struct muster_fd_watch *watch, unsigned ready)
{
    struct top *top = watch->data;
    char keys[64];
    ssize_t count = read(watch->fd, keys, sizeof(keys));

    (void)ready;
    if (count <= 0 && !(count < 0 && errno == EINTR))
        muster_fd_watch_update(watch, 0);
    for (ssize_t i = 0; i < count; i++)
        top->is_ending = top->is_ending || keys[i] == 'q' || keys[i] == 'Q';
}

static enum muster_rc watches_open(struct top *top)
{
    static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP};
    struct muster_loop *loop = top->stand.env->loop;
    enum muster_rc rc = MUSTER_OK;
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
        sigaddset(&set, handled[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    top->signals = (struct muster_fd_watch){.data = top,
                                            .on_ready = on_signal,
                                            .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
                                            .wanted = MUSTER_FD_READ};
    if (top->signals.fd < 0)
        return MUSTER_RESOURCE_EXHAUSTED;
    rc = muster_fd_watch_open(&top->signals, loop);
    top->keys = (struct muster_fd_watch){
        .data = top, .on_ready = on_key, .fd = STDIN_FILENO, .wanted = MUSTER_FD_READ};
    if (rc == MUSTER_OK && top->has_keys)
        rc = muster_fd_watch_open(&top->keys, loop);
    return rc;
}

static void watches_close(struct top *top)
{
    if (top->signals.fd < 0)
        return;
    muster_fd_watch_close(&top->signals);
    close(top->signals.fd);
    if (top->has_keys)
        muster_fd_watch_close(&top->keys);
}

/* --- Looks */

static char *clock_text(char text[16])
{
    time_t now = time(NULL);
    struct tm local;

    strftime(text, 16, "%H:%M:%S", localtime_r(&now, &local));
    return text;
}

static void draw_lines(const char *text, unsigned row_count)
{
    for (unsigned row = 0; *text != '\0' && row < row_count; row++) {
        size_t length = strcspn(text, "\n");

        printf("%s%s%.*s", row > 0 ? "\n" : "", LINE_CLEAR, (int)length, text);
        text += length + (text[length] == '\n');
    }
}

/* A line above the jobs, in the size that the terminal has now. */
static void top_draw(struct top *top)
{
    struct winsize size;
    char *page = NULL, *text = NULL;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = 24, .ws_col = 80}; /* a serial line does not know */
    if (top->root != NULL)
        page = jobs_format(top->root, size.ws_row > 3 ? size.ws_row - 2u : 1u, size.ws_col);
    if (asprintf(&text, "%.*s\n\n%s", (int)size.ws_col, top->title,
                 page != NULL ? page : top->error.text) >= 0) {
        fputs(SCREEN_HOME, stdout);
        draw_lines(text, size.ws_row);
        screen_write(BELOW_CLEAR);
        free(text);
    }
    free(page);
    top->is_drawn = true;
}

/* Once something was shown, a registry that does not answer is told, and tried again. */
static enum muster_rc top_look(struct top *top, bool is_first)
{
    char now[16];
    enum muster_rc rc;

    muster_json_free(top->root);
    top->root = NULL;
    rc = jobs_read(top->stand.jobs, &top->root, &top->error);
    if (rc != MUSTER_OK && is_first)
        return rc;
    snprintf(top->title, sizeof(top->title), "muster top  %s  q: quit", clock_text(now));
    top->is_drawn = false;
    if (top->is_screen)
        return MUSTER_OK;
    if (top->root == NULL)
        fprintf(stderr, "muster top: %s\n", top->error.text);
    else if (!status_print(&top->stand, top->root, top->settings.is_json))
        top->is_ending = true;
    return MUSTER_OK;
}

static void wait_until(struct top *top, uint64_t until_ns)
{
    struct muster_loop *loop = top->stand.env->loop;
    uint64_t now_ns = muster_loop_now_ns(loop);

    do {
        if (top->is_screen && !top->is_drawn)
            top_draw(top);
        muster_loop_turn(loop, now_ns < until_ns && !top->is_ending ? until_ns - now_ns : 0);
        now_ns = muster_loop_now_ns(loop);
    } while (!top->is_ending && now_ns < until_ns);
}

static int watch_jobs(struct top *top)
{
    struct muster_loop *loop = top->stand.env->loop;
    uint64_t due_ns = muster_loop_now_ns(loop);

    for (uint64_t looks = 1; !top->is_ending; looks++) {
        if (top_look(top, looks == 1) != MUSTER_OK)
            return command_fail("top", &top->error);
        if (looks == 1 && top->is_screen)
            screen_enter(top);
        due_ns += top->settings.interval_ns;
        if (looks == top->settings.count)
            break;
        wait_until(top, due_ns);
        if (due_ns < muster_loop_now_ns(loop))
            due_ns = muster_loop_now_ns(loop); /* a slow registry is not asked twice at once */
    }
    return output_flush() ? EXIT_OK : EXIT_OTHER;
}

static int top_run(struct top *top)
{
    int code = EXIT_OTHER;

    if (status_open(&top->settings, &top->stand, &top->error) != MUSTER_OK)
        code = command_fail("top", &top->error);
    else if (watches_open(top) != MUSTER_OK)
        fprintf(stderr, "muster top: cannot handle signals\n");
    else
        code = watch_jobs(top);
    return code;
}

int command_top(int argc, char **argv)
{
    struct top top = {.signals.fd = -1};
    int code = EXIT_OK;

    if (!command_parse_all(&top_options, argc, argv, &top.settings, &code) ||
        !status_check(&top_options, &top.settings, &code))
        return code;
    top.is_screen = !top.settings.is_json && isatty(STDOUT_FILENO) != 0;
    top.has_keys = top.is_screen && isatty(STDIN_FILENO) != 0;
    code = top_run(&top);
    screen_leave(&top);
    watches_close(&top);
    status_close(&top.stand);
    muster_json_free(top.root);
    return code;
}
