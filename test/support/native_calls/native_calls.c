/*
 * What a C extension does that knows nothing of profilers: one system call each, not repeated, with the GVL held.
 * And what only C can do: look at errno around a tick, replace a signal's action, stop at one store of the VM.
 *
 * Every call of NativeCalls returns :done, :timeout, or the name of the error.
 */
#include <ruby.h>
#include <ruby/debug.h>
#include <ruby/version.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* How long a call waits, or is kept waiting. */
#define WAIT_MS 30

static VALUE outcome(long result, long timed_out)
{
    if (result < 0)
        return ID2SYM(rb_intern(errno == EINTR ? "EINTR" : errno == EAGAIN ? "timeout" : strerrorname_np(errno)));
    return ID2SYM(rb_intern(result == timed_out ? "timeout" : "done"));
}

static struct timespec wait_time(void)
{
    return (struct timespec){.tv_nsec = WAIT_MS * 1000000L};
}

/* Another thread, which takes no signals, does something a little later. */
struct later {
    pthread_t thread;
    void (*act)(struct later *);
    int descriptor;
    sem_t *semaphore;
};

static void *act_later(void *argument)
{
    struct later *later = argument;
    struct timespec pause = wait_time();
    nanosleep(&pause, NULL);
    later->act(later);
    return NULL;
}

static void begin_later(struct later *later)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&later->thread, NULL, act_later, later) != 0)
        rb_sys_fail("pthread_create");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void write_byte(struct later *later)
{
    if (write(later->descriptor, "x", 1) != 1)
        abort();
}

/* What the other end of a full pipe or socket does. */
static void read_all(struct later *later)
{
    char buffer[65536];
    while (recv(later->descriptor, buffer, sizeof buffer, MSG_DONTWAIT) > 0)
        ;
}

static void post(struct later *later)
{
    sem_post(later->semaphore);
}

static void unlock(struct later *later)
{
    flock(later->descriptor, LOCK_UN);
}

static void accept_one(struct later *later)
{
    int accepted = accept(later->descriptor, NULL, NULL);
    if (accepted < 0)
        abort();
    close(accepted);
}

static void sockets(int pair[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        rb_sys_fail("socketpair");
}

static void close_pair(const int pair[2])
{
    int kept = errno;
    close(pair[0]);
    close(pair[1]);
    errno = kept;
}

static VALUE call_nanosleep(VALUE self)
{
    struct timespec pause = wait_time();
    return outcome(nanosleep(&pause, NULL), -2);
}

static VALUE call_clock_nanosleep(VALUE self)
{
    struct timespec pause = wait_time();
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    return outcome(errno ? -1 : 0, -2);
}

static VALUE call_usleep(VALUE self)
{
    return outcome(usleep(WAIT_MS * 1000), -2);
}

static VALUE call_poll(VALUE self)
{
    int pair[2];
    sockets(pair);
    struct pollfd one = {.fd = pair[0], .events = POLLIN};
    VALUE result = outcome(poll(&one, 1, WAIT_MS), 0);
    close_pair(pair);
    return result;
}

static VALUE call_select(VALUE self)
{
    int pair[2];
    sockets(pair);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pair[0], &set);
    struct timeval timeout = {.tv_usec = WAIT_MS * 1000};
    VALUE result = outcome(select(pair[0] + 1, &set, NULL, NULL, &timeout), 0);
    close_pair(pair);
    return result;
}

static VALUE call_epoll_wait(VALUE self)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;
    VALUE result = outcome(epoll_wait(epoll, &event, 1, WAIT_MS), 0);
    close(epoll);
    return result;
}

static VALUE call_sigtimedwait(VALUE self)
{
    sigset_t set;
    struct timespec timeout = wait_time();
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 5);
    return outcome(sigtimedwait(&set, NULL, &timeout), -2);
}

static VALUE call_semtimedop(VALUE self)
{
    int id = semget(IPC_PRIVATE, 1, 0600);
    if (id < 0)
        rb_sys_fail("semget");
    struct sembuf take = {.sem_op = -1};
    struct timespec timeout = wait_time();
    VALUE result = outcome(semtimedop(id, &take, 1, &timeout), -2);
    semctl(id, 0, IPC_RMID);
    return result;
}

