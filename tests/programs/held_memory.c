// What is it like to look into a process whose memory map is held for good? Nobody can read its command line, its
// environment or its mappings: a file system of its own keeps one of its threads waiting, and the map is locked meanwhile.
//
//   held_memory DIRECTORY     mounts a file system of one file on DIRECTORY, in a mount namespace of its own
//
// Prints "ready", waits for a byte on standard input, then holds its map until standard input ends. To be linked
// statically: who places a probe in a library waits for each process that has it mapped.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE 4096
#define FILE_NODE 2

static void must(int good, const char *what)
{
	if (good)
		return;
	printf("cannot: %s: %s\n", what, strerror(errno));
	fflush(stdout);
	_exit(77);
}

static void reply(int device, const struct fuse_in_header *to, int error, const void *body, size_t size)
{
	char message[256 + SIZE];
	struct fuse_out_header head = {.len = sizeof(head) + size, .error = error, .unique = to->unique};

	memcpy(message, &head, sizeof(head));
	memcpy(message + sizeof(head), body, size);
	if (write(device, message, head.len) < 0)
		return; // it was interrupted
}

static struct fuse_attr attributes(uint64_t node)
{
	return (struct fuse_attr){
		.ino = node,
		.size = SIZE,
		.mode = node == FILE_NODE ? S_IFREG | 0600 : S_IFDIR | 0700,
		.nlink = 1,
		.blksize = SIZE,
	};
}

// Answers everything but writes.
static void serve(int device)
{
	static char request[1 << 20], nothing[SIZE];

	for (;;) {
		const struct fuse_in_header *in = (void *)request;

		if (read(device, request, sizeof(request)) < 0) {
			if (errno == EINTR || errno == ENOENT)
				continue;
			_exit(0);
		}
		if (in->opcode == FUSE_INIT) {
			struct fuse_init_out out = {
				.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 1 << 16};

			reply(device, in, 0, &out, sizeof(out));
		} else if (in->opcode == FUSE_LOOKUP) {
			struct fuse_entry_out out = {
				.nodeid = FILE_NODE, .entry_valid = 1000, .attr_valid = 1000, .attr = attributes(FILE_NODE)};

			reply(device, in, 0, &out, sizeof(out));
		} else if (in->opcode == FUSE_GETATTR || in->opcode == FUSE_SETATTR) {
			struct fuse_attr_out out = {.attr_valid = 1000, .attr = attributes(in->nodeid)};

			reply(device, in, 0, &out, sizeof(out));
		} else if (in->opcode == FUSE_OPEN) {
			struct fuse_open_out out = {.fh = 1};

			reply(device, in, 0, &out, sizeof(out));
		} else if (in->opcode == FUSE_READ) {
			reply(device, in, 0, nothing, sizeof(nothing));
		} else if (in->opcode != FUSE_WRITE && in->opcode != FUSE_FORGET && in->opcode != FUSE_INTERRUPT) {
			reply(device, in, -ENOSYS, NULL, 0);
		}
	}
}

int main(int count, char **arguments)
{
	char options[100], path[4096], byte;
	int device, file, ended[2];
	char *page;

	must(count == 2 && !pipe(ended), "start");
	must(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL), "unshare");
	device = open("/dev/fuse", O_RDWR);
	must(device >= 0, "/dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40700,user_id=0,group_id=0", device);
	must(!mount("none", arguments[1], "fuse", 0, options), "mount");
	if (!fork()) {
		// Ends with the file system, and that with the other's input: whatever waits goes on then.
		if (!fork())
			serve(device);
		close(device);
		while (read(0, &byte, 1) > 0)
			if (write(ended[1], &byte, 1) < 0)
				break;
		kill(0, SIGKILL);
	}
	close(device);
	snprintf(path, sizeof(path), "%s/file", arguments[1]);
	file = open(path, O_RDWR);
	must(file >= 0, path);
	page = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	must(page != MAP_FAILED, "mmap");
	page[0] = 1;
	puts("ready");
	fflush(stdout);
	must(read(ended[0], &byte, 1) == 1, "input");
	// What was written has to be written back before the page can go.
	mmap(page, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	puts("went on");
	return 0;
}
