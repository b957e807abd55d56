/*
 * Preloaded: a thread that is started by one whose trap flag is set runs with the flag set as well, from the first
 * instruction of its start routine to the last.
 *
 * The C library starts threads with every signal blocked, and a trap that finds its signal blocked ends the process. So
 * the flag is off while a thread is being made, and set again on either side.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#define TRAP_FLAG 0x100UL

static unsigned long flags(void)
{
    unsigned long value;
    __asm__ volatile("pushfq\n\tpopq %0" : "=r"(value) : : "memory");
    return value;
}

static void set_trap_flag(int on)
{
    if (on)
        __asm__ volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" : : : "memory", "cc");
    else
        __asm__ volatile("pushfq\n\tandq $-0x101, (%%rsp)\n\tpopfq" : : : "memory", "cc");
}

struct begin {
    void *(*routine)(void *);
    void *argument;
};

static void *stepped(void *argument)
{
    struct begin begin = *(struct begin *)argument;
    void *value;

    free(argument);
    set_trap_flag(1);
    value = begin.routine(begin.argument);
    set_trap_flag(0);
    return value;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int stepping = (flags() & TRAP_FLAG) != 0;
    struct begin *begin;
    int error;

    set_trap_flag(0);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (!stepping)
        return real(thread, attributes, routine, argument);
    begin = malloc(sizeof *begin);
    if (!begin)
        abort();
    begin->routine = routine;
    begin->argument = argument;
    error = real(thread, attributes, stepped, begin);
    if (error)
        free(begin);
    set_trap_flag(1);
    return error;
}
