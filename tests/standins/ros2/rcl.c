// SPDX-License-Identifier: Apache-2.0
/* What rcl does between an executor and the middleware. */
#include "rmw.h"

int rcl_take(const rcl_entity_t *subscription, void *message, rmw_message_info_t *info, void *allocation)
{
    rmw_message_info_t own, *told = info ? info : &own;
    bool taken = false;
    int result = rmw_take_with_info(subscription->rmw, message, &taken, told, allocation);
    if (result)
        return result;
    return taken ? RCL_RET_OK : RCL_RET_TAKE_FAILED;
}

int rcl_take_request_with_info(const rcl_entity_t *service, rmw_service_info_t *header, void *request)
{
    bool taken = false;
    int result = rmw_take_request(service->rmw, header, request, &taken);
    if (result)
        return result;
    return taken ? RCL_RET_OK : RCL_RET_TAKE_FAILED;
}

int rcl_take_request(const rcl_entity_t *service, rmw_request_id_t *id, void *request)
{
    rmw_service_info_t header = {.request_id = *id};
    int result = rcl_take_request_with_info(service, &header, request);
    *id = header.request_id;
    return result;
}

int rcl_take_response_with_info(const rcl_entity_t *client, rmw_service_info_t *header, void *response)
{
    bool taken = false;
    int result = rmw_take_response(client->rmw, header, response, &taken);
    if (result)
        return result;
    return taken ? RCL_RET_OK : RCL_RET_TAKE_FAILED;
}

int rcl_take_response(const rcl_entity_t *client, rmw_request_id_t *id, void *response)
{
    rmw_service_info_t header = {.request_id = *id};
    int result = rcl_take_response_with_info(client, &header, response);
    *id = header.request_id;
    return result;
}
