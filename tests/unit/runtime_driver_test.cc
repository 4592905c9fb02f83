// Who does the engine's work: its own thread, or one that waits.
#include "rueda/runtime/driver.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "rueda/base/unique_fd.h"

namespace rueda::runtime::driver_test {
namespace {

// Every turn moves something; after so many the operation is done.
class CountedWork final : public Work {
 public:
  explicit CountedWork(int turns_to_do) : left_(turns_to_do) {}

  bool turn() override {
    driven_by = std::this_thread::get_id();
    if (left_ > 0 && --left_ == 0) is_done.store(true);
    return true;
  }
  bool look_closely(const std::atomic<bool>&) override { return false; }
  [[nodiscard]] bool is_over() const override { return is_over_; }
  void ended() override { has_ended = true; }
  [[nodiscard]] Nanos next_event(Nanos now) const override { return now + kSecond; }
  [[nodiscard]] bool has_due_times(Nanos) const override { return false; }
  [[nodiscard]] bool is_quiet() const override { return true; }
  bool prepare_sleep() override { return true; }
  void wake_up() override {}

  void end() { is_over_ = true; }
  std::atomic<bool> is_done{false};
  std::atomic<bool> has_ended{false};
  std::thread::id driven_by;

 private:
  int left_;
  std::atomic<bool> is_over_{false};
};

// Nothing moves until the thread has looked often, and only looking makes it move.
class PolledWork final : public Work {
 public:
  bool turn() override {
    if (++looks == 2000) is_over_ = true;
    return false;
  }
  bool look_closely(const std::atomic<bool>&) override { return false; }
  [[nodiscard]] bool is_over() const override { return is_over_; }
  void ended() override {}
  [[nodiscard]] Nanos next_event(Nanos now) const override { return now + kSecond; }
  [[nodiscard]] bool has_due_times(Nanos) const override { return false; }
  [[nodiscard]] bool is_quiet() const override { return false; }
  [[nodiscard]] bool needs_polling() const override { return true; }
  bool prepare_sleep() override {
    ++sleeps;
    return false;
  }
  void wake_up() override {}

  std::atomic<int> looks{0}, sleeps{0};

 private:
  std::atomic<bool> is_over_{false};
};

class Driving : public testing::Test {
 protected:
  Driver::Options options() { return {.doorbell = doorbell_.get(), .wake_fds = {}, .affinity = {}}; }
  UniqueFd doorbell_{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
};

TEST_F(Driving, a_thread_that_waits_does_the_work_itself_until_its_operation_is_done) {
  CountedWork work(3);
  Driver driver(work, options());
  driver.help(work.is_done, std::nullopt);
  EXPECT_TRUE(work.is_done);
  EXPECT_EQ(work.driven_by, std::this_thread::get_id());
}

TEST_F(Driving, nobody_works_for_what_is_done_or_over) {
  CountedWork work(1);
  Driver driver(work, options());
  work.is_done = true;
  driver.help(work.is_done, std::nullopt);
  work.is_done = false;
  work.end();
  driver.help(work.is_done, std::nullopt);
  EXPECT_EQ(work.driven_by, std::thread::id());
}

TEST_F(Driving, its_own_thread_works_until_all_is_over_and_says_so_at_the_end) {
  CountedWork work(1000);
  Driver driver(work, options());
  ASSERT_TRUE(driver.start().is_ok());
  while (!work.is_done) std::this_thread::yield();
  work.end();
  driver.wake();
  driver.join();
  EXPECT_TRUE(work.has_ended);
}

TEST_F(Driving, work_that_needs_polling_is_looked_at_again_and_again_without_sleep) {
  PolledWork work;
  Driver driver(work, options());
  ASSERT_TRUE(driver.start().is_ok());
  driver.join();
  EXPECT_EQ(work.looks, 2000);
  EXPECT_EQ(work.sleeps, 0);
}

}  // namespace
}  // namespace rueda::runtime::driver_test
