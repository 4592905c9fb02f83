// What processes say to the store, on its way from the store's thread to the loop of the launcher.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/base/unique_fd.h"
#include "rueda/membership/keys.h"

namespace rueda::launch {

class ReadyInbox {
 public:
  [[nodiscard]] int fd() const { return wake_.get(); }  // readable when something has come

  // Any thread.
  void on_set(std::string_view key, std::string_view value) {
    if (!key.starts_with(membership::kReadyPrefix)) return;
    Result<membership::Ready> ready =
        membership::decode_ready(std::as_bytes(std::span(value.data(), value.size())));
    if (!ready.is_ok() || key.substr(membership::kReadyPrefix.size()) != ready.value().uid) return;
    {
      const std::scoped_lock lock(mutex_);
      came_.push_back(std::move(ready).value());
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  }

  // The loop's thread.
  std::vector<membership::Ready> take() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof count);
    const std::scoped_lock lock(mutex_);
    return std::exchange(came_, {});
  }

 private:
  UniqueFd wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_;
  std::vector<membership::Ready> came_;
};

}  // namespace rueda::launch
