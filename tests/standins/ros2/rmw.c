// SPDX-License-Identifier: Apache-2.0
/* A middleware within one process: a queue of numbers for each name, in the order in which they were published. */
#include "rmw.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ENTITIES = 4096, WAITING = 64 };

static const char *const identifier = "rmw_standin";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue {
    rmw_entity_t entity;
    uint8_t id[16];
    uint64_t published, taken;
    int messages[WAITING];
} *queues[ENTITIES];
static unsigned made;

rmw_entity_t *standin_entity(const char *name)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < made; i++)
        if (!strcmp(queues[i]->entity.name, name)) {
            pthread_mutex_unlock(&lock);
            return &queues[i]->entity;
        }
    if (made == ENTITIES)
        abort();
    struct queue *q = calloc(1, sizeof *q);
    q->entity = (rmw_entity_t){identifier, q, strdup(name)};
    memcpy(q->id, "\x01\x0f\xaa", 3);
    memcpy(q->id + 12, &made, sizeof made);
    queues[made++] = q;
    pthread_mutex_unlock(&lock);
    return &q->entity;
}

int rmw_publish(const rmw_entity_t *publisher, const void *message, void *allocation)
{
    struct queue *q = publisher->data;
    (void)allocation;
    pthread_mutex_lock(&lock);
    if (q->published - q->taken == WAITING)
        abort();
    q->messages[q->published++ % WAITING] = *(const int *)message;
    pthread_mutex_unlock(&lock);
    return 0;
}

static uint64_t take(struct queue *q, int *message, bool *taken)
{
    uint64_t number = 0;
    pthread_mutex_lock(&lock);
    *taken = q->taken < q->published;
    if (*taken) {
        *message = q->messages[q->taken++ % WAITING];
        number = q->taken;
    }
    pthread_mutex_unlock(&lock);
    return number;
}

/* Those of the interface only go on in these, as with rmw_fastrtps_cpp and rmw_fastrtps_shared_cpp. */
int standin_take_with_info(const char *from, const rmw_entity_t *subscription, void *message, bool *taken,
                           rmw_message_info_t *info, void *allocation);
int standin_take_call(const char *from, const rmw_entity_t *service, rmw_service_info_t *header, void *call, bool *taken);

int rmw_take_with_info(const rmw_entity_t *subscription, void *message, bool *taken, rmw_message_info_t *info, void *allocation)
{
    return standin_take_with_info(identifier, subscription, message, taken, info, allocation);
}

int rmw_take_request(const rmw_entity_t *service, rmw_service_info_t *header, void *request, bool *taken)
{
    return standin_take_call(identifier, service, header, request, taken);
}

int rmw_take_response(const rmw_entity_t *client, rmw_service_info_t *header, void *response, bool *taken)
{
    return standin_take_call(identifier, client, header, response, taken);
}

int standin_take_with_info(const char *from, const rmw_entity_t *subscription, void *message, bool *taken,
                           rmw_message_info_t *info, void *allocation)
{
    struct queue *q = subscription->data;
    uint64_t number = take(q, message, taken);
    (void)allocation;
    *info = (rmw_message_info_t){.publication_sequence_number = number, .publisher_gid = {.implementation_identifier = from}};
    memcpy(info->publisher_gid.data, q->id, sizeof q->id);
    return 0;
}

int standin_take_call(const char *from, const rmw_entity_t *service, rmw_service_info_t *header, void *call, bool *taken)
{
    struct queue *q = service->data;
    uint64_t number = take(q, call, taken);
    (void)from;
    *header = (rmw_service_info_t){.request_id.sequence_number = number};
    memcpy(header->request_id.writer_guid, q->id, sizeof q->id);
    return 0;
}