static VALUE receive(int option)
{
    int pair[2];
    sockets(pair);
    char byte;
    struct timeval timeout = {.tv_usec = WAIT_MS * 1000};
    struct later later = {.act = write_byte, .descriptor = pair[1]};
    if (option)
        setsockopt(pair[0], SOL_SOCKET, option, &timeout, sizeof timeout);
    else
        begin_later(&later);
    VALUE result = outcome(recv(pair[0], &byte, 1, 0), -2);
    if (!option)
        pthread_join(later.thread, NULL);
    close_pair(pair);
    return result;
}

static VALUE call_recv_with_timeout(VALUE self)
{
    return receive(SO_RCVTIMEO);
}

static VALUE call_recv(VALUE self)
{
    return receive(0);
}

/* Sends more than fits. */
static VALUE transmit(int with_timeout)
{
    int pair[2];
    sockets(pair);
    char buffer[4096];
    memset(buffer, 'x', sizeof buffer);
    while (send(pair[0], buffer, sizeof buffer, MSG_DONTWAIT) > 0)
        ;
    struct timeval timeout = {.tv_usec = WAIT_MS * 1000};
    struct later later = {.act = read_all, .descriptor = pair[1]};
    if (with_timeout)
        setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    else
        begin_later(&later);
    VALUE result = outcome(send(pair[0], buffer, sizeof buffer, 0), -2);
    if (!with_timeout)
        pthread_join(later.thread, NULL);
    close_pair(pair);
    return result;
}

static VALUE call_send_with_timeout(VALUE self)
{
    return transmit(1);
}

static VALUE call_send(VALUE self)
{
    return transmit(0);
}

static VALUE call_read(VALUE self)
{
    int ends[2];
    char byte;
    if (pipe2(ends, O_CLOEXEC) != 0)
        rb_sys_fail("pipe2");
    struct later later = {.act = write_byte, .descriptor = ends[1]};
    begin_later(&later);
    VALUE result = outcome(read(ends[0], &byte, 1), -2);
    pthread_join(later.thread, NULL);
    close_pair(ends);
    return result;
}

/* A listener of the abstract namespace, with a queue of one that is full. */
static VALUE connect_to_a_full_queue(int with_timeout)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int waiting = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int last = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof address;
    /* The kernel chooses the name. */
    if (bind(listener, (struct sockaddr *)&address, sizeof(sa_family_t)) != 0 || listen(listener, 0) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
        connect(waiting, (struct sockaddr *)&address, length) != 0)
        rb_sys_fail("listen");
    struct timeval timeout = {.tv_usec = WAIT_MS * 1000};
    struct later later = {.act = accept_one, .descriptor = listener};
    if (with_timeout)
        setsockopt(last, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    else
        begin_later(&later);
    VALUE result = outcome(connect(last, (struct sockaddr *)&address, length), -2);
    if (!with_timeout)
        pthread_join(later.thread, NULL);
    close(listener);
    close(waiting);
    close(last);
    return result;
}

static VALUE call_connect_with_timeout(VALUE self)
{
    return connect_to_a_full_queue(1);
}

static VALUE call_connect(VALUE self)
{
    return connect_to_a_full_queue(0);
}

static VALUE call_flock(VALUE self)
{
    char path[] = "/tmp/native_calls_XXXXXX";
    int holder = mkostemp(path, O_CLOEXEC);
    int other = open(path, O_RDWR | O_CLOEXEC);
    unlink(path);
    if (holder < 0 || other < 0 || flock(holder, LOCK_EX) != 0)
        rb_sys_fail("flock");
    struct later later = {.act = unlock, .descriptor = holder};
    begin_later(&later);
    VALUE result = outcome(flock(other, LOCK_EX), -2);
    pthread_join(later.thread, NULL);
    close(holder);
    close(other);
    return result;
}

/* A futex. */
static VALUE call_sem_wait(VALUE self)
{
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    struct later later = {.act = post, .semaphore = &semaphore};
    begin_later(&later);
    VALUE result = outcome(sem_wait(&semaphore), -2);
    pthread_join(later.thread, NULL);
    sem_destroy(&semaphore);
    return result;
}

