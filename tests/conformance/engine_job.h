// Whole engines, one per thread, connected by real transports through a file store.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "rueda/runtime/bootstrap.h"
#include "rueda/runtime/engine.h"

namespace rueda::runtime {

namespace fs = std::filesystem;

class TempDir {
 public:
  TempDir() {
    std::string pattern = (fs::temp_directory_path() / "rueda-engine-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { fs::remove_all(path_); }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

using Env = std::map<std::string, std::string>;
using Body = std::function<void(Engine&, Rank)>;

// Runs body on size ranks, each a thread with an environment of its own.
class Job {
 public:
  // hosts: a letter for each rank, the name of its host; empty: all on one.
  Job(Rank size, std::string transports, std::string hosts = {})
      : size_(size),
        transports_(std::move(transports)),
        hosts_(std::move(hosts)),
        places_(static_cast<size_t>(size)) {
    const Status written = write_secret_file((dir_.path() / "secret").string(), make_secret().value());
    EXPECT_TRUE(written.is_ok()) << written.why;
  }

  Env env(Rank rank) const {
    const std::string hosts = hosts_.empty() ? std::string(static_cast<size_t>(size_), 'a') : hosts_;
    const auto me = static_cast<size_t>(rank);
    const auto before = std::count(hosts.begin(), hosts.begin() + rank, hosts[me]);
    return {{"RUEDA_RANK", std::to_string(rank)},
            {"RUEDA_SIZE", std::to_string(size_)},
            {"RUEDA_HOSTNAME", hosts.substr(me, 1)},
            {"RUEDA_LOCAL_RANK", std::to_string(before)},
            {"RUEDA_LOCAL_SIZE", std::to_string(std::ranges::count(hosts, hosts[me]))},
            {"RUEDA_JOB", "engine-test"},
            {"RUEDA_STORE", "file://" + (dir_.path() / "store").string()},
            {"RUEDA_SECRET_FILE", (dir_.path() / "secret").string()},
            {"RUEDA_TRANSPORTS", transports_}};
  }

  // Each rank keeps its place, as a process does.
  Result<Session> start(Rank rank, const Env& extra = {}, InitOptions options = {}) const {
    return start_at(places_[static_cast<size_t>(rank)], rank, extra, std::move(options));
  }
  // place: when that of rank 0 goes, ranks that are still in init take rank 0 for dead.
  Result<Session> start_at(RendezvousPoint& place, Rank rank, const Env& extra, InitOptions options) const {
    Env all = env(rank);
    for (const auto& [key, value] : extra) all[key] = value;
    return bootstrap(place, std::move(options), [&all](const char* name) -> const char* {
      const auto found = all.find(name);
      return found == all.end() ? nullptr : found->second.c_str();
    });
  }

  void run(const Body& body, const Env& extra = {}, const InitOptions& options = {}) const {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        Result<Session> session = start(rank, extra, options);
        ASSERT_TRUE(session.is_ok()) << session.status().to_string();
        const std::shared_ptr<Engine> started = Engine::start(std::move(session).value()).value();
        Engine& engine = *started;
        body(engine, rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  [[nodiscard]] Rank size() const { return size_; }
  [[nodiscard]] const fs::path& dir() const { return dir_.path(); }

 private:
  TempDir dir_;
  Rank size_;
  std::string transports_, hosts_;
  mutable std::vector<RendezvousPoint> places_;  // [rank]
};

inline Tensor make_tensor(Collective what, const std::string& name, std::vector<int64_t> shape, void* data) {
  Tensor tensor;
  tensor.request.what = what;
  tensor.request.name = name;
  tensor.request.shape = std::move(shape);
  tensor.input = data;
  if (what == Collective::kAllreduce || what == Collective::kBroadcast) tensor.output = data;
  return tensor;
}

inline int64_t must_submit(Engine& engine, Tensor tensor) {
  std::vector<Tensor> tensors;
  tensors.push_back(std::move(tensor));
  Result<int64_t> handle = engine.submissions().submit(std::move(tensors));
  EXPECT_TRUE(handle.is_ok()) << handle.status().why;
  return handle.is_ok() ? handle.value() : -1;
}

inline Status wait(Engine& engine, int64_t handle) {
  return engine.operations().wait(handle, Deadline::after(20 * kSecond));
}

// The status of the call if it is refused, else that of the operation.
inline Status run_one(Engine& engine, Tensor tensor) {
  std::vector<Tensor> tensors;
  tensors.push_back(std::move(tensor));
  const Result<int64_t> handle = engine.submissions().submit(std::move(tensors));
  return handle.is_ok() ? wait(engine, handle.value()) : handle.status();
}

inline std::vector<float> result_of(Engine& engine, int64_t handle) {
  const std::shared_ptr<Operation> operation = engine.operations().find(handle);
  const Tensor& tensor = operation->tensors.front();
  int64_t count = 1;
  for (const int64_t dim : tensor.result_shape) count *= dim;
  const auto* data = static_cast<const float*>(tensor.output);
  return {data, data + count};
}

}  // namespace rueda::runtime
