/*
 * LD_PRELOAD library: a handler of SIGPROF or of a real-time signal that calls the allocator or locks
 * a mutex ends the process with a message on stderr. At exit the number of handler runs is told there.
 *
 * sigaction is wrapped: the kernel gets a trampoline, which raises a flag of its thread around the
 * real handler; whoever asks for the action is told the real handler.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* glibc's own allocator, by the names that it keeps for interposers. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *at, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *at);

typedef void (*handler_t)(int, siginfo_t *, void *);
typedef int (*sigaction_t)(int, const struct sigaction *, struct sigaction *);
typedef int (*mutex_lock_t)(pthread_mutex_t *);

/* initial-exec: a general dynamic access could allocate, in the handler. */
static __thread int depth __attribute__((tls_model("initial-exec")));
static _Atomic(handler_t) handlers[NSIG];
static atomic_ulong runs;

static void say(const char *text)
{
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

static void check(const char *function)
{
    if (depth == 0)
        return;
    depth = 0;
    say("malloc_guard: ");
    say(function);
    say(" was called inside a signal handler\n");
    abort();
}

static void trampoline(int signal, siginfo_t *info, void *context)
{
    handler_t handler = atomic_load(&handlers[signal]);
    atomic_fetch_add(&runs, 1);
    depth++;
    handler(signal, info, context);
    depth--;
}

static int is_guarded(int signal)
{
    return signal == SIGPROF || (signal >= SIGRTMIN && signal <= SIGRTMAX);
}

int sigaction(int signal, const struct sigaction *restrict action, struct sigaction *restrict before)
{
    static _Atomic(sigaction_t) next;
    sigaction_t real = atomic_load(&next);
    if (real == NULL) {
        real = (sigaction_t)dlsym(RTLD_NEXT, "sigaction");
        atomic_store(&next, real);
    }
    if (!is_guarded(signal))
        return real(signal, action, before);

    handler_t handler_before = atomic_load(&handlers[signal]);
    struct sigaction guarded;
    if (action != NULL && (action->sa_flags & SA_SIGINFO)) {
        guarded = *action;
        guarded.sa_sigaction = trampoline;
        atomic_store(&handlers[signal], action->sa_sigaction);
        action = &guarded;
    }
    int status = real(signal, action, before);
    if (status != 0)
        atomic_store(&handlers[signal], handler_before);
    else if (before != NULL && before->sa_sigaction == trampoline)
        before->sa_sigaction = handler_before;
    return status;
}

void *malloc(size_t size)
{
    check("malloc");
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    check("calloc");
    return __libc_calloc(count, size);
}

void *realloc(void *at, size_t size)
{
    check("realloc");
    return __libc_realloc(at, size);
}

void *memalign(size_t alignment, size_t size)
{
    check("memalign");
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    check("aligned_alloc");
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **to, size_t alignment, size_t size)
{
    check("posix_memalign");
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    void *at = __libc_memalign(alignment, size);
    if (at == NULL)
        return ENOMEM;
    *to = at;
    return 0;
}

void free(void *at)
{
    check("free");
    __libc_free(at);
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static _Atomic(mutex_lock_t) next;
    mutex_lock_t real = atomic_load(&next);
    check("pthread_mutex_lock");
    if (real == NULL) {
        real = (mutex_lock_t)dlsym(RTLD_NEXT, "pthread_mutex_lock");
        atomic_store(&next, real);
    }
    return real(mutex);
}

__attribute__((destructor)) static void report(void)
{
    char line[64];
    snprintf(line, sizeof line, "malloc_guard: %lu handler runs\n", atomic_load(&runs));
    say(line);
}
