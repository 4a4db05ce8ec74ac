//go:build ignore

// A library to preload: it shifts the wall clock of a program by the microseconds that a file holds, eight bytes in the machine's
// order. LAB_CLOCK names the file. It is mapped, so a write to it is a jump of the clock while the program runs. The monotonic
// clock stays, as it does when somebody sets a real clock.
//
// The clock is asked by a system call: the C library's own functions would have to be looked up, which allocates, and Redis's
// allocator asks for the time before it can serve.

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift; // null until the file is mapped

__attribute__((constructor)) static void map_shift(void) {
	const char *name = getenv("LAB_CLOCK");
	int fd = name ? open(name, O_RDONLY) : -1;
	void *at = fd < 0 ? MAP_FAILED : mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) _exit(111); // a program whose clock does not jump must not pass for one whose clock does
	close(fd);
	shift = at;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	long failed = syscall(SYS_clock_gettime, id, t);
	if (failed || !shift || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
	int64_t ns = t->tv_nsec + *shift % 1000000 * 1000;
	t->tv_sec += *shift / 1000000 + (ns >= 1000000000) - (ns < 0);
	t->tv_nsec = ns + (ns < 0) * 1000000000 - (ns >= 1000000000) * 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
	if (t) *t = now.tv_sec;
	return now.tv_sec;
}
