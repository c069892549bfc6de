/* A wall clock that is set every three seconds: right, an hour ahead, right, an hour behind. The steady clock is left alone.
   All processes see the same, as the jumps follow the steady clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

typedef int (*clock_function)(clockid_t, struct timespec *);

static int real(clockid_t clock, struct timespec *now) {
    static clock_function next;
    if (!next) next = (clock_function)dlsym(RTLD_NEXT, "clock_gettime");
    return next(clock, now);
}

static time_t jump(void) {
    static const time_t jumps[] = {0, 3600, 0, -3600};
    struct timespec steady;
    real(CLOCK_MONOTONIC, &steady);
    return jumps[steady.tv_sec / 3 % 4];
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
