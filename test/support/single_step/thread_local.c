/* An extension that has thread-local storage: loading it makes the dynamic linker renew every thread's table of it. */
__thread long ringprof_thread_local[64] = {1};

long ringprof_touch(void) { return ringprof_thread_local[0]++; }

void NAME(void) { ringprof_touch(); }
