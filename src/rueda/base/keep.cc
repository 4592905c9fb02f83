#include "rueda/base/keep.h"

#include <mutex>
#include <utility>
#include <vector>

namespace rueda {

void keep_until_exit(std::shared_ptr<void> object) {
  static std::mutex mutex;
  // Never destroyed: at exit the memory may still be written.
  static std::vector<std::shared_ptr<void>>* const kept =
      std::make_unique<std::vector<std::shared_ptr<void>>>().release();
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(object));
}

}  // namespace rueda