static VALUE call_waitpid(VALUE self)
{
    sigset_t all, before;
    /* A child that ends without a SIGCHLD, which would have the VM interrupt calls itself; and without atfork handlers. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (pid == 0) {
        struct timespec pause = wait_time();
        nanosleep(&pause, NULL);
        syscall(SYS_exit_group, 0);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return outcome(waitpid((pid_t)pid, NULL, __WALL), -2);
}

/* Sets errno, lets some time go by, and reads it back; how often it was another one then. */
static VALUE canary(VALUE self, VALUE rounds)
{
    long wrong = 0;
    for (long round = NUM2LONG(rounds); round > 0; round--) {
        errno = 7777;
        for (int spin = 0; spin < 200; spin++)
            __asm__ volatile("" ::: "memory");
        wrong += errno != 7777;
    }
    return LONG2NUM(wrong);
}

/* Spins in C for so many milliseconds of CPU time, without looking at interrupts. */
static VALUE spin(VALUE self, VALUE milliseconds)
{
    struct timespec began, now;
    long limit = NUM2LONG(milliseconds) * 1000000L;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
    do {
        for (int turn = 0; turn < 10000; turn++)
            __asm__ volatile("" ::: "memory");
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - began.tv_sec) * 1000000000L + now.tv_nsec - began.tv_nsec < limit);
    return Qnil;
}

/* Actions of signals. */

typedef void (*action_t)(int, siginfo_t *, void *);
static _Atomic(action_t) wrapped;
static atomic_long calls;

static void ill_behaved(int signal, siginfo_t *info, void *context)
{
    action_t next = atomic_load(&wrapped);
    if (next)
        next(signal, info, context);
    syscall(SYS_getppid);
    errno = EDOM;
    atomic_fetch_add(&calls, 1);
}

static struct sigaction action_of(int signal)
{
    struct sigaction action;
    if (sigaction(signal, NULL, &action) != 0)
        rb_sys_fail("sigaction");
    return action;
}

static void set_action(int signal, struct sigaction action)
{
    if (sigaction(signal, &action, NULL) != 0)
        rb_sys_fail("sigaction");
}

/* Puts a handler around the signal's that spoils errno and makes a system call. */
static VALUE spoil(VALUE self, VALUE signal)
{
    struct sigaction action = action_of(NUM2INT(signal));
    atomic_store(&wrapped, action.sa_sigaction);
    action.sa_sigaction = ill_behaved;
    set_action(NUM2INT(signal), action);
    return Qnil;
}

/* Replaces the signal's handler by one that does not know it. */
static VALUE seize(VALUE self, VALUE signal)
{
    struct sigaction action = {.sa_sigaction = ill_behaved, .sa_flags = SA_SIGINFO | SA_RESTART};
    atomic_store(&wrapped, NULL);
    set_action(NUM2INT(signal), action);
    return Qnil;
}

static VALUE is_seized(VALUE self, VALUE signal)
{
    return action_of(NUM2INT(signal)).sa_sigaction == ill_behaved ? Qtrue : Qfalse;
}

static VALUE count_calls(VALUE self)
{
    return LONG2NUM(atomic_load(&calls));
}

static VALUE change_flags(VALUE self, VALUE signal, VALUE remove)
{
    struct sigaction action = action_of(NUM2INT(signal));
    action.sa_flags &= ~NUM2INT(remove);
    set_action(NUM2INT(signal), action);
    return Qnil;
}

static VALUE is_blocked(VALUE self, VALUE signal)
{
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    return sigismember(&set, NUM2INT(signal)) ? Qtrue : Qfalse;
}

/* The VM's jobs. */

#if RUBY_API_VERSION_CODE < 30300
static long jobs_run;

static void count_job(void *unused)
{
    jobs_run++;
}

/* Registers so many jobs, and spins before the VM gets to run any; how many there was room for. */
static VALUE fill_jobs(VALUE self, VALUE count, VALUE milliseconds)
{
    long room = 0;
    for (long turn = 0; turn < NUM2LONG(count); turn++)
        room += rb_postponed_job_register(0, count_job, NULL) == 1;
    spin(self, milliseconds);
    return LONG2NUM(room);
}

