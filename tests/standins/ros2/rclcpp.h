/* SPDX-License-Identifier: Apache-2.0
 * rclcpp as far as executors run callbacks: names and signatures of rclcpp/executor.hpp and any_executable.hpp. */
#ifndef STANDIN_RCLCPP_H
#define STANDIN_RCLCPP_H
#include "rmw.h"
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace rclcpp
{
class MessageEntity
{
  public:
    explicit MessageEntity(const std::string &name, std::function<void(int)> callback)
        : callback(std::move(callback)), handle{standin_entity(name.c_str())}
    {
    }
    virtual ~MessageEntity() = default;
    std::function<void(int)> callback;
    rcl_entity_t handle;
};

class SubscriptionBase : public MessageEntity
{
    using MessageEntity::MessageEntity;
};
class ServiceBase : public MessageEntity
{
    using MessageEntity::MessageEntity;
};
class ClientBase : public MessageEntity
{
    using MessageEntity::MessageEntity;
};

class TimerBase
{
  public:
    explicit TimerBase(std::function<void()> callback) : callback(std::move(callback)) {}
    virtual ~TimerBase() = default;
    virtual void execute_callback(const std::shared_ptr<void> &data);
    std::function<void()> callback;
};

class Waitable
{
  public:
    explicit Waitable(std::function<void()> callback) : callback(std::move(callback)) {}
    virtual ~Waitable() = default;
    virtual void execute(const std::shared_ptr<void> &data);
    std::function<void()> callback;
};

class CallbackGroup
{
  public:
    std::atomic_bool can_be_taken_from{true};
};

struct AnyExecutable {
    AnyExecutable();
    virtual ~AnyExecutable();
    std::shared_ptr<SubscriptionBase> subscription;
    std::shared_ptr<TimerBase> timer;
    std::shared_ptr<ServiceBase> service;
    std::shared_ptr<ClientBase> client;
    std::shared_ptr<Waitable> waitable;
    std::shared_ptr<CallbackGroup> callback_group;
    std::shared_ptr<void> node_base;
    std::shared_ptr<void> data;
};

class Executor
{
  public:
    virtual ~Executor() = default;
    void add(AnyExecutable due);
    /* Runs what is due until nothing is, through execute_any_executable(). */
    void spin_some();
    /* The same without it, as StaticSingleThreadedExecutor does. */
    void spin_some_static();

  protected:
    void execute_any_executable(AnyExecutable &any_exec);
    static void execute_subscription(std::shared_ptr<SubscriptionBase> subscription);
#ifdef BEFORE_JAZZY
    static void execute_timer(std::shared_ptr<TimerBase> timer);
#else
    static void execute_timer(std::shared_ptr<TimerBase> timer, const std::shared_ptr<void> &data_ptr);
#endif
    static void execute_service(std::shared_ptr<ServiceBase> service);
    static void execute_client(std::shared_ptr<ClientBase> client);

  private:
    bool next(AnyExecutable &any_exec);
    std::mutex lock_;
    std::deque<AnyExecutable> due_;
};
} // namespace rclcpp
#endif
