/* SPDX-License-Identifier: Apache-2.0
 * The middleware's interface and rcl's above it, as far as executors take messages by them (rmw/types.h, rcl/subscription.h). */
#ifndef STANDIN_RMW_H
#define STANDIN_RMW_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct rmw_gid_s {
    const char *implementation_identifier;
    uint8_t data[16];
} rmw_gid_t;

typedef struct rmw_message_info_s {
    int64_t source_timestamp, received_timestamp;
    uint64_t publication_sequence_number, reception_sequence_number;
    rmw_gid_t publisher_gid;
    bool from_intra_process;
} rmw_message_info_t;

typedef struct rmw_request_id_s {
    uint8_t writer_guid[16];
    int64_t sequence_number;
} rmw_request_id_t;

typedef struct rmw_service_info_s {
    int64_t source_timestamp, received_timestamp;
    rmw_request_id_t request_id;
} rmw_service_info_t;

/* Subscriptions, services, clients and publishers begin alike. */
typedef struct rmw_entity_s {
    const char *implementation_identifier;
    void *data;
    const char *name;
} rmw_entity_t;

typedef struct rcl_entity_s {
    rmw_entity_t *rmw;
} rcl_entity_t;

enum { RCL_RET_OK = 0, RCL_RET_TAKE_FAILED = 401 };

rmw_entity_t *standin_entity(const char *name);
int rmw_publish(const rmw_entity_t *publisher, const void *message, void *allocation);
int rmw_take_with_info(const rmw_entity_t *subscription, void *message, bool *taken, rmw_message_info_t *info, void *allocation);
int rmw_take_request(const rmw_entity_t *service, rmw_service_info_t *header, void *request, bool *taken);
int rmw_take_response(const rmw_entity_t *client, rmw_service_info_t *header, void *response, bool *taken);

int rcl_take(const rcl_entity_t *subscription, void *message, rmw_message_info_t *info, void *allocation);
int rcl_take_request(const rcl_entity_t *service, rmw_request_id_t *id, void *request);
int rcl_take_request_with_info(const rcl_entity_t *service, rmw_service_info_t *header, void *request);
int rcl_take_response(const rcl_entity_t *client, rmw_request_id_t *id, void *response);
int rcl_take_response_with_info(const rcl_entity_t *client, rmw_service_info_t *header, void *response);

#ifdef __cplusplus
}
#endif
#endif