static VALUE count_jobs_run(VALUE self)
{
    return LONG2NUM(jobs_run);
}
#endif

/* One store of the VM. */

#ifdef __x86_64__
#if RUBY_API_VERSION_CODE < 30200
#define THREAD_EC 40
#else
#define THREAD_EC 48
#endif
#if RUBY_API_VERSION_CODE < 30300
#define FRAME_SIZE 64
#else
#define FRAME_SIZE 56
#endif
#define EC_CFP 16
#define FRAME_EP 32
#define TRAP_FLAG 0x100

static volatile VALUE *watched;
static atomic_int met;

/*
 * After each instruction: was it the one that stores a heap pointer over the flags word of the watched environment?
 * Then the next tick is awaited. It is blocked here, so it is taken where this handler returns to: right after the store.
 */
static void on_trap(int signal, siginfo_t *info, void *context)
{
    int kept = errno;
    if (*watched & 1)
        return;
    sigset_t pending;
    struct timespec pause = {.tv_nsec = 1000000};
    for (int turn = 0; turn < 10000; turn++) {
        nanosleep(&pause, NULL);
        sigpending(&pending);
        if (sigismember(&pending, SIGPROF)) {
            atomic_store(&met, 1);
            break;
        }
    }
    nanosleep(&pause, NULL);
    nanosleep(&pause, NULL);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    errno = kept;
}

static inline void set_trap_flag(void)
{
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
}

static inline void clear_trap_flag(void)
{
    __asm__ volatile("pushfq; andq $-0x101, (%%rsp); popfq" ::: "memory", "cc");
}

/*
 * Yields, and has a tick of a running profile taken right after the instruction that begins the escape of the calling
 * method's environment. True if that happened.
 */
static VALUE tick_in_escape(VALUE self)
{
    char *thread = RTYPEDDATA_DATA(rb_thread_current());
    char *context = *(char **)(thread + THREAD_EC);
    char *frame = *(char **)(context + EC_CFP);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_ONSTACK}, before;
    sigfillset(&action.sa_mask);
    /* The first frame is this function's, the next its caller's. */
    watched = *(VALUE **)(frame + FRAME_SIZE + FRAME_EP);
    atomic_store(&met, 0);
    sigaction(SIGTRAP, &action, &before);
    set_trap_flag();
    rb_yield(Qnil);
    clear_trap_flag();
    sigaction(SIGTRAP, &before, NULL);
    return atomic_load(&met) ? Qtrue : Qfalse;
}
#endif

void Init_native_calls(void)
{
    VALUE module = rb_define_module("NativeCalls");
#define DEFINE(name, function, arity) rb_define_module_function(module, name, function, arity)
#define CALL(name) DEFINE(#name, call_##name, 0)
    CALL(nanosleep);
    CALL(clock_nanosleep);
    CALL(usleep);
    CALL(poll);
    CALL(select);
    CALL(epoll_wait);
    CALL(sigtimedwait);
    CALL(semtimedop);
    CALL(recv_with_timeout);
    CALL(recv);
    CALL(send_with_timeout);
    CALL(send);
    CALL(read);
    CALL(connect_with_timeout);
    CALL(connect);
    CALL(flock);
    CALL(sem_wait);
    CALL(waitpid);
    DEFINE("canary", canary, 1);
    DEFINE("spin", spin, 1);
    DEFINE("spoil", spoil, 1);
    DEFINE("seize", seize, 1);
    DEFINE("seized?", is_seized, 1);
    DEFINE("calls", count_calls, 0);
    DEFINE("change_flags", change_flags, 2);
    DEFINE("blocked?", is_blocked, 1);
    rb_define_const(module, "SA_RESTART", INT2NUM(SA_RESTART));
    rb_define_const(module, "SA_ONSTACK", INT2NUM(SA_ONSTACK));
#if RUBY_API_VERSION_CODE < 30300
    DEFINE("fill_jobs", fill_jobs, 2);
    DEFINE("jobs_run", count_jobs_run, 0);
#endif
#ifdef __x86_64__
    DEFINE("tick_in_escape", tick_in_escape, 0);
#endif
}
