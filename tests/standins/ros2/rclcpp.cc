// SPDX-License-Identifier: Apache-2.0
/* Executors that run what they are given. */
#include "rclcpp.h"
#include <cstdio>
#include <stdexcept>

namespace rclcpp
{
AnyExecutable::AnyExecutable() = default;
AnyExecutable::~AnyExecutable() = default;

void TimerBase::execute_callback(const std::shared_ptr<void> &)
{
    callback();
    asm volatile(""); /* so that this frame stays */
}

void Waitable::execute(const std::shared_ptr<void> &)
{
    callback();
    asm volatile("");
}

/* Errors of taking are caught, those of the callback are not: take_and_do_error_handling() of rclcpp. */
static void take_and_do_error_handling(const char *what, const std::function<bool()> &take, const std::function<void()> &handle)
{
    bool taken = false;
    try {
        taken = take();
    } catch (const std::logic_error &e) {
        fprintf(stderr, "%s: %s\n", what, e.what());
    }
    if (taken)
        handle();
}

void Executor::add(AnyExecutable due)
{
    std::lock_guard<std::mutex> locked(lock_);
    due_.push_back(std::move(due));
}

bool Executor::next(AnyExecutable &any_exec)
{
    std::lock_guard<std::mutex> locked(lock_);
    if (due_.empty())
        return false;
    any_exec = std::move(due_.front());
    due_.pop_front();
    return true;
}

void Executor::spin_some()
{
    AnyExecutable any_exec;
    while (next(any_exec)) {
        execute_any_executable(any_exec);
        any_exec = AnyExecutable();
    }
}

void Executor::spin_some_static()
{
    AnyExecutable any_exec;
    while (next(any_exec)) {
        if (any_exec.subscription)
            execute_subscription(any_exec.subscription);
        if (any_exec.service)
            execute_service(any_exec.service);
        if (any_exec.client)
            execute_client(any_exec.client);
        any_exec = AnyExecutable();
    }
}

void Executor::execute_any_executable(AnyExecutable &any_exec)
{
#ifdef BEFORE_JAZZY
    if (any_exec.timer)
        execute_timer(any_exec.timer);
#else
    if (any_exec.timer)
        execute_timer(any_exec.timer, any_exec.data);
#endif
    if (any_exec.subscription)
        execute_subscription(any_exec.subscription);
    if (any_exec.service)
        execute_service(any_exec.service);
    if (any_exec.client)
        execute_client(any_exec.client);
    if (any_exec.waitable) {
        const std::shared_ptr<void> const_data = any_exec.data;
        any_exec.waitable->execute(const_data);
    }
    if (any_exec.callback_group)
        any_exec.callback_group->can_be_taken_from.store(true);
}

void Executor::execute_subscription(std::shared_ptr<SubscriptionBase> subscription)
{
    rmw_message_info_t info = {};
    int message = 0;
    take_and_do_error_handling(
        "taking a message", [&] { return rcl_take(&subscription->handle, &message, &info, nullptr) == RCL_RET_OK; },
        [&] { subscription->callback(message); });
}

#ifdef BEFORE_JAZZY
void Executor::execute_timer(std::shared_ptr<TimerBase> timer)
{
    static const std::shared_ptr<void> none;
    timer->execute_callback(none);
}
#else
void Executor::execute_timer(std::shared_ptr<TimerBase> timer, const std::shared_ptr<void> &data_ptr)
{
    timer->execute_callback(data_ptr);
}
#endif

void Executor::execute_service(std::shared_ptr<ServiceBase> service)
{
    rmw_request_id_t id = {};
    int request = 0;
    take_and_do_error_handling(
        "taking a request", [&] { return rcl_take_request(&service->handle, &id, &request) == RCL_RET_OK; },
        [&] { service->callback(request); });
}

void Executor::execute_client(std::shared_ptr<ClientBase> client)
{
    rmw_request_id_t id = {};
    int response = 0;
    take_and_do_error_handling(
        "taking a response", [&] { return rcl_take_response(&client->handle, &id, &response) == RCL_RET_OK; },
        [&] { client->callback(response); });
}
} // namespace rclcpp
