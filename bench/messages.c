// SPDX-License-Identifier: Apache-2.0
/* A program that does no GPU work, and sends itself messages over TCP.
 *   message N         N messages, each sent and received          -> ns, messages */
#include "rounds.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { BYTES = 128 };

static int check(int result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(2);
    }
    return result;
}

static void connect_to_itself(int ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = check(socket(AF_INET, SOCK_STREAM, 0), "socket"), on = 1;

    check(bind(listener, (struct sockaddr *)&at, sizeof at), "bind");
    check(listen(listener, 1), "listen");
    check(getsockname(listener, (struct sockaddr *)&at, &size), "getsockname");
    ends[0] = check(socket(AF_INET, SOCK_STREAM, 0), "socket");
    check(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "setsockopt");
    check(connect(ends[0], (struct sockaddr *)&at, sizeof at), "connect");
    ends[1] = check(accept(listener, NULL, NULL), "accept");
}

int main(void)
{
    char bytes[BYTES] = {0};
    struct order order;
    int ends[2];

    connect_to_itself(ends);
    answer(0, 0);
    while (next_order(&order)) {
        uint64_t start = now_ns();
        for (uint64_t i = 0; i < order.a; i++) {
            check((int)send(ends[0], bytes, sizeof bytes, 0), "send");
            check((int)recv(ends[1], bytes, sizeof bytes, MSG_WAITALL), "recv");
        }
        answer(now_ns() - start, order.a);
    }
    return 0;
}
